"""Ticks become jobs, each once, however many workers try."""

import contextlib
import datetime as dt
import itertools
import logging
import random
import threading
from collections import Counter

import psycopg
import pytest
from django.db import InterfaceError, OperationalError, connections
from django.utils import timezone

from django_pgqueue import periodic, registry
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.keys import KeysBy
from django_pgqueue.models import Job, Schedule
from django_pgqueue.schedules import enqueuer
from django_pgqueue.schedules.enqueuer import FireResult, PeriodicEnqueuer, fire_due, spread_seconds
from django_pgqueue.schedules.recurrence import Recurrence
from django_pgqueue.schedules.sync import sync_schedules
from django_pgqueue.signals import job_enqueued
from django_pgqueue.worker.metrics import on_enqueued
from tests.support.schedules import DAY, HOUR, RECORD, SECOND, START, make
from tests.support.waiting import PATIENCE_SECONDS, eventually, until_gone

pytestmark = pytest.mark.django_db(transaction=True)


def ticks_of_jobs() -> list[dt.datetime]:
    return sorted(Job.objects.values_list("run_at", flat=True))


def fire_all(queue, now: dt.datetime) -> int:
    """Pass until nothing is due; return how many jobs were made.

    A call that cannot be made breaks a session off, which keeps its locks for a moment.
    """
    jobs = 0

    def is_through() -> bool:
        nonlocal jobs
        fired = fire_due(queue, now=now)
        jobs += fired.jobs
        return fired.next_seconds != 0

    eventually(is_through)
    return jobs


def test_tick_becomes_a_job_and_the_next_one_is_set(queue):
    made = make(args=["daily"], kwargs={}, options={"queue": "reports", "priority": 7, "max_attempts": 3})
    assert fire_due(queue, now=START - SECOND) == FireResult(next_seconds=1.0)
    fired = fire_due(queue, now=START)
    assert (fired.jobs, fired.payloads, fired.next_seconds) == (1, {"reports"}, 0)
    job, row = Job.objects.get(), Schedule.objects.get()
    assert (job.task, job.args, job.queue, job.priority, job.max_attempts) == (RECORD, ["daily"], "reports", 7, 3)
    assert (job.schedule_id, job.run_at, job.parent_id) == (made.id, START, None)
    assert (row.next_at, row.last_at, row.last_job_id, row.last_error) == (START + HOUR, START, job.id, "")
    assert fire_due(queue, now=START).jobs == 0
    assert fire_due(queue, now=START + HOUR).jobs == 1


def test_schedules_that_take_too_long_together_are_moved_on_apart(queue, sql):
    for name in ("a", "b"):
        make(name)
    sql(
        "CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN IF (SELECT count(*) FROM moved) > 1 THEN RAISE query_canceled; END IF; RETURN NULL; END'"
    )
    sql(
        "CREATE TRIGGER dawdle AFTER UPDATE ON pgqueue_schedules REFERENCING NEW TABLE AS moved "
        "FOR EACH STATEMENT EXECUTE FUNCTION dawdle()"
    )
    try:
        assert fire_due(queue, now=START).jobs == 2
    finally:
        sql("DROP TRIGGER dawdle ON pgqueue_schedules; DROP FUNCTION dawdle()")


def test_clock_is_that_of_the_database(queue, sql):
    make("over", next_at=timezone.now() - SECOND)
    make("to come", next_at=timezone.now() + HOUR)
    assert fire_due(queue).jobs == 1
    assert 3000 < fire_due(queue).next_seconds <= 3600
    assert sql("SELECT name, next_at > now() FROM pgqueue_schedules ORDER BY name") == [
        ("over", True),
        ("to come", True),
    ]


@pytest.mark.parametrize(
    ("catch_up", "limit", "expected"),
    [
        ("none", 100, []),
        ("last", 100, [72]),
        ("all", 100, range(73)),
        ("all", 10, range(63, 73)),
        ("all", 1, [72]),
    ],
)
@pytest.mark.parametrize("timing", [{"every_seconds": 3600}, {"cron": "0 * * * *", "timezone": "Europe/Berlin"}])
def test_after_three_days_of_downtime_each_policy_does_what_it_says(queue, catch_up, limit, expected, timing):
    make(catch_up=catch_up, catch_up_limit=limit, **timing)
    back = START + 3 * DAY + 1000 * SECOND
    assert fire_due(queue, now=back).jobs == len(expected)
    assert ticks_of_jobs() == [START + number * HOUR for number in expected]
    assert Schedule.objects.get().next_at == START + 73 * HOUR
    fire_due(queue, now=START + 73 * HOUR)
    assert ticks_of_jobs() == [START + number * HOUR for number in (*expected, 73)]


