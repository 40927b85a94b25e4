"""Visibility of a job's arguments in the server's views and logs."""

import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from django_pgqueue.models import Job

SECRET = "TopSecret99"


def enqueue_one():
    app.record.enqueue(SECRET)


def enqueue_keyed():
    app.record.using(unique_key="k", on_conflict="replace").enqueue(SECRET)


def replace():
    app.record.using(unique_key="k").enqueue("old")
    app.record.using(unique_key="k", on_conflict="replace").enqueue(SECRET)


def enqueue_some():
    enqueue_many(app.record, [(SECRET,), (SECRET,)])


@pytest.mark.parametrize("act", [enqueue_one, enqueue_keyed, replace, enqueue_some])
def test_text_of_the_statement_holds_no_arguments(transactional_db, queue, act):
    """While its transaction is open, and in the debug log."""
    with CaptureQueriesContext(connection) as captured, transaction.atomic():
        act()
        [(text,)] = queue.rows(
            "SELECT query FROM pg_stat_activity WHERE pid = %(pid)s", {"pid": connection.connection.info.backend_pid}
        )
    assert text
    assert SECRET not in text
    statements = [query["sql"] for query in captured if "INSERT INTO pgqueue_jobs" in query["sql"]]
    assert statements
    assert SECRET not in "".join(query["sql"] for query in captured)
    assert Job.objects.filter(args=[SECRET]).exists()


def test_cursors_of_the_project_are_as_they_were(transactional_db):
    before = connection.connection and connection.connection.cursor_factory
    app.record.enqueue(SECRET)
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s", ["by the client"])
        assert type(cursor.cursor) is connection.connection.cursor_factory
    assert before in {None, connection.connection.cursor_factory}


def test_cursors_of_a_class_that_the_settings_name_are_used(transactional_db, monkeypatch):
    connection.ensure_connection()
    seen = []

    class Traced(connection.connection.cursor_factory):
        def execute(self, query, *given, **more):
            seen.append(query)
            return super().execute(query, *given, **more)

    monkeypatch.setattr(connection.connection, "cursor_factory", Traced)
    app.record.enqueue(SECRET)
    assert any("INSERT INTO pgqueue_jobs" in query for query in seen)


def test_connection_that_has_died_since_is_opened_anew_and_still_holds_none(transactional_db):
    wrapper = connections["default"]
    wrapper.ensure_connection()
    with CaptureQueriesContext(wrapper) as captured:
        wrapper.health_check_enabled, wrapper.health_check_done = True, False  # until it is opened again
        wrapper.connection.close()
        enqueue_one()
    [statement] = [query["sql"] for query in captured if "INSERT INTO pgqueue_jobs" in query["sql"]]
    assert SECRET not in statement
