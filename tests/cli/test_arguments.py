"""Options of commands: values and their errors, the job that pgqueue_jobs enqueues, and the wait for a database."""

import argparse
import datetime as dt
import io
import json
from collections.abc import Iterator

import pytest
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection, connections
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue.cli import arguments
from django_pgqueue.cli.arguments import await_database, check_database, on_each, patient_with, rate_or_none
from django_pgqueue.flow.queue_limits import rate_of
from django_pgqueue.insights import formatting
from django_pgqueue.models import Job
from tests.support.jobs_command import ids_of, jobs, refused
from tests.support.proxy import Detour
from tests.support.retention import run
from tests.support.schedules_command import schedule
from tests.support.waiting import PATIENCE_SECONDS, beside, eventually
from tests.support.workers import until_alone

pytestmark = pytest.mark.django_db


def test_enqueue_prints_the_id_and_takes_arguments_and_options():
    printed = jobs(
        *("enqueue", "tests.app.tasks.record", "--args", '["ü"]', "--queue", "mail", "--priority", "-7"),
        *("--max-attempts", "2", "--timeout", "90s", "--delay", "2h", "--metadata", '{"by": "cron"}'),
        *("--tag", "import", "--tag", "shop:7"),
    )
    job = Job.objects.get()
    assert printed == f"{job.pk}\n"
    assert (job.args, job.queue, job.priority, job.max_attempts, job.timeout_seconds) == (["ü"], "mail", -7, 2, 90)
    assert (job.metadata, job.tags, job.status) == ({"by": "cron"}, ["import", "shop:7"], "scheduled")
    assert dt.timedelta(hours=1) < job.run_at - timezone.now() <= dt.timedelta(hours=2)


def test_enqueue_takes_arguments_by_name_and_a_time_in_the_zone_of_the_settings():
    jobs("enqueue", "tests.app.tasks.record", "--kwargs", '{"label": "a"}', "--run-at", "2031-05-01T09:00")
    job = Job.objects.get()
    assert (job.kwargs, job.run_at) == ({"label": "a"}, dt.datetime(2031, 5, 1, 7, tzinfo=dt.UTC))


def test_enqueue_prints_the_id_of_the_conflict_and_says_so():
    words = ("enqueue", "tests.app.tasks.noop", "--unique-key", "k", "--unique-hold", "1h", "--expires", "1d")
    first, errors = jobs(*words), io.StringIO()
    assert jobs(*words, stderr=errors) == first
    assert errors.getvalue() == "This job had the unique key already.\n"
    job = Job.objects.get()
    assert (job.unique_key, job.unique_hold_seconds) == ("k", 3600)


def test_enqueue_tells_the_id_and_whether_the_job_is_new_as_json():
    first, second = (
        json.loads(jobs("enqueue", "tests.app.tasks.noop", "--unique-key", "k", "--json")) for _ in range(2)
    )
    assert first == {"id": Job.objects.get().pk, "created": True}
    assert second == {**first, "created": False}


def test_enqueue_takes_concurrency_and_fair_keys():
    jobs("enqueue", "tests.app.tasks.noop", "--limit-key", "k", "--limit-running", "3", "--fair-key", "f")
    job = Job.objects.get()
    assert (job.concurrency_key, job.concurrency_limit, job.fair_key, job.status) == ("k", 3, "f", "limited")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["tests.app.tasks.recor"], "No task is called 'tests.app.tasks.recor'. Did you mean 'tests.app.tasks.record'"),
        (["tests.app.tasks.log_in"], "missing a required argument: 'user'"),
        (["tests.app.tasks.noop", "--args", "[1"], "argument --args: it is no JSON: Expecting ',' delimiter at char"),
        (["tests.app.tasks.noop", "--args", "{}"], "argument --args: it must be a JSON array of positional arguments"),
        (["tests.app.tasks.noop", "--kwargs", "[]"], "argument --kwargs: it must be a JSON object of names and values"),
        (["tests.app.tasks.noop", "--priority", "101"], "priority is a whole number from -100 to 100, not 101"),
        (["tests.app.tasks.noop", "--priority", "high"], "argument --priority: invalid int value: 'high'"),
        (
            ["tests.app.tasks.noop", "--delay", "2y"],
            "argument --delay: '2y' is no duration: write seconds, or a number",
        ),
        (
            ["tests.app.tasks.noop", "--delay", "36501d"],
            "'36501d' is no duration: write seconds, or a number and ms, s, m, h, d or w",
        ),
        (["tests.app.tasks.noop", "--run-at", "2031-13-01"], "argument --run-at: '2031-13-01' is no time: write it as"),
        (["tests.app.tasks.noop", "--run-at", "9999-13-01T00:00", "--delay", "1s"], "is no time"),
        (["tests.app.tasks.noop", "--queue", ""], "queue is a name of 1 to 128 characters, not ''"),
    ],
)
def test_what_cannot_be_enqueued_is_named_with_what_is_wanted(words, complaint):
    assert complaint in refused("enqueue", *words)
    assert not Job.objects.exists()


