"""VACUUM from the workers: dead rows, old snapshots, others on the table, roles."""

import contextlib
import threading
import time

import pytest
from django.db import connection

import tests.app.tasks as app
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.jobs import ack
from django_pgqueue.jobs.claim import claim
from django_pgqueue.maintenance import vacuum as vacuum_module
from django_pgqueue.maintenance.vacuum import VACUUM, VacuumHistory, look, oldest_snapshot, privileges, vacuum
from django_pgqueue.models import Job
from django_pgqueue.records import Fate, Outcome
from tests.support.needs import POSTGRESQL_17
from tests.support.waiting import PATIENCE_SECONDS, beside, eventually

pytestmark = pytest.mark.usefixtures("own_vacuum_only")


@pytest.fixture
def snapshot(queue, other_queue):
    """Hold the oldest snapshot, in a session of its own; returns how to let go of it."""
    held = other_queue.autocommit()
    held.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    held.execute("SELECT 'a report'")  # no lock on the table: only the snapshot counts
    eventually(lambda: oldest_snapshot(queue).name.endswith("(pgqueue other test)"))  # autovacuum may hold one, too
    yield held.rollback
    held.rollback()


@pytest.fixture
def role(queue, sql):
    """Return how to open connections as a role with the rights that the page on deploying names, and no other."""
    opened = []
    sql("DROP ROLE IF EXISTS pgqueue_lesser")
    sql("CREATE ROLE pgqueue_lesser")
    sql("GRANT SELECT, INSERT, UPDATE, DELETE ON pgqueue_jobs TO pgqueue_lesser")

    def open_as_lesser() -> QueueConnection:
        lesser = QueueConnection("default", "lesser")
        lesser.autocommit().execute("SET ROLE pgqueue_lesser")
        opened.append(lesser)
        return lesser

    yield open_as_lesser
    for lesser in opened:
        lesser.close()
    sql("ALTER TABLE pgqueue_jobs OWNER TO CURRENT_USER")
    sql("DROP OWNED BY pgqueue_lesser")
    sql("DROP ROLE pgqueue_lesser")


def in_time(past: VacuumHistory) -> VacuumHistory:
    """Let the pause be over."""
    past.not_before = time.monotonic()
    return past


def left(database, past: VacuumHistory | None = None) -> int:
    """VACUUM whatever is dead and return how much stays; to be waited for: ANALYZE may hold a snapshot for a moment."""
    vacuum(database, in_time(past or VacuumHistory()), threshold=1)
    return look(database).dead


# What is dead goes


def test_vacuum_removes_dead_rows_and_leaves_the_file_its_length(queue, sql, kill_rows):
    kill_rows(1000)
    before = sql("SELECT pg_relation_size('pgqueue_jobs')")
    done = vacuum(queue, VacuumHistory(), threshold=1000)
    assert done.dead == 1000
    eventually(lambda: left(queue) == 0)
    assert sql("SELECT pg_relation_size('pgqueue_jobs')") == before
    assert sql("SELECT pg_relation_size('pgqueue_jobs') > 0") == [(True,)]


def test_room_of_dead_rows_is_used_again_in_table_and_indexes(queue, sql, kill_rows):
    def size():
        return sql("SELECT pg_relation_size('pgqueue_jobs'), pg_relation_size('pgqueue_jobs_pkey')")

    kill_rows(5000)
    [(heap, _)] = size()
    for _ in range(4):
        eventually(lambda: left(queue) == 0)
        kill_rows(5000)
    [(later, _)] = size()
    assert later <= heap * 1.2
    for _ in range(4):
        kill_rows(5000)
    [(without, _)] = size()
    assert without > later * 1.5


def test_vacuum_leaves_the_table_alone_below_the_threshold(queue, kill_rows):
    kill_rows(99)
    assert vacuum(queue, VacuumHistory(), threshold=100) is None
    kill_rows(1)
    assert vacuum(queue, VacuumHistory(), threshold=100).dead == 100


