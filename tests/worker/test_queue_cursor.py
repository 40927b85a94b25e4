"""The start of claims: between full scans above the last job taken, and nothing below is missed; queues set back."""

import datetime as dt
import queue as stdlib_queue
import time

import pytest
from django.db import OperationalError, connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import IsolationLevel

import tests.app.tasks as app
from django_pgqueue.conf import conf
from django_pgqueue.db.queries import sized
from django_pgqueue.jobs.claim import Claim, claim, send
from django_pgqueue.maintenance.promoter import promote
from django_pgqueue.models import Job, SucceededJob
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.worker import queue_cursor
from django_pgqueue.worker.consumer import Consumer
from django_pgqueue.worker.limits_cache import LimitsCache
from django_pgqueue.worker.prefetch import WORTHWHILE
from django_pgqueue.worker.queue_cursor import FULL_SCAN_SECONDS, QueueCursors
from django_pgqueue.worker.shared_state import SharedState, now
from tests.support.consumers import Benched, accepted, cycle, cycles, fall_silent
from tests.support.many import enqueued_ids
from tests.support.plans import explain
from tests.support.waiting import eventually

QUEUES = ["default", "mail"]


@pytest.fixture(autouse=True)
def own_seconds_only(monkeypatch):
    """Let full scans be so far apart that none comes before the test says so, however slow the machine."""
    monkeypatch.setattr(queue_cursor, "FULL_SCAN_SECONDS", 600.0)


@pytest.fixture
def take(queue):
    """Claim by the cursors in one transaction, and tell them how many seconds this took."""

    def run(source, *, limit=10, seconds=60.0) -> tuple[Claim | None, list[int]]:
        with queue.transaction():
            claimed = source.send(queue, limit=limit, most_limited=limit, worker_id=1)
        if claimed is None:
            return None, []
        jobs = claimed.jobs()
        source.advance(claimed, jobs, seconds)
        return claimed, [job.id for job in jobs]

    return run


def later(source):
    """Let the time pass that is the longest between full scans."""
    for cursor in source._cursors.values():
        cursor.full_scan_at = 0.0


def test_claims_between_full_scans_begin_after_the_last_job_taken(take):
    ids = enqueued_ids(app.noop, [()] * 30)
    source = QueueCursors((), LimitsCache())
    first, taken = take(source)
    assert (first.above, taken) == (None, ids[:10])
    second, taken = take(source)
    assert second.above[2] == ids[9]
    assert taken == ids[10:20]


def test_full_scans_are_no_closer_than_ten_times_their_duration_and_no_further_than_a_second(take, monkeypatch):
    monkeypatch.setattr(queue_cursor, "FULL_SCAN_SECONDS", FULL_SCAN_SECONDS)
    app.noop.enqueue_many([()] * 30)
    source = QueueCursors((), LimitsCache())
    for seconds, pause in ((0.03, 0.3), (60.0, FULL_SCAN_SECONDS)):
        later(source)
        before = time.monotonic()
        take(source, seconds=seconds)
        assert before + pause <= source._cursors["default"].full_scan_at <= time.monotonic() + pause


def test_looks_for_queues_are_left_to_the_supervisor_while_it_sees_no_job_queued(take):
    """One look a second for all processes of an idle command; without news of it each process looks itself."""
    empty_at = 0.0
    source = QueueCursors((), LimitsCache(), lambda: empty_at)
    assert take(source) == (None, [])
    looked_until = source.wait_until()
    empty_at = time.monotonic()
    assert looked_until < source.wait_until() == empty_at + 1.2 * conf.poll_seconds
    empty_at = -1000.0
    assert source.wait_until() == looked_until
    empty_at = time.monotonic()
    source.mark_ready(None)
    assert source.wait_until() == 0.0


def test_full_scan_comes_sooner_where_work_was_announced(take, monkeypatch):
    monkeypatch.setattr(queue_cursor, "FULL_SCAN_SECONDS", FULL_SCAN_SECONDS)
    app.noop.enqueue_many([()] * 30)
    source = QueueCursors((), LimitsCache())
    before = time.monotonic()
    take(source, seconds=0.03)
    source.mark_ready(["mail", "default"])
    assert before + 0.09 <= source._cursors["default"].full_scan_at <= time.monotonic() + 0.09


