"""manage.py pgqueue_retention: it tells what is kept, and does a pass."""

import contextlib
import datetime as dt
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

import tests.app.tasks as app
from django_pgqueue.jobs import kill
from django_pgqueue.models import DeadJob, SucceededJob
from tests.support.many import enqueued_ids
from tests.support.retention import finish, row_of, run
from tests.support.storage import without_autovacuum
from tests.support.waiting import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("noon")]


def test_run_does_a_pass_and_shows_what_is_left(queue, sql, today, old_partition, settings):
    settings.PGQUEUE = {"DEAD_RETENTION_DAYS": 30}
    kill(enqueued_ids(app.noop, [()] * 3), by="test")
    sql("UPDATE pgqueue_dead_jobs SET died_at = '2020-01-01 12:00+00'")
    finish(queue, *enqueued_ids(app.noop.using(keep_for=3600), [()] * 2))
    sql("UPDATE pgqueue_succeeded_jobs SET prune_at = now()")
    sql(
        "INSERT INTO pgqueue_stats (minute, queue, task) "
        "SELECT now() - interval '6 day' * n, 'q', 't' FROM generate_series(1, 3) AS n"
    )
    ahead = f"pgqueue_succeeded_jobs_{today + dt.timedelta(7):%Y%m%d}"
    sql(f"DROP TABLE {ahead}")
    out = StringIO()
    with without_autovacuum(sql, "pgqueue_succeeded_jobs_default"):  # which must be locked at once
        call_command("pgqueue_retention", "run", stdout=StringIO(), stderr=out)
    assert out.getvalue() == (
        "Partitions: 1 made, 1 dropped. Removed: 2 succeeded jobs whose own time is over, 0 of the default partition, "
        "3 dead jobs, 2 rows of counts.\n"
    )
    assert sql("SELECT to_regclass(%s), to_regclass(%s) IS NOT NULL", old_partition, ahead) == [(None, True)]
    assert not DeadJob.objects.exists()
    assert not SucceededJob.objects.exists()


def test_server_that_refuses_a_pass_is_quoted(queue, sql, old_partition, monkeypatch):
    """As a standby does, or an old primary after a failover. The pass has a connection of its own."""
    with monkeypatch.context() as patch, pytest.raises(CommandError, match="in a read-only transaction"):
        patch.setitem(connection.settings_dict["OPTIONS"], "options", "-c default_transaction_read_only=on")
        run("run")
    assert sql("SELECT to_regclass(%s) IS NOT NULL", old_partition) == [(True,)]


def test_run_names_who_is_in_the_way(queue, sql, old_partition, other_queue):
    reader = other_queue.autocommit()
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM pgqueue_succeeded_jobs")
    pid = reader.info.backend_pid
    named = (
        f"In the way: process {pid} (pgqueue other test) has read succeeded jobs in a transaction that is still open"
    )
    eventually(lambda: named in run())
    with pytest.raises(CommandError, match=r"Another session blocks the maintenance of partitions\. Workers try again"):
        run("run")
    assert sql("SELECT to_regclass(%s) IS NOT NULL", old_partition) == [(True,)]
    reader.execute("ROLLBACK")
    eventually(lambda: goes_well(old_partition, sql))


def goes_well(partition: str, sql) -> bool:
    """Run, and again where autovacuum is in the way, which gives way after a second."""
    with contextlib.suppress(CommandError):
        assert "In the way" not in run("run")
    return sql("SELECT to_regclass(%s)", partition) == [(None,)]


def test_role_that_owns_nothing_may_look_and_is_told_that_it_may_not_run(sql, today):
    sql("DROP ROLE IF EXISTS pgqueue_lesser")
    sql("CREATE ROLE pgqueue_lesser")
    sql("GRANT SELECT ON pgqueue_jobs, pgqueue_dead_jobs, pgqueue_succeeded_jobs TO pgqueue_lesser")
    sql("SET ROLE pgqueue_lesser")
    try:
        assert row_of(run(), today).endswith("stays")
        with pytest.raises(CommandError, match=r"The role of 'default' may not do that.*MAINTENANCE_DATABASE"):
            run("run")
    finally:
        sql("RESET ROLE")
        sql("DROP OWNED BY pgqueue_lesser")
        sql("DROP ROLE pgqueue_lesser")
