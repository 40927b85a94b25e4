"""Maintenance of one command: what its dead processes left, and services that take long."""

import datetime as dt
import time
from types import SimpleNamespace

import pytest
from django.db import connection

import tests.app.tasks as app
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.db.notify import limits_in
from django_pgqueue.jobs.claim import claim, send
from django_pgqueue.maintenance import vacuum as vacuum_module
from django_pgqueue.maintenance.vacuum import look
from django_pgqueue.models import Job, Queue, Worker
from django_pgqueue.services import SPELL_SECONDS, ServiceRunner
from django_pgqueue.worker.config import WorkerConfig
from django_pgqueue.worker.maintenance import MaintenanceRunner, TableMaintenance
from django_pgqueue.worker.processes import ProcessPool
from django_pgqueue.worker.shared_state import SharedState
from tests.support.keyed import admitted, limited
from tests.support.many import enqueued_ids
from tests.support.passes import idle_pool, run_service
from tests.support.waiting import PATIENCE_SECONDS, beside, eventually
from tests.support.worker_rows import register


def dead_process(worker_id: int) -> SimpleNamespace:
    return SimpleNamespace(
        worker_id=worker_id,
        shared=SharedState(),
        was_stopped=False,
        was_careful=False,
        pid=1,
        exit_code=0,
        overdue=set,
        close=lambda: None,
        ended_seconds=0.0,
    )


def test_dead_process_is_kept_in_mind_until_the_last_of_its_jobs_is_settled(queue, other_queue, maintenance_runner):
    """Its shared state says which jobs had started, so it is needed for a row that is locked for now."""
    worker_id = register(queue)
    locked, free = enqueued_ids(app.noop, [()] * 2)
    claim(queue, "default", limit=2, worker_id=worker_id)
    process = dead_process(worker_id)
    pool = idle_pool(ended=[process])
    maintenance = maintenance_runner(pool)
    with other_queue.transaction():
        other_queue.rows("SELECT id FROM pgqueue_jobs WHERE id = %(id)s FOR UPDATE", {"id": locked})
        maintenance.settle_ended()
        assert (pool.ended, Worker.objects.count()) == ([process], 1)
        assert Job.objects.get(status="queued").id == free
    with other_queue.transaction():
        other_queue.rows("SELECT id FROM pgqueue_workers FOR UPDATE", {})
        maintenance.settle_ended()
        assert (pool.ended, Worker.objects.count()) == ([process], 1)
    maintenance.settle_ended()
    assert (pool.ended, Worker.objects.count()) == ([], 0)
    assert set(Job.objects.values_list("status", "attempts")) == {("queued", 0)}


def test_dead_process_is_forgotten_although_the_row_of_one_of_its_jobs_cannot_be_written(
    queue, bad_row, maintenance_runner, caplog
):
    caplog.set_level("INFO")
    worker_id = register(queue)
    [bad] = enqueued_ids(app.noop, [()])
    claim(queue, "default", limit=1, worker_id=worker_id)
    bad_row(bad, "P0001")
    process = dead_process(worker_id)
    pool = idle_pool(ended=[process])
    maintenance = maintenance_runner(pool)
    assert maintenance.settle_ended() is not None
    assert pool.ended == [process], "as long as its lease may last"
    process.ended_seconds = 31.0
    assert maintenance.settle_ended() is None
    assert (pool.ended, Worker.objects.count(), Job.objects.get().status) == ([], 0, "running")
    assert "cannot be taken back" in caplog.text
    assert "left jobs behind" not in caplog.text


