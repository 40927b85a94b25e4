"""Rows of jobs as no enqueueing leaves them, and waits that end."""

import pytest

from django_pgqueue.jobs import waiter
from django_pgqueue.jobs.search import Source
from tests.support.job_tables import TABLES, TIMES
from tests.support.results import SESSIONS
from tests.support.waiting import eventually


@pytest.fixture
def put(sql):
    """Insert a row into one of the three tables, a minute old; returns its id."""
    ids = iter(range(1, 1000))

    def run(source, **columns) -> int:
        job_id = next(ids)
        values = {"id": str(job_id), "task": "'x'", TIMES[source]: "statement_timestamp() - interval '1 min'"}
        if source is not Source.LIVE:
            values |= {"queue": "'default'", "run_at": "now()", "enqueued_at": "now()"}
        if source is Source.DEAD:
            values["reason"] = "'exhausted'"
        if source is Source.SUCCEEDED:
            zeros = ("worker_id", "run_seconds", "priority", "attempts", "lost")
            values |= dict.fromkeys(zeros, "0") | {"first_started_at": "now()", "started_at": "now()", "backend": "''"}
            values |= dict.fromkeys(("args", "errors"), "'[]'") | dict.fromkeys(("kwargs", "metadata"), "'{}'")
        values |= columns
        override = "OVERRIDING SYSTEM VALUE " if source is Source.LIVE else ""
        sql(f"INSERT INTO {TABLES[source]} ({', '.join(values)}) {override}VALUES ({', '.join(values.values())})")
        return job_id

    return run


@pytest.fixture
def no_caller_waits_in_the_end(sql):
    yield
    waiter.stop_all()
    eventually(lambda: not (sql(SESSIONS, "pgqueue waiting") or sql(SESSIONS, "pgqueue waiting listener")))
