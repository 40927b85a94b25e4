"""The screen of pgqueue_stats --watch, without a process of its own: it fits, and gives the terminal back."""

import io
import os
import signal
import sys

import pytest
from django.db import connection

import tests.app.tasks as app
from django_pgqueue import enqueue_many, pause_queue
from django_pgqueue.cli import stats_watch
from django_pgqueue.cli.stats import snapshot
from django_pgqueue.cli.stats_watch import LEAVE, Screen, TerminalSize, view_in
from django_pgqueue.insights.formatting import width
from tests.support.stats_command import run, texts, told
from tests.support.waiting import beside, eventually
from tests.support.worker_rows import forget_others

pytestmark = pytest.mark.django_db(transaction=True)

MANY = 1000


def test_each_finding_is_told_on_one_line(sql):
    forget_others(sql)
    enqueue_many(app.noop.using(queue="a\x1b[1m\nb"), [()])
    headline, finding, free, *_ = run().splitlines()
    assert headline.endswith("No worker is alive. 1 finding:")
    assert finding == "error   no-workers: No worker is alive, and jobs wait in: a?[1m b."
    assert not free
    assert [one["name"] for one in told()["findings"]] == ["no-workers"]


def test_thousand_queues_are_told_in_bounded_time(sql):
    sql("INSERT INTO pgqueue_queues (name) SELECT 'q' || to_char(n, 'FM0000') FROM generate_series(1, %s) AS n", MANY)
    sql(
        "INSERT INTO pgqueue_stats (minute, queue, task, succeeded, wait_buckets) SELECT "
        "date_trunc('minute', now()) - make_interval(mins => m), 'q' || to_char(n, 'FM0000'), 't' || t, 7, '{1,2,4}' "
        "FROM generate_series(1, %s) AS n, generate_series(0, 5) AS m, generate_series(1, 3) AS t",
        MANY,
    )
    lines = run().splitlines()
    assert len(lines) >= MANY + 4
    glance = snapshot()
    assert len(glance.queues) == MANY
    shown = texts(view_in(TerminalSize(100, 30), glance))
    assert len(shown) == 30
    assert shown[-1] == f"… and {MANY - 25 + len(glance.findings):,} more queues"
    assert max(map(width, shown)) <= 100


@pytest.mark.parametrize("high", range(1, 12))
@pytest.mark.parametrize("wide", [1, 5, 20, 79])
def test_any_terminal_is_enough(wide, high, sql):
    enqueue_many(app.noop.using(queue="寿司"), [()])
    pause_queue("寿司", by="eve")
    lines = texts(view_in(TerminalSize(wide, high), snapshot()))
    assert len(lines) <= high
    assert all(width(line) <= wide for line in lines)


def test_what_is_typed_and_thrown_away_before_it_is_read_is_not_waited_for(monkeypatch):
    """The terminal discards it when Ctrl-C is pressed: the screen knows of a key, and there is none."""
    master, slave = os.openpty()
    with os.fdopen(slave, "r", closefd=False) as keys:
        monkeypatch.setattr("sys.stdin", keys)
        monkeypatch.setattr("sys.stdout", io.StringIO())
        with Screen() as screen:
            with beside(screen._quits):
                pass
            assert screen._keys is not None
            os.write(master, b"xq")
            eventually(screen._quits)
            os.close(master)
            assert screen._quits() is False
            assert screen._keys is None, "the terminal is gone"
    os.close(slave)


def test_error_of_its_own_gives_the_terminal_back_and_is_raised(monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {**connection.settings_dict["OPTIONS"]})  # it adds to them
    reading, writing = os.openpty()
    with open(writing, "w", closefd=False) as out:
        monkeypatch.setattr(sys, "stdout", out)

        def look():
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            stats_watch.watch(look, alias="default", seconds=1, title="t", has_colours=False)
    written = ""
    while not written.endswith(LEAVE):
        written += os.read(reading, 65536).decode()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    for end in (reading, writing):
        os.close(end)
