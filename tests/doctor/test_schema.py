"""Migrations, tables, indexes, checks and functions that are missing or broken are found, until they are made again."""

import pytest
from django.db import connection

from django_pgqueue.doctor.catalogue import wanted
from django_pgqueue.models import Job
from tests.support.doctor import (
    Fault,
    cured_by_statements,
    diagnosis,
    found_until_cured,
    insert,
    is_healthy,
)
from tests.support.waiting import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("living")]


def fail_to_make_an_index(sql) -> None:
    """Leave behind what CREATE INDEX CONCURRENTLY leaves where values are not unique."""
    insert(sql, "tests.app.tasks.noop")
    insert(sql, "tests.app.tasks.noop")
    with pytest.raises(Exception, match="could not create unique index"):
        sql("CREATE UNIQUE INDEX CONCURRENTLY mine ON pgqueue_jobs (task)")
    sql("DELETE FROM pgqueue_jobs")


def fail_to_make_one_again(sql) -> None:
    sql("DROP INDEX pgqueue_jobs_due")
    sql("INSERT INTO pgqueue_jobs (task, priority) VALUES ('tests.app.tasks.noop', 0)")
    with pytest.raises(Exception, match="division by zero"):
        sql("CREATE INDEX CONCURRENTLY pgqueue_jobs_due ON pgqueue_jobs ((1 / priority))")
    sql("DELETE FROM pgqueue_jobs")


def made_due_again(sql, _finding) -> None:
    [(index,)] = [(part.rule,) for part in wanted() if part.name == "pgqueue_jobs_due"]
    with connection.schema_editor() as editor:
        editor.remove_index(Job, index)
        editor.add_index(Job, index)


def forget_migration(sql) -> None:
    sql("DELETE FROM django_migrations WHERE app = 'pgqueue' AND name = '0001_initial'")


FAULTS: dict[str, Fault] = {
    "missing index of the claim": (
        "indexes-missing",
        "DROP INDEX pgqueue_jobs_claim",
        cured_by_statements,
        1,
    ),
    "missing index of the admin": (
        "indexes-missing",
        "DROP INDEX pgqueue_dead_jobs_cause; DROP INDEX pgqueue_succeeded_schedule",
        cured_by_statements,
        0,
    ),
    "missing keys": (
        "indexes-missing",
        (
            "ALTER TABLE pgqueue_queue_heads DROP CONSTRAINT pgqueue_queue_heads_place; "
            "DROP INDEX pgqueue_jobs_unique; "
            "ALTER TABLE pgqueue_schedules DROP CONSTRAINT pgqueue_schedules_name_key; "
            "ALTER TABLE pgqueue_succeeded_jobs DROP CONSTRAINT pgqueue_succeeded_jobs_pkey; "
            "ALTER TABLE pgqueue_jobs DROP CONSTRAINT pgqueue_jobs_pkey"
        ),
        cured_by_statements,
        1,
    ),
    "index that failed to be made": ("indexes-invalid", fail_to_make_an_index, cured_by_statements, 0),
    "index of the queue that failed to be made again": ("indexes-invalid", fail_to_make_one_again, made_due_again, 1),
    "missing checks": (
        "checks-missing",
        (
            "ALTER TABLE pgqueue_jobs DROP CONSTRAINT pgqueue_jobs_running_has_lease; "
            "ALTER TABLE pgqueue_queues DROP CONSTRAINT pgqueue_queues_rate"
        ),
        cured_by_statements,
        0,
    ),
    "check that old rows were not held to": (
        "checks-missing",
        (
            "ALTER TABLE pgqueue_jobs DROP CONSTRAINT pgqueue_jobs_names; "
            "ALTER TABLE pgqueue_jobs ADD CONSTRAINT pgqueue_jobs_names "
            "CHECK (NOT (queue = '') AND NOT (task = '')) NOT VALID"
        ),
        cured_by_statements,
        0,
    ),
    "missing function": (
        "functions-missing",
        "ALTER FUNCTION pgqueue_enqueue RENAME TO mine",
        "ALTER FUNCTION mine RENAME TO pgqueue_enqueue",
        1,
    ),
    "missing column": (
        "columns-missing",
        "ALTER TABLE pgqueue_workers RENAME COLUMN memory_bytes TO mine",
        "ALTER TABLE pgqueue_workers RENAME COLUMN mine TO memory_bytes",
        1,
    ),
    "missing table": (
        "columns-missing",
        "ALTER TABLE pgqueue_queue_heads RENAME TO mine",
        "ALTER TABLE mine RENAME TO pgqueue_queue_heads",
        1,
    ),
    "migration that was not applied": (
        "migrations-missing",
        forget_migration,
        "INSERT INTO django_migrations (app, name, applied) VALUES ('pgqueue', '0001_initial', now())",
        1,
    ),
}


@pytest.mark.usefixtures("storage_options")
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_found_by_name_and_silent_once_it_is_cured(fault, sql):
    name, *planted = FAULTS[fault]
    names = found_until_cured(sql, name, *planted)
    assert names == {name} or fault.startswith("missing")


def test_statement_that_drops_an_index_has_its_name_in_quotes(sql):
    insert(sql, "tests.app.tasks.noop")
    insert(sql, "tests.app.tasks.noop")
    name = 'My "index"; --'
    with pytest.raises(Exception, match="could not create unique index"):
        sql(f'CREATE UNIQUE INDEX CONCURRENTLY "{name.replace(chr(34), 2 * chr(34))}" ON pgqueue_jobs (task)')
    sql("DELETE FROM pgqueue_jobs")
    finding = diagnosis()[0]["indexes-invalid"]
    assert finding["facts"]["indexes"] == [name]
    cured_by_statements(sql, finding)
    eventually(lambda: is_healthy(sql))
