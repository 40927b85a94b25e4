"""Maintenance by the owner of the tables: the table vacuumed when it pays, and broken off when the command stops."""

import pytest
from django.db import connection

from django_pgqueue.maintenance import vacuum as vacuum_module
from django_pgqueue.maintenance.vacuum import look
from django_pgqueue.worker.config import WorkerConfig
from django_pgqueue.worker.processes import ProcessPool
from django_pgqueue.worker.table_maintenance import TableMaintenance
from tests.support.waiting import beside, eventually

pytestmark = pytest.mark.usefixtures("own_vacuum_only")


@pytest.fixture
def table_maintenance(queue, settings):
    settings.PGQUEUE = {"VACUUM_DEAD_ROWS": 100}
    made = TableMaintenance(ProcessPool(WorkerConfig(), supervisor_id=1, lease_seconds=30))
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

    monkeypatch.setattr("django_pgqueue.worker.table_maintenance.vacuum", fail)
    table_maintenance.pass_once()
    table_maintenance.pass_once()
    assert len(tries) == 1
    table_maintenance._pool._finished = 1
    table_maintenance.pass_once()
    assert len(tries) == 2