def test_long_queue_is_vacuumed_when_a_tenth_of_it_is_dead(queue, sql, kill_rows):
    app.noop.enqueue_many([()] * 3000)
    kill_rows(299)
    assert look(queue).live == 3000
    assert vacuum(queue, VacuumHistory(), threshold=100) is None
    kill_rows(1)
    assert vacuum(queue, VacuumHistory(), threshold=100).dead == 300


def test_vacuum_may_take_a_part_of_the_time_only(queue, kill_rows):
    past = VacuumHistory()
    kill_rows(1000)
    begun = time.monotonic()
    done = vacuum(queue, past, threshold=100)
    assert past.not_before >= begun + 5 * done.seconds
    eventually(lambda: left(queue, past) == 0)
    past.not_before = time.monotonic() + 60
    kill_rows(1000)
    assert vacuum(queue, past, threshold=100) is None
    assert eventually(lambda: vacuum(queue, in_time(past), threshold=100)).dead == 1000


# A held snapshot


@pytest.mark.parametrize("is_in_turn", [True, False])
def test_older_transaction_is_named_of_two_with_the_same_snapshot(queue, other_queue, sql, is_in_turn):
    """In whichever order the server lists them."""
    with contextlib.closing(QueueConnection("default", "third")) as third:
        sessions = {one.autocommit().info.backend_pid: one.autocommit() for one in (other_queue, third)}
        listed = [pid for (pid,) in sql("SELECT pid FROM pg_stat_activity") if pid in sessions]
        older, younger = listed if is_in_turn else reversed(listed)
        for pid in (older, younger):
            sessions[pid].execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            sessions[pid].execute("SELECT 'a report'")
        eventually(lambda: oldest_snapshot(queue).handle == str(older))  # autovacuum may hold one, too


def test_vacuum_is_not_tried_again_under_the_same_snapshot(queue, sql, snapshot, kill_rows):
    past = VacuumHistory()
    kill_rows(1000)
    assert oldest_snapshot(queue).name.endswith("(pgqueue other test)")
    assert vacuum(queue, past, threshold=100).left == 1000
    kill_rows(1000)
    assert vacuum(queue, in_time(past), threshold=100) is None
    assert look(queue).dead == 2000
    snapshot()
    eventually(lambda: left(queue, past) == 0)


def test_snapshot_that_a_second_one_follows_is_news(queue, other_queue, sql, snapshot, kill_rows):
    past = VacuumHistory()
    kill_rows(1000)
    vacuum(queue, past, threshold=100)
    snapshot()
    held = other_queue.autocommit()
    held.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    held.execute("SELECT 'another report'")
    kill_rows(500)
    assert vacuum(queue, in_time(past), threshold=100).dead == 1500
    eventually(lambda: left(queue) == 500)


def test_vacuum_of_another_worker_under_the_same_snapshot_counts(queue, snapshot, kill_rows):
    mine, others = VacuumHistory(vacuums=look(queue).vacuums), VacuumHistory()
    kill_rows(1000)
    assert vacuum(queue, others, threshold=100).left == 1000
    assert vacuum(queue, mine, threshold=100) is None
    assert vacuum(queue, mine, threshold=100) is None
    snapshot()
    eventually(lambda: left(queue, mine) == 0)


def test_vacuum_that_leaves_most_makes_the_next_wait_longer_and_longer(queue, snapshot, kill_rows, monkeypatch):
    monkeypatch.setattr(vacuum_module, "SHARE_OF_TIME", 1)
    past = VacuumHistory()
    for pause in (2, 4, 8, 16, 32, 60, 60, 60):
        kill_rows(1000)
        past.horizon = None  # as if it had moved, by a hair
        before = time.monotonic()
        assert vacuum(queue, in_time(past), threshold=100).left
        assert before + pause <= past.not_before <= time.monotonic() + pause
    snapshot()
    eventually(lambda: left(queue, past) == 0)
    assert past.poor == 0


def test_any_role_sees_the_snapshots_of_others(snapshot, role):
    assert oldest_snapshot(role()).name.endswith("(pgqueue other test)")