def test_higher_priority_is_found_by_the_next_full_scan(take):
    app.noop.enqueue_many([()] * 30)
    source = QueueCursors((), LimitsCache())
    take(source)
    urgent = app.noop.using(priority=9).enqueue().id
    assert urgent not in take(source)[1]
    later(source)
    assert urgent in take(source)[1]


def test_queue_whose_claim_came_back_short_needs_a_full_scan(take, settings):
    """The consumer need not be told: it wakes by itself when the time has come."""
    settings.PGQUEUE = {"POLL_SECONDS": 3600}
    app.noop.enqueue_many([()] * 15)
    source = QueueCursors((), LimitsCache())
    take(source)
    take(source)
    urgent = app.noop.using(priority=9).enqueue().id
    assert source.wait_until() == source._cursors["default"].full_scan_at > 0.0
    assert take(source) == (None, [])
    later(source)
    assert source.wait_until() == 0.0
    claimed, taken = take(source)
    assert (claimed.above, taken) == (None, [urgent])


def test_empty_queue_is_looked_at_no_more_until_work_is_announced_or_it_is_time_to_poll(take, settings):
    settings.PGQUEUE = {"POLL_SECONDS": 3600}
    source = QueueCursors((), LimitsCache())
    assert take(source) == (None, [])
    assert source.wait_until() > time.monotonic() + 2400
    ids = enqueued_ids(app.noop, [()])
    assert take(source) == (None, [])
    source.mark_ready(["default"])
    assert take(source)[1] == ids
    later(source)
    take(source)
    assert source.wait_until() > time.monotonic() + 2400
    source.mark_ready(None)
    assert source.wait_until() == 0.0


def test_queues_named_are_served_in_strict_order(take):
    app.noop.enqueue_many([()] * 30)
    mail = enqueued_ids(app.noop.using(queue="mail"), [()] * 3)
    source = QueueCursors(("mail", "default"), LimitsCache())
    source.mark_ready(["default"])
    assert [take(source)[0].queue for _ in range(3)] == ["mail", "default", "default"]
    app.noop.using(queue="mail").enqueue_many([()])
    source.mark_ready(["mail"])
    claimed, taken = take(source)
    assert claimed.queue == "mail"
    assert taken > mail


def test_queues_not_named_take_turns(take):
    app.noop.enqueue_many([()] * 40)
    app.noop.using(queue="mail").enqueue_many([()] * 40)
    source = QueueCursors((), LimitsCache())
    queues = [take(source)[0].queue for _ in range(6)]
    assert queues.count("mail") == queues.count("default") == 3


def test_claim_above_a_place_takes_what_comes_after_it_in_every_respect(queue):
    """Same priority and run_at: the id decides; same priority: run_at; else the priority."""
    at = dt.datetime(2024, 2, 29, 12, 0, 0, 123457, tzinfo=dt.UTC)
    before, itself, after = enqueued_ids(app.noop.using(run_at=at), [()] * 3)
    earlier = app.noop.using(run_at=at - dt.timedelta(microseconds=1)).enqueue().id
    later_job = app.noop.using(run_at=at + dt.timedelta(microseconds=1)).enqueue().id
    low = app.noop.using(run_at=at - dt.timedelta(days=1), priority=-1).enqueue().id
    high = app.noop.using(run_at=at + dt.timedelta(days=1), priority=1).enqueue().id
    [*_, place] = [job.place for job in claim(queue, "default", limit=4, worker_id=1)]  # high, earlier, before, itself
    assert place[2] == itself
    Job.objects.update(status="queued", lease_token=0, worker_id=0)
    with queue.transaction():
        claimed = send(queue, "default", limit=10, worker_id=1, above=place)
    assert [job.id for job in claimed.jobs()] == [after, later_job, low]
    assert {before, earlier, high, itself} == set(Job.objects.filter(status="queued").values_list("id", flat=True))


