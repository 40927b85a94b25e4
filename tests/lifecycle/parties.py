"""Those who work on one database, each with a connection, and what the database then says."""

import contextlib
import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction

from django_pgqueue.db.connections import CallerConnection, QueueConnection
from django_pgqueue.insights.history import title_of
from tests.lifecycle.model import HOUR, Book, Job, Model
from tests.support.waiting import PATIENCE_SECONDS

JOBS = """
SELECT
    id, queue, priority, max_attempts, keep, status, attempts, lost, snoozes, errors, lease_token, worker_id,
    killed_by, kill_requested_at IS NOT NULL,
    run_at - statement_timestamp(),
    NULLIF(first_started_at, 'epoch') - statement_timestamp(),
    CASE WHEN status = 'running' THEN lease_until - statement_timestamp() END,
    unique_key, unique_until, concurrency_key, concurrency_slot
FROM pgqueue_jobs
WHERE status <> 'reserved'
"""
RESERVED = (
    "SELECT id, unique_key, unique_until, run_at - statement_timestamp() FROM pgqueue_jobs WHERE status = 'reserved'"
)
DEAD_JOBS = """
SELECT
    id, queue, priority, max_attempts, keep, 'dead', attempts, lost, snoozes, errors, reason, killed_by,
    unique_key, unique_until
FROM pgqueue_dead_jobs
"""
SUCCEEDED_JOBS = "SELECT id, queue, priority, 'succeeded', attempts, lost, errors FROM pgqueue_succeeded_jobs"
WORKERS = "SELECT id, pid, lease_until - statement_timestamp() FROM pgqueue_workers"

ADVANCE = """
UPDATE pgqueue_jobs
SET run_at = run_at - passed.hours,
    lease_until = GREATEST(lease_until - passed.hours, 'epoch'),
    first_started_at = CASE WHEN first_started_at = 'epoch' THEN 'epoch' ELSE first_started_at - passed.hours END
FROM (SELECT make_interval(hours => {hours:d}) AS hours) AS passed;
UPDATE pgqueue_dead_jobs
SET first_started_at = CASE WHEN first_started_at = 'epoch' THEN 'epoch' ELSE first_started_at - passed.hours END
FROM (SELECT make_interval(hours => {hours:d}) AS hours) AS passed;
UPDATE pgqueue_workers SET lease_until = lease_until - make_interval(hours => {hours:d});
"""
CLEAN = """
DELETE FROM pgqueue_jobs;
DELETE FROM pgqueue_dead_jobs;
DELETE FROM pgqueue_succeeded_jobs;
DELETE FROM pgqueue_workers;
"""

INSIDE = " inside"


@dataclass
class Party:
    """An actor with a connection, perhaps in the middle of a transaction."""

    database: QueueConnection | CallerConnection
    transaction: contextlib.ExitStack | None = None
    book: Book | None = None


