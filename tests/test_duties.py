"""One pass of housekeeping: its duties, their order, their time; no duty keeps the others waiting."""

import threading
import time
from types import SimpleNamespace

import pytest

import tests.app.tasks as app
from django_pgqueue.services import SPELL_SECONDS, Duties, ServiceRunner
from django_pgqueue.worker.config import WorkerConfig
from django_pgqueue.worker.heartbeat import HeartbeatMonitor
from django_pgqueue.worker.maintenance import MaintenanceRunner
from django_pgqueue.worker.supervisor import Supervisor
from tests.support.waiting import PATIENCE_SECONDS, eventually


class Clock:
    """The monotonic clock as duties see it: it stands still unless it is moved."""

    def __init__(self) -> None:
        self.seconds = time.monotonic()

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr("django_pgqueue.services.time", made)
    return made


@pytest.fixture
def maintenance(transactional_db):
    """The housekeeping of a command that has no processes; ``filled`` counts how often its places were looked after."""
    pool = SimpleNamespace(plan=WorkerConfig(), ended=[], next_start_seconds=lambda: None, worker_ids=list, filled=0)

    def fill(database):
        pool.filled += 1

    pool.spawn_missing = fill
    made = MaintenanceRunner("default", pool, HeartbeatMonitor(30), wake=lambda payloads: None, drained=None)
    yield made
    made.database.close()


def make_due(maintenance: MaintenanceRunner) -> None:
    """Let another job be due that is not promoted yet."""
    maintenance.database.rows(
        "INSERT INTO pgqueue_jobs (task, status, run_at) VALUES (%(task)s, 'scheduled', now()) RETURNING id",
        {"task": app.noop.name},
    )


def test_promotion_lets_the_other_duties_in_though_new_jobs_come_due_all_the_time(maintenance, clock, monkeypatch):
    """A stream that is faster than promotion: with each slice that is promoted another job is due."""
    monkeypatch.setattr("django_pgqueue.services.LARGEST_SLICE", 1)
    maintenance._promoting.size = 1
    slices = []

    def wake(payloads):
        slices.append(payloads)
        clock.seconds += SPELL_SECONDS / 2
        if len(slices) < 40:
            make_due(maintenance)

    maintenance._wake = wake
    make_due(maintenance)
    for passes in (1, 2, 3):
        assert maintenance.pass_once() == 0.0, "there is more to promote"
        assert (len(slices), maintenance._pool.filled) == (2 * passes, passes)


def test_pass_that_is_told_to_stop_ends_before_the_next_duty():
    done = []

    def one():
        done.append("one")
        loop.stop()

    def two():
        done.append("two")

    duties = Duties(one, two)
    loop = ServiceRunner("duty", duties.pass_once, stop=duties.stop)
    loop.start()
    loop.join(PATIENCE_SECONDS)
    assert done == ["one"]


def test_promotion_of_a_stream_ends_when_the_command_is_told_to_stop(maintenance, monkeypatch):
    """The slices come faster than their spell ends: it is the loop that has it end."""
    slices = []

    def wake(payloads):
        slices.append(payloads)
        if not is_over:
            make_due(maintenance)

    is_over = False
    maintenance._wake = wake
    make_due(maintenance)
    loop = ServiceRunner("housekeeping", maintenance.pass_once, stop=maintenance.duties.stop)
    loop.start()
    try:
        eventually(lambda: len(slices) > 3)
        loop.stop()
        loop.join(PATIENCE_SECONDS)
        assert not loop.is_alive()
    finally:
        is_over = True
        loop.stop()
        loop.join(PATIENCE_SECONDS)


def test_command_that_ends_says_which_duty_has_not_come_back_and_leaves_it_its_connection(
    transactional_db, monkeypatch, caplog
):
    """To close the connection under a thread that uses it would hide what the thread hangs in."""
    monkeypatch.setattr("django_pgqueue.worker.supervisor.FAREWELL_SECONDS", 0.0)
    supervisor = Supervisor(WorkerConfig(queues=(), processes=1, concurrency=1))
    maintenance, loop, is_over = supervisor._maintenance, supervisor._house_loop, threading.Event()

    def expire():
        maintenance.database.rows("SELECT 1", {})
        is_over.wait(PATIENCE_SECONDS)

    maintenance.duties._duties = (expire,)
    loop.start()
    try:
        eventually(lambda: maintenance.database._wrapper.connection)
        supervisor._finish()
        assert "leases will run out: housekeeping is still at its duty expire" in caplog.text
        assert maintenance.database._wrapper.connection
    finally:
        is_over.set()
        loop.join(PATIENCE_SECONDS)
        maintenance.database.close()


def test_duty_that_does_not_come_back_is_named_once(transactional_db, monkeypatch, caplog):
    """As while the database hangs."""
    supervisor = Supervisor(WorkerConfig(queues=(), processes=1, concurrency=1))
    seconds = [59.0]
    supervisor._maintenance.duties.doing_seconds = lambda: seconds[0]
    supervisor._maintenance.duties.doing = "expire"
    for seconds[0] in (59.0, 60.0, 61.0, 0.0, 75.0):
        supervisor._tell_of_long_duty()
    assert [record.message for record in caplog.records] == [
        "Housekeeping has been at its duty expire for 60 s, and does no other",
        "Housekeeping has been at its duty expire for 75 s, and does no other",
    ]


def test_age_of_a_duty_begins_with_it_and_not_with_its_pass(monkeypatch):
    clock, ages = [1000.0], []
    monkeypatch.setattr("django_pgqueue.services.time", SimpleNamespace(monotonic=lambda: clock[0]))

    def long():
        clock[0] += 50

    def longer():
        ages.append(duties.doing_seconds())
        clock[0] += 60
        ages.append(duties.doing_seconds())
        raise ValueError

    duties = Duties(long, longer)
    duties.pass_once()
    clock[0] += 100
    assert (ages, duties.doing, duties.doing_seconds()) == ([0, 60], "longer", 0)
