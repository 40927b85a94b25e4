"""Run jobs in a test, one at a time, on its connections."""

import asyncio
import contextlib
import contextvars
import datetime as dt
import json
import logging
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from asgiref.sync import async_to_sync
from django.db import Error, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.functions import Now

from django_pgqueue import registry
from django_pgqueue.db.errors import is_refusal
from django_pgqueue.db.notify import Notification
from django_pgqueue.exceptions import OF_REASON, JobControl, JobFailed, JobInterrupted, PgQueueError, ResultRefused
from django_pgqueue.flow import concurrency
from django_pgqueue.flow.concurrency import LOCKED_AT_ONCE, sweep
from django_pgqueue.flow.queue_limits import QueueLimits, send_limits
from django_pgqueue.jobs import ack, claim
from django_pgqueue.jobs.context import CurrentJob, write_alone
from django_pgqueue.jobs.dead_letter import expired_entry
from django_pgqueue.jobs.executor import arun, run, task_of
from django_pgqueue.jobs.failure import failure, unknown_task
from django_pgqueue.jobs.interrupts import LaneInterrupts, ThreadInterrupts
from django_pgqueue.logs import report_all
from django_pgqueue.maintenance.expirer import expire
from django_pgqueue.maintenance.pending_work import pending_work
from django_pgqueue.maintenance.promoter import promote
from django_pgqueue.maintenance.stages import fail_late, move_slices, sweep_stages
from django_pgqueue.maintenance.unique_keys import prune_reserved, reacquire_keys
from django_pgqueue.models import Job
from django_pgqueue.records import ClaimedJob, Fate, Outcome
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.signals import announce_deaths, deaths
from django_pgqueue.states import DeathReason, Status
from django_pgqueue.stored_values import aware
from django_pgqueue.testing.assertions import to_run
from django_pgqueue.testing.connection import TestConnection, is_broken, is_of_test
from django_pgqueue.testing.selection import Selection
from django_pgqueue.worker.in_flight import in_place_of

if TYPE_CHECKING:
    from django.db.models import QuerySet

logger = logging.getLogger("django_pgqueue.jobs")

SUCCEEDED, RETRIED, DIED, SNOOZED, RELEASED = "succeeded", "retried", "died", "snoozed", "released"
AGAIN = (RETRIED, SNOOZED, RELEASED)

MOST_RUNS = 1000  # beyond the jobs there to begin with; more, without a limit, are taken for a chain without an end
ROUNDING_SECONDS = 0.00001  # a token that comes in fractions of a second is whole by then
WORKER = 1  # stands for the id of the worker process; none is registered


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """One attempt of one job.

    Attributes:
        id: the job's.
        task: the name it was enqueued under.
        queue: its queue.
        attempt: the number of the attempt, from 1.
        outcome: ``"succeeded"``, ``"retried"``, ``"died"``, ``"snoozed"`` or ``"released"``.
        reason: why it died, a ``DeathReason``; "" where it did not.
        result: what the task returned, as JSON keeps it; None unless it succeeded.
        error: the exception, ``Discard``, ``Retry`` and ``Snooze`` included.
        delay_seconds: after which a job that was retried, snoozed or released is due again.
        at: the moment to which ``until=`` had moved the time; None without it.
    """

    id: int
    task: str
    queue: str
    attempt: int
    outcome: str
    reason: str = ""
    result: Any = field(default=None, repr=False)
    error: BaseException | None = field(default=None, repr=False)
    delay_seconds: float = 0.0
    at: dt.datetime | None = None

    @classmethod
    def of(cls, outcome: Outcome, error: BaseException | None, at: dt.datetime | None) -> Self:
        job, word = outcome.job, SUCCEEDED if outcome.fate is Fate.REPEATED else outcome.fate.word
        return cls(
            id=job.id,
            task=job.task,
            queue=job.queue,
            attempt=job.attempt,
            outcome=word,
            reason=str(outcome.reason or ""),
            result=json.loads(outcome.result or "null") if word == SUCCEEDED else None,
            error=error,
            delay_seconds=outcome.delay_seconds if word in AGAIN else 0.0,
            at=at,
        )

    def __str__(self) -> str:
        fate = f"{self.outcome} ({self.reason})" if self.reason else self.outcome
        again = f", due again in {self.delay_seconds:.3g} s" if self.outcome in AGAIN else ""
        return f"job {self.id} ({self.task}) attempt {self.attempt}: {fate}{again}"


