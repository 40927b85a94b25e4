"""Errors of the database, told apart: trouble that passes, and mistakes."""

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, InterfaceError, InternalError, OperationalError

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
