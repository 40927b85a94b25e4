"""The heart of a child: write the last outcomes, claim the next jobs, in one round trip; again and again.

It runs in the child's main thread, on a connection of its own, and waits at the outbox, into which slots put outcomes,
and whoever has an order for the pump a ring. A job is held from its claim on; its outcome is unwritten, perhaps blocked
(somebody has locked its row), and written.
"""

import itertools
import logging
import queue
import time
from collections import deque
from collections.abc import Collection

from django.db import Error

from django_pgqueue.base.backoff import reconnect_delay
from django_pgqueue.base.conf import conf
from django_pgqueue.base.exceptions import InvalidArguments
from django_pgqueue.base.records import ClaimedJob, Fate, Outcome, Receipt
from django_pgqueue.base.states import Reason
from django_pgqueue.db import QueueConnection, is_refusal, is_too_much
from django_pgqueue.lifecycle import ack
from django_pgqueue.lifecycle.claim import Claim
from django_pgqueue.lifecycle.run import describe
from django_pgqueue.runtime.intake import Intake
from django_pgqueue.runtime.marks import CAPACITY, Marks
from django_pgqueue.runtime.report import report_all
from django_pgqueue.runtime.slots import Slots
from django_pgqueue.runtime.speed import LINGER_SECONDS, Speed

logger = logging.getLogger("django_pgqueue.worker")


BLOCKED_SECONDS = 0.1
"""An outcome whose row somebody else has locked is tried again after this."""

WORTHWHILE = 250
"""So many outcomes are written at once: waiting for more would make a transaction hardly cheaper for each of them."""

STALLED_SECONDS = 1.0
"""Jobs fetched ahead go back when no slot has come free for so long."""


