"""Rows that no code of ours would write, as anybody may who can insert: no worker ends by them, no page, no command."""

import queue as stdlib_queue
from collections.abc import Iterator

import pytest
from django.db import IntegrityError

import tests.app.tasks as app
from django_pgqueue.models import FinishedJob, Job
from django_pgqueue.runtime.marks import Marks, now
from django_pgqueue.runtime.pump import Pump
from django_pgqueue.runtime.slots import Slots
from tests.support.slots import ended
from tests.support.waiting import eventually
from tests.test_pump import turn

DIGITS = "9" * 5000
DEEP = "[" * 3000 + "]" * 3000
UNREADABLE = [f'{{"a": {DIGITS}}}', f"[{DIGITS}]", DEEP, f'{{"a": {DEEP}}}', DIGITS]


@pytest.fixture
def pump(transactional_db) -> Iterator[Pump]:
    """One with slots that run jobs, driven turn by turn by the test."""
    marks = Marks()
    marks.extend(now() + 600)
    with ended():
        made = Pump(1, (), Slots(4, marks, stdlib_queue.SimpleQueue()), marks)
        yield made
        made.database.close()


def run_until(pump: Pump, condition) -> None:
    def looked():
        turn(pump)
        return condition()

    eventually(looked)
    eventually(lambda: [turn(pump), not pump._book.held()][1])


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("queue", "repeat('q', 129)"), ("task", "repeat('t', 501)"), ("backend", "repeat('b', 501)")),
        *(("fair_key", "repeat('k', 501)"), ("expires_at", "'infinity'"), ("enqueued_at", "'-infinity'")),
        *(("expires_at", "'10000-01-01'"), ("started_at", "'1969-12-31'"), ("lease_until", "'infinity'")),
    ],
)
def test_database_refuses_names_and_times_that_python_would_not_write(sql, column, value):
    named, given = ("task", value) if column == "task" else (f"task, {column}", f"'x', {value}")
    with pytest.raises(IntegrityError, match=r"pgqueue_jobs_(lengths|instants)"):
        sql(f"INSERT INTO pgqueue_jobs ({named}) VALUES ({given})")


@pytest.mark.parametrize("column", ["args", "kwargs", "metadata", "progress", "errors"])
def test_worker_outlives_json_that_python_cannot_read(pump, sql, column):
    """Of tasks that are known and not, with a backend and without; and what stands behind it in the queue runs."""
    for value in UNREADABLE:
        for task in ("tests.app.tasks.noop", "nobody.knows"):
            for backend in ("", "default", "no such alias"):
                if column != "errors" or value.startswith("["):
                    sql(
                        f"INSERT INTO pgqueue_jobs (task, backend, priority, max_attempts, {column}) "
                        "VALUES (%s, %s, 100, 1, %s::jsonb)",
                        *(task, backend, value),
                    )
    good = app.noop.enqueue().id
    run_until(pump, FinishedJob.objects.filter(pk=good).exists)
    assert not Job.objects.filter(status__in=["queued", "running"]).exists()
