"""The table of pgqueue_stats: its columns, its findings, and what has room in a terminal."""

import re

import pytest

import tests.app.tasks as app
from django_pgqueue import queues
from django_pgqueue.cli.stats import snapshot
from django_pgqueue.cli.stats_table import Piece, Style, cut_to, painted, view
from django_pgqueue.insights.formatting import width
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.stats import BUCKETS
from django_pgqueue.models import Queue, Worker
from tests.support.stats_command import cells, count, run, texts, told, up_to_one_second
from tests.support.worker_rows import forget_others, worker

pytestmark = pytest.mark.django_db(transaction=True)

MANY = 1000


def test_table_tells_how_queues_stand_and_get_on(queue, sql):
    forget_others(sql)
    worker(concurrency=4)
    app.noop.enqueue_many([()] * 3)
    claim(queue, "default", limit=1, worker_id=Worker.objects.get().pk)
    count(sql, succeeded=594, failed=6, retried=4, died=2, wait_buckets=up_to_one_second(600))
    headline, *_, group, head, default = run().splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d  1 worker alive, 1 process, 1 of 4 slots busy\. All is well\.", headline)
    assert cells(group) == ["per minute", "wait", "run"]
    shown = dict(zip(cells(head)[:13], cells(default)[:13], strict=True))
    assert shown == {
        "queue": "default",
        "queued": "2",
        "running": "1",
        "dead": "0",
        "oldest": shown["oldest"],
        "workers": "1",
        "succeeded": shown["succeeded"],
        "failed": shown["failed"],
        "retried": shown["retried"],
        "died": shown["died"],
        "lost": "-",
        "stale": "-",
        "p50": "750ms",
    }
    assert 99.0 <= float(shown["succeeded"]) <= 119.0, "594 in five minutes and a part of one"
    assert 0.9 <= float(shown["failed"]) <= 1.3


def test_what_took_longer_than_the_last_bucket_is_only_known_to_be_longer(sql):
    Queue.objects.create(name="slow")
    count(sql, "slow", succeeded=1, run_buckets=[0] * (BUCKETS - 1) + [1])
    assert "4h+" in run()


def test_each_finding_is_told_on_one_line(sql):
    forget_others(sql)
    app.noop.using(queue="a\x1b[1m\nb").enqueue_many([()])
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
    assert len(view(glance)) == len(lines)


@pytest.mark.parametrize("high", range(1, 12))
@pytest.mark.parametrize("wide", [1, 5, 20, 79])
def test_any_terminal_is_enough(wide, high, sql):
    app.noop.using(queue="寿司").enqueue_many([()])
    queues.pause("寿司", by="eve")
    lines = texts(cut_to(view(snapshot()), wide=wide, high=high))
    assert len(lines) <= high
    assert all(width(line) <= wide for line in lines)


def test_terminal_of_80_columns_has_room_for_what_matters_most():
    app.noop.enqueue()
    *_, heads, row = texts(cut_to(view(snapshot()), wide=80, high=24))
    most = ["queue", "queued", "running", "dead", "oldest", "workers", "succeeded", "failed"]
    assert cells(heads)[: len(most)] == most
    assert cells(row)[0] == "default"


def test_lines_that_have_no_room_are_counted():
    lines = [[Piece(name)] for name in "abc"]
    assert texts(cut_to(lines, wide=80, high=3)) == ["a", "b", "c"]
    assert texts(cut_to(lines, wide=80, high=2)) == ["a", "… and 2 more lines"]


def test_line_of_pieces_is_cut_by_its_width():
    line = [Piece("寿司", Style.BAD), Piece("abcdef")]
    [cut] = cut_to([line], wide=7, high=1)
    assert painted(cut, has_colours=False) == "寿司abc"