class Pump:
    """Keeps the slots of one child busy until it is told to stop.

    Args:
        worker_id: the process's id in ``pgqueue_workers``.
        queues: the queues to serve, in strict order; empty means all.
    """

    def __init__(self, worker_id: int, queues: tuple[str, ...], slots: Slots, marks: Marks) -> None:
        self.worker_id = worker_id
        self.slots = slots
        self.outbox = slots.outbox
        self.database = QueueConnection(conf.database, f"pump {worker_id}")
        self._marks = marks
        self._cells = list(range(CAPACITY))  # free ones; the others are held, from claim to written outcome
        self._fetched: list[tuple[int, ClaimedJob]] = []  # with their cells; not yet handed over
        self._unwritten: dict[int, Outcome] = {}  # by cell
        self._blocked: dict[int, Outcome] = {}  # by cell; somebody holds their rows
        self._abandoned = 0  # outcomes that cannot be written at all; held until this process ends
        self._blocked_until = 0.0  # when to try those again, monotonic
        self._intake = Intake(queues)
        self._heard: deque[Collection[str] | None] = deque()  # queues that have work; None: perhaps any
        self._progress_at = time.monotonic()
        self._speed = Speed()
        self._flush_limit = CAPACITY  # outcomes in one transaction; halved when they were too much
        self._failures = 0
        self._retry_at = 0.0  # after trouble with the database: not before, monotonic
        self._in_doubt = False  # the last flush may have committed without our knowing
        self._is_told_to_stop = False
        self._stopping = False

    def run(self) -> None:
        """Pump until stopped and empty."""
        while not self._stopping or self._held() > self._abandoned:
            self._collect(self._patience())
            self._turn()
            self._marks.turned()
        self.database.close()

    def stop(self) -> None:
        """Take no more jobs; may be called from a signal handler or any thread."""
        self._is_told_to_stop = True
        self.outbox.put(None)

    def wake(self, queues: Collection[str] | None = None) -> None:
        """Look for work now, in these queues or in all; may be called from any thread."""
        self._heard.append(queues)
        self.outbox.put(None)

    # Waiting and collecting

    def _patience(self) -> float:
        """Return for how long to wait if nothing happens, in seconds."""
        now = time.monotonic()
        if now < self._retry_at:
            return self._retry_at - now
        if self._unwritten or self._fetched:
            return 0.0
        until = now + STALLED_SECONDS
        if self._blocked:
            until = min(until, self._blocked_until)
        if self._is_hungry():
            until = min(until, self._intake.wait_until())
        return max(until - now, 0.0)

    def _collect(self, patience: float) -> None:
        """Wait for the first event, then take all that are there; while slots are busy, linger for more."""
        try:
            events = [self.outbox.get(timeout=patience) if patience else self.outbox.get_nowait()]
        except queue.Empty:
            return
        if self._may_linger():
            time.sleep(LINGER_SECONDS)
        events += [self.outbox.get_nowait() for _ in range(self.outbox.qsize())]
        if ended := [event for event in events if event is not None]:
            self._unwritten.update(ended)
            self._progress_at = time.monotonic()
        self._obey()

    def _may_linger(self) -> bool:
        """Whether nobody waits: the slots have work, and what has ended is too little to be worth a transaction."""
        return (
            not self._is_told_to_stop
            and self.slots.waiting() > self._speed.prefetch // 2
            and self.outbox.qsize() < WORTHWHILE
        )

    def _obey(self) -> None:
        while self._heard:
            self._intake.hear(self._heard.popleft())
        if self._is_told_to_stop and not self._stopping:
            self._stopping = True
            self._withdraw()

    # One turn

    def _turn(self) -> None:
        """Write outcomes and claim jobs; on trouble with the database keep what is unwritten for the next turn."""
        begun = time.monotonic()
        if begun < self._retry_at:
            return  # nothing is left to hand over after a failure
        self._release_stalled()
        batch = self._batch()
        if not batch and not (self._is_hungry() and begun >= self._intake.wait_until()):
            self._hand_over()
            return
        outcomes = batch.values()
        try:
            with self.database.transaction():
                answers = ack.send(self.database, outcomes)
                claimed = self._claim()
                self._hand_over()
            if claimed is not None:
                jobs = claimed.jobs()
                self._intake.took(claimed, jobs, time.monotonic() - begun)
                self._accept(jobs)
            receipt = ack.receipt(self.database, outcomes, answers)
        except Error as error:
            self._hand_over()
            self._recover(error, batch)
            return
        self._settle(batch, receipt)
        finished = sum(outcome.fate is not Fate.RELEASED for outcome in outcomes)
        self._marks.add_finished(finished)
        self._speed.measure(turns=time.monotonic() - begun, finished=finished)
        self._flush_limit = min(self._flush_limit * 2, CAPACITY)
        self._failures, self._in_doubt = 0, False

    def _batch(self) -> dict[int, Outcome]:
        """Return what to write in this turn, each job once: an old run of a job may end beside the new one."""
        if self._blocked and time.monotonic() >= self._blocked_until:
            self._unwritten |= self._blocked
            self._blocked.clear()
        batch = dict(itertools.islice(self._unwritten.items(), self._flush_limit))
        cells = {outcome.job.id: cell for cell, outcome in batch.items()}
        return batch if len(cells) == len(batch) else {cell: batch[cell] for cell in cells.values()}

    def _is_hungry(self) -> bool:
        return not self._stopping and self._marks.may_start() and self._appetite() > 0

    def _appetite(self) -> int:
        """Return how many jobs to claim: what fills the slots, and what they will need until the next turn.

        What is fetched ahead comes in two halves: one for the slots to run while the database hands out the other.
        """
        outstanding = self._held() - len(self._unwritten) - len(self._blocked) - self._abandoned
        room = self.slots.concurrency + self._speed.prefetch - outstanding
        half = self._speed.prefetch // 2
        return 0 if 0 < room < half else min(max(room, 0), max(half, self.slots.concurrency), len(self._cells))

    def _held(self) -> int:
        return CAPACITY - len(self._cells)

    def _claim(self) -> Claim | None:
        """Send a claim if there is room for more jobs, and a queue that may have some."""
        if not self._is_hungry():
            return None
        return self._intake.send(self.database, limit=self._appetite(), worker_id=self.worker_id)

    def _accept(self, jobs: list[ClaimedJob]) -> None:
        """Write all jobs into the marks, then hand them over: none is started while another is not in the book."""
        cells = [self._cells.pop() for _ in jobs]
        self._marks.hold(cells, jobs)
        self._fetched.extend(zip(cells, jobs, strict=True))
        if len(jobs) < WORTHWHILE:
            self._hand_over()
            time.sleep(0)  # a slot that was idle takes the interpreter now, before the books are closed

    def _hand_over(self) -> None:
        """Give the slots what was fetched for them.

        Many jobs are given just after the next statements were sent: handing Python code to other threads may cost this
        one the interpreter for milliseconds, in which the database would have nothing to do.
        """
        for cell, job in self._fetched:
            self.slots.accept(cell, job)
        if self._fetched:
            self._fetched.clear()
            self._progress_at = time.monotonic()  # slots that were idle until now have not stalled

    def _settle(self, batch: dict[int, Outcome], receipt: Receipt) -> None:
        """Forget what is written, or can never be; put aside what somebody else has locked."""
        for cell in batch:
            del self._unwritten[cell]
        if receipt.locked:
            blocked = {cell: outcome for cell, outcome in batch.items() if outcome.job.id in receipt.locked}
            batch = {cell: outcome for cell, outcome in batch.items() if cell not in blocked}
            self._blocked |= blocked
            self._blocked_until = time.monotonic() + BLOCKED_SECONDS
        report_all(batch.values(), stale=frozenset() if self._in_doubt else receipt.stale)
        self._marks.free(batch)
        self._cells.extend(batch)

    # When things go wrong

    def _recover(self, error: Error, batch: dict[int, Outcome]) -> None:
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

    def _write_apart(self, batch: dict[int, Outcome]) -> None:
        """Write a batch without a claim, and its halves if need be, until the one outcome is found that is refused."""
        try:
            receipt = ack.write(self.database, batch.values())
        except Error as error:
            if not is_refusal(error):
                self._back_off(error, len(batch))
            elif len(batch) == 1:
                self._replace(*batch.popitem(), error)
            else:
                cells = list(batch)
                for half in (cells[: len(cells) // 2], cells[len(cells) // 2 :]):
                    self._write_apart({cell: batch[cell] for cell in half})
        else:
            self._settle(batch, receipt)

    def _replace(self, cell: int, outcome: Outcome, error: Error) -> None:
        """Record that an outcome could not be recorded; if even that fails, leave the job to its lease."""
        job = outcome.job
        logger.error("The outcome of job %s (%s) cannot be written: %s", job.id, job.task, error)
        if "refused" in (outcome.error or {}):
            del self._unwritten[cell]
            self._abandoned += 1
            return
        refused = InvalidArguments(f"The outcome was refused by the database: {error}")
        self._unwritten[cell] = Outcome(
            job, Fate.DIED, reason=Reason.DISCARDED, error=describe(refused) | {"refused": outcome.fate.name.lower()}
        )

    # Giving back

    def _withdraw(self) -> None:
        unrun = [*self._fetched, *self.slots.withdraw()]
        self._fetched.clear()
        self._unwritten.update((cell, Outcome(job, Fate.RELEASED)) for cell, job in unrun)

    def _release_stalled(self) -> None:
        """Give back what was fetched ahead when every slot has been busy for a second: another worker may be free."""
        if self.slots.waiting() and time.monotonic() - self._progress_at > STALLED_SECONDS:
            self._speed.forget()
            self._withdraw()