@pytest.mark.parametrize("exit_code", [-9, 0], ids=["killed", "ended by a job"])
def test_claim_in_flight_when_its_process_dies_is_settled_when_the_server_is_through_with_it(
    queue, exit_code, maintenance_runner
):
    """It is committed after its process was settled; not even a job that may start only once pays for it."""
    worker_id = register(queue)
    app.noop.using(max_attempts=1, lease=dt.timedelta(days=1)).enqueue()
    process = SimpleNamespace(
        worker_id=worker_id,
        shared=SharedState(),
        was_stopped=False,
        was_careful=False,
        pid=1,
        exit_code=exit_code,
        overdue=set,
        close=lambda: None,
        ended_seconds=0.0,
    )
    pool = idle_pool(ended=[process])
    maintenance = maintenance_runner(pool)
    consumer = QueueConnection("default", f"consumer {worker_id}")
    try:
        with consumer.transaction():
            assert len(send(consumer, "default", limit=1, worker_id=worker_id).jobs()) == 1
            assert maintenance.settle_ended() is not None, "the server is still at it"
            assert (pool.ended, Worker.objects.count()) == ([process], 1)
        assert Job.objects.get().status == "running"
        consumer.close()
        eventually(lambda: maintenance.settle_ended() is None)
        assert (pool.ended, Worker.objects.count()) == ([], 0)
        assert set(Job.objects.values_list("status", "attempts", "lost")) == {("queued", 0, 0)}
    finally:
        consumer.close()


def test_session_of_a_process_whose_consumer_has_ended_is_not_waited_for(queue, maintenance_runner):
    """It closed its own; what is there is that of a copy."""
    worker_id = register(queue)
    shared = SharedState()
    shared.end_cycles()
    process = SimpleNamespace(
        worker_id=worker_id,
        shared=shared,
        was_stopped=False,
        was_careful=False,
        pid=1,
        exit_code=0,
        overdue=set,
        close=lambda: None,
        ended_seconds=0.0,
    )
    pool = idle_pool(ended=[process])
    maintenance = maintenance_runner(pool)
    copy = QueueConnection("default", f"consumer {worker_id}")
    try:
        copy.rows("SELECT 1", {})
        assert maintenance.settle_ended() is None
        assert (pool.ended, Worker.objects.count()) == ([], 0)
    finally:
        copy.close()


def test_session_of_a_dead_process_that_does_not_end_is_waited_for_no_longer_than_a_statement_may_take(
    queue, maintenance_runner
):
    """As where a job has made a copy of the process by fork, which keeps the socket and lives on."""
    worker_id = register(queue)
    process = SimpleNamespace(
        worker_id=worker_id,
        shared=SharedState(),
        was_stopped=False,
        pid=1,
        exit_code=-9,
        overdue=set,
        close=lambda: None,
    )
    process.was_careful = False
    pool = idle_pool(ended=[process])
    maintenance = maintenance_runner(pool)
    consumer = QueueConnection("default", f"consumer {worker_id}")
    try:
        consumer.rows("SELECT 1", {})
        pauses = []
        for process.ended_seconds in (0.0, 0.9, 1.0, 60.0):
            pauses.append(maintenance.settle_ended())
            assert (pool.ended, Worker.objects.count()) == ([process], 1)
        assert pauses == [0.1, 0.1, 1.0, 1.0]
        process.ended_seconds = 60.1
        assert maintenance.settle_ended() is None
        assert (pool.ended, Worker.objects.count()) == ([], 0)
    finally:
        consumer.close()


@pytest.fixture
def slow_promotion(transactional_db, sql):
    """Let a statement that promotes more than 40 rows end as one that takes too long."""
    sql(
        "CREATE FUNCTION pgqueue_slow() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN IF (SELECT count(*) FROM promoted) > 40 THEN RAISE query_canceled; END IF; RETURN NULL; END $$"
    )
    sql(
        "CREATE TRIGGER slow AFTER UPDATE ON pgqueue_jobs REFERENCING NEW TABLE AS promoted "
        "FOR EACH STATEMENT EXECUTE FUNCTION pgqueue_slow()"
    )
    yield
    sql("DROP FUNCTION pgqueue_slow CASCADE")