class Parties:
    """Two workers and the staff, who may be inside a transaction, and a house keeper, who never is."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.house = QueueConnection("default", "house")
        self.members = {
            "one": Party(QueueConnection("default", "one")),
            "two": Party(QueueConnection("default", "two")),
            "staff": Party(CallerConnection()),
        }
        self.execute(CLEAN)
        with connection.cursor() as cursor:
            # The limit of a statement that waits for a lock: none may.
            cursor.execute(f"SET statement_timeout = '{PATIENCE_SECONDS}s'")

    def close(self) -> None:
        for name, party in self.members.items():
            self.break_off(name)
            if name != "staff":
                party.database.close()
        self.house.close()
        with connection.cursor() as cursor:
            cursor.execute("RESET statement_timeout")

    def execute(self, text: str) -> Any:
        """Run SQL of the tests' own, beside all actors."""
        return self.house.autocommit().execute(text, prepare=False)

    # Transactions

    @contextlib.contextmanager
    def acting(self, name: str) -> Iterator[tuple[Any, Book]]:
        """Give a party's connection, and the model as it sees it; all it does is committed, unless it is inside.

        Args:
            name: with " inside" behind it, a transaction is begun, unless one is open.
        """
        party = self.members[name.removesuffix(INSIDE)]
        if name.endswith(INSIDE) and party.transaction is None:
            self._begin(name.removesuffix(INSIDE))
        book = party.book or self.model.open()
        yield party.database, book
        if party.book is None:
            self.model.close(book, commits=True)

    def one_transaction(self, name: str) -> Any:
        """Return what statements are sent in together: the transaction that is open, or a short one."""
        party = self.members[name.removesuffix(INSIDE)]
        return contextlib.nullcontext() if party.transaction else party.database.transaction()

    def _begin(self, name: str) -> None:
        party = self.members[name]
        party.transaction, party.book = contextlib.ExitStack(), self.model.open()
        party.transaction.enter_context(transaction.atomic() if name == "staff" else party.database.transaction())

    def commit(self, name: str) -> None:
        party = self.members[name]
        if party.transaction is not None:
            party.transaction.close()
            self.model.close(party.book, commits=True)
            party.transaction = party.book = None

    def break_off(self, name: str) -> None:
        """End a transaction as when the connection is lost, or the code around it raises."""
        party = self.members[name]
        if party.transaction is None:
            return
        if name != "staff":
            pid = party.database.autocommit().info.backend_pid
            # This returns when it is gone, and its locks too.
            self.execute(f"SELECT pg_terminate_backend({pid}, {PATIENCE_SECONDS * 1000:.0f})")
        with contextlib.suppress(InterruptedError):
            party.transaction.__exit__(InterruptedError, InterruptedError(), None)
        self.model.close(party.book, commits=False)
        party.transaction = party.book = None

    def advance(self, hours: int) -> None:
        """Let time pass by moving all rows back, for which no actor may hold one."""
        for name in self.members:
            self.commit(name)
        self.execute(ADVANCE.format(hours=hours))
        self.model.now += hours

    # What the database says, and what it should say

    def found(self) -> tuple[dict[int, tuple], ...]:
        """Return all rows of jobs, whichever table they are in, all reserved rows and all workers, by id."""
        with self.house.autocommit().pipeline():
            answers = [self.execute(text) for text in (JOBS, DEAD_JOBS, SUCCEEDED_JOBS, RESERVED, WORKERS)]
        jobs, dead, finished, reserved, workers = (answer.fetchall() for answer in answers)
        found = {row[0]: as_in_the_model(row) for row in (*jobs, *dead, *finished)}
        assert len(found) == len(jobs) + len(dead) + len(finished), "a job is in one table only"
        rest = ({row[0]: as_in_the_model(row) for row in rows} for rows in (reserved, workers))
        return found, *rest

    def expected(self) -> tuple[dict[int, tuple], ...]:
        """Return the same by the model."""
        now, jobs, workers = self.model.now, self.model.jobs.values(), self.model.processes.values()
        return (
            {job.id: row(job, now) for job in jobs if job.state != "gone"},
            {job.id: (job.id, job.key, job.scope, job.reserved[0] - now) for job in jobs if job.reserved},
            {worker.id: (worker.id, worker.pid, worker.lease_until - now) for worker in workers},
        )


def row(job: Job, now: int) -> tuple:
    """Return what its table should have of a job."""
    start = (job.id, job.queue, job.priority)
    if job.state == "succeeded":
        return *start, "succeeded", job.attempts, job.lost, job.errors
    start += (job.max_attempts, job.keep, job.state, job.attempts, job.lost, job.snoozes, job.errors)
    if job.state == "dead":
        return *start, job.reason, job.killed_by, job.key, job.scope
    return (
        *start,
        *(job.token, job.worker_id, job.killed_by, job.is_kill_requested, job.due[0] - now),
        None if job.first_started is None else job.first_started - now,
        job.lease_until - now if job.state == "running" else None,
        *(job.key, job.scope, job.limited_by, job.slot),
    )


def as_in_the_model(found: tuple) -> tuple:
    """Turn instants into whole hours from now, and histories into attempts and errors."""

    def plain(value: Any) -> Any:
        match value:
            case dt.timedelta():
                return round(value.total_seconds() / HOUR)
            case str() if value.startswith("["):
                return [(entry["attempt"], title_of(entry)) for entry in json.loads(value)]
        return value

    return tuple(map(plain, found))
