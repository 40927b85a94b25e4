"""Pipelines: many statements in one round trip, whose answers are never waited for without a timeout."""

import contextlib
import time
from collections.abc import Generator, Iterator
from typing import Any

import psycopg

from django_pgqueue.db.errors import CommitFailed, Silence


@contextlib.contextmanager
def one_transaction(connection: Any, *, begins: bool) -> Iterator[None]:
    """Send statements without waiting for each answer, where the client library can.

    Without BEGIN and COMMIT: to the server, all that comes before the pipeline's one Sync is one transaction. If the
    caller fails for reasons of its own, that Sync must not be sent.
    Source: https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-PIPELINING

    Args:
        begins: whether BEGIN and COMMIT are needed after all: to say READ COMMITTED, or to hear of the commit.

    Raises:
        psycopg.Error: of a statement, or of the commit; CommitFailed where that is all that is known.
    """
    if not psycopg.Pipeline.is_supported():
        with connection.transaction():
            yield
        return
    is_sent, failed = False, None
    try:
        with connection.pipeline():
            try:
                if begins:
                    connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
                yield
                if begins:
                    connection.execute("COMMIT")
                is_sent = True
            except BaseException as error:  # noqa: BLE001 - raised below
                if begins or connection.pgconn.pipeline_status != psycopg.pq.PipelineStatus.ABORTED:
                    connection.close()  # unless its server has refused a statement, the Sync would commit
                failed = error
    except Exception as error:
        if failed is None:
            _check_commit(connection, error, is_sent=is_sent)
            raise
    if failed is not None:
        raise failed  # outside of the pipeline, which would log a second error at its end, after an error in it


def _check_commit(connection: Any, error: Exception, *, is_sent: bool) -> None:
    """Raise what a commit has failed with, as far as it can be known, in place of an error that does not say so.

    psycopg has no statement to which this answer to the Sync belongs. It raises the error and stumbles over it when it
    leaves the pipeline; or, where the Sync's own end was read along with it, loses count of the answers.
    """
    if not isinstance(error, IndexError | psycopg.OperationalError):
        return
    is_told = connection.closed and not isinstance(error, IndexError)
    if is_sent and not is_told and not getattr(error, "sqlstate", None):
        connection.close()
        if isinstance(error.__context__, psycopg.Error):
            raise error.__context__ from None
        raise CommitFailed("the transaction failed at its commit") from None


@contextlib.contextmanager
def impatience(connection: Any, patience_seconds: float) -> Iterator[None]:
    """Let a connection of psycopg wait for its server for a limited time in here; then it raises ``Silence``."""

    def wait(steps: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        return type(connection).wait(connection, impatient(steps, patience_seconds), *args, **kwargs)

    connection.wait = wait
    try:
        yield
    finally:
        del connection.wait


def impatient(steps: Generator[Any, Any, Any], patience_seconds: float) -> Generator[Any, Any, Any]:
    """Run the steps of a conversation of psycopg, and raise ``Silence`` after ``patience_seconds`` without an answer.

    A step yields the event that it waits for, and gets whether it has happened; if it has not, several times a second.
    """
    answered_at = time.monotonic()
    try:
        wanted = next(steps)
        while True:
            is_ready = yield wanted
            if is_ready:
                answered_at = time.monotonic()
            elif time.monotonic() - answered_at > patience_seconds:
                raise Silence(f"the server has not answered for {patience_seconds:g} s")
            wanted = steps.send(is_ready)
    except StopIteration as end:
        return end.value
