"""manage.py pgqueue_stats: queues that are asked for, names, colours, and words that cannot work."""

import json
import re
import signal
import threading
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection, connections

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
def own_options(monkeypatch):
    """Let a watch, which adds to the options of its connections, leave no trace."""
    for alias in ("default", "other"):
        found = connections[alias].settings_dict
        monkeypatch.setitem(found, "OPTIONS", {**found["OPTIONS"]})


@pytest.fixture
def told_by(own_options, monkeypatch, capsys):
    """Repeat these looks without a pause until one raises Ended; return what was told on standard error."""
    monkeypatch.setattr(pgqueue_stats, "PATIENCE_SECONDS", 0.0)

    def begin(*looks):
        rest = iter(looks)
        with pytest.raises(Ended):
            repeat(lambda _: next(rest)(), lambda *_: None, aliases=["default"], seconds=0)
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


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_each_database_is_told(shard):
    Queue.objects.create(name="here")
    Queue.objects.using(shard).create(name="there")
    both = run()
    assert re.findall("^On .*|^here|^there", both, re.MULTILINE) == ["On default:", "here", "On other:", "there"]
    objects = told()
    assert [one["database"] for one in objects] == ["default", shard]
    assert [queue["name"] for one in objects for queue in one["queues"]] == ["here", "there"]
    assert [queue["name"] for queue in told("--database", shard)["queues"]] == ["there"]


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_queue_is_known_where_one_database_knows_it(shard):
    Queue.objects.using(shard).create(name="there")
    assert "there" in run("--queue", "there")
    with pytest.raises(CommandError, match="No job has been seen on 'nowhere'"):
        run("--queue", "there,nowhere")


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_database_that_is_away_keeps_no_other_from_being_told(far, other_server):
    Queue.objects.create(name="here")
    other_server.stop()
    connections[far].close()
    out = StringIO()
    with pytest.raises(CommandError, match="Not on all databases of the queue: The database of alias") as raised:
        call_command("pgqueue_stats", stdout=out)
    assert raised.value.returncode == 2
    assert "\nhere" in out.getvalue()
    first, *_ = out.getvalue().splitlines()
    assert first.startswith("On other, no answer: The database of alias 'other' cannot be reached")
    with pytest.raises(CommandError, match="Not on all"):
        call_command("pgqueue_stats", "--json", stdout=(out := StringIO()))
    assert [one["database"] for one in json.loads(out.getvalue())] == ["default"]


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_watch_goes_on_with_databases_that_answer(own_options, capsys):
    shown, rounds = [], iter([OperationalError("away"), OperationalError("away"), None, Ended()])

    def look(alias):
        if alias == "other" and (error := next(rounds)):
            raise error
        return alias

    with pytest.raises(Ended):
        repeat(look, lambda *looks: shown.append(looks), aliases=["default", "other"], seconds=0)
    alone = {"default": "default"}, {"other": "away"}
    assert shown == [alone, alone, ({"default": "default", "other": "other"}, {})]
    [said] = capsys.readouterr().err.splitlines()
    assert said.endswith("  No answer from other, asked for again every 0 s: away")


@pytest.mark.parametrize(
    ("alias", "words"), [("nowhere", "'nowhere' is not in DATABASES"), ("lite", "The database 'lite' is sqlite")]
)
def test_watch_ends_at_once_where_the_settings_name_no_database_of_a_queue(own_options, settings, alias, words):
    settings.PGQUEUE = settings.PGQUEUE | {"SHARDS": {alias: {"number": 1}}}
    with pytest.raises(CommandError, match=words):
        run("--watch")


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_watch_prints_one_object_for_each_database(shard, own_options, monkeypatch):
    def end(seconds):
        raise Ended

    monkeypatch.setattr(pgqueue_stats.time, "sleep", end)
    out = StringIO()
    with pytest.raises(Ended):
        call_command("pgqueue_stats", "--json", "--watch", stdout=out)
    assert [json.loads(line)["database"] for line in out.getvalue().splitlines()] == ["default", shard]


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
