"""Records passed between the database, the consumer, the slots and the supervisor."""

import datetime as dt
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, NamedTuple

from django_pgqueue.states import DeathReason
from django_pgqueue.stored_values import read_object

KEEP_RESULT, RESERVE_KEY = 1, 2  # flags: kept in succeeded_jobs; holds its unique key for a while after success
MEMBER, COLLECT_RESULT = 4, 8  # flags: belongs to a stage of a workflow; that stage keeps the result

KILLED, EXPIRED = -1, -2  # what claim.sql returns for the time limit of jobs that are not to run


class ClaimedJob(NamedTuple):
    """One claimed job: the columns of ``claim.sql`` in their order, then what all jobs of one claim share.

    Sorts in the order in which jobs start.
    """

    rank: int  # the priority, negated
    run_at: float  # seconds since 1970
    id: int
    task: str
    args: str  # JSON text; decoded where the job runs
    kwargs: str
    attempt: int  # from 1; this run included
    max_attempts: int
    timeout_seconds: int  # 0 = none; below 0: it is not to run, see was_killed and has_expired
    lost: int  # how often a worker died with this job
    flags: int  # KEEP_RESULT, RESERVE_KEY, MEMBER, COLLECT_RESULT
    is_old: bool  # first claimed a day ago or earlier
    concurrency_key: str | None  # when its run has ended, the next job of this key may be admitted
    rest: str | None  # JSON text: more of jobs with metadata, snoozes, a slot above 1, a stage, or a backend
    enqueued_at: float | None  # seconds since 1970; of fair jobs, and where run_at is earlier
    queue: str
    lease_token: int  # with the id, the right to write the outcome; new for each claim
    claimed_at: float  # monotonic
    database: str  # the alias of its queue

    def __repr__(self) -> str:
        return f"<ClaimedJob {self.id} ({self.task}) attempt {self.attempt}>"  # no arguments: logs show it

    @property
    def priority(self) -> int:
        return -self.rank

    @property
    def place(self) -> tuple[int, float, int]:
        return self[:3]

    @property
    def run_id(self) -> int:
        """One number for id and token: what a child writes into the memory it shares with its supervisor."""
        return self.id ^ self.lease_token

    @property
    def was_killed(self) -> bool:
        """Whether it was killed while its last run was ending by itself."""
        return self.timeout_seconds == KILLED

    @property
    def snoozes(self) -> int:
        """How often it has asked to run later, before this run."""
        number = read_object(self.rest).get("snoozes", 0)
        return number if isinstance(number, int) else 0

    @property
    def stage_id(self) -> int | None:
        """The stage of a workflow that it is a member of; None: it is none."""
        if not self.flags & MEMBER:
            return None
        rest = self.rest or ""
        return int(rest) if rest.isdecimal() else read_object(rest).get("stage_id")

    @property
    def slot(self) -> int | None:
        """Its place among the running jobs of its concurrency key, from 1; None: it has no such key."""
        return None if self.concurrency_key is None else read_object(self.rest).get("slot") or 1

    @property
    def has_expired(self) -> bool:
        return self.timeout_seconds == EXPIRED


class Fate(Enum):
    """The fate of a job after a run."""

    SUCCEEDED = auto()
    REPEATED = auto()  # succeeded, and asks for another job like it
    RECORDED = auto()  # succeeded, and already removed in the handler's own transaction (atomic=True)
    RETRIED = auto()
    DIED = auto()
    SNOOZED = auto()  # it asked to run later: back with the attempt restored, and counted
    RELEASED = auto()  # not run, or not to its end: back with the attempt restored

    @property
    def word(self) -> str:
        """Its name in logs and traces: where the success was recorded does not matter there."""
        return "succeeded" if self is Fate.RECORDED else self.name.lower()


@dataclass(slots=True)
class Outcome:
    """Outcome of a run. Made by ``jobs.executor``, written by ``jobs.ack``; nothing is stored in between."""

    job: ClaimedJob
    fate: Fate
    run_seconds: float = 0.0
    result: str | None = field(default="null", repr=False)  # JSON text; None: it cannot be stored
    delay_seconds: float = 0.0  # RETRIED, SNOOZED, RELEASED and REPEATED: due again in
    next_at: dt.datetime | None = None  # REPEATED: due again at, in place of the delay
    reason: DeathReason | None = None  # DIED
    progress: str | None = field(default=None, repr=False)  # JSON text: to be kept in place of the last one written
    error: dict[str, Any] | None = None  # RETRIED and DIED: one entry of the history
    is_awaited: bool = False  # RECORDED: a caller waits for the end of the job


Ended = tuple[int, Outcome]  # what a slot hands back: the cell of the job, and what its run came to


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of writing a batch of outcomes, by job id. Those neither locked nor stale were written."""

    locked: frozenset[int] = frozenset()  # another session holds the row; try again with the next flush
    stale: frozenset[int] = frozenset()  # the lease is gone; the outcome is dropped
    awaited: frozenset[int] = frozenset()  # the job has ended, and a caller waits for that


class Lease(NamedTuple):
    """One running row, in the order in which ``worker_leases.sql`` and ``expired_leases.sql`` return its columns."""

    id: int
    lease_token: int
    worker_id: int
    queue: str
    attempts: int
    max_attempts: int
    lost: int
    is_kill_requested: bool
    worker: str  # host and pid, for people
    task: str
    timeout_seconds: int  # 0 = none

    @property
    def attempt(self) -> int:
        return self.attempts

    @property
    def run_id(self) -> int:
        return self.id ^ self.lease_token  # as that of the ClaimedJob


Kinds = tuple[tuple[str, str], ...]  # queue and task of one job after the other


class EndCounts(NamedTuple):
    """The number of jobs that ended without an outcome, for the counts."""

    lost: Kinds = ()  # attempts whose worker died
    failed: Kinds = ()  # attempts
    retried: Kinds = ()  # jobs of these that run again
    died: Kinds = ()  # jobs

    def and_also(self, others: "EndCounts") -> "EndCounts":
        return EndCounts(*(mine + theirs for mine, theirs in zip(self, others, strict=True)))


class ReapResult(NamedTuple):
    """The result of reaping: jobs whose worker died, by what became of them."""

    returned: int = 0  # queued again
    dead: int = 0
    queues: frozenset[str] = frozenset()  # those that have work again
    keys: frozenset[str] = frozenset()  # concurrency keys of which others may be admitted
    ends: EndCounts = EndCounts()