def test_who_holds_many_dead_rows_is_named_once(queue, snapshot, kill_rows, caplog):
    past = VacuumHistory()
    kill_rows(999)
    vacuum(queue, past, threshold=100)
    assert vacuum(queue, in_time(past), threshold=100) is None
    assert caplog.text == ""
    kill_rows(1)
    for _ in range(2):
        assert vacuum(queue, past, threshold=100) is None
    [line] = caplog.messages
    assert line.startswith("An old snapshot keeps 1000 dead rows in pgqueue_jobs: that of process ")
    assert line.endswith("(pgqueue other test)")


# Others on the table


@pytest.mark.parametrize("mode", ["SHARE UPDATE EXCLUSIVE", "ACCESS EXCLUSIVE"])
def test_vacuum_steps_back_before_a_lock(queue, other_queue, sql, kill_rows, mode):
    kill_rows(1000)
    holder = other_queue.autocommit()
    with holder.transaction():
        holder.execute(f"LOCK TABLE pgqueue_jobs IN {mode} MODE")
        assert vacuum(queue, VacuumHistory(), threshold=100) is None
        notices = []
        queue.autocommit().add_notice_handler(lambda notice: notices.append(notice.sqlstate))
        queue.autocommit().execute(VACUUM)  # had the lock come in between
        assert notices == ["55P03"]
    assert look(queue).dead == 1000
    assert vacuum(queue, VacuumHistory(), threshold=100).dead == 1000


def test_jobs_are_enqueued_claimed_and_written_under_the_lock_of_vacuum(queue, other_queue):
    holder = other_queue.autocommit()
    with holder.transaction():
        holder.execute("LOCK TABLE pgqueue_jobs IN SHARE UPDATE EXCLUSIVE MODE")
        app.noop.enqueue_many([()] * 10)
        jobs = claim(queue, "default", limit=10, worker_id=1)
        with queue.transaction():
            ack.write(queue, [Outcome(job, Fate.SUCCEEDED) for job in jobs])
        assert len(jobs) == 10
    assert not Job.objects.exists()


def test_two_workers_at_once_do_not_wait_for_each_other(queue, other_queue, sql, kill_rows):
    kill_rows(20_000)
    before, done = look(queue).vacuums, []
    start = threading.Barrier(2, timeout=PATIENCE_SECONDS)

    def work(database):
        start.wait()
        done.append(vacuum(database, VacuumHistory(), threshold=10_000))

    with beside(lambda: work(queue)), beside(lambda: work(other_queue)):
        pass
    assert 1 <= look(queue).vacuums - before <= 2  # the second may begin when the first is over
    assert len(done) == 2
    eventually(lambda: left(queue) == 0)


# Roles


def test_role_that_may_not_is_told_once_what_to_do(role, kill_rows, caplog):
    kill_rows(1000)
    lesser, past = role(), VacuumHistory()
    begun = time.monotonic()
    assert vacuum(lesser, past, threshold=100) is None
    assert begun + 3600 <= past.not_before <= time.monotonic() + 3600
    assert vacuum(lesser, in_time(past), threshold=100) is None
    [line] = caplog.messages
    assert "role may not VACUUM pgqueue_jobs. Set PGQUEUE['MAINTENANCE_DATABASE']" in line


def test_owner_may(role, sql, kill_rows):
    kill_rows(1000)
    lesser = role()
    assert privileges(lesser) == (False, False, False)
    sql("ALTER TABLE pgqueue_jobs OWNER TO pgqueue_lesser")
    assert privileges(lesser) == (True, False, False)
    eventually(lambda: left(lesser) == 0)


def test_role_with_maintain_may(role, sql, kill_rows):
    if connection.pg_version < 170000:
        pytest.skip(POSTGRESQL_17)
    kill_rows(1000)
    sql("GRANT MAINTAIN ON pgqueue_jobs TO pgqueue_lesser")
    lesser = role()
    assert privileges(lesser) == (True, False, False)
    eventually(lambda: left(lesser) == 0)
