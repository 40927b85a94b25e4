"""Claim, run and acknowledge jobs on one connection, by the statements that workers use."""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

from django.db import Error
from django.db.models.functions import Now

from django_pgqueue import registry
from django_pgqueue.db.errors import is_refusal
from django_pgqueue.flow import concurrency
from django_pgqueue.flow.concurrency import LOCKED_AT_ONCE
from django_pgqueue.flow.queue_limits import Gate, send_gates
from django_pgqueue.jobs import ack, claim
from django_pgqueue.jobs.context import CurrentJob, write_alone
from django_pgqueue.jobs.executor import sought
from django_pgqueue.jobs.failure import unknown_task
from django_pgqueue.maintenance.concurrency_sweeper import sweep
from django_pgqueue.maintenance.expirer import expire
from django_pgqueue.maintenance.pending_work import look
from django_pgqueue.maintenance.promoter import promote
from django_pgqueue.maintenance.unique_keys import prune_tombstones, retake
from django_pgqueue.models import Job
from django_pgqueue.records import ClaimedJob, Fate, Outcome
from django_pgqueue.states import Reason, Status
from django_pgqueue.testing.asserting import to_run
from django_pgqueue.testing.connection import TestConnection
from django_pgqueue.testing.failing import EndlessJobs, goes_up
from django_pgqueue.testing.instants import aware
from django_pgqueue.testing.report import Run
from django_pgqueue.testing.stage import Performance, perform
from django_pgqueue.testing.wanted import Wanted
from django_pgqueue.worker.in_flight import in_place_of
from django_pgqueue.worker.job_log import report_all

if TYPE_CHECKING:
    import datetime as dt

    from django.db.models import QuerySet

__unittest = True

MOST_RUNS = 1000
"""More, beyond the jobs that are there to begin with, are taken for a chain without an end, unless a limit is given."""

ROUNDING_SECONDS = 0.00001
"""A token that comes in fractions of a second is whole by then."""

WORKER = 1
"""The id that stands for the worker process; none is registered."""

Handler = Callable[[Outcome, BaseException | None, Run], None]


class Work:
    """Jobs that are being run, one at a time.

    Args:
        limit: how many runs to make; None: all there are, up to a bound.
        handle_error: called after each run, once its outcome is written; may raise.

    Attributes:
        runs: those that were made.
        now: the moment to which time was moved; None: it was not.
        python_clock: entered around each run.
    """

    def __init__(self, alias: str, wanted: Wanted, *, limit: int | None = None, handle_error: Handler | None) -> None:
        self.alias = alias
        self.wanted = wanted
        self.limit = limit
        self.runs: list[Run] = []
        self.now: dt.datetime | None = None
        self.python_clock: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
        self.database = TestConnection(alias)
        self._handle_error = handle_error
        self._most = MOST_RUNS + to_run(alias).count()
        self._shut: dict[str, float] = {}  # queues that let nothing in, and the seconds until they have a token

    def also(self, alias: str, ids: Collection[int]) -> None:
        """Run these jobs too, where the ids of those to be run are given."""
        if alias == self.alias and self.wanted.ids is not None:
            self.wanted.ids.update(ids)

    @property
    def is_done(self) -> bool:
        """Whether no more runs are to be made."""
        return self.limit is not None and len(self.runs) >= self.limit

    def run_due(self) -> None:
        """Run what is due and wanted, and what that enqueues.

        Raises:
            EndlessJobs: there are more runs than are likely.
        """
        __tracebackhide__ = True
        self._shut.clear()
        with under_way(self):
            while not self.is_done and (job := self._claim()):
                self._run(job)
                self._shut.clear()
                if self.limit is None and len(self.runs) > self._most:
                    raise EndlessJobs(self._too_many())
        expire(self.database)

    def token_seconds(self) -> list[float]:
        """Return in how many seconds queues whose rate has let nothing in will have a token."""
        return [seconds + ROUNDING_SECONDS for seconds in self._shut.values() if seconds > 0]

    # Claiming

    def _claim(self) -> ClaimedJob | None:
        self._attend()
        gates, _ = send_gates(self.database).read()
        for head in self._heads():
            gate = gates.get(head.queue)
            if head.queue not in self._shut and not (gate and gate.is_paused) and (job := self._take(head, gate)):
                return job
        return None

    def _attend(self) -> None:
        """Do what a steward does for jobs that can run but cannot be claimed yet, and for their keys."""
        chores, promoted = look(self.database), False
        if chores.due_seconds is not None and chores.due_seconds <= 0:
            while any(promote(self.database)):
                promoted = True
        if chores.has_tombstones:
            prune_tombstones(self.database)
        if chores.has_started:
            retake(self.database, limit=1000)
        if (chores.has_waiting or promoted) and (keys := sweep(self.database).keys):
            concurrency.admit(self.database, keys[:LOCKED_AT_ONCE])

    def _heads(self) -> list[Job]:
        """Return the first job of each queue that is to be run, the first of all first."""
        served = self.wanted.served
        found = self._queued().filter(**self.wanted.conditions()).distinct("queue")
        placed = [(place, head) for head in found if (place := served.place(head.queue)) is not None]
        placed.sort(key=lambda one: (one[0], -one[1].priority, one[1].run_at, one[1].pk))
        return [head for _, head in placed]

    def _queued(self) -> "QuerySet[Job]":
        queued = Job.objects.using(self.alias).filter(status=Status.QUEUED, run_at__lte=Now())
        return queued.order_by("queue", "-priority", "run_at", "pk")

    def _take(self, head: Job, gate: Gate | None) -> ClaimedJob | None:
        """Claim a job; None where its queue lets none in, or somebody else holds it."""
        if gate and gate.is_limited:
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
            write_alone(self.database, current)  # what it told last, although its savepoint may be gone
        outcome, error = self._write(performance.outcome), performance.error
        report_all([outcome], stale=())
        run = Run.of(outcome, error, self.now)
        self.runs.append(run)
        if error is not None and goes_up(error):
            raise error
        if self._handle_error:
            self._handle_error(outcome, error, run)

    def _perform(self, job: ClaimedJob, current: CurrentJob) -> Performance:
        if job.has_expired:
            return Performance(Outcome(job, Fate.DIED, reason=Reason.EXPIRED, error={"error": "expired"}), None)
        task = registry.find(job.task) or (sought(job) if job.rest else None)
        if task is None:
            return Performance(unknown_task(job), None)
        current.is_cancelled = job.was_killed
        with self.python_clock():
            return perform(task, job, current)

    def _write(self, outcome: Outcome) -> Outcome:
        """Write an outcome, or what stands in its place where the database refuses it; return what was written."""
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
            f"without an end: {often}. Give it a limit= to make so many runs and leave the rest, or an earlier until=."
        )


class _UnderWay(threading.local):
    work: Work | None = None


_under_way = _UnderWay()


@contextlib.contextmanager
def under_way(work: Work) -> Iterator[None]:
    """Let others of this thread know that jobs are being run."""
    before, _under_way.work = _under_way.work, work
    try:
        yield
    finally:
        _under_way.work = before


def work_under_way() -> Work | None:
    """Return what is running jobs in this thread, if anything is."""
    return _under_way.work
