"""manage.py pgqueue_retention: it tells what is kept, and does a pass."""

import datetime as dt
import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

import tests.app.tasks as app
from django_pgqueue import enqueue_many, kill
from django_pgqueue.insights import retention
from django_pgqueue.insights.retention import remedy, span
from django_pgqueue.jobs import ack
from django_pgqueue.jobs.claim import claim
from django_pgqueue.maintenance.partitions import maintain_partitions
from django_pgqueue.maintenance.vacuum import SnapshotHolder, oldest_snapshot
from django_pgqueue.models import DeadJob, FinishedJob
from django_pgqueue.records import Fate, Outcome
from tests.support.clock import NOON, clock_set
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)


def run(*words) -> str:
    out = StringIO()
    call_command("pgqueue_retention", *words, stdout=out, stderr=StringIO())
    return out.getvalue()


@pytest.fixture(autouse=True)
def _noon(transactional_db):
    """Let no test meet midnight in UTC."""
    with clock_set(NOON):
        yield


@pytest.fixture
def today(_noon, queue, sql) -> dt.date:
    """Today in UTC; then, and at the end, there are no other partitions than there are by default."""

    def by_default() -> None:
        sql("TRUNCATE pgqueue_finished_jobs")
        for retention_days in (0, 7):
            eventually(lambda days=retention_days: not maintain_partitions(queue, retention_days=days).is_blocked)

    by_default()
    yield sql("SELECT (now() AT TIME ZONE 'UTC')::date")[0][0]
    by_default()


@pytest.fixture
def old(sql, today) -> str:
    """The name of a partition that is to be dropped, with one row."""
    day = today - dt.timedelta(9)
    name = f"pgqueue_finished_jobs_{day:%Y%m%d}"
    sql(
        f"CREATE TABLE {name} PARTITION OF pgqueue_finished_jobs "
        f"FOR VALUES FROM ('{day} 00:00+00') TO ('{day + dt.timedelta(1)} 00:00+00')"
    )
    return name


def finish(queue, *jobs: int) -> None:
    claimed = claim(queue, "default", limit=100, worker_id=1)
    assert {job.id for job in claimed} == set(jobs)
    ack.write(queue, [Outcome(job, Fate.SUCCEEDED) for job in claimed])


def row_of(text: str, first: object) -> str:
    """Return the line of the table that begins so, its columns parted by two spaces."""
    [line] = [line for line in text.splitlines() if line.startswith(f"{first} ")]
    return line


def test_it_tells_of_each_partition_what_the_next_pass_does(queue, sql, today, old):
    sql(f"DROP TABLE pgqueue_finished_jobs_{today + dt.timedelta(7):%Y%m%d}")
    finish(queue, app.noop.enqueue().id)
    sql("SELECT pg_stat_force_next_flush()")
    sql(f"ANALYZE pgqueue_finished_jobs_{today:%Y%m%d}")
    text = run()
    assert text.startswith("Finished jobs are kept for 7 days besides today.\nDead jobs are kept until they are purged")
    assert row_of(text, "partition").split() == ["partition", "rows", "size", "age", "next", "pass"]
    assert row_of(text, today - dt.timedelta(9)).split()[1] == "~0"
    assert row_of(text, today - dt.timedelta(9)).endswith("  9 days     is dropped")
    assert row_of(text, today).split()[1:2] == ["~1"]
    assert row_of(text, today).endswith("  today      stays")
    assert row_of(text, today + dt.timedelta(1)).endswith("  in 1 day   stays")
    assert row_of(text, today + dt.timedelta(7)).split() == f"{today + dt.timedelta(7)} - - in 7 days is made".split()
    assert row_of(text, "default").endswith("stays")