def test_open_snapshot_makes_full_scans_dear_and_the_others_not(queue, other_queue):
    """Buffers touched, as EXPLAIN counts them, while a snapshot keeps 20,000 claimed entries in the index."""
    app.noop.enqueue_many([()] * 20_200)
    holder = other_queue.autocommit()
    holder.isolation_level = IsolationLevel.REPEATABLE_READ
    with holder.transaction():
        holder.execute("SELECT count(*) FROM pgqueue_jobs")
        while len(jobs := claim(queue, "default", limit=1000, worker_id=1)) == 1000:
            place = jobs[-1].place
        Job.objects.filter(id__gt=place[2]).update(status="queued", lease_token=0, worker_id=0)
        common = {"queue": "default", "worker_id": 1, "lease_token": 9}
        above = common | dict(zip(("rank", "run_at", "id"), place, strict=True))
        full, partial = (
            next(node for node in explain(queue, text, parameters) if node.get("Index Name") == "pgqueue_jobs_claim")
            for text, parameters in ((sized("claim", 100), common), (sized("claim_above", 100), above))
        )
    assert full["Actual Rows"] == partial["Actual Rows"] == 100
    blocks = [node["Shared Hit Blocks"] + node["Shared Read Blocks"] for node in (full, partial)]
    assert blocks[0] > 500
    assert blocks[1] < blocks[0] / 2, blocks


BULK_ACTION = st.one_of(
    st.tuples(
        st.sampled_from(["enqueue", "enqueue unheard", "insert uncommitted"]),
        st.integers(-1, 2),
        st.sampled_from(QUEUES),
        st.integers(1, 4),
    ),
    st.tuples(st.sampled_from(["commit", "turn", "second", "succeed", "retry", "release"])),
)


@pytest.fixture
def world(transactional_db, other_queue, monkeypatch):
    """A consumer whose full scans are as rare as they may ever be, and another session's connection."""
    monkeypatch.setattr(queue_cursor, "FULL_SCAN_SHARE", 1e9)
    monkeypatch.setattr(queue_cursor, "CALLED_SHARE", 1e9)
    shared = SharedState()
    shared.extend_lease(now() + 600)
    consumer = Consumer(1, (), Benched(50, shared, stdlib_queue.SimpleQueue()), shared)
    yield World(consumer, other_queue.autocommit())
    consumer.database.close()


class World:
    def __init__(self, consumer, stranger):
        self.consumer = consumer
        self.stranger = stranger

    def reset(self):
        self.stranger.rollback()
        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE pgqueue_jobs, pgqueue_succeeded_jobs")
        self.consumer.slots.accepted.clear()
        self.consumer._in_flight._free = list(range(4096))
        self.consumer._in_flight.unwritten.clear()
        self.consumer._cursors = QueueCursors((), self.consumer._limits)

    def do(self, name, *details):
        getattr(self, name.replace(" ", "_"))(*details)

    def enqueue(self, priority, queue, number):
        app.noop.using(priority=priority, queue=queue).enqueue_many([()] * number)
        self.consumer.wake([queue])

    def enqueue_unheard(self, priority, queue, number):
        app.noop.using(priority=priority, queue=queue).enqueue_many([()] * number)

    def insert_uncommitted(self, priority, queue, number):
        if not self.stranger.info.transaction_status:
            self.stranger.execute("BEGIN")
        self.stranger.execute(
            "INSERT INTO pgqueue_jobs (task, queue, priority) "
            "SELECT 'tests.app.tasks.noop', %s, %s FROM generate_series(1, %s)",
            [queue, priority, number],
        )

    def commit(self):
        self.stranger.commit()

    def turn(self):
        self.consumer._collect(0.0)
        self.consumer._cycle()

    def second(self):
        later(self.consumer._cursors)
        self.consumer.wake()

    def succeed(self):
        self._end(Fate.SUCCEEDED)

    def release(self):
        self._end(Fate.RELEASED)

    def retry(self):
        self._end(Fate.RETRIED, error={"error": "x"})
        self.turn()
        promote(self.consumer.database)

    def _end(self, fate, **details):
        if self.consumer.slots.accepted:
            cell, job = self.consumer.slots.accepted.pop(0)
            self.consumer.slots.mailbox.put((cell, Outcome(job, fate, **details)))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bulk_actions=st.lists(BULK_ACTION, max_size=25))
def test_whatever_happens_each_queued_job_is_taken_within_a_second(world, bulk_actions):
    """Late commits, retries, promotions, releases, higher priorities: after each of them, claims and full scans."""
    world.reset()
    for bulk_action in bulk_actions:
        world.do(*bulk_action)
    world.commit()
    world.consumer.slots.concurrency = 4000
    world.second()
    for _ in range(2 * len(QUEUES) + 1):
        world.turn()
    assert Job.objects.filter(status="queued").count() == 0
    running = set(Job.objects.filter(status="running").values_list("id", "lease_token"))
    assert {(job.id, job.lease_token) for _, job in world.consumer.slots.accepted} == running
    world.consumer.slots.concurrency = 50