def test_arguments_that_are_no_json_are_not_repeated():
    assert "hunter2" not in refused("enqueue", "tests.app.tasks.noop", "--args", '["hunter2"')


@pytest.mark.parametrize("limit", [0, 10_001, -1])
def test_limit_of_a_list_that_cannot_be_is_named(limit):
    assert f"1 to 10000 are listed at once, not {limit}" in refused("list", f"--limit={limit}")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["kill"], "Say which jobs: give ids, a filter such as --queue or --older-than, or --all."),
        (["kill", 1, "--queue", "a", "--older-than", "1h"], "leave out the ids, or --queue, --older-than."),
        (["kill", 0], "no job has the id 0: ids are 1 to"),
        (["kill", "--", -1], "no job has the id -1: ids are 1 to"),
        (["kill", 2**63], f"no job has the id {2**63}: ids are 1 to"),
        (["kill", 10**30], f"no job has the id {10**30}: ids are 1 to"),
        (["kill", "--all", "--status", "dead"], "argument --status: invalid choice: 'dead'"),
        (["purge", "--succeeded", "--reason", "lost"], "Succeeded jobs have no --reason"),
        (["move", 1, "--to", ""], "queue is a name of 1 to 128 characters, not ''"),
        (["move", 1], "the following arguments are required: --to"),
        (["set-priority", "101", 1], "priority is a whole number from -100 to 100, not 101"),
        (["kill", "--queue", "\udcff", "--yes"], r"'\udcff' is not text"),
        (["frob"], "invalid choice: 'frob'"),
        (["list", "--database", "lite"], "'lite' is sqlite"),
        (["list", "--database", "nowhere"], "'nowhere' is not in DATABASES"),
    ],
)
def test_what_cannot_be_done_is_named_with_what_is_wanted(words, complaint):
    job_id = app.noop.enqueue().id
    assert complaint in refused(*words)
    assert ids_of(Job) == [job_id]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("25", 25),
        ("25s", 25),
        ("1.5", 1.5),
        ("20ms", 0.02),
        ("15m", 900),
        ("2h", 7200),
        ("7d", 604_800),
        ("1w", 604_800),
    ],
)
def test_durations_are_seconds_or_have_a_unit(text, seconds):
    assert arguments.seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "-1", "1y", "1 m", "m", "1e3", "nan", "36501d"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is no duration"):
        arguments.seconds(text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("a, b ,,c", ["a", "b", "c"]),
        ('"a,b",c', ["a,b", "c"]),
        ('" a"', [" a"]),
        ('"a""b,",-x*', ['a"b,', "-x*"]),
        ('a"b', ['a"b']),
    ],
)
def test_queues_are_named_in_a_list_with_quotes_where_need_be(text, names):
    assert arguments.queue_names(text) == names


@pytest.mark.parametrize("text", ["", " , ", '""'])
def test_list_that_names_no_queue_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="it names no queue"):
        arguments.queue_names(text)


def test_queues_may_be_listed_and_the_option_repeated():
    ids = [app.noop.using(queue=queue).enqueue().id for queue in ("a", "b", "c", "d")]
    assert [row["id"] for row in json.loads(jobs("list", "--queue", "a,b", "--queue", "c", "--json"))["jobs"]] == ids[
        :3
    ]


@pytest.mark.parametrize("text", ["100/s", "60/m", "5/10s", "1000/h", "3/1.5s", "7/2d", "1/w", "90/90s"])
def test_rates_are_shown_as_they_are_typed(text):
    assert formatting.rate(*rate_of(rate_or_none(text))) == text


@pytest.fixture
def detour(monkeypatch) -> Iterator[Detour]:
    """The way to the test database, by a port that goes away and comes back."""
    proxy = Detour()
    monkeypatch.setitem(connection.settings_dict, "HOST", "127.0.0.1")
    monkeypatch.setitem(connection.settings_dict, "PORT", str(proxy.port))
    connection.close()
    yield proxy
    connection.close()
    proxy.close()