def test_it_tells_of_what_goes_one_by_one(queue, sql, today, settings, monkeypatch):
    monkeypatch.setattr(retention, "CAP", 2)
    settings.PGQUEUE = {"DEAD_RETENTION_DAYS": 30, "RETENTION_DAYS": 1}
    ids = enqueue_many(app.noop, [()] * 3)
    kill(ids, by="test")
    sql("UPDATE pgqueue_dead_jobs SET died_at = '2020-01-01 12:00+00'")
    finish(queue, *enqueue_many(app.noop.using(keep=3600), [()] * 2))
    sql("UPDATE pgqueue_finished_jobs SET prune_at = now() WHERE id = (SELECT min(id) FROM pgqueue_finished_jobs)")
    finish(queue, app.noop.enqueue().id)
    sql("UPDATE pgqueue_finished_jobs SET finished_at = finished_at - interval '3 days' WHERE prune_at IS NULL")
    text = run()
    assert "Dead jobs are kept for 30 days." in text
    assert "Dead jobs: 2+ (" in text
    assert "the first died at 2020-01-01 13:00:00. The next pass removes 2+." in text
    assert "Finished jobs with a time of their own: 2. The next pass removes 1." in text
    assert "\n  tests.app.tasks.kept_for_an_hour: kept for 1 h\n" in text
    assert row_of(text, "default").endswith("1 rows are removed")


def test_run_does_a_pass_and_shows_what_is_left(queue, sql, today, old, settings):
    settings.PGQUEUE = {"DEAD_RETENTION_DAYS": 30}
    kill(enqueue_many(app.noop, [()] * 3), by="test")
    sql("UPDATE pgqueue_dead_jobs SET died_at = '2020-01-01 12:00+00'")
    finish(queue, *enqueue_many(app.noop.using(keep=3600), [()] * 2))
    sql("UPDATE pgqueue_finished_jobs SET prune_at = now()")
    sql(
        "INSERT INTO pgqueue_stats (minute, queue, task) "
        "SELECT now() - interval '6 day' * n, 'q', 't' FROM generate_series(1, 3) AS n"
    )
    ahead = f"pgqueue_finished_jobs_{today + dt.timedelta(7):%Y%m%d}"
    sql(f"DROP TABLE {ahead}")
    out = StringIO()
    call_command("pgqueue_retention", "--run", stdout=StringIO(), stderr=out)
    assert out.getvalue() == (
        "Partitions: 1 made, 1 dropped. Removed: 2 finished jobs whose own time is over, 0 of the default partition, "
        "3 dead jobs, 2 rows of counts.\n"
    )
    assert sql("SELECT to_regclass(%s), to_regclass(%s) IS NOT NULL", old, ahead) == [(None, True)]
    assert not DeadJob.objects.exists()
    assert not FinishedJob.objects.exists()


def test_server_that_refuses_a_pass_is_quoted(queue, sql, old, monkeypatch):
    """As a standby does, or an old primary after a failover. The pass has a connection of its own."""
    with monkeypatch.context() as patch, pytest.raises(CommandError, match="in a read-only transaction"):
        patch.setitem(connection.settings_dict["OPTIONS"], "options", "-c default_transaction_read_only=on")
        run("--run")
    assert sql("SELECT to_regclass(%s) IS NOT NULL", old) == [(True,)]


def test_run_names_who_is_in_the_way(queue, sql, old, other_queue):
    reader = other_queue.autocommit()
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM pgqueue_finished_jobs")
    pid = reader.info.backend_pid
    named = f"In the way: process {pid} (pgqueue other test) has read finished jobs in a transaction that is still open"
    eventually(lambda: named in run())
    with pytest.raises(CommandError, match=r"Another session blocks the maintenance of partitions\. Workers try again"):
        run("--run")
    assert sql("SELECT to_regclass(%s) IS NOT NULL", old) == [(True,)]
    reader.execute("ROLLBACK")
    assert "In the way" not in run("--run")


def test_it_tells_how_the_live_table_is_cared_for(queue, sql, settings, today):
    settings.PGQUEUE = {"VACUUM_DEAD_ROWS": 12_345}
    sql("VACUUM pgqueue_jobs")
    text = run()
    assert "workers VACUUM it from 12,345 dead rows on." in text
    assert "Last VACUUM: 2" in text
    settings.PGQUEUE = {"VACUUM_DEAD_ROWS": 0, "RETENTION_DAYS": 0}
    text = run()
    assert "workers leave VACUUM to others." in text
    assert "Finished jobs are not kept." in text