@pytest.fixture
def damaged(sql):
    """Let each claim fail that meets a job of this id, with an SQLSTATE."""
    sql("CREATE TABLE pgqueue_plan (id bigint, state text)")
    sql(
        "CREATE FUNCTION pgqueue_fail() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE code text; BEGIN "
        "SELECT state INTO code FROM pgqueue_plan WHERE id = NEW.id; "
        "IF code = '57P01' THEN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(60); END IF; "
        "IF FOUND THEN RAISE EXCEPTION 'a damaged row' USING ERRCODE = code; END IF; RETURN NEW; END $$"
    )
    sql(
        "CREATE TRIGGER fail BEFORE UPDATE ON pgqueue_jobs FOR EACH ROW WHEN (NEW.status = 'running') "
        "EXECUTE FUNCTION pgqueue_fail()"
    )
    yield lambda job_id, state: sql("INSERT INTO pgqueue_plan VALUES (%s, %s)", job_id, state)
    sql("DROP FUNCTION pgqueue_fail CASCADE")
    sql("DROP TABLE pgqueue_plan")


@pytest.mark.parametrize("state", ["XX001", "57014", "P0001"])
def test_queue_with_a_job_that_cannot_be_claimed_keeps_back_no_outcome_and_no_other_queue(
    consumer, damaged, sql, state, caplog
):
    [done] = enqueued_ids(app.noop, [()])
    cycle(consumer)
    [bad] = enqueued_ids(app.noop, [()])
    damaged(bad, state)
    consumer.slots.finish()
    cycles(consumer, 2)
    assert SucceededJob.objects.get().id == done
    [other] = enqueued_ids(app.noop.using(queue="mail"), [()])
    cycles(consumer, 2)
    assert accepted(consumer) == [other]
    assert consumer._backoff.failures == 0
    assert caplog.text.count("Jobs of queue 'default' cannot be claimed (failure 1): a damaged row") == 1
    consumer.slots.finish()
    cycle(consumer)
    assert SucceededJob.objects.filter(pk=other).exists(), "an outcome and a claim of another queue are one transaction"
    sql("DELETE FROM pgqueue_plan")
    consumer._cursors._setbacks["default"].retry_at = 0.0
    cycles(consumer, 2)
    assert accepted(consumer) == [bad]
    assert "Jobs of queue 'default' can be claimed again" in caplog.text


def test_full_scan_that_takes_too_long_keeps_back_no_claim_above_the_low_water_mark(consumer, damaged, sql, caplog):
    """As with 200 million dead entries before the first job; here one that only full scans meet."""
    app.noop.enqueue_many([()])
    cycle(consumer)
    [urgent] = enqueued_ids(app.noop.using(priority=1), [()])
    damaged(urgent, "57014")
    consumer.slots.finish()
    cycles(consumer, 2)
    assert SucceededJob.objects.count() == 1
    others = enqueued_ids(app.noop, [()] * 2)
    cursor = consumer._cursors._cursors["default"]
    cursor.full_scan_at = cursor.called_scan_at = time.monotonic() + 60  # on a slow machine it would be due by now
    consumer._backoff.claim_at = 0.0
    consumer.wake()
    consumer._collect(0.0)
    consumer._cycle()
    assert accepted(consumer) == others
    assert consumer._cursors._setbacks["default"].is_of_full_scans
    sql("DELETE FROM pgqueue_plan")
    consumer._cursors._setbacks["default"].retry_at = cursor.full_scan_at = cursor.called_scan_at = 0.0
    cycles(consumer, 2)
    assert accepted(consumer) == [*others, urgent]
    assert consumer._cursors._setbacks == {}


def test_claim_that_fails_again_and_again_is_put_off_longer_and_longer(consumer, damaged):
    [bad] = enqueued_ids(app.noop, [()])
    damaged(bad, "XX001")
    before = time.monotonic()
    cycles(consumer, 2)
    setbacks = consumer._cursors._setbacks
    for failures in (1, 2, 3):
        assert setbacks["default"].failures == consumer._shared.failures() == failures
        assert before + 0.08 * 2 ** (failures - 1) < setbacks["default"].retry_at < time.monotonic() + 60
        setbacks["default"].retry_at += 3600  # its time may come before the next line
        failed = consumer._backoff._failed_claims
        cycle(consumer)
        assert consumer._backoff._failed_claims == failed, "not before its time"
        setbacks["default"].retry_at = 0.0
        before = time.monotonic()
        cycles(consumer, 1)


