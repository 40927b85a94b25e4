"""The models are compared with the catalogue of the database."""

import contextlib

import pytest
from django.db import OperationalError, connection, connections

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