def test_it_names_who_holds_the_oldest_snapshot_and_how_to_end_it(queue, sql, today, other_queue):
    held = other_queue.autocommit()
    held.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    held.execute("SELECT 'a report'")
    eventually(lambda: oldest_snapshot(queue).name.endswith("(pgqueue other test)"))
    pid = held.info.backend_pid
    eventually(lambda: f"is held by process {pid} (pgqueue other test), for " in run())
    assert f"To end it: SELECT pg_terminate_backend({pid});" in run()
    told = json.loads(run("--json"))["jobs"]["horizon"]
    assert (told["kind"], told["handle"], told["name"]) == ("session", str(pid), f"process {pid} (pgqueue other test)")
    sql(f"SELECT pg_terminate_backend({pid})")
    eventually(lambda: f"process {pid}" not in run())


@pytest.mark.parametrize(
    ("kind", "handle", "words"),
    [
        ("session", "17", "SELECT pg_terminate_backend(17);"),
        ("slot", "old's", "SELECT pg_drop_replication_slot('old''s');"),
        ("prepared", "x", "COMMIT PREPARED 'x' or ROLLBACK PREPARED 'x'"),
        ("standby", "17", "hot_standby_feedback"),
    ],
)
def test_each_holder_has_its_remedy(kind, handle, words):
    assert words in remedy(SnapshotHolder("700", "it", kind, handle, None))


def test_json_says_all_of_it(queue, sql, today, old):
    kill([app.noop.enqueue().id], by="test")
    told = json.loads(run("--json"))
    assert (told["retention_days"], told["dead_retention_days"], told["to_make"]) == (7, None, [])
    by_name = {partition["name"]: partition for partition in told["partitions"]}
    assert by_name[old]["next_pass"] == "drop"
    assert by_name["pgqueue_finished_jobs_default"]["is_default"]
    assert by_name[f"pgqueue_finished_jobs_{today:%Y%m%d}"]["next_pass"] == "keep"
    assert (told["dead_jobs"]["count"], told["dead_jobs"]["due"]) == (1, 0)
    assert told["timed"]["tasks"]["tests.app.tasks.kept_for_an_hour"] == 3600
    assert told["jobs"]["bytes"] > 0


def test_role_that_owns_nothing_may_look_and_is_told_that_it_may_not_run(sql, today):
    sql("DROP ROLE IF EXISTS pgqueue_lesser")
    sql("CREATE ROLE pgqueue_lesser")
    sql("GRANT SELECT ON pgqueue_jobs, pgqueue_dead_jobs, pgqueue_finished_jobs TO pgqueue_lesser")
    sql("SET ROLE pgqueue_lesser")
    try:
        assert row_of(run(), today).endswith("stays")
        with pytest.raises(CommandError, match=r"The role of 'default' may not do that.*MAINTENANCE_DATABASE"):
            run("--run")
    finally:
        sql("RESET ROLE")
        sql("DROP OWNED BY pgqueue_lesser")
        sql("DROP ROLE pgqueue_lesser")


def test_missing_tables_are_said_with_what_to_do(transactional_db):
    with pytest.raises(CommandError, match="The queue's database 'nowhere' is not in DATABASES"):
        run("--database", "nowhere")
    with connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA empty")
        cursor.execute("SET search_path = empty")
    try:
        with pytest.raises(CommandError, match=r"Run: manage\.py migrate django_pgqueue --database default"):
            run()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET search_path")
            cursor.execute("DROP SCHEMA empty")


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.5, "0.5 s"), (59, "59 s"), (90, "1.5 min"), (7200, "2 h"), (36 * 3600, "1.5 d")]
)
def test_span_has_the_unit_that_fits(seconds, words):
    assert span(seconds) == words
