"""Look up jobs by id, in whichever table they are, or by the unique key that they hold."""

import datetime as dt
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from django.db.models import TextChoices

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import Database, QueueConnection, Row
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import JobDoesNotExist
from django_pgqueue.jobs.captured_log import split
from django_pgqueue.outbox.writing import Origin, call_in
from django_pgqueue.states import DeathReason, JobStatus
from django_pgqueue.stored_values import only_texts, read_exactly

LARGEST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a job at one moment: the columns of ``find_job.sql`` in their order."""

    id: int
    status: JobStatus  # RESERVED: it has succeeded, and only its unique key is left
    queue: str
    task: str
    backend: str
    priority: int
    run_at: dt.datetime
    enqueued_at: dt.datetime
    started_at: dt.datetime | None  # of its first attempt; of the first since it was retried
    last_attempted_at: dt.datetime | None  # when the latest attempt was claimed
    ended_at: dt.datetime | None  # when it succeeded or died
    worker_id: int | None  # of the last attempt; of a live job None unless it runs
    attempts: int
    lost: int
    reason: DeathReason | None  # why it is dead
    tags: tuple[str, ...]
    args: Any = field(repr=False)
    kwargs: Any = field(repr=False)
    result: Any = field(repr=False)  # what its task returned; None where it has not succeeded, or this is not kept
    errors: list[Any] = field(repr=False)
    metadata: Any = field(repr=False)
    progress: Any
    keeps_result: bool  # it has succeeded, and the result is kept

    @property
    def succeeded(self) -> bool:
        return self.status in (JobStatus.SUCCEEDED, JobStatus.RESERVED)

    @property
    def is_finished(self) -> bool:
        """Whether it has ended, either way: it has succeeded or died."""
        return self.status == JobStatus.DEAD or self.succeeded


def find(database: Database, job_id: int) -> JobState:
    """Return where a job is, and all that is known of it, by one statement; raise JobDoesNotExist if there is none."""
    state = _find(database, job_id)
    if state is None and conf.outboxes and (origin := Origin.of(job_id)) is not None:
        state = _find_met(database, job_id) or _find_call(origin, job_id)
        state = state or _find(database, job_id) or _find_met(database, job_id)  # it was handed over in between
    if state is None:
        raise unknown(job_id)
    return state


def _find(database: Database, job_id: int) -> JobState | None:
    return _state(database.rows(statement("find_job"), {"id": job_id})) if may_be(job_id) else None


def _find_met(database: Database, call_id: int) -> JobState | None:
    """Return the job that a call has met when it came out of its outbox; None: it is a job itself, or none yet."""
    rows = database.rows(statement("job_of_call"), {"id": call_id})
    return _find(database, rows[0][0]) if rows and rows[0][0] != call_id else None


def _find_call(origin: Origin, job_id: int) -> JobState | None:
    """Return a job that is still a call in its outbox, as it will be; None: it is not there any more."""
    if origin.alias is None or not (row := call_in(origin.alias, origin.row)):
        return None
    call = json.loads(row.call)
    options: dict[str, Any] = call["options"]
    delay = dt.timedelta(seconds=options["delay_seconds"] or 0)
    run_at = dt.datetime.fromisoformat(options["run_at"]) if options["run_at"] else row.enqueued_at + delay
    return JobState(
        id=job_id,
        status=JobStatus.SCHEDULED if run_at > row.now else JobStatus.QUEUED,
        queue=options["queue"],
        task=options["task"],
        backend=options["backend"],
        priority=options["priority"],
        run_at=run_at,
        enqueued_at=row.enqueued_at,
        started_at=None,
        last_attempted_at=None,
        ended_at=None,
        worker_id=None,
        attempts=0,
        lost=0,
        reason=None,
        tags=tuple(row.tags or ()),
        args=call["args"],
        kwargs=call["kwargs"],
        result=None,
        errors=[],
        metadata=json.loads(options["metadata"]),
        progress=None,
        keeps_result=False,
    )


def find_many(database: QueueConnection, ids: Iterable[int]) -> dict[int, JobState | None]:
    """Return the same for some jobs, in one round trip; None: there is no such job."""
    with database.transaction():
        answers = [(job_id, database.send(statement("find_job"), {"id": job_id})) for job_id in ids]
    return {job_id: _state(answer.fetchall()) for job_id, answer in answers}


class KeyHolder(NamedTuple):
    """The live job that holds a unique key; the columns of ``find_key_holder.sql``."""

    id: int
    task: str
    queue: str


def find_holder(database: Database, unique_key: str) -> KeyHolder | None:
    """Return the job that holds a unique key, by one statement; None: the key is free."""
    rows = database.rows(statement("find_key_holder"), {"unique_key": unique_key})
    return KeyHolder._make(rows[0]) if rows else None


def may_be(job_id: int) -> bool:
    """Whether a job can have this id."""
    return 0 < job_id <= LARGEST_ID


def unknown(job_id: int) -> JobDoesNotExist:
    return JobDoesNotExist(
        f"There is no job {job_id}: it was never committed, or it is not kept any more. Succeeded jobs are "
        "kept for RETENTION_DAYS; jobs of tasks with keep_result=False are not."
    )


def _state(rows: list[Row]) -> JobState | None:
    if not rows:
        return None
    *columns, tags, args, kwargs, result, errors, metadata, progress = rows[0]
    columns[1] = _word(JobStatus, columns[1])
    columns[-1] = _word(DeathReason, columns[-1])
    texts = (args, kwargs, result, errors, metadata, progress)
    read = (None if text is None else read_exactly(text) for text in texts)
    values = [*columns, tuple(only_texts(tags) or ()), *read, result is not None]
    values[-2], _log = split(values[-2])
    return JobState(*values)


def _word(words: type[StrEnum] | type[TextChoices], text: str | None) -> str | None:
    """Return a text as one of these words, and one of newer code as it is."""
    try:
        return None if text is None else words(text)
    except ValueError:
        return text