def test_queue_that_is_set_back_gives_no_reason_to_claim_before_its_time(consumer, damaged):
    """Not even if a full scan is owed to it: each turn would be an empty transaction, one right after the other."""
    app.noop.enqueue_many([()])
    cycle(consumer)
    [bad] = enqueued_ids(app.noop, [()])
    damaged(bad, "57014")
    cycles(consumer, 3)
    cursors = consumer._cursors
    assert cursors._setbacks["default"].failures == 2, "a full scan, and a claim above the low-water mark"
    later = time.monotonic() + 60
    cursors._look_at = cursors._setbacks["default"].retry_at = later
    consumer._backoff.claim_at = cursors._cursors["default"].full_scan_at = 0.0
    assert cursors._cursors["default"].needs_full_scan
    assert cursors.wait_until() > 0.0
    assert consumer._claim_at() > time.monotonic()


def test_look_for_ready_queues_that_goes_on_failing_keeps_back_no_queue_that_is_announced(
    consumer, monkeypatch, caplog
):
    with monkeypatch.context() as patch:
        wrong = "SELECT 1 FROM no_such_table"
        patch.setattr(queue_cursor, "ready_queues", lambda database, _: database.rows(wrong, {}))
        cycles(consumer, 2)
        assert (consumer._cursors._failed_looks, consumer._backoff.failures) == (1, 0)
        assert "The look for queues that have work fails (failure 1)" in caplog.text
        for failures in (2, 3):
            app.noop.enqueue_many([()])
            consumer._cursors._retry_look_at = 0.0
            consumer._cursors.mark_ready(["default"])
            cycles(consumer, 1)
            assert (consumer._cursors._failed_looks, consumer._backoff.failures) == (failures, 0)
            assert len(consumer.slots.accepted) == failures - 1
            consumer._cursors._retry_look_at += 60  # on a slow machine it would be due by now
            cycles(consumer, 1)
            assert consumer._cursors._failed_looks == failures, "not before its time"
    consumer._cursors._retry_look_at = 0.0
    [other] = enqueued_ids(app.noop.using(queue="mail"), [()])
    cycles(consumer, 2)
    assert accepted(consumer)[2:] == [other]
    assert "succeeds again after 3 failures" in caplog.text


def test_silence_while_a_queue_is_claimed_from_does_not_set_it_back(consumer, monkeypatch):
    cycle(consumer)
    app.noop.enqueue_many([()])
    with monkeypatch.context() as patch:
        patch.setattr(queue_cursor.claim, "send", fall_silent)
        cycles(consumer, 2)
        assert (consumer._backoff.failures, consumer._backoff._failed_claims) == (0, 1), "it has failed apart"
    assert consumer._cursors._setbacks == {}
    cycles(consumer, 1)
    assert len(consumer.slots.accepted) == 1


def claim_in_vain(consumer, job_id: int, number: int = 1) -> None:
    """Cycle until claims have ended their connections; each time the row is free again, as its session is."""
    for _ in range(number):
        cycles(consumer, 1)
        eventually(lambda: is_free(job_id))


def is_free(job_id: int) -> bool:
    with transaction.atomic():
        return Job.objects.select_for_update(skip_locked=True).filter(pk=job_id).exists()


def test_queue_whose_claim_ends_the_connection_twice_in_a_row_keeps_back_no_other_queue(consumer, damaged, sql, caplog):
    """Once may be chance, as a server that is restarted."""
    [bad] = enqueued_ids(app.noop, [()])
    damaged(bad, "57P01")
    claim_in_vain(consumer, bad, 2)
    assert (consumer._backoff.failures, consumer._backoff._failed_claims) == (0, 1), "it has failed apart"
    assert consumer._cursors._setbacks == {}
    claim_in_vain(consumer, bad, 2)
    assert consumer._cursors._setbacks["default"].failures == 1
    [other] = enqueued_ids(app.noop.using(queue="mail"), [()])
    claim_in_vain(consumer, bad, 2)
    assert accepted(consumer) == [other]
    consumer._cursors._setbacks["default"].retry_at = 0.0
    claim_in_vain(consumer, bad)
    assert consumer._cursors._setbacks["default"].failures >= 2, "one that was set back needs no second time"
    sql("DELETE FROM pgqueue_plan")
    consumer._cursors._setbacks["default"].retry_at = 0.0
    cycles(consumer, 1)
    assert accepted(consumer) == [other, bad]
    assert "Jobs of queue 'default' can be claimed again" in caplog.text