def test_tick_that_is_a_little_late_is_not_taken_for_missed(queue):
    make(catch_up="none")
    assert fire_due(queue, now=START + 60 * SECOND).jobs == 1
    assert fire_due(queue, now=START + HOUR + 61 * SECOND).jobs == 0
    assert fire_due(queue, now=START + 2 * HOUR).jobs == 1


@pytest.mark.parametrize("catch_up", ["none", "last", "all"])
@pytest.mark.parametrize(("late", "ticks"), [(3.5, 4), (60, 61)])
def test_ticks_of_less_than_a_minute_that_are_a_little_late_all_become_jobs(queue, catch_up, late, ticks):
    make(catch_up=catch_up, every_seconds=1)
    assert fire_due(queue, now=START + late * SECOND).jobs == ticks
    assert ticks_of_jobs() == [START + number * SECOND for number in range(ticks)]


@pytest.mark.parametrize(
    ("catch_up", "every", "expected"),
    [("none", 50, [3650]), ("last", 50, [3650]), ("none", 600, []), ("last", 600, [3600])],
)
def test_latest_missed_tick_is_caught_up_with_only_where_none_came_in_time(queue, catch_up, every, expected):
    make(catch_up=catch_up, every_seconds=every)
    assert fire_due(queue, now=START + 3660 * SECOND + SECOND / 2).jobs == len(expected)
    assert ticks_of_jobs() == [START + seconds * SECOND for seconds in expected]


SLOTS = {
    "quarters": ("*/15 * * * *", None, "Europe/Berlin"),
    "nightly": ("30 2 * * *", None, "Europe/Berlin"),
    "office": ("0 9-17 * * mon-fri", None, "America/New_York"),
    "islands": ("*/20 1,2 * * *", None, "Australia/Lord_Howe"),
    "sevenths": ("", 7 * HOUR, "UTC"),
}


def test_eight_workers_make_one_job_of_each_slot_in_ten_days(queue, caplog):
    """Over the end of daylight saving. Each with a clock of its own, so that they also come too late, or again."""
    caplog.set_level(logging.WARNING)
    end, expected = START + 10 * DAY, Counter()
    for name, (cron, every, zone) in SLOTS.items():
        rhythm = Recurrence(cron, every, zone)
        first = rhythm.next_after(START)
        seconds = every and every.total_seconds()
        row = make(
            name, cron=cron, every_seconds=seconds, timezone=zone, next_at=first, catch_up="all", catch_up_limit=10_000
        )
        expected.update((row.id, tick) for tick in rhythm.due(first, end, limit=10_000))
    start, failures = threading.Barrier(8, timeout=PATIENCE_SECONDS), []

    def work(number: int) -> None:
        database, chance = QueueConnection("default", f"scheduler {number}"), random.Random(number)
        now = START
        try:
            start.wait()
            while now < end:
                now = min(now + chance.uniform(1, 8) * HOUR, end)
                fire_due(database, now=now)
        except Exception as error:
            failures.append(error)
        finally:
            database.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    while fire_due(queue, now=end).next_seconds == 0:  # what two of them left to each other in the end
        pass
    assert not failures
    assert Counter(Job.objects.values_list("schedule_id", "run_at")) == expected
    assert len(expected) > 1000


def test_jobs_of_schedules_are_spread_over_their_jitter_each_by_its_own_part(queue):
    for number in range(20):
        make(f"report {number}", jitter_seconds=600)
    fire_due(queue, now=START)
    starts = ticks_of_jobs()
    assert START <= starts[0] < starts[-1] < START + 600 * SECOND
    assert len(set(starts)) == 20
    assert starts[-1] - starts[0] > 300 * SECOND
    assert Schedule.objects.filter(next_at=START + HOUR).count() == 20
    assert spread_seconds("report 1", 600) == spread_seconds("report 1", 600) == 2 * spread_seconds("report 1", 300)


