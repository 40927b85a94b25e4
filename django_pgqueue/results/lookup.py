"""Look up jobs by id, in whichever table they are."""

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django_pgqueue.db.connections import Database, QueueConnection, Row
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import UnknownJob
from django_pgqueue.states import DEAD, FINISHED, Status
from django_pgqueue.stored_values import read_exactly

LARGEST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a job at one moment: the columns of ``find_job.sql`` in their order.

    Attributes:
        status: of a live job its status; or ``dead``, or ``finished``, of which only ``held`` may be left.
        ended_at: when it finished or died.
        worker_id: the worker process of the last attempt; of a live job None unless it runs.
        reason: why it is dead.
        result: what its task returned; None where it has not finished, or the result is not kept.
        keeps_result: whether it has finished and the result is kept.
    """

    id: int
    status: str
    queue: str
    task: str
    backend: str
    priority: int
    run_at: dt.datetime
    enqueued_at: dt.datetime
    first_started_at: dt.datetime | None
    started_at: dt.datetime | None
    ended_at: dt.datetime | None
    worker_id: int | None
    attempts: int
    lost: int
    reason: str | None
    args: Any = field(repr=False)
    kwargs: Any = field(repr=False)
    result: Any = field(repr=False)
    errors: list[Any] = field(repr=False)
    metadata: Any = field(repr=False)
    progress: Any
    keeps_result: bool

    @property
    def has_finished(self) -> bool:
        """Whether it has succeeded."""
        return self.status in (FINISHED, Status.RESERVED)

    @property
    def has_ended(self) -> bool:
        """Whether it has finished or died."""
        return self.status == DEAD or self.has_finished


def find(database: Database, job_id: int) -> JobState:
    """Return where a job is, and all that is known of it, by one statement; raise UnknownJob if there is none."""
    return _state(job_id, database.rows(statement("find_job"), {"id": job_id}) if may_be(job_id) else [])


def find_many(database: QueueConnection, ids: Iterable[int]) -> dict[int, JobState | Exception]:
    """Return the same for some jobs, in one round trip: of each its state, or why there is none."""
    with database.transaction():
        answers = [(job_id, database.send(statement("find_job"), {"id": job_id})) for job_id in ids]
    found: dict[int, JobState | Exception] = {}
    for job_id, answer in answers:
        try:
            found[job_id] = _state(job_id, answer.fetchall())
        except UnknownJob as error:
            found[job_id] = error
    return found


def may_be(job_id: int) -> bool:
    """Whether a job can have this id."""
    return 0 < job_id <= LARGEST_ID


def unknown(job_id: int) -> UnknownJob:
    """Return the error that says that there is no such job."""
    return UnknownJob(
        f"There is no job {job_id}: it was never committed, or nothing is kept of it any more. What has finished is "
        "kept for RETENTION_DAYS; jobs of tasks with keep=False are not."
    )


def _state(job_id: int, rows: list[Row]) -> JobState:
    if not rows:
        raise unknown(job_id)
    *columns, args, kwargs, result, errors, metadata, progress = rows[0]
    texts = (args, kwargs, result, errors, metadata, progress)
    values = [*columns, *(None if text is None else read_exactly(text) for text in texts), result is not None]
    return JobState(*values)
