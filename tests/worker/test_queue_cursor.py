"""The start of claims: between full scans above the last job taken, and nothing below is missed."""

import datetime as dt
import queue as stdlib_queue
import time

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import IsolationLevel

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from django_pgqueue.db.queries import sized
from django_pgqueue.jobs.claim import Claim, claim, send
from django_pgqueue.maintenance.promoter import promote
from django_pgqueue.models import Job
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.worker import queue_cursor
from django_pgqueue.worker.consumer import Consumer
from django_pgqueue.worker.limits_cache import LimitsCache
from django_pgqueue.worker.queue_cursor import FULL_SCAN_SECONDS, QueueCursors
from django_pgqueue.worker.shared_state import SharedState, now
from tests.support.consumers import Benched
from tests.support.plans import explain

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
    ids = enqueue_many(app.noop, [()] * 30)
    source = QueueCursors((), LimitsCache())
    first, taken = take(source)
    assert (first.above, taken) == (None, ids[:10])
    second, taken = take(source)
    assert second.above[2] == ids[9]
    assert taken == ids[10:20]


def test_full_scans_are_no_closer_than_ten_times_their_duration_and_no_further_than_a_second(take, monkeypatch):
    monkeypatch.setattr(queue_cursor, "FULL_SCAN_SECONDS", FULL_SCAN_SECONDS)
    enqueue_many(app.noop, [()] * 30)
    source = QueueCursors((), LimitsCache())
    for seconds, pause in ((0.03, 0.3), (60.0, FULL_SCAN_SECONDS)):
        later(source)
        before = time.monotonic()
        take(source, seconds=seconds)
        assert before + pause <= source._cursors["default"].full_scan_at <= time.monotonic() + pause


def test_full_scan_comes_sooner_where_work_was_announced(take, monkeypatch):
    monkeypatch.setattr(queue_cursor, "FULL_SCAN_SECONDS", FULL_SCAN_SECONDS)
    enqueue_many(app.noop, [()] * 30)
    source = QueueCursors((), LimitsCache())
    before = time.monotonic()
    take(source, seconds=0.03)
    source.mark_ready(["mail", "default"])
    assert before + 0.09 <= source._cursors["default"].full_scan_at <= time.monotonic() + 0.09


def test_higher_priority_is_found_by_the_next_full_scan(take):
    enqueue_many(app.noop, [()] * 30)
    source = QueueCursors((), LimitsCache())
    take(source)
    urgent = app.noop.using(priority=9).enqueue().id
    assert urgent not in take(source)[1]
    later(source)
    assert urgent in take(source)[1]


def test_queue_whose_claim_came_back_short_is_owed_a_full_scan(take, settings):
    """The consumer need not be told: it wakes by itself when the time has come."""
    settings.PGQUEUE = {"POLL_SECONDS": 3600}
    enqueue_many(app.noop, [()] * 15)
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
    ids = enqueue_many(app.noop, [()])
    assert take(source) == (None, [])
    source.mark_ready(["default"])
    assert take(source)[1] == ids
    later(source)
    take(source)
    assert source.wait_until() > time.monotonic() + 2400
    source.mark_ready(None)
    assert source.wait_until() == 0.0


def test_queues_named_are_served_in_strict_order(take):
    enqueue_many(app.noop, [()] * 30)
    mail = enqueue_many(app.noop.using(queue="mail"), [()] * 3)
    source = QueueCursors(("mail", "default"), LimitsCache())
    source.mark_ready(["default"])
    assert [take(source)[0].queue for _ in range(3)] == ["mail", "default", "default"]
    enqueue_many(app.noop.using(queue="mail"), [()])
    source.mark_ready(["mail"])
    claimed, taken = take(source)
    assert claimed.queue == "mail"
    assert taken > mail


def test_queues_not_named_take_turns(take):
    enqueue_many(app.noop, [()] * 40)
    enqueue_many(app.noop.using(queue="mail"), [()] * 40)
    source = QueueCursors((), LimitsCache())
    queues = [take(source)[0].queue for _ in range(6)]
    assert queues.count("mail") == queues.count("default") == 3


def test_claim_above_a_place_takes_what_comes_after_it_in_every_respect(queue):
    """Same priority and run_at: the id decides; same priority: run_at; else the priority."""
    at = dt.datetime(2024, 2, 29, 12, 0, 0, 123457, tzinfo=dt.UTC)
    before, itself, after = enqueue_many(app.noop.using(run_at=at), [()] * 3)
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
    enqueue_many(app.noop, [()] * 20_200)
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
            cursor.execute("TRUNCATE pgqueue_jobs, pgqueue_finished_jobs")
        self.consumer.slots.accepted.clear()
        self.consumer._in_flight._free = list(range(4096))
        self.consumer._in_flight.unwritten.clear()
        self.consumer._cursors = QueueCursors((), self.consumer._limits)

    def do(self, name, *details):
        getattr(self, name.replace(" ", "_"))(*details)

    def enqueue(self, priority, queue, number):
        enqueue_many(app.noop.using(priority=priority, queue=queue), [()] * number)
        self.consumer.wake([queue])

    def enqueue_unheard(self, priority, queue, number):
        enqueue_many(app.noop.using(priority=priority, queue=queue), [()] * number)

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
            self.consumer.slots.outbox.put((cell, Outcome(job, fate, **details)))


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