def test_schedule_that_cannot_be_enqueued_stands_in_no_others_way(queue, caplog, sql):
    make("misfit", args=["too", "many"])
    make("odd", options={"priority": 1000})
    make("unknown option", options={"colour": "red"})
    make("no cron", cron="0 0 30 2 *")
    make("no list", args={"label": "x"})
    make("strange", task="shop.tasks.not_here")
    make("good")
    assert fire_all(queue, START) == 1
    rows = {row.name: row for row in Schedule.objects.all()}
    assert "takes" in rows["misfit"].last_error
    assert "priority is a whole number" in rows["odd"].last_error
    assert "There is no option colour" in rows["unknown option"].last_error
    assert "bad day-of-month" in rows["no cron"].last_error
    assert "args is a JSON array" in rows["no list"].last_error
    assert {row.next_at for row in rows.values()} == {START, START + HOUR}
    assert rows["strange"].next_at == START  # it waits for a worker that knows its task
    assert (rows["good"].last_error, rows["good"].last_at) == ("", START)
    assert caplog.text.count("Schedule misfit is passed over") == 1
    fire_all(queue, START + HOUR)
    assert caplog.text.count("Schedule misfit is passed over") == 1
    Schedule.objects.filter(name="misfit").update(args=["one"])
    fire_all(queue, START + 2 * HOUR)
    assert Schedule.objects.get(name="misfit").last_error == ""


@pytest.fixture
def keyed():
    """Give a task a function that computes keys, for one test; return how to set what it does."""
    by = registry.get(RECORD).keys_by

    def set_function(function):
        registry.get(RECORD).keys_by = KeysBy(unique=function)

    yield set_function
    registry.get(RECORD).keys_by = by


@pytest.mark.parametrize(
    "error", [OperationalError("gone"), InterfaceError("gone"), psycopg.OperationalError("gone"), KeyError("gone")]
)
def test_key_that_cannot_be_computed_stops_neither_other_schedules_nor_maintenance(queue, keyed, error):
    """As while another database is away: its errors look like those of the queue's own."""

    def compute(label):
        if label == "odd":
            raise error
        return label

    keyed(compute)
    make("odd", args=["odd"])
    make("good", args=["good"])
    assert fire_due(queue, now=START).jobs == 1
    errors = dict(Schedule.objects.values_list("name", "last_error"))
    assert errors.pop("odd").startswith(f"{type(error).__name__}: ")
    assert errors == {"good": ""}
    assert set(Schedule.objects.values_list("next_at", flat=True)) == {START + HOUR}


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_key_is_computed_again_by_a_connection_that_works_once_its_database_is_back(queue, keyed, sql):
    def compute(label):
        with connections["other"].cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            pids.extend(cursor.fetchall())
        return label

    pids: list[tuple[int]] = []
    keyed(compute)
    make(args=["one"])
    try:
        assert fire_due(queue, now=START).jobs == 1
        sql("SELECT pg_terminate_backend(%s)", *pids[0])
        until_gone(queue, *pids[0])
        assert fire_due(queue, now=START + HOUR).jobs == 0
        assert Schedule.objects.get().last_error
        assert fire_due(queue, now=START + 2 * HOUR).jobs == 1
        assert len(set(pids)) == 2
    finally:
        connections["other"].close()


@pytest.fixture
def surrounded(settings):
    """Surround the inserts by a function of the calls."""

    def set_function(function):
        class Surrounding:
            def enqueue(self, jobs):
                function(jobs.calls)
                return contextlib.nullcontext()

        settings.PGQUEUE = {"MIDDLEWARE": [Surrounding()]}

    return set_function


