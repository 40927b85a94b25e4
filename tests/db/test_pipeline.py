"""One transaction sent as a pipeline: errors in its body, of a statement, of another connection, at its commit."""

import psycopg
import pytest
from django.db import DataError

import tests.app.tasks as app
from django_pgqueue.models import DeadJob, SucceededJob
from tests.support.consumers import cycle
from tests.support.waiting import until_gone


def test_transaction_whose_body_fails_is_rolled_back(queue):
    with pytest.raises(LookupError), queue.transaction():
        queue.rows("INSERT INTO pgqueue_jobs (task) VALUES ('x') RETURNING 1", {})
        raise LookupError
    assert queue.rows("SELECT count(*) FROM pgqueue_jobs", {}) == [(0,)]


def test_refused_outcome_is_found_without_pipelines_too(consumer, monkeypatch):
    monkeypatch.setattr(psycopg.Pipeline, "is_supported", classmethod(lambda cls: False))
    app.noop.enqueue_many([()] * 4)
    cycle(consumer)
    for number in range(4):
        consumer.slots.finish(result="no json" if number == 2 else "1")
    for _ in range(3):
        cycle(consumer)
    assert (SucceededJob.objects.count(), DeadJob.objects.count(), consumer._backoff.failures) == (3, 1, 0)


@pytest.mark.parametrize("begins", [False, True])
def test_error_of_another_connection_commits_nothing(queue, other_queue, sql, begins):
    """It has an SQLSTATE as if the server had refused a statement of this transaction, which it has not."""
    with pytest.raises(DataError), queue.transaction(commits=begins):
        queue.rows("INSERT INTO pgqueue_jobs (task) VALUES ('x') RETURNING id", {})
        other_queue.autocommit().execute("SELECT 'word'::integer")
    assert sql("SELECT count(*) FROM pgqueue_jobs") == [(0,)]
    assert queue.rows("SELECT 1", {}) == [(1,)]


def test_connection_outlives_a_statement_that_its_server_refuses(queue, sql):
    [before] = queue.rows("SELECT pg_backend_pid()", {})
    with pytest.raises(DataError), queue.transaction():
        queue.rows("INSERT INTO pgqueue_jobs (task) VALUES ('x') RETURNING id", {})
        queue.rows("SELECT 'word'::integer", {})
    assert sql("SELECT count(*) FROM pgqueue_jobs") == [(0,)]
    assert queue.rows("SELECT pg_backend_pid()", {}) == [before]


@pytest.fixture
def late_trouble(sql):
    """Let the first two transactions that take a job away fail when they commit."""
    sql("CREATE SEQUENCE pgqueue_trouble")
    sql(
        "CREATE FUNCTION pgqueue_fail() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "BEGIN IF nextval('pgqueue_trouble') <= 2 THEN RAISE 'too late'; END IF; RETURN NULL; END $$"
    )
    sql(
        "CREATE CONSTRAINT TRIGGER fail AFTER DELETE ON pgqueue_jobs DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION pgqueue_fail()"
    )
    yield
    sql("DROP FUNCTION pgqueue_fail CASCADE")
    sql("DROP SEQUENCE pgqueue_trouble")


def test_transaction_that_fails_at_its_commit_is_tried_again(consumer, queue, late_trouble, caplog):
    app.noop.enqueue_many([()] * 4)
    cycle(consumer)
    for _ in range(4):
        consumer.slots.finish()
    for failures in ({1}, {1, 2}, {0}):  # in halves the second time, where the server says what has failed
        consumer._backoff._retry_at = 0.0
        session = consumer.database.autocommit().info.backend_pid
        cycle(consumer)
        assert consumer._backoff.failures in failures
        if consumer.database.autocommit().info.backend_pid != session:
            until_gone(queue, session)  # which may say that it has failed before it gives the rows back
    assert (SucceededJob.objects.count(), DeadJob.objects.count(), consumer._in_flight.held()) == (4, 0, 0)
    assert "too late" in caplog.text or "the transaction failed at its commit" in caplog.text
    assert "pipeline mode" not in caplog.text


def test_value_that_is_never_sent_takes_back_what_was_sent_before_it(queue, sql):
    """The server knows of no error there: it would commit the rest."""
    app.noop.enqueue_many([()])
    with pytest.raises(DataError, match="NUL"), queue.transaction():
        queue.send("DELETE FROM pgqueue_jobs RETURNING id", {})
        queue.send("SELECT %(text)s::text", {"text": "\0"})
    assert sql("SELECT count(*) FROM pgqueue_jobs") == [(1,)]
    assert queue.rows("SELECT 1", {}) == [(1,)]
