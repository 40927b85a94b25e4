"""Errors of the database, told apart: trouble that passes, mistakes, refusals."""

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, DataError, Error, InterfaceError, InternalError, OperationalError, connection

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from django_pgqueue.db.errors import is_transient


@pytest.mark.parametrize(
    ("sqlstate", "expected"),
    [
        *((state, True) for state in ("08006", "40001", "40P01", "53300", "53100", "57P01", "57014", "58030")),
        *((state, True) for state in ("25006", "25P03", "55P03", "55006")),
        *((state, False) for state in ("22P02", "23505", "25001", "42P01", "42501", "XX000")),
    ],
)
def test_trouble_that_passes_is_told_from_mistakes(sqlstate, expected):
    error = DatabaseError()
    error.__cause__ = psycopg.errors.lookup(sqlstate)("x")
    assert is_transient(error) is expected
    assert is_transient(error.__cause__) is expected


def test_lost_connection_is_trouble_that_passes_and_a_wrong_setting_is_not():
    assert is_transient(OperationalError("the connection is closed"))
    assert is_transient(InterfaceError("connection already closed"))
    assert is_transient(psycopg.OperationalError("connection refused"))
    assert is_transient(InternalError("received 2 results from command 'BEGIN'"))  # the second: that it was cut
    assert is_transient(psycopg.InternalError("received 2 results from command 'BEGIN'"))
    assert not is_transient(ImproperlyConfigured("no such alias"))
    assert not is_transient(ValueError("x"))


def test_connection_to_a_server_that_is_read_only_is_not_kept(queue, sql):
    """As after a failover: the next one may lead to the server that is the primary now."""
    insert = "INSERT INTO pgqueue_jobs (task) VALUES ('x') RETURNING 1"
    name = connection.settings_dict["NAME"]
    sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    try:
        former = queue.autocommit()
        with pytest.raises(Error, match="read-only"):
            queue.rows(insert, {})
        assert former.closed
    finally:
        sql("SET default_transaction_read_only = off")
        sql(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
    assert queue.rows(insert, {}) == [(1,)]


def test_value_that_is_never_sent_takes_back_what_was_sent_before_it(queue, sql):
    """The server knows of no error there: it would commit the rest."""
    enqueue_many(app.noop, [()])
    with pytest.raises(DataError, match="NUL"), queue.transaction():
        queue.send("DELETE FROM pgqueue_jobs RETURNING id", {})
        queue.send("SELECT %(text)s::text", {"text": "\0"})
    assert sql("SELECT count(*) FROM pgqueue_jobs") == [(1,)]
    assert queue.rows("SELECT 1", {}) == [(1,)]
