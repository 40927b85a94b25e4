"""The heart of a child: write the last outcomes, claim the next jobs, in one transaction; again and again.

It runs in the child's main thread, on a connection of its own, and waits at the outbox, into which slots put outcomes
and the control thread puts orders. A run is held from its claim on; its outcome is unwritten, perhaps blocked (somebody
has locked its row), and written.
"""

import logging
import queue
import random
import time
from enum import Enum, auto

from django.db import Error

from django_pgqueue.base.backoff import reconnect_delay
from django_pgqueue.base.conf import conf
from django_pgqueue.base.exceptions import InvalidArguments
from django_pgqueue.base.records import ClaimedJob, Fate, Fence, Outcome, Receipt
from django_pgqueue.base.states import Reason
from django_pgqueue.db import QueueConnection, is_refusal, is_too_much
from django_pgqueue.lifecycle import ack
from django_pgqueue.lifecycle.claim import claim, ready_queues
from django_pgqueue.lifecycle.run import describe
from django_pgqueue.runtime.marks import CAPACITY, Marks
from django_pgqueue.runtime.report import report
from django_pgqueue.runtime.slots import Slots
from django_pgqueue.runtime.speed import LINGER_SECONDS, Speed

logger = logging.getLogger("django_pgqueue.worker")


BLOCKED_SECONDS = 0.1
"""An outcome whose row somebody else has locked is tried again after this."""

STALLED_SECONDS = 1.0
"""Jobs fetched ahead go back when no slot has come free for so long."""


class Order(Enum):
    """What the control thread may put into the outbox."""

    WAKE = auto()  # a queue may have work
    STOP = auto()  # take no more, finish what runs, end