def test_service_that_takes_too_long_takes_less_at_once_and_holds_up_no_other(
    sql, slow_promotion, caplog, maintenance_runner
):
    app.noop.using(delay=dt.timedelta(hours=1)).enqueue_many([()] * 64)
    sql("ALTER TABLE pgqueue_jobs DISABLE TRIGGER slow")
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '1 s'")
    sql("ALTER TABLE pgqueue_jobs ENABLE TRIGGER slow")
    woken, looked = [], []
    maintenance = maintenance_runner(wake=woken.append, drained=lambda: looked.append(True))
    maintenance._promoting.size = 64
    maintenance.pass_once()
    assert (Job.objects.filter(status="queued").count(), maintenance._promoting.size) == (0, 32)
    [record] = [record for record in caplog.records if "The service promote took too long" in record.getMessage()]
    assert (record.levelname, record.exc_info) == ("WARNING", None), "a time limit is no error of this package"
    maintenance.pass_once()
    maintenance.pass_once()
    assert Job.objects.filter(status="queued").count() == 64
    assert woken
    sql("DELETE FROM pgqueue_jobs")
    maintenance.pass_once()
    assert looked


class Clock:
    """The monotonic clock as services see it: it stands still unless it is moved."""

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
def maintenance(maintenance_runner):
    """The maintenance of a command that has no processes; ``filled`` counts how often its places were looked after."""
    pool = idle_pool(filled=0)

    def fill(database):
        pool.filled += 1

    pool.spawn_missing = fill
    return maintenance_runner(pool)


def make_due(maintenance: MaintenanceRunner) -> None:
    """Let another job be due that is not promoted yet."""
    maintenance.database.rows(
        "INSERT INTO pgqueue_jobs (task, status, run_at) VALUES (%(task)s, 'scheduled', now()) RETURNING id",
        {"task": app.noop.name},
    )


def test_promotion_lets_the_other_services_in_though_new_jobs_come_due_all_the_time(maintenance, clock, monkeypatch):
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
    loop = ServiceRunner("maintenance", maintenance.pass_once, stop=maintenance.services.stop)
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


def test_sweep_is_due_at_once_when_any_key_may_have_room(maintenance, clock):
    """As when the listener has lost its connection, and with it the keys that were announced meanwhile."""

    def swept() -> list[int]:
        for service in ("read_pending", "sweep_concurrency", "admit"):
            run_service(maintenance.services, service)
        return admitted()

    first = limited(1, "a").enqueue().id
    assert swept() == [first]
    second = limited(1, "b").enqueue().id
    assert swept() == [first], "it is not due"
    maintenance.admit({"c"})
    assert swept() == [first], "it is not due for keys that have a name"
    maintenance.admit({""})
    assert swept() == [first, second]


def test_limits_of_the_settings_are_brought_into_the_table_and_the_processes_told(maintenance, settings, monkeypatch):
    settings.PGQUEUE = {**settings.PGQUEUE, "QUEUES": {"mail": {"max_running": 4}}}
    woken = set()
    monkeypatch.setattr(maintenance, "_wake", woken.update)
    run_service(maintenance.services, "update_queues")
    assert Queue.objects.get(pk="mail").max_running == 4
    assert limits_in(woken) == {"mail"}


pytestmark = pytest.mark.usefixtures("own_vacuum_only")


@pytest.fixture
def table_maintenance(queue, settings):
    settings.PGQUEUE = {"VACUUM_DEAD_ROWS": 100}
    made = TableMaintenance("default", ProcessPool(WorkerConfig(), supervisor_id=1, lease_seconds=30))
    yield made
    made.stop()
    made.database.close()


def database_name() -> str:
    return connection.settings_dict["NAME"]


def maintenance_sessions(sql) -> list[tuple]:
    return sql(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'pgqueue table-maintenance' AND datname = %s",
        database_name(),
    )


def test_table_is_vacuumed_at_the_first_pass_and_then_holds_no_connection(table_maintenance, queue, sql, kill_rows):
    kill_rows(1000)
    before = look(queue).vacuums
    assert table_maintenance.pass_once() <= 1.0
    assert look(queue).vacuums == before + 1
    kill_rows(1000)
    table_maintenance.pass_once()
    assert look(queue).vacuums == before + 1  # no process of its own pool has done anything
    eventually(lambda: not maintenance_sessions(sql))


def test_table_is_looked_at_again_when_the_pool_has_finished_jobs(table_maintenance, queue, kill_rows):
    table_maintenance.pass_once()
    before = look(queue).vacuums
    kill_rows(1000)
    table_maintenance._pool._finished = 1
    table_maintenance._past.not_before = 0.0
    table_maintenance.pass_once()
    assert look(queue).vacuums == before + 1