def test_claim_that_goes_well_in_between_makes_the_end_of_a_connection_the_first_again(consumer, damaged, sql):
    [bad] = enqueued_ids(app.noop, [()])
    damaged(bad, "57P01")
    for _ in range(2):
        claim_in_vain(consumer, bad, 2)
        assert (consumer._backoff._failed_claims, consumer._cursors._setbacks) == (1, {})
        sql("DELETE FROM pgqueue_plan")
        cycles(consumer, 1)
        assert accepted(consumer) == [bad]
        consumer.slots.finish(Fate.RELEASED)
        damaged(bad, "57P01")


@pytest.mark.parametrize("ready", [["default"], []])
def test_look_for_ready_queues_that_ends_the_connection_twice_in_a_row_is_put_off(consumer, monkeypatch, ready):
    ends = "SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(60)"
    monkeypatch.setattr(queue_cursor, "ready_queues", lambda database, _: database.rows(ends, {}))
    cycles(consumer, 2)
    assert (consumer._backoff._failed_claims, consumer._cursors._failed_looks) == (1, 0)
    cycles(consumer, 2)
    assert consumer._cursors._failed_looks == 1
    app.noop.enqueue_many([()])
    consumer._cursors._retry_look_at += 60
    consumer._cursors.mark_ready(ready)
    cycles(consumer, 1)
    assert len(consumer.slots.accepted) == len(ready)


def test_connection_that_cannot_be_opened_for_a_claim_sets_no_queue_back(consumer, monkeypatch):
    app.noop.enqueue_many([()])
    cycle(consumer)
    monkeypatch.setitem(consumer.database._wrapper.settings_dict, "HOST", "/nowhere")
    for failures in (1, 2, 3):
        consumer.database.close()
        consumer._backoff.claim_at = 0.0
        consumer._cursors.mark_ready(["default"])
        consumer._claim_apart()
        assert consumer._backoff._failed_claims == failures
    assert (consumer._cursors._setbacks, consumer._cursors._failed_looks) == ({}, 0)


def test_first_failure_of_a_claim_sets_its_queue_back_for_a_moment_however_long_it_has_taken(consumer, damaged):
    """As one of an ALTER TABLE that has locked the table. Only a call shortens the longer pause of later failures."""
    cycle(consumer)
    [bad] = enqueued_ids(app.noop, [()])
    damaged(bad, "57014")
    cycles(consumer, 2)
    cursors, error = consumer._cursors, OperationalError("cancelled")
    del cursors._setbacks["default"]
    before = time.monotonic()
    cursors.failed(error, 5.0)
    assert before < cursors._setbacks["default"].retry_at < time.monotonic() + 5
    before = time.monotonic()
    cursors.failed(error, 5.0)
    assert before + 50 <= cursors._setbacks["default"].retry_at
    cursors.mark_ready(["another"])
    assert before + 50 <= cursors._setbacks["default"].retry_at
    cursors.mark_ready(["default"])
    assert before + 15 <= cursors._setbacks["default"].retry_at < before + 50


def test_jobs_that_were_fetched_do_not_wait_for_a_queue_that_was_set_back(consumer, damaged, monkeypatch):
    consumer.slots.concurrency = WORTHWHILE
    [bad] = enqueued_ids(app.noop.using(queue="bad"), [()])
    damaged(bad, "57014")
    cycles(consumer, 2)
    consumer._cursors._setbacks["bad"].retry_at = consumer._backoff.claim_at = 0.0
    app.noop.enqueue_many([()] * WORTHWHILE)
    consumer._cursors.mark_ready(["default"])
    accepted_before, send = [], queue_cursor.claim.send

    def noting(database, queue, **details):
        accepted_before.append((queue, len(consumer.slots.accepted)))
        return send(database, queue, **details)

    monkeypatch.setattr(queue_cursor.claim, "send", noting)
    consumer.slots.concurrency += 1
    consumer._cycle()
    assert accepted_before == [("default", 0), ("bad", WORTHWHILE)]
