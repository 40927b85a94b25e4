"""The models are compared with the catalogue of the database."""

import contextlib

import pytest
from django.db import OperationalError, connection, connections, transaction

from django_pgqueue.doctor.catalogue import Catalogue, unapplied, wanted
from tests.support.doctor import diagnosis
from tests.support.waiting import beside, eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("living")]


def test_index_that_is_being_made_is_not_invalid_yet(sql):
    """It waits for a transaction of another session; when it is cancelled, it is."""
    in_the_way = connections.create_connection("default")
    in_the_way.settings_dict = connection.settings_dict
    in_the_way.set_autocommit(False)
    with in_the_way.cursor() as cursor:
        cursor.execute("LOCK TABLE pgqueue_jobs IN ROW EXCLUSIVE MODE")
    try:
        with beside(make_an_index):
            [(pid,)] = eventually(lambda: sql("SELECT pid FROM pg_stat_progress_create_index WHERE index_relid <> 0"))
            is_valid = sql("SELECT indisvalid FROM pg_index WHERE indexrelid = 'mine'::regclass")
            found = diagnosis()
            sql("SELECT pg_cancel_backend(%s)", pid)
    finally:
        in_the_way.close()
    assert is_valid == [(False,)]
    assert found == ({}, 0)
    assert diagnosis()[0]["indexes-invalid"]["facts"]["indexes"] == ["mine"]
    sql("DROP INDEX mine")


def make_an_index() -> None:
    with connection.cursor() as cursor, contextlib.suppress(OperationalError):
        cursor.execute("CREATE INDEX CONCURRENTLY mine ON pgqueue_jobs (task)")
    connection.close()


@pytest.mark.parametrize("kind", ["column", "index", "check", "function"])
def test_migrated_database_has_all_that_is_wanted(kind):
    assert [part for part in wanted() if part.kind == kind]
    catalogue = Catalogue("default")
    assert catalogue.missing(kind) == []
    assert catalogue.wrong(kind) == ([], [])


@pytest.mark.parametrize(
    ("drop", "kind", "name"),
    [
        ("DROP INDEX pgqueue_jobs_due", "index", "pgqueue_jobs_due"),
        ("ALTER TABLE pgqueue_jobs DROP CONSTRAINT pgqueue_jobs_names", "check", "pgqueue_jobs_names"),
        (
            "ALTER TABLE pgqueue_schedules DROP CONSTRAINT pgqueue_schedules_name_key",
            "index",
            "pgqueue_schedules_name_key",
        ),
        ("ALTER TABLE pgqueue_dead_jobs DROP CONSTRAINT pgqueue_dead_jobs_pkey", "index", "pgqueue_dead_jobs_pkey"),
    ],
)
def test_part_that_is_missing_is_made_again_by_its_statements(drop, kind, name, sql):
    sql(drop)
    catalogue = Catalogue("default")
    missing = catalogue.missing(kind)
    statements = catalogue.making(missing)
    for made in statements:
        sql(made)
    assert [part.name for part in missing] == [name]
    assert Catalogue("default").missing(kind) == []
    assert all(" CONCURRENTLY " in made or "CREATE" not in made for made in statements), "others may write meanwhile"


def test_migration_that_was_not_applied_is_named(sql):
    assert unapplied("default") == []
    with transaction.atomic():
        sql("DELETE FROM django_migrations WHERE app = 'pgqueue' AND name = '0001_initial'")
        assert unapplied("default") == ["0001_initial"]
        transaction.set_rollback(True)