class RunReport(tuple[JobRun, ...]):
    """All runs, in the order in which they were made."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"RunReport({super().__repr__()})"

    @property
    def runs(self) -> tuple[JobRun, ...]:
        return tuple(self)

    @property
    def succeeded(self) -> list[JobRun]:
        return self._those(SUCCEEDED)

    @property
    def failed(self) -> list[JobRun]:
        """Those that are retried or have died."""
        return self._those(RETRIED, DIED)

    @property
    def retried(self) -> list[JobRun]:
        return self._those(RETRIED)

    @property
    def died(self) -> list[JobRun]:
        return self._those(DIED)

    @property
    def released(self) -> list[JobRun]:
        """Those whose task is unknown, or that could not be begun or committed: back with the attempt restored."""
        return self._those(RELEASED)

    @property
    def snoozed(self) -> list[JobRun]:
        """Those that asked to run later by ``Snooze``."""
        return self._those(SNOOZED)

    @property
    def errors(self) -> list[BaseException]:
        """The exceptions of those that failed."""
        return [run.error for run in self.failed if run.error is not None]

    def __str__(self) -> str:
        counts = Counter(run.outcome for run in self)
        head = ", ".join(f"{number} {word}" for word, number in counts.items()) or "nothing was run"
        return "\n".join([head, *map(str, self)])

    def _those(self, *outcomes: str) -> list[JobRun]:
        return [run for run in self if run.outcome in outcomes]


# Errors

DELIBERATE = {DeathReason.EXPIRED, DeathReason.KILLED}

OF_JOBS = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError, JobInterrupted)
"""Exceptions of a job. Others go up: Ctrl-C, or what a test framework ends the test with."""


class EndlessJobs(PgQueueError):  # noqa: N818 - the name says it all
    """The number of runs reached the bound from which on they are taken for a chain without an end."""


def raise_error(outcome: Outcome, error: BaseException | None, run: JobRun) -> None:
    """Raise what a run has failed with, if it has; what a job decides itself is no failure."""
    if outcome.fate is Fate.RELEASED and error is None:
        registry.get(run.task)  # it was given back because its task is unknown
    has_failed = error is not None or outcome.fate in (Fate.RETRIED, Fate.DIED)
    if not has_failed or _has_decided(outcome, error) or outcome.reason in DELIBERATE:
        return
    if error is None:
        told = outcome.error or {}
        kind = OF_REASON.get(run.reason, JobFailed)
        error = kind(f"{told.get('error')}: {told.get('message')}", run.reason, told)
    error.add_note(f"It was raised by {run}.")
    raise error


def _has_decided(outcome: Outcome, error: BaseException | None) -> bool:
    """Return whether a job has decided itself how it goes on, by the exception that it raised."""
    if isinstance(error, JobControl):
        return not isinstance(error, ResultRefused) and outcome.reason is not DeathReason.EXHAUSTED
    if error is None or outcome.reason is not DeathReason.DISCARDED:
        return False
    task = registry.find(outcome.job.task)
    return task is not None and task.retry_rules.discard_on.has(error)


# Running one job


class RunResult(NamedTuple):
    """The outcome of a run, and its exception."""

    outcome: Outcome
    error: BaseException | None


def perform(task: TaskDefinition, job: ClaimedJob, current: CurrentJob) -> RunResult:
    """Run a job as a slot of a worker does, then its ``on_commit`` hooks.

    In a test's transaction a handler that breaks it is rolled back as a whole, so that the test can go on; any other
    that fails keeps its changes, as without a transaction.
    """
    inside = [connection for connection in connections.all(initialized_only=True) if connection.in_atomic_block]
    before = [len(connection.run_on_commit) for connection in inside]
    with _savepoints(inside):
        performance = _call_async(task, job, current) if task.is_async else _call(task, job, current)
    left = [one for one in zip(inside, before, strict=True) if len(one[0].run_on_commit) > one[1]]
    try:
        with _savepoints([connection for connection, _ in left]):
            for connection, number in left:
                _run_hooks(connection, number)
    except Exception as error:  # noqa: BLE001 - as if the handler had raised it, whose commit it follows
        outcome = performance.outcome
        is_over = outcome.fate not in (Fate.SUCCEEDED, Fate.REPEATED)
        return RunResult(outcome if is_over else failure(task, job, error, current), performance.error or error)
    return performance


class _ThreadInterrupts(ThreadInterrupts):
    raised: BaseException | None = None  # by the run; ``leave()`` is called while that is handled

    def leave(self) -> None:
        super().leave()
        self.raised = sys.exception() or self.raised


class _LaneInterrupts(LaneInterrupts):
    raised: BaseException | None = None  # what leave() has raised

    def leave(self) -> None:
        super().leave()
        self.raised = sys.exception() or self.raised


def _call(task: TaskDefinition, job: ClaimedJob, current: CurrentJob) -> RunResult:
    interrupts = _ThreadInterrupts()
    outcome = run(task, job, current, interrupts)
    return RunResult(outcome, interrupts.raised)


def _call_async(task: TaskDefinition, job: ClaimedJob, current: CurrentJob) -> RunResult:
    """Run it in an event loop of its own; the sync code that it calls, as the ORM, comes back to this thread."""

    async def perform() -> RunResult:
        interrupts = _LaneInterrupts(asyncio.get_running_loop())
        outcome = await arun(task, job, current, interrupts)
        return RunResult(outcome, interrupts.raised)

    call: Callable[[], RunResult] = async_to_sync(perform)
    return contextvars.copy_context().run(call)  # which would bring the run's context variables back otherwise


@contextlib.contextmanager
def _savepoints(inside: list[BaseDatabaseWrapper]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for connection in inside:
            stack.enter_context(_savepoint(connection))
        yield


@contextlib.contextmanager
def _savepoint(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Roll back to here if the transaction is broken at the end. Durable blocks may be opened as in the test itself."""
    block: Any = transaction.atomic(using=connection.alias)
    block._from_testcase = all(map(is_of_test, connection.atomic_blocks))  # noqa: SLF001 - there is no other way to say so
    with block:
        yield
        if is_broken(connection):
            transaction.set_rollback(True, using=connection.alias)