@pytest.mark.django_db(transaction=True)
def test_missing_tables_are_said_with_what_to_do(transactional_db):
    with pytest.raises(CommandError, match=r"'nowhere' is not in DATABASES. Name one of 'default', 'lite', 'other'"):
        run("--database", "nowhere")
    with connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA empty")
        cursor.execute("SET search_path = empty")
    try:
        with pytest.raises(CommandError, match=r"'default'\)\. Run: manage\.py migrate pgqueue --database default$"):
            run()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET search_path")
            cursor.execute("DROP SCHEMA empty")


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_what_is_said_of_missing_tables_makes_them(settings):
    """The migrations were recorded there while the queue was elsewhere, and made nothing."""
    with pytest.raises(
        CommandError, match=r"migrations make no tables of it on 'other'. Use that, or name 'other' in PGQUEUE"
    ):
        check_database("other")
    settings.PGQUEUE, settings.DATABASE_ROUTERS = {"DATABASE": "other"}, ["django_pgqueue.routers.PgQueueRouter"]
    [told] = [one for one in run_checks(tags=["database"], databases=["other"]) if one.id == "pgqueue.W007"]
    with pytest.raises(CommandError, match="Its migrations are recorded as applied: they were run while") as caught:
        check_database("other")
    assert str(caught.value).endswith(told.hint)
    try:
        for command in told.hint.split("Run: ")[1].split(" && "):
            call_command(*command.removeprefix("manage.py ").split(), verbosity=0)
        check_database("other")
    finally:
        call_command("migrate", "pgqueue", "zero", database="other", verbosity=0)
        settings.PGQUEUE = {}
        call_command("migrate", "pgqueue", database="other", verbosity=0)


@pytest.mark.django_db(transaction=True)
def test_database_without_the_tables_is_named():
    with pytest.raises(CommandError, match="'lite' is sqlite"):
        schedule("list", "--database", "lite")


@pytest.mark.django_db(transaction=True)
def test_database_that_is_away_when_it_is_looked_at_is_named(detour):
    check_database()
    connection.close()
    detour.go_away()
    try:
        with pytest.raises(CommandError, match=r"The database of alias 'default' cannot be reached: .*refused"):
            check_database()
    finally:
        detour.come_back()


@pytest.mark.django_db(transaction=True)
def test_database_that_is_there_is_not_waited_for(detour, caplog):
    await_database("default", seconds=0)
    assert not caplog.records


@pytest.mark.django_db(transaction=True)
def test_database_that_comes_back_is_waited_for_and_a_reason_is_told_once(detour, caplog, monkeypatch):
    failures = []
    monkeypatch.setattr(arguments, "reconnect_delay", lambda number: failures.append(number) or 0.01)
    detour.go_away()
    with beside(lambda: await_database("default", seconds=PATIENCE_SECONDS)):
        try:
            eventually(lambda: len(failures) >= 3)
        finally:
            detour.come_back()
    [record] = caplog.records
    assert record.getMessage().startswith("Waiting for the database of alias 'default': ")
    assert failures[:3] == [1, 2, 3]


@pytest.mark.django_db(transaction=True)
def test_database_that_stays_away_is_an_error_that_says_how_to_wait(detour, caplog):
    detour.go_away()
    try:
        with pytest.raises(CommandError, match=r"cannot be reached: .*refused.* Start with --wait-for-database"):
            await_database("default", seconds=0)
    finally:
        detour.come_back()
    assert not caplog.records


@pytest.mark.django_db(transaction=True)
def test_connection_that_can_never_work_is_left_to_the_checks(monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {"colour": "red"})
    await_database("default", seconds=PATIENCE_SECONDS)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_all_databases_are_connected_to_before_the_first_is_acted_on(shard):
    connections[shard].close()
    found, failures = on_each(["default", shard], lambda alias: connections[shard].connection is not None)
    assert (found, failures) == ({"default": True, shard: True}, {})


@pytest.mark.django_db(transaction=True)
def test_connection_of_a_start_gives_up_a_silent_server_and_leaves_that_of_django(sql, monkeypatch):
    monkeypatch.setattr(arguments, "PATIENCE_SECONDS", 0.5)
    before = connections["default"]
    asked = []

    def is_asked_and_given_up() -> bool:
        given_up = pytest.raises((OperationalError, CommandError), match=r"has not answered for 0\.5 s")
        with given_up, patient_with("default"):  # which may not even get an answer to its first question in time
            asked.append(connections["default"])
            connections["default"].cursor().execute("SELECT pg_advisory_lock(4711)")
        assert connections["default"] is before
        return bool(asked)

    sql("SELECT pg_advisory_lock(4711)")
    try:
        eventually(is_asked_and_given_up)
    finally:
        sql("SELECT pg_advisory_unlock(4711)")
        until_alone(sql)


@pytest.mark.parametrize(
    ("words", "ours"),
    [(["cancel", "1"], "kill"), (["list", "--status", "failed"], "dead"), (["revoke", "1"], "kill")],
)
def test_word_of_another_queue_is_answered_with_ours(words, ours):
    assert refused(*words).endswith(f" Here it is {ours}.")
    assert "Here it is" not in refused("colour")
