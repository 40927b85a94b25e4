"""History by the day: partitions are made ahead and dropped behind, whichever session reads or does the same."""

import datetime as dt

import pytest
from django.db import connection, transaction

import tests.app.tasks as app
from django_pgqueue.db.connections import CallerConnection, QueueConnection
from django_pgqueue.jobs import ack
from django_pgqueue.jobs.claim import claim
from django_pgqueue.maintenance.partitions import DAYS_AHEAD, PartitionsResult, _dropping, maintain_partitions, plan
from django_pgqueue.models import SucceededJob
from django_pgqueue.records import Fate, Outcome, Receipt
from django_pgqueue.worker.config import WorkerConfig
from django_pgqueue.worker.maintenance import TableMaintenance
from django_pgqueue.worker.processes import ProcessPool
from tests.support.clock import NOON, clock_set
from tests.support.waiting import beside, eventually

pytestmark = pytest.mark.django_db(transaction=True)

WAITING = "SELECT 1 FROM pg_locks WHERE NOT granted AND pid = %(pid)s"


@pytest.fixture(autouse=True)
def _noon(transactional_db):
    """Let no test meet midnight in UTC."""
    with clock_set(NOON):
        yield


@pytest.fixture(autouse=True)
def partitions_as_ever(_noon, queue, sql):
    """Begin no test with the partitions of the day before; leave the default ones."""
    keep(queue)
    yield
    sql("DELETE FROM pgqueue_succeeded_jobs")
    keep(queue, retention_days=0)
    keep(queue)


def keep(database: QueueConnection, *, retention_days: int = 7) -> PartitionsResult:
    """Pass until no session is in the way, as autovacuum may be at any time; return what was done in all."""
    total = PartitionsResult()

    def is_through() -> bool:
        nonlocal total
        kept = maintain_partitions(database, retention_days=retention_days)
        total = PartitionsResult(total.made + kept.made, total.dropped + kept.dropped)
        return not kept.is_blocked

    eventually(is_through)
    return total


def partitions() -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'pgqueue_succeeded_jobs'::regclass"
        )
        return {name for (name,) in cursor.fetchall()}


@pytest.fixture
def day(sql):
    """Return the name of the partition of a day, counted from today, by the database's clock."""
    [(today,)] = sql("SELECT (now() AT TIME ZONE 'UTC')::date")
    return lambda offset: f"pgqueue_succeeded_jobs_{today + dt.timedelta(offset):%Y%m%d}"


@pytest.fixture
def make(sql, day):
    """Make the partition of a day, as it was made when it lay ahead, with a number of rows; return its name."""

    def made(offset: int, *, rows: int = 0) -> str:
        name, following = day(offset), day(offset + 1)
        sql(
            f"CREATE TABLE {name} PARTITION OF pgqueue_succeeded_jobs "
            f"FOR VALUES FROM ('{name[-8:]} 00:00+00') TO ('{following[-8:]} 00:00+00')"
        )
        finish(sql, offset, rows)
        return name

    return made


def finish(sql, offset: int, rows: int) -> None:
    """Put rows of jobs into the history that have succeeded some days from today."""
    sql(
        "INSERT INTO pgqueue_succeeded_jobs (id, succeeded_at, enqueued_at, run_at, first_started_at, started_at, "
        "worker_id, run_seconds, priority, attempts, lost, queue, task, backend, args, kwargs, metadata, errors) "
        "SELECT 1000000 + number, now() + %s * interval '1 day', now(), now(), now(), now(), 1, 0, 0, 1, 0, 'default', "
        "'x', '', '[]', '{}', '{}', '[]' FROM generate_series(1, %s) AS number",
        offset,
        rows,
    )


