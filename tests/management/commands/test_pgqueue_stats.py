"""manage.py pgqueue_stats: queues that are asked for, names, colours, and words that cannot work."""

import re
import signal
import threading

import pytest
from django.core.management import CommandError
from django.db import OperationalError, connection

import tests.app.tasks as app
from django_pgqueue.management.commands import pgqueue_stats
from django_pgqueue.management.commands.pgqueue_stats import ended_by_ctrl_c, repeat
from django_pgqueue.models import Queue
from tests.support.stats_command import run, told

pytestmark = pytest.mark.django_db(transaction=True)


def test_chosen_queues_are_told_alone(sql):
    for name in ("a", "b", "c"):
        Queue.objects.create(name=name)
    assert [queue["name"] for queue in told("--queue", "c", "--queue", "a")["queues"]] == ["a", "c"]


def test_unknown_queue_is_told_by_name():
    with pytest.raises(CommandError, match=re.escape("No job has been seen on 'no\\x1bne'.")):
        run("--queue", "no\x1bne")


def test_nothing_to_see():
    assert run().splitlines()[-1] == "There are no queues yet."
    assert told()["queues"] == []


def test_names_do_nothing_to_the_terminal_and_wide_ones_keep_the_columns_straight():
    for name in ("plain", "寿司ツナ", "cafe\u0301", "red\x1b[31m", "turn\u202earound"):
        Queue.objects.create(name=name)
    *_, head, _, _, _, _, _ = lines = run().splitlines()
    shown = {line.split()[0]: len(line) - len(head) for line in lines[-5:]}
    assert shown == {"plain": 0, "寿司ツナ": -4, "cafe\u0301": 1, "red?[31m": 0, "turn?around": 0}
    text = run()
    assert not [character for character in text if not character.isprintable() and character != "\n"]
    assert "寿司ツナ" in text


def test_colours_are_only_where_they_are_wanted(sql):
    app.noop.enqueue_many([()])
    assert "\x1b[" not in run()
    assert "\x1b[1;31merror" in run("--force-color")
    assert "\x1b[" not in run("--no-color")


def test_reading_that_takes_too_long_is_stopped_and_says_what_helps(settings, queue):
    settings.PGQUEUE = {**settings.PGQUEUE, "READ_TIMEOUT_SECONDS": 0.2}
    with queue.autocommit().transaction():
        queue.autocommit().execute("LOCK TABLE pgqueue_jobs IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(CommandError, match=r"took longer than 0\.2 s and was stopped"):
            run()


class Ended(Exception):
    """Ends a repetition."""


@pytest.fixture
def told_by(monkeypatch, capsys):
    """Repeat these looks without a pause until one raises Ended; return what was told on standard error."""
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {**connection.settings_dict["OPTIONS"]})  # it adds to them
    monkeypatch.setattr(pgqueue_stats, "PATIENCE_SECONDS", 0.0)

    def begin(*looks):
        rest = iter(looks)
        with pytest.raises(Ended):
            repeat(lambda: next(rest)(), lambda _: None, alias="default", seconds=0)
        return capsys.readouterr().err.splitlines()

    return begin


def raising(error):
    def look():
        raise error

    return look


def test_each_new_reason_why_the_database_does_not_answer_is_told_once(told_by):
    away, full = raising(OperationalError("away\x1b")), raising(OperationalError("full"))
    said = told_by(away, away, full, lambda: None, full, raising(Ended))
    times, reasons = zip(*(line.split("  No answer, asked for again every 0 s: ") for line in said), strict=True)
    assert reasons == ("away?", "full", "full")
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d", time) for time in times)


def test_silent_server_is_given_up_and_asked_again(told_by, settings, queue):
    settings.PGQUEUE = {**settings.PGQUEUE, "READ_TIMEOUT_SECONDS": 0.2}

    def look():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(17)")

    with queue.transaction():
        queue.rows("SELECT pg_advisory_xact_lock(17)", {})
        [said] = told_by(look, raising(Ended))
    assert said.endswith("the server has not answered for 0.2 s")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--since", "59"], "it looks back 1m to 1d, not 59"),
        (["--since", "25h"], "it looks back 1m to 1d, not 25h"),
        (["--since", "long"], "'long' is no duration"),
        (["--watch", "0.5"], "the pause is 1s to 1h, not 0.5"),
        (["--database", "nowhere"], "'nowhere' is not in DATABASES"),
    ],
)
def test_words_that_cannot_work_are_told(words, message):
    with pytest.raises(CommandError, match=re.escape(message)):
        run(*words)


def test_ctrl_c_is_as_before_when_a_watch_has_ended():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit), ended_by_ctrl_c():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_watch_in_a_thread_or_where_ctrl_c_is_ignored_leaves_that_alone():
    def watch():
        with ended_by_ctrl_c():
            handlers.append(signal.getsignal(signal.SIGINT))

    handlers = []
    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=watch)
    thread.start()
    thread.join()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        watch()
    finally:
        signal.signal(signal.SIGINT, before)
    assert handlers == [before, signal.SIG_IGN]