def _run_hooks(connection: BaseDatabaseWrapper, number: int) -> None:
    """Run the ``on_commit`` hooks behind the first ``number``; wake-ups have no worker to wake."""
    while len(connection.run_on_commit) > number:
        entry: Any = connection.run_on_commit.pop(number)
        _, hook, is_robust = entry
        if isinstance(hook, Notification):
            continue
        try:
            hook()
        except Exception:
            if not is_robust:
                raise
            logger.exception("A callback of on_commit failed")


# Running many

__unittest = True

work_under_way: contextvars.ContextVar["Work | None"] = contextvars.ContextVar("work_under_way", default=None)
"""The ``Work`` that runs this code as a job, if any."""


class Work:
    """Jobs that are being run, one at a time."""

    def __init__(self, alias: str, wanted: Selection, *, limit: int | None = None, raises: bool) -> None:
        self.alias = alias
        self.wanted = wanted
        self.limit = limit  # None: all there are, up to a bound
        self.runs: list[JobRun] = []
        self.now: dt.datetime | None = None  # the moment to which time was moved; None: it was not
        self.python_clock: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
        self.database = TestConnection(alias)
        self._raises = raises  # the error of a run that failed, once its outcome is written
        self._most = MOST_RUNS + to_run(alias).count()
        self._shut: dict[str, float] = {}  # queues that let nothing in, and the seconds until they have a token

    def also(self, ids: Collection[int]) -> None:
        if self.wanted.ids is not None:
            self.wanted.ids.update(ids)

    @property
    def is_done(self) -> bool:
        return self.limit is not None and len(self.runs) >= self.limit

    def run_due(self) -> None:
        __tracebackhide__ = True
        self._shut.clear()
        before = work_under_way.set(self)
        try:
            while not self.is_done and (job := self._claim()):
                self._run(job)
                self._shut.clear()
                if self.limit is None and len(self.runs) > self._most:
                    raise EndlessJobs(self._too_many())
        finally:
            work_under_way.reset(before)
        expire(self.database)

    def token_seconds(self) -> list[float]:
        """Return in how many seconds queues whose rate has let nothing in will have a token."""
        return [seconds + ROUNDING_SECONDS for seconds in self._shut.values() if seconds > 0]

    # Claiming

    def _claim(self) -> ClaimedJob | None:
        self._attend()
        by_queue, _ = send_limits(self.database).read()
        for head in self._heads():
            limits = by_queue.get(head.queue)
            if head.queue not in self._shut and not (limits and limits.is_paused) and (job := self._take(head, limits)):
                return job
        return None

    def _attend(self) -> None:
        """Do what maintenance does for jobs that can run but cannot be claimed yet, and for their keys."""
        pending, promoted = pending_work(self.database), False
        if pending.has_stages or pending.has_moves or pending.has_late_workflows:
            self._attend_workflows()
            pending = pending_work(self.database)
        if pending.due_seconds is not None and pending.due_seconds <= 0:
            while any(promote(self.database)):
                promoted = True
        if pending.has_reserved:
            prune_reserved(self.database)
        if pending.has_started:
            reacquire_keys(self.database, limit=1000)
        if (pending.has_limited or promoted) and (keys := sweep(self.database).keys):
            concurrency.admit(self.database, keys[:LOCKED_AT_ONCE])

    def _attend_workflows(self) -> None:
        """Close and open stages, as maintenance and the outcomes of members do."""
        fail_late(self.database)
        before: list[int] | None = None
        while (found := self._sweep_stages()) != before:  # each stage that is closed may let another one close
            before = found
            while move_slices(self.database).moved:
                pass

    def _sweep_stages(self) -> list[int]:
        """Look at all open stages; return those that were looked at closely."""
        swept = sweep_stages(self.database)
        found = [*swept.found]
        while swept.last:
            swept = sweep_stages(self.database, after=swept.last)
            found += swept.found
        return found

    def _heads(self) -> list[Job]:
        served = self.wanted.served
        found = self._queued().filter(**self.wanted.conditions()).distinct("queue")
        placed = [(place, head) for head in found if (place := served.place(head.queue)) is not None]
        placed.sort(key=lambda one: (one[0], -one[1].priority, one[1].run_at, one[1].pk))
        return [head for _, head in placed]

    def _queued(self) -> "QuerySet[Job]":
        queued = Job.objects.using(self.alias).filter(status=Status.QUEUED, run_at__lte=Now())
        return queued.order_by("queue", "-priority", "run_at", "pk")

    def _take(self, head: Job, limits: QueueLimits | None) -> ClaimedJob | None:
        """Claim a job; None where its queue lets none in, or another session holds it."""
        if limits and limits.is_limited:
            return self._take_limited(head)
        before = -head.priority, aware(head.run_at).timestamp(), head.pk - 1
        claimed = claim.send(self.database, head.queue, limit=1, worker_id=WORKER, above=before)
        return next(iter(claimed.jobs()), None)

    def _take_limited(self, head: Job) -> ClaimedJob | None:
        """Do so where only the first of the queue may pass; another one that is wanted waits behind it."""
        if head != self._queued().filter(queue=head.queue).first():
            return None
        with self.database.transaction():
            claimed = claim.send_limited(self.database, head.queue, limit=1, worker_id=WORKER)
        jobs = claimed.jobs()
        if not jobs:
            self._shut[head.queue] = claimed.left()[1]
        return next(iter(jobs), None)

    # Running

    def _run(self, job: ClaimedJob) -> None:
        __tracebackhide__ = True
        current = CurrentJob(job, lambda current: write_alone(self.database, current))
        performance = self._perform(job, current)
        if current.has_told and performance.outcome.fate is not Fate.RECORDED:
            write_alone(self.database, current)  # its last report, although its savepoint may be gone
        outcome, error = self._write(performance.outcome), performance.error
        report_all([outcome], stale=())
        announce_deaths(deaths([outcome], stale=()))
        run = JobRun.of(outcome, error, self.now)
        self.runs.append(run)
        if error is not None and not isinstance(error, OF_JOBS):
            raise error
        if self._raises:
            raise_error(outcome, error, run)

    def _perform(self, job: ClaimedJob, current: CurrentJob) -> RunResult:
        if job.has_expired:
            return RunResult(Outcome(job, Fate.DIED, reason=DeathReason.EXPIRED, error=expired_entry()), None)
        task = task_of(job)
        if task is None:
            return RunResult(unknown_task(job), None)
        current.is_kill_requested = job.was_killed
        with self.python_clock():
            return perform(task, job, current)

    def _write(self, outcome: Outcome) -> Outcome:
        try:
            ack.write(self.database, [outcome])
        except Error as error:
            other = in_place_of(outcome, error) if is_refusal(error) else None
            if other is None:
                raise
            ack.write(self.database, [other])
            return other
        return outcome

    def _too_many(self) -> str:
        often = ", ".join(
            f"{name} {times} times" for name, times in Counter(run.task for run in self.runs).most_common(3)
        )
        return (
            f"run_jobs() has made {len(self.runs):,} runs and there are still jobs to run, which looks like a chain "
            f"without an end: {often}. Give it a limit=, or an earlier until=, to leave some of them."
        )