@pytest.mark.parametrize(
    "error",
    [
        *(OperationalError("gone"), InterfaceError("gone"), psycopg.OperationalError("gone"), KeyError("gone")),
        *(psycopg.errors.LockNotAvailable("held"), SystemExit("gone")),
    ],
    ids=repr,
)
def test_schedule_that_a_middleware_refuses_stops_neither_others_nor_maintenance(queue, surrounded, error):
    def refuse(calls):
        if ("odd",) in [args for args, _ in calls]:
            raise error

    surrounded(refuse)
    make("odd", args=["odd"])
    make("good", args=["good"])
    jobs = []

    def all_are_decided() -> bool:
        jobs.append(fire_due(queue, now=START).jobs)
        return set(Schedule.objects.values_list("next_at", flat=True)) == {START + HOUR}

    eventually(all_are_decided)  # once the session is gone that was closed with the refused job in it
    assert sum(jobs) == 1
    errors = dict(Schedule.objects.values_list("name", "last_error"))
    assert error.args[0] in errors.pop("odd")
    assert errors == {"good": ""}


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_middleware_has_a_connection_that_works_once_its_database_is_back(queue, surrounded, sql):
    def ask(_):
        with connections["other"].cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            pids.extend(cursor.fetchall())

    def is_told() -> bool:
        """Break the connection off, and look for the error: it is not written while the closed session has the row."""
        sql("SELECT pg_terminate_backend(%s)", *pids[-1])
        until_gone(queue, *pids[-1])
        return fire_due(queue, now=next(ticks)).jobs == 0 and Schedule.objects.get().last_error != ""

    pids: list[tuple[int]] = []
    ticks = (START + number * HOUR for number in itertools.count())
    surrounded(ask)
    make(args=["one"])
    try:
        assert fire_due(queue, now=next(ticks)).jobs == 1
        eventually(is_told)
        broken = pids[-1]
        assert fire_due(queue, now=next(ticks)).jobs == 1
        assert pids[-1] != broken
    finally:
        connections["other"].close()


def test_no_transaction_is_open_while_keys_are_computed(queue, other_queue, keyed):
    """A function that takes its time keeps no session from the rows, and the server from nothing."""

    def compute(label):
        with other_queue.transaction():
            other_queue.rows("UPDATE pgqueue_schedules SET args = '[\"edited\"]' RETURNING id", {})
        return label

    keyed(compute)
    make(args=["one"])
    assert fire_due(queue, now=START).jobs == 0, "it was edited since its key was computed"
    assert fire_due(queue, now=START).jobs == 1
    assert Job.objects.get().args == ["edited"]


def test_many_missed_ticks_become_jobs_in_several_passes(queue, monkeypatch):
    monkeypatch.setattr(enqueuer, "MOST_TICKS", 100)
    make(catch_up="all", catch_up_limit=250)
    back = START + 300 * HOUR
    assert [fire_due(queue, now=back).jobs for _ in range(4)] == [100, 100, 50, 0]
    assert ticks_of_jobs() == [START + number * HOUR for number in range(51, 301)]
    assert Schedule.objects.get().next_at == START + 301 * HOUR


def test_job_that_the_database_refuses_is_found_among_the_others(queue, sql):
    for number in range(7):
        make(f"s{number}", args=[str(number)])
    sql("ALTER TABLE pgqueue_jobs ADD CONSTRAINT no_four CHECK (args <> '[\"4\"]')")
    try:
        assert fire_due(queue, now=START).jobs == 6
    finally:
        sql("ALTER TABLE pgqueue_jobs DROP CONSTRAINT no_four")
    assert list(Schedule.objects.exclude(last_error="").values_list("name", flat=True)) == ["s4"]
    assert Schedule.objects.get(name="s4").last_error == (
        'IntegrityError: new row for relation "pgqueue_jobs" violates check constraint "no_four"'
    )
    assert set(Schedule.objects.values_list("next_at", flat=True)) == {START + HOUR}


def test_jobs_of_ticks_are_announced_once_when_they_are_committed(queue, sql, monkeypatch):
    """And counted, without a second connection for that."""
    for number in range(7):
        make(f"s{number}", args=[str(number)])
    announced: list[int] = []
    committed: list[bool] = []
    counted: list[tuple[str, str, int]] = []

    def hear(*, ids: list[int], **_: object) -> None:
        announced.extend(ids)
        committed.append(sql("SELECT count(*) FROM pgqueue_jobs WHERE id = ANY(%s)", [ids]) == [(len(ids),)])

    monkeypatch.setattr(job_enqueued, "receivers", list(job_enqueued.receivers))
    job_enqueued.connect(hear)
    on_enqueued(lambda *what: counted.append(what))
    sql("ALTER TABLE pgqueue_jobs ADD CONSTRAINT no_four CHECK (args <> '[\"4\"]')")
    try:
        assert fire_due(queue, now=START).jobs == 6
    finally:
        sql("ALTER TABLE pgqueue_jobs DROP CONSTRAINT no_four")
    assert sorted(announced) == list(Job.objects.order_by("id").values_list("id", flat=True))
    assert committed == [True] * 6
    assert counted == [("default", RECORD, 1)] * 6