def test_partitions_are_made_ahead_and_dropped_behind(queue, sql, day, make):
    name = make(-8, rows=3)
    kept = make(-7, rows=3)
    sql(f"DROP TABLE {day(7)}")
    planned = plan(queue, retention_days=7)
    assert ([f"{one:%Y%m%d}" for one in planned.make], [one.name for one in planned.drop]) == ([day(7)[-8:]], [name])
    assert keep(queue) == PartitionsResult(1, 1)
    assert {day(7), kept} <= partitions()
    assert name not in partitions()
    assert SucceededJob.objects.count() == 3
    assert maintain_partitions(queue, retention_days=7) == PartitionsResult()


def test_day_that_takes_too_long_leaves_the_others_for_later(queue, sql, day):
    """Each reads the default partition anew, and acks wait meanwhile."""
    for offset in (6, 7):
        sql(f"DROP TABLE {day(offset)}")
    sql("CREATE SEQUENCE tried")
    sql(
        "CREATE FUNCTION too_long() RETURNS event_trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM nextval('tried'); RAISE EXCEPTION 'too long' USING ERRCODE = 'query_canceled'; END $$"
    )
    sql("CREATE EVENT TRIGGER too_long ON ddl_command_end WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION too_long()")
    try:
        assert keep(queue) == PartitionsResult()
        assert sql("SELECT last_value FROM tried") == [(1,)]
    finally:
        sql("DROP EVENT TRIGGER too_long")
        sql("DROP FUNCTION too_long()")
        sql("DROP SEQUENCE tried")
    assert keep(queue) == PartitionsResult(2, 0)


@pytest.mark.parametrize("connection", ["a worker's", "the caller's"])
def test_plan_is_the_same_where_time_zones_are_off(connection, settings, transactional_db):
    days = [partition.begins_at for partition in plan(CallerConnection(), retention_days=7).present]
    settings.USE_TZ = False
    database = CallerConnection() if connection == "the caller's" else QueueConnection("default", "test")
    try:
        planned = plan(database, retention_days=7)
        assert [partition.begins_at for partition in planned.present] == days
        assert not planned.make
    finally:
        if isinstance(database, QueueConnection):
            database.close()


def test_partition_is_dropped_by_what_it_holds_whatever_its_name(queue, sql, day):
    sql(
        "CREATE TABLE of_an_autumn PARTITION OF pgqueue_succeeded_jobs "
        "FOR VALUES FROM ('2020-09-01 00:00+02') TO ('2020-12-01 00:00+01')"
    )
    sql("CREATE TABLE before_all PARTITION OF pgqueue_succeeded_jobs FOR VALUES FROM (MINVALUE) TO ('2020-01-01')")
    assert keep(queue) == PartitionsResult(0, 1)
    assert "of_an_autumn" not in partitions()
    assert {"before_all", "pgqueue_succeeded_jobs_default"} <= partitions()
    sql("DROP TABLE before_all")


def test_history_that_is_switched_off_is_dropped_day_by_day_and_none_is_made(queue, sql, day, make):
    name = make(-1)
    sql(f"DROP TABLE {day(7)}")
    assert keep(queue, retention_days=1) == PartitionsResult(1, 0)
    sql(f"DROP TABLE {day(7)}")
    assert keep(queue, retention_days=0) == PartitionsResult(0, 1)
    assert name not in partitions()
    assert day(7) not in partitions()
    assert day(0) in partitions(), "its day is not over"
    assert keep(queue) == PartitionsResult(1, 0), "switched on again"


def test_reader_in_the_way_postpones_a_drop(queue, make):
    name = make(-9, rows=1)
    with transaction.atomic():
        assert SucceededJob.objects.count() == 1
        assert maintain_partitions(queue, retention_days=7) == PartitionsResult(is_blocked=True)
    assert name in partitions()
    assert keep(queue) == PartitionsResult(0, 1)