def test_vacuum_can_be_switched_off(table_maintenance, queue, settings, kill_rows):
    settings.PGQUEUE = {"VACUUM_DEAD_ROWS": 0}
    kill_rows(1000)
    table_maintenance.pass_once()
    assert look(queue).dead == 1000


@pytest.fixture
def slow_vacuum(sql):
    """Let every VACUUM of new sessions take long; returns how to end that."""

    def end() -> None:
        sql(f'ALTER DATABASE "{database_name()}" RESET ALL')

    sql(f'ALTER DATABASE "{database_name()}" SET vacuum_cost_delay = 100')
    sql(f'ALTER DATABASE "{database_name()}" SET vacuum_cost_limit = 1')
    yield end
    end()


def vacuuming(sql) -> list[int]:
    """Return who vacuums the jobs: autovacuum is at work on other tables at any time, and slow there, too."""
    return [
        pid
        for (pid,) in sql(
            "SELECT pid FROM pg_stat_progress_vacuum WHERE datname = %s AND relid = 'pgqueue_jobs'::regclass",
            database_name(),
        )
    ]


def test_stop_breaks_a_vacuum_off(table_maintenance, sql, slow_vacuum, kill_rows, caplog):
    kill_rows(20_000)
    with beside(table_maintenance.pass_once):
        eventually(lambda: vacuuming(sql))
        table_maintenance.stop()
    eventually(lambda: not vacuuming(sql))  # the server answers before it has tidied up
    assert caplog.text == ""


def test_stop_breaks_off_what_comes_before_a_vacuum_without_a_word(table_maintenance, sql, monkeypatch, caplog):
    monkeypatch.setattr(vacuum_module, "statement", lambda name: "SELECT pg_sleep(600)")

    def looking() -> list[tuple]:
        asked = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'pgqueue table-maintenance' AND query LIKE %s"
        return sql(f"{asked} AND state = 'active' AND datname = %s", "%pg_sleep(600)%", database_name())

    with beside(table_maintenance.pass_once):
        eventually(looking)
        table_maintenance.stop()
    assert caplog.text == ""


def test_vacuum_that_is_cancelled_is_not_tried_again_at_once(table_maintenance, sql, slow_vacuum, kill_rows, caplog):
    kill_rows(20_000)
    before = look(table_maintenance.database).vacuums
    with beside(table_maintenance.pass_once):
        [pid] = eventually(lambda: vacuuming(sql))
        sql("SELECT pg_cancel_backend(%s)", pid)
    assert "VACUUM of pgqueue_jobs was broken off: canceling statement due to user request" in caplog.text
    slow_vacuum()
    table_maintenance.database.close()  # so that another one would not be slow
    table_maintenance._pool._finished = 1000
    table_maintenance.pass_once()
    assert look(table_maintenance.database).vacuums == before


def test_vacuum_that_fails_is_not_tried_again_at_once(table_maintenance, monkeypatch):
    tries = []

    def fail(*args, **options):
        tries.append(args)
        raise ValueError("odd")

    monkeypatch.setattr("django_pgqueue.worker.maintenance.vacuum", fail)
    table_maintenance.pass_once()
    table_maintenance.pass_once()
    assert len(tries) == 1
    table_maintenance._pool._finished = 1
    table_maintenance.pass_once()
    assert len(tries) == 2


def test_processes_of_an_idle_command_learn_that_no_job_is_queued(queue, maintenance_runner):
    """And nothing of a busy one, whose processes find their jobs themselves."""
    process, finished = SimpleNamespace(shared=SharedState()), 7
    pool = idle_pool(living=[process], finished=lambda: finished)
    maintenance = maintenance_runner(pool)
    maintenance._look()
    assert process.shared.empty_at() == 0.0, "jobs have ended since the last look"
    before = time.monotonic()
    maintenance._look()
    assert before <= process.shared.empty_at() <= time.monotonic()
    before = process.shared.empty_at()
    app.noop.enqueue()
    maintenance._look()
    assert process.shared.empty_at() == before