class Pump:
    """Keeps the slots of one child busy until it is told to stop.

    Args:
        worker_id: the process's id in ``pgqueue_workers``.
        queues: the queues to serve, in strict order; empty means all.
    """

    def __init__(self, worker_id: int, queues: tuple[str, ...], slots: Slots, marks: Marks) -> None:
        self.worker_id = worker_id
        self.queues = queues
        self.slots = slots
        self.outbox = slots.outbox
        self.database = QueueConnection(conf.database, f"pump {worker_id}")
        self._marks = marks
        self._cells = list(range(CAPACITY))  # free ones
        self._held: dict[Fence, int] = {}  # -> cell; from claim to written outcome
        self._unwritten: dict[Fence, Outcome] = {}
        self._blocked: dict[Fence, Outcome] = {}  # somebody holds their rows
        self._abandoned: set[Fence] = set()  # cannot be written at all; held until this process ends
        self._blocked_until = 0.0  # when to try those again, monotonic
        self._ready: list[str] = []  # queues that had work when last looked at
        self._look_at = 0.0  # when to look around again, monotonic
        self._progress_at = time.monotonic()
        self._speed = Speed()
        self._flush_limit = CAPACITY  # outcomes in one transaction; halved when they were too much
        self._failures = 0
        self._retry_at = 0.0  # after trouble with the database: not before, monotonic
        self._in_doubt = False  # the last flush may have committed without our knowing
        self._stopping = False

    def run(self) -> None:
        """Pump until stopped and empty."""
        while not self._stopping or len(self._held) > len(self._abandoned):
            self._collect(self._patience())
            self._turn()
            self._marks.turned()
        self.database.close()

    def stop(self) -> None:
        """Take no more jobs; may be called from a signal handler or any thread."""
        self.outbox.put(Order.STOP)

    def wake(self) -> None:
        """Look for work now; may be called from any thread."""
        self.outbox.put(Order.WAKE)

    # Waiting and collecting

    def _patience(self) -> float:
        """Return for how long to wait if nothing happens, in seconds."""
        now = time.monotonic()
        if now < self._retry_at:
            return self._retry_at - now
        if self._unwritten:
            return 0.0
        until = now + STALLED_SECONDS
        if self._blocked:
            until = min(until, self._blocked_until)
        if self._is_hungry():
            until = now if self._ready else min(until, self._look_at)
        return max(until - now, 0.0)

    def _collect(self, patience: float) -> None:
        """Wait for the first event, then take all that are there; while slots are busy, linger for more."""
        try:
            self._take(self.outbox.get(timeout=patience) if patience else self.outbox.get_nowait())
        except queue.Empty:
            return
        if self.slots.waiting() > self._speed.low_water and not self._stopping:
            time.sleep(LINGER_SECONDS)
        try:
            while True:
                self._take(self.outbox.get_nowait())
        except queue.Empty:
            return

    def _take(self, event: Outcome | Order) -> None:
        if isinstance(event, Outcome):
            self._unwritten[event.job.fence] = event
            self._progress_at = time.monotonic()
        elif event is Order.WAKE:
            self._look_at = 0.0
        elif not self._stopping:
            self._stopping = True
            self._withdraw()

    # One turn

    def _turn(self) -> None:
        """Write outcomes and claim jobs; on trouble with the database keep what is unwritten for the next turn."""
        begun = time.monotonic()
        if begun < self._retry_at:
            return
        self._release_stalled()
        batch = self._batch()
        if not batch and not (self._is_hungry() and (self._ready or begun >= self._look_at)):
            return
        try:
            with self.database.transaction():
                receipt = ack.write(self.database, batch) if batch else Receipt()
                jobs = self._claim()
        except Error as error:
            self._recover(error, batch)
            return
        self._settle(batch, receipt)
        self._accept(jobs)
        finished = sum(outcome.fate is not Fate.RELEASED for outcome in batch)
        self._speed.measure(turns=time.monotonic() - begun, finished=finished)
        self._flush_limit = min(self._flush_limit * 2, CAPACITY)
        self._failures, self._in_doubt = 0, False

    def _batch(self) -> list[Outcome]:
        """Return what to write in this turn, each job once: an old run of a job may end beside the new one."""
        if self._blocked and time.monotonic() >= self._blocked_until:
            self._unwritten |= self._blocked
            self._blocked.clear()
        by_id = {outcome.job.id: outcome for outcome in self._unwritten.values()}
        return list(by_id.values())[: self._flush_limit]

    def _is_hungry(self) -> bool:
        return not self._stopping and self._marks.may_start() and self._appetite() > 0

    def _appetite(self) -> int:
        """Return how many jobs to claim: what fills the slots, and what they will need until the next turn."""
        outstanding = len(self._held) - len(self._unwritten) - len(self._blocked) - len(self._abandoned)
        room = self.slots.concurrency + self._speed.prefetch - outstanding
        if 0 < room < self._speed.prefetch // 2:
            return 0
        return max(0, min(room, len(self._cells)))

    def _claim(self) -> list[ClaimedJob]:
        if not self._is_hungry():
            return []
        if time.monotonic() >= self._look_at:
            self._ready = ready_queues(self.database, self.queues)
            self._look_at = time.monotonic() + conf.poll_seconds * random.uniform(0.8, 1.2)  # noqa: S311 - jitter
        jobs: list[ClaimedJob] = []
        wanted = self._appetite()
        for name in tuple(self._ready):
            jobs += self._claim_from(name, wanted - len(jobs))
            if len(jobs) >= wanted:
                break
        return jobs

    def _claim_from(self, name: str, wanted: int) -> list[ClaimedJob]:
        """Claim from one queue; look no more at one that gives nothing.

        A batch that is short may have met rows just being edited, so the queue is asked again in the next turn.
        """
        jobs = claim(self.database, name, limit=wanted, worker_id=self.worker_id)
        if not jobs:
            self._ready.remove(name)
        return jobs

    def _accept(self, jobs: list[ClaimedJob]) -> None:
        """Write all jobs into the marks, then hand them over: none is started while another is not in the book."""
        for job in jobs:
            cell = self._held[job.fence] = self._cells.pop()
            self._marks.hold(cell, job)
        for job in jobs:
            self.slots.accept(self._held[job.fence], job)
        if jobs:
            self._progress_at = time.monotonic()  # slots that were idle until now have not stalled

    def _settle(self, batch: list[Outcome], receipt: Receipt) -> None:
        """Forget what is written, or can never be; put aside what somebody else has locked."""
        cells = []
        for outcome in batch:
            fence = outcome.job.fence
            self._unwritten.pop(fence, None)
            if outcome.job.id in receipt.locked:
                self._blocked[fence] = outcome
            else:
                cells.append(self._held.pop(fence))
                report(outcome, is_stale=outcome.job.id in receipt.stale and not self._in_doubt)
        if receipt.locked:
            self._blocked_until = time.monotonic() + BLOCKED_SECONDS
        self._marks.free(cells)
        self._cells.extend(cells)

    # When things go wrong

    def _recover(self, error: Error, batch: list[Outcome]) -> None:
        """After a failed turn: find the outcome that the database refuses, or wait and try again as it was."""
        if batch and is_refusal(error):
            self._write_apart(batch)
        else:
            self._back_off(error, len(batch))

    def _back_off(self, error: Error, size: int) -> None:
        self._failures += 1
        self._retry_at = time.monotonic() + reconnect_delay(self._failures)
        if is_too_much(error):
            self._flush_limit = max(size // 2, 1)
        self._in_doubt = True
        self.database.close()
        if self._failures % 10 == 1:
            logger.warning("The pump cannot work with the database (failure %d): %s", self._failures, error)

    def _write_apart(self, batch: list[Outcome]) -> None:
        """Write a batch without a claim, and its halves if need be, until the one outcome is found that is refused."""
        try:
            with self.database.transaction():
                receipt = ack.write(self.database, batch)
        except Error as error:
            if not is_refusal(error):
                self._back_off(error, len(batch))
            elif len(batch) == 1:
                self._replace(batch[0], error)
            else:
                self._write_apart(batch[: len(batch) // 2])
                self._write_apart(batch[len(batch) // 2 :])
        else:
            self._settle(batch, receipt)

    def _replace(self, outcome: Outcome, error: Error) -> None:
        """Record that an outcome could not be recorded; if even that fails, leave the job to its lease."""
        job = outcome.job
        logger.error("The outcome of job %s (%s) cannot be written: %s", job.id, job.task, error)
        if "refused" in (outcome.error or {}):
            del self._unwritten[job.fence]
            self._abandoned.add(job.fence)
            return
        refused = InvalidArguments(f"The outcome was refused by the database: {error}")
        self._unwritten[job.fence] = Outcome(
            job, Fate.DIED, reason=Reason.DISCARDED, error=describe(refused) | {"refused": outcome.fate.name.lower()}
        )

    # Giving back

    def _withdraw(self) -> None:
        for job in self.slots.withdraw():
            self._unwritten[job.fence] = Outcome(job, Fate.RELEASED)

    def _release_stalled(self) -> None:
        """Give back what was fetched ahead when every slot has been busy for a second: another worker may be free."""
        if self.slots.waiting() and time.monotonic() - self._progress_at > STALLED_SECONDS:
            self._speed.forget()
            self._withdraw()