def test_no_ack_waits_behind_a_drop_that_waits_for_a_reader(queue, other_queue, sql, make):
    name = make(-9, rows=1)
    app.noop.enqueue()
    [job] = claim(other_queue, "default", limit=1, worker_id=1)
    [partition] = plan(queue, retention_days=7).drop
    dropping = queue.autocommit()

    def drop() -> None:
        with dropping.transaction():
            for one in _dropping(partition):  # without a limit of time: it waits while the reader reads
                dropping.execute(one)

    def is_waiting() -> list[tuple]:
        return other_queue.rows(WAITING, {"pid": dropping.info.backend_pid})

    sql("BEGIN")
    sql("SELECT count(*) FROM pgqueue_succeeded_jobs")
    with beside(drop):
        try:
            eventually(is_waiting)
            assert ack.write(other_queue, [Outcome(job, Fate.SUCCEEDED)]) == Receipt()
            assert is_waiting(), "the reader reads on"
        finally:
            sql("ROLLBACK")
    assert name not in partitions()


def test_reader_of_the_default_partition_postpones_a_new_one(queue, sql, day):
    sql(f"DROP TABLE {day(7)}")
    with transaction.atomic():
        sql("SELECT 1 FROM pgqueue_succeeded_jobs_default")
        assert maintain_partitions(queue, retention_days=7) == PartitionsResult(is_blocked=True)
    assert keep(queue) == PartitionsResult(1, 0)


def test_two_workers_at_once_make_and_drop_each_partition_once(queue, other_queue, sql, day, make):
    for offset in range(-12, -7):
        make(offset)
    for offset in range(3, DAYS_AHEAD + 1):
        sql(f"DROP TABLE {day(offset)}")
    found: list[PartitionsResult] = []
    with beside(lambda: found.append(keep(queue))):
        found.append(keep(other_queue))
    assert (sum(one.made for one in found), sum(one.dropped for one in found)) == (5, 5)
    assert {day(offset) for offset in range(DAYS_AHEAD + 1)} <= partitions()
    assert not {day(offset) for offset in range(-12, -7)} & partitions()


def test_day_whose_rows_are_in_the_default_partition_is_left_there(queue, sql, day):
    sql(f"DROP TABLE {day(0)}, {day(1)}")
    app.noop.enqueue()
    [job] = claim(queue, "default", limit=1, worker_id=1)
    ack.write(queue, [Outcome(job, Fate.SUCCEEDED)])
    assert keep(queue) == PartitionsResult(1, 0), "tomorrow's"
    assert day(0) not in partitions()
    assert sql("SELECT id FROM pgqueue_succeeded_jobs_default") == [(job.id,)]
    sql("DELETE FROM pgqueue_succeeded_jobs")
    assert keep(queue) == PartitionsResult(1, 0)


def test_role_that_does_not_own_the_table_is_told_so_where_there_is_something_to_do(queue, sql, caplog, day):
    sql("DROP ROLE IF EXISTS pgqueue_lesser")
    sql("CREATE ROLE pgqueue_lesser")
    sql(f"DROP TABLE {day(7)}")
    lesser = QueueConnection("default", "lesser")
    lesser.autocommit().execute("SET ROLE pgqueue_lesser")
    assert maintain_partitions(lesser, retention_days=0) == PartitionsResult()
    assert caplog.text == "", "history is off, and there is none"
    assert maintain_partitions(lesser, retention_days=7) == PartitionsResult()
    lesser.close()
    sql("DROP ROLE pgqueue_lesser")
    assert "The worker's role must own the table" in caplog.text
    assert keep(queue) == PartitionsResult(1, 0)


# Maintenance by the owner


def test_maintenance_tries_again_soon_while_a_session_reads(sql, make, settings):
    settings.PGQUEUE = {"VACUUM_DEAD_ROWS": 0}
    name = make(-9, rows=1)
    table_maintenance = TableMaintenance("default", ProcessPool(WorkerConfig(), supervisor_id=1, lease_seconds=30))

    def passed() -> bool:
        table_maintenance.pass_once()
        return name not in partitions()

    with transaction.atomic():
        assert SucceededJob.objects.count() == 1
        table_maintenance.pass_once()
    eventually(passed)
    table_maintenance.database.close()