def test_scheduler_waits_for_no_lock(queue, other_queue):
    make("edited")
    make("unique", options={"unique_key": "one"})
    make("free")
    with other_queue.transaction():
        other_queue.rows("SELECT id FROM pgqueue_schedules WHERE name = 'edited' FOR UPDATE", {})
        other_queue.rows(
            "INSERT INTO pgqueue_jobs (task, unique_key, unique_until) VALUES ('x', 'one', 'end') RETURNING id", {}
        )
        assert fire_due(queue, now=START).jobs == 1
    assert set(Schedule.objects.filter(next_at=START).values_list("name", flat=True)) == {"edited", "unique"}
    assert not Schedule.objects.exclude(last_error="").exists()
    assert fire_due(queue, now=START).jobs == 2


def test_schedule_with_a_unique_key_makes_no_second_job_while_the_first_lives(queue):
    make(options={"unique_key": "report"})
    fire_due(queue, now=START)
    fire_due(queue, now=START + HOUR)
    assert Schedule.objects.get().last_job_id == Job.objects.get().id
    assert Schedule.objects.get().next_at == START + 2 * HOUR


def test_jobs_and_the_next_tick_are_written_together_or_not_at_all(queue, monkeypatch):
    make(catch_up="all")

    class Crash(BaseException):
        pass

    def crash(*_):
        raise Crash

    monkeypatch.setattr(enqueuer, "_advance", crash)
    with pytest.raises(Crash):
        fire_due(queue, now=START + 3 * HOUR)
    monkeypatch.undo()
    assert (Job.objects.count(), Schedule.objects.get().next_at) == (0, START)
    assert eventually(lambda: fire_due(queue, now=START + 3 * HOUR).jobs) == 4, "once the session of the crash is gone"


def test_tick_that_was_moved_on_meanwhile_becomes_no_job(queue, monkeypatch):
    """Should the lock of the row ever fail to keep others out, the comparison of the tick does."""
    make()
    enqueue = enqueuer._enqueue

    def move_on_and_enqueue(database, *rest):
        database.rows("UPDATE pgqueue_schedules SET next_at = next_at + interval '1 s' RETURNING id", {})
        return enqueue(database, *rest)

    monkeypatch.setattr(enqueuer, "_enqueue", move_on_and_enqueue)
    with pytest.raises(RuntimeError, match="another session has advanced a schedule"):
        # Its first attempt breaks its session off, which may have the row locked when the second comes.
        eventually(lambda: fire_due(queue, now=START).jobs)
    assert (Job.objects.count(), Schedule.objects.get().next_at) == (0, START)


def test_service_announces_what_it_has_enqueued_and_comes_back_at_once(queue, recode):
    announced = []
    recode(periodic(every=HOUR))
    sync_schedules(queue)
    Schedule.objects.update(next_at=timezone.now())
    service = PeriodicEnqueuer(queue, announced.append)
    assert service.fire_schedules() == 0.0, "there may be more"
    assert service.fire_schedules() == 5.0
    assert announced == [{"default"}]
    assert Job.objects.count() == 1


class Refusing:
    def enqueue(self, jobs):
        raise ValueError("bad label hunter2")


def test_sensitive_values_are_in_no_error_of_a_schedule(queue, settings, caplog):
    settings.PGQUEUE = settings.PGQUEUE | {"SENSITIVE_PARAMETERS": ["label"], "MIDDLEWARE": [Refusing]}
    make("refused", args=["hunter2"])
    fire_all(queue, START)
    assert "bad label [redacted]" in Schedule.objects.get().last_error
    assert "hunter2" not in caplog.text


def test_schedules_make_their_jobs_where_time_zones_are_off(settings, transactional_db):
    """Also in the hour that comes twice as summer time ends."""
    settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Berlin"
    queue = QueueConnection("default", "test")
    try:
        for start in (dt.datetime(2026, 10, 25, 0, 30, tzinfo=dt.UTC), dt.datetime(2026, 10, 25, 1, 30, tzinfo=dt.UTC)):
            made = make(every_seconds=3600.0, next_at=start)
            assert fire_all(queue, start) == 1
            [(last, following, error)] = queue.rows(
                "SELECT last_at AT TIME ZONE 'UTC', next_at AT TIME ZONE 'UTC', last_error FROM pgqueue_schedules", {}
            )
            assert (last, following) == (start.replace(tzinfo=None), start.replace(tzinfo=None) + HOUR)
            assert not error
            made.delete()
    finally:
        queue.close()
