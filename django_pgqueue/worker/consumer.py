"""Claim jobs, hand them to the slots, acknowledge their outcomes: the main thread of a child.

It works on a connection of its own and waits at the outbox, into which slots put outcomes, and other threads a None to
wake it.
"""

import logging
import operator
import queue
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import NamedTuple

from django.db import Error

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.db.errors import is_of_connection, is_refusal, is_transient
from django_pgqueue.db.notify import announce_queues, notify_waiters
from django_pgqueue.flow.queue_limits import PendingLimits
from django_pgqueue.jobs import ack
from django_pgqueue.jobs.claim import Claim
from django_pgqueue.jobs.dead_letter import expired_entry
from django_pgqueue.jobs.stats import ProcessCounters, StatsBuffer
from django_pgqueue.maintenance.concurrency_sweeper import AdmissionRequests
from django_pgqueue.maintenance.queue_rows import register_queue
from django_pgqueue.maintenance.user_code import UserThread
from django_pgqueue.records import EXPIRED, ClaimedJob, Fate, Outcome, Receipt
from django_pgqueue.signals import announce_deaths, deaths, sent_elsewhere
from django_pgqueue.states import DeathReason
from django_pgqueue.worker.database_backoff import DatabaseBackoff
from django_pgqueue.worker.in_flight import Held, InFlight, in_place_of
from django_pgqueue.worker.isolation import APART_SECONDS, CAREFUL_SECONDS, Isolation
from django_pgqueue.worker.job_log import report_all
from django_pgqueue.worker.limits_cache import LimitsCache
from django_pgqueue.worker.progress import SentUpdates
from django_pgqueue.worker.queue_cursor import REMEMBERED, QueueCursors
from django_pgqueue.worker.shared_state import SharedState
from django_pgqueue.worker.slots import Slots

logger = logging.getLogger("django_pgqueue.worker")

LINGER_SECONDS = 0.01  # in which outcomes are collected before they are written, while slots are busy

CYCLES = 4  # number of cycles of the consumer for which work is fetched ahead, within the bounds below
LEAST_SECONDS, MOST_SECONDS = 0.03, 0.2  # of work that is fetched ahead

WINDOW_SECONDS, TELLING = 0.02, 32
"""The speed is measured over this time, or over this number of jobs where these are finished sooner: after an idle time
it has to be known within a few cycles."""

TIMEOUT = operator.attrgetter("timeout_seconds")

WORTHWHILE = 250
"""Number of outcomes from which on they are written at once: more would make each of them hardly cheaper."""

STALLED_SECONDS = 1.0
"""Time after which a job that was fetched ahead goes back if no slot has begun it; at most twice as long."""

RECEIVERS_SECONDS = 3.0
"""Timeout of the wait, at the end of the process, for receivers that are told of dead jobs."""

BEGUN_SECONDS = 0.01  # between looks, in a careful process, at whether a job was begun that should have been


class Prefetch:
    """Speed of this child and duration of a cycle, which decide how much to fetch ahead."""

    def __init__(self) -> None:
        self.prefetch = 0
        self._cycle_seconds = 0.005
        self._per_second = 0.0
        self._since = time.monotonic()
        self._finished = 0

    def measure(self, *, seconds: float, finished: int) -> None:
        self._cycle_seconds += (seconds - self._cycle_seconds) / 4
        self._finished += finished
        elapsed = time.monotonic() - self._since
        if elapsed >= WINDOW_SECONDS or self._finished >= max(self.prefetch, TELLING):
            rate = self._finished / max(elapsed, 0.001)
            self._per_second = rate if rate > 2 * self._per_second else (rate + self._per_second) / 2
            self._since, self._finished = time.monotonic(), 0
            ahead = CYCLES * self._cycle_seconds + LINGER_SECONDS
            self.prefetch = int(self._per_second * min(max(ahead, LEAST_SECONDS), MOST_SECONDS))

    def forget(self) -> None:
        self.prefetch, self._per_second = 0, 0.0


class RoundTrip(NamedTuple):
    """Result of one cycle."""

    receipt: Receipt
    claim: Claim | None  # None: there was none
    found: int | None  # number of jobs that it has brought
    admitted: Collection[str] = ()  # queues in which jobs were admitted to their concurrency keys


class Consumer:
    """Keeps the slots of one child busy until it is told to stop."""

    def __init__(
        self,
        worker_id: int,
        queues: tuple[str, ...],
        slots: Slots,
        shared: SharedState,
        meter: ProcessCounters | None = None,
        *,
        is_careful: bool = False,
    ) -> None:
        self.worker_id = worker_id
        self.slots = slots
        self.outbox = slots.outbox
        self.database = QueueConnection(conf.database, f"consumer {worker_id}")
        self._shared = shared
        self._meter = meter  # sums up what is done, for metrics; None: there are none
        self._in_flight = InFlight(shared)
        self._fetched: list[Held] = []  # not yet handed over
        self._limits = LimitsCache()
        self._cursors = QueueCursors(queues, self._limits)
        self._limited: dict[int, str] = {}  # by cell: the queues of the jobs that were let in by a limit
        self._admissions = AdmissionRequests()
        self._updates = slots.news
        self._announced: deque[Collection[str] | None] = deque()  # queues that have work; None: perhaps any
        self._isolation = Isolation()
        self._careful_until = time.monotonic() + CAREFUL_SECONDS if is_careful else 0.0  # one job at a time
        self._found_at = 0.0  # when a claim last brought jobs, monotonic
        self._returned: set[str] = set()  # the queues of jobs that are given back: others may be free for them
        self._unbegun: set[int] = set()  # run ids of jobs that no slot had begun when that was last looked at
        self._look_again_at = 0.0  # monotonic
        self._prefetch = Prefetch()
        self._backoff = DatabaseBackoff(shared)
        self._stats = StatsBuffer(self.database, meter)
        self._receivers = UserThread("signals")
        self._registered: set[str] = set()  # queues that have their rows, as far as this process can tell
        self._is_told_to_stop = False
        self._stopping = False

    def run(self) -> None:
        while not self._stopping or self._in_flight.held():
            self._collect(self._patience())
            self._cycle()
            if time.monotonic() >= self._stats.add_at() and not self._backoff.seconds_left():
                self._follow_up(self._stats.add)
            self._shared.count_cycle()
        self._follow_up(lambda: self._stats.add(is_last=True))
        self.database.close()
        self._shared.end_cycles()
        if not self._receivers.close(RECEIVERS_SECONDS):
            logger.warning("Receivers of signals have not returned, and are not waited for any longer")

    def stop(self) -> None:
        """Take no more jobs; may be called from a signal handler or any thread."""
        self._is_told_to_stop = True
        self.outbox.put(None)

    def wake(self, queues: Collection[str] | None = None) -> None:
        """Look for work now, in these queues or in all; may be called from any thread."""
        self._announced.append(queues)
        self.outbox.put(None)

    def look_at_limits(self) -> None:
        """Look now which queues are paused or limited; may be called from any thread."""
        self._limits.tell()
        self.outbox.put(None)

    # Waiting and collecting

    def _patience(self) -> float:
        if pause := self._backoff.seconds_left():
            return pause
        if self._in_flight.unwritten or self._fetched:
            return 0.0
        now = time.monotonic()
        until = min(now + STALLED_SECONDS, self._due_at(), self._in_flight.blocked_until, self._stats.add_at())
        if self._isolation.blocks_others():
            until = min(until, self._isolation.until)
        if now < self._careful_until and self._in_flight.outstanding():
            until = min(until, max(self._found_at + APART_SECONDS, now + BEGUN_SECONDS))
        return max(until - now, 0.0)

    def _due_at(self) -> float:
        """Return when there will be a reason for a round trip beside outcomes, monotonic."""
        due = min(self._admissions.wait_until(), self._limits.due_at(), self._updates.wait_until())
        if self._can_claim():
            due = min(due, self._claim_at())
        if self.slots.waiting() or self._isolation.waiting():  # jobs that would go back if their queues were paused
            due = min(due, self._limits.look_at)
        return due

    def _collect(self, patience: float) -> None:
        try:
            events = [self.outbox.get(timeout=patience) if patience else self.outbox.get_nowait()]
        except queue.Empty:
            return
        is_busy = self.slots.waiting() > self._prefetch.prefetch // 2
        if is_busy and not self._is_told_to_stop and self.outbox.qsize() < WORTHWHILE:
            time.sleep(LINGER_SECONDS)
        events += [self.outbox.get_nowait() for _ in range(self.outbox.qsize())]
        if ended := [event for event in events if event is not None]:
            self._buffer_outcomes(ended)
        self._obey()

    def _obey(self) -> None:
        while self._announced:
            self._cursors.mark_ready(self._announced.popleft())
        if self._is_told_to_stop and not self._stopping:
            self._stopping = True
            self._withdraw()

    # One cycle

    def _cycle(self) -> None:
        """Write outcomes and claim jobs; on trouble with the database keep what is unwritten for the next cycle."""
        begun = time.monotonic()
        if self._shared.has_lease_lapsed():
            self._withdraw()
            self.slots.refuse(self._shared.unbegun())
            self._shared.accept_lapse()
        if self._backoff.seconds_left():
            return  # nothing is left to hand over after a failure
        self._release_stalled()
        self._start_suspect()
        batch = self._in_flight.batch(self._backoff.most)
        self._request_admissions(batch)
        if not batch and begun < self._due_at():
            self._hand_over()
            return
        if self._backoff.failures:
            self._work_apart(batch, begun)
        elif self._work(batch, begun) and self._cursors.has_to_retry():
            self._claim_apart()

    def _work(self, batch: dict[int, Outcome], begun: float, *, admits: bool = True, claims: bool = True) -> bool:
        try:
            trip = self._round_trip(batch.values(), begun, admits=admits, claims=claims)
        except Error as error:
            self._hand_over()
            self._recover(error, batch)
            return False
        if admits:
            self._backoff.over()  # before the follow-ups, which may meet some
        self._after_round_trip(batch, trip, begun)
        return True

    def _work_apart(self, batch: dict[int, Outcome], begun: float) -> None:
        """Write outcomes, admit and claim in three transactions: which of them failed in the last cycle is not known.

        No admission and no claim that goes on failing may keep outcomes from being written.
        """
        if batch and not self._work(batch, begun, admits=False, claims=False):
            return
        if self._work({}, begun, claims=False):
            self._claim_apart()

    def _round_trip(self, outcomes: Collection[Outcome], begun: float, *, admits: bool, claims: bool) -> RoundTrip:
        """Write, ask and claim in one transaction, then take in the answers.

        Raises:
            django.db.Error: whether the transaction was committed may not be known.
        """
        self.database.may_be_committed = False
        with self.database.transaction():
            limits = self._limits.look(self.database) if admits else None
            sent = self._updates.send(self.database, outcomes)
            locked = self._without_last_news(outcomes, sent)
            outcomes = [outcome for outcome in outcomes if outcome.job.id not in locked] if locked else outcomes
            answers = ack.send(self.database, outcomes)
            admission = self._admissions.send(self.database, limit=self._backoff.most) if admits else None
            claim = self._claim() if claims else None
            self._hand_over()
        found = self._accept_claim(claim, begun) if claim is not None else None
        if limits is not None:
            self._heed(limits)
        admitted = self._admissions.record(admission) if admission else frozenset()
        self._updates.took(sent)
        receipt = self._without_doubt(outcomes, ack.receipt(self.database, outcomes, answers))
        receipt = replace(receipt, locked=receipt.locked | locked) if locked else receipt
        return RoundTrip(receipt, claim, found, admitted)

    def _without_last_news(self, outcomes: Collection[Outcome], sent: SentUpdates | None) -> frozenset[int]:
        """Return the ids of jobs whose rows were locked when the last news of their runs came.

        Their outcomes have to wait too: the lock may be gone before the next statement, and the news with the row.
        """
        missed = sent.missed() if sent else frozenset()
        return ack.standing(self.database, [one for one in outcomes if one.job.id in missed]) if missed else missed

    def _without_doubt(self, outcomes: Collection[Outcome], receipt: Receipt) -> Receipt:
        """Take those off the stale outcomes that an earlier cycle has written though it has failed."""
        doubtful = self._backoff.doubtful(outcomes, stale=receipt.stale)
        if not doubtful:
            return receipt
        recorded = ack.recorded(self.database, doubtful, worker_id=self.worker_id)
        return replace(receipt, stale=receipt.stale - recorded)

    def _claim_apart(self) -> None:
        begun = time.monotonic()
        if not self._can_claim() or begun < self._claim_at():
            return
        self._hand_over()  # a queue that was set back may keep the consumer long
        self._cursors.forget_asked()
        try:
            with self.database.transaction():
                claim = self._claim(apart=True)
        except Error as error:
            self._backoff.met_by_claim()
            if not is_of_connection(error) or self._cursors.ended_connection():
                self._cursors.failed(error, time.monotonic() - begun)
            self.database.close()
            return
        found = self._accept_claim(claim, begun) if claim is not None else None
        self._after_round_trip({}, RoundTrip(Receipt(), claim, found), begun)

    def _accept_claim(self, claim: Claim, begun: float) -> int:
        jobs = claim.jobs()
        self._cursors.advance(claim, jobs, time.monotonic() - begun)
        if jobs:
            self._found_at = time.monotonic()
        self._accept(jobs, is_limited=claim.is_limited)
        return len(jobs)

    def _after_round_trip(self, batch: dict[int, Outcome], trip: RoundTrip, begun: float) -> None:
        receipt, claim, found, admitted = trip
        if self._meter:
            self._meter.count_cycle(time.monotonic() - begun, claimed=found, acked=len(batch))
        self._settle(batch, receipt)
        finished = sum(outcome.fate is not Fate.RELEASED for outcome in batch.values())
        self._shared.add_finished(finished)
        self._prefetch.measure(seconds=time.monotonic() - begun, finished=finished)
        self._tell_waiters(receipt)
        if self._returned and batch:
            self._call_others(self._returned)
            self._returned.clear()
        if admitted:
            self._tell_of(admitted, claim)
        if claim is not None:
            self._backoff.claimed()
            self._register(claim.queue)

    def _request_admissions(self, batch: dict[int, Outcome]) -> None:
        """Note the concurrency keys of what is about to be written: the same transaction admits their next jobs.

        Such a job stands in its queue where the last one stood, or behind it. Claims begin there.
        """
        limited = [outcome.job for outcome in batch.values() if outcome.job.concurrency_key is not None]
        if limited:
            self._admissions.request(job.concurrency_key or "" for job in limited)
            for queue in {job.queue for job in limited}:
                self._cursors.rewind(queue, min(job.place for job in limited if job.queue == queue))

    def _tell_of(self, queues: Collection[str], claim: Claim | None) -> None:
        served = [] if self._stopping else self._cursors.served.among(queues)
        self._cursors.mark_ready([queue for queue in served if claim is None or queue != claim.queue])
        self._call_others(set(queues).difference(served))

    def _claim_at(self) -> float:
        return max(self._cursors.wait_until(), self._backoff.claim_at)

    def _can_claim(self) -> bool:
        return (
            not self._stopping
            and self._shared.is_lease_valid()
            and not self._isolation.blocks_others()
            and self._demand() > 0
        )

    def _demand(self) -> int:
        """Return how many jobs to claim: what fills the slots, and what they will need until the next cycle.

        A slot that checks its connections needs none: what it would have run may just have been given back.
        What is fetched ahead comes in two halves: one for the slots to run while the database hands out the other.
        """
        if time.monotonic() < self._careful_until:
            return int(self._may_claim_carefully())
        room = self.slots.concurrency + self._prefetch.prefetch - self._in_flight.outstanding() - self.slots.checking()
        half = self._prefetch.prefetch // 2
        return 0 if 0 < room < half else min(max(room, 0), max(half, self.slots.concurrency), self._in_flight.free())

    def _may_claim_carefully(self) -> bool:
        """Whether the last job has ended, or has run long enough not to be what ends the process at once."""
        outstanding = self._in_flight.outstanding()
        may_be_beside = time.monotonic() >= self._found_at + APART_SECONDS and outstanding < self.slots.concurrency
        return (not outstanding or may_be_beside) and not self._shared.unbegun()

    def _claim(self, *, apart: bool = False) -> Claim | None:
        if not self._can_claim() or time.monotonic() < self._backoff.claim_at:
            return None
        room, limit = self.slots.concurrency - len(self._limited), self._demand()
        return self._cursors.send(self.database, limit=limit, most_limited=room, worker_id=self.worker_id, apart=apart)

    def _accept(self, jobs: list[ClaimedJob], *, is_limited: bool = False) -> None:
        fetched = self._in_flight.add(jobs)
        if is_limited:
            self._limited.update((cell, job.queue) for cell, job in fetched)
        if min(map(TIMEOUT, jobs), default=0) == EXPIRED:
            fetched = self._sort_out_expired(fetched)
        self._fetched += self._isolation.sort_out(fetched)
        self._start_suspect()
        if len(jobs) < WORTHWHILE:
            self._hand_over()
            time.sleep(0)  # a slot that was idle takes the interpreter now, before the books are closed

    def _sort_out_expired(self, fetched: list[Held]) -> list[Held]:
        expired = [(cell, job) for cell, job in fetched if job.has_expired]
        self._buffer_outcomes(
            (cell, Outcome(job, Fate.DIED, reason=DeathReason.EXPIRED, error=expired_entry())) for cell, job in expired
        )
        return [(cell, job) for cell, job in fetched if not job.has_expired]

    def _hand_over(self) -> None:
        """Give the slots their jobs: many just after the next statements were sent.

        Handing Python code to other threads may cost this one the interpreter for milliseconds, in which the database
        would have nothing to do.
        """
        for cell, job in self._fetched:
            self.slots.accept(cell, job)
        self._fetched.clear()

    def _start_suspect(self) -> None:
        if suspect := self._isolation.next(others=self._in_flight.outstanding() - self._isolation.waiting()):
            self.slots.accept(*suspect)
            self._give_back(self._isolation.withdraw())  # another process may be free for them

    def _settle(self, batch: dict[int, Outcome], receipt: Receipt) -> None:
        settled = self._in_flight.resolve(batch, locked=receipt.locked)
        self._backoff.settled(settled)
        report_all(settled, stale=receipt.stale)
        if died := deaths(settled, stale=receipt.stale):
            with sent_elsewhere(self._receivers.call_later):
                announce_deaths(died)
        self._stats.count(settled, stale=receipt.stale)

    # After a commit

    def _call_others(self, queues: Collection[str]) -> None:
        self._follow_up(lambda: announce_queues(self.database, queues))

    def _tell_waiters(self, receipt: Receipt) -> None:
        if receipt.awaited:
            self._follow_up(lambda: notify_waiters(self.database, receipt.awaited))

    def _register(self, queue: str) -> None:
        if queue not in self._registered and len(self._registered) < REMEMBERED:
            self._registered.add(queue)
            self._follow_up(lambda: register_queue(self.database, queue))

    def _follow_up(self, do: Callable[[], object]) -> None:
        try:
            do()
        except Error as error:
            self._back_off(error, ())

    # When things go wrong

    def _recover(self, error: Error, batch: dict[int, Outcome]) -> None:
        if is_refusal(error) or (self._backoff.failures and not is_transient(error)):
            self._admissions.clear()  # maintenance finds them
            self._updates.forget()
        if batch and is_refusal(error):
            self._write_apart(batch)
        else:
            self._back_off(error, batch.values())

    def _back_off(self, error: Error, outcomes: Collection[Outcome]) -> None:
        self._backoff.met(error, outcomes, may_be_written=self.database.may_be_committed)
        self.database.close()

    def _write_apart(self, batch: dict[int, Outcome]) -> None:
        """Write a batch without a claim, and its halves if need be, until the one outcome is found that is refused."""
        self.database.may_be_committed = False
        try:
            receipt = self._without_doubt(batch.values(), ack.write(self.database, batch.values()))
        except Error as error:
            if not is_refusal(error):
                self._back_off(error, batch.values())
            elif len(batch) == 1:
                self._replace(*batch.popitem(), error)
            else:
                cells = list(batch)
                for half in (cells[: len(cells) // 2], cells[len(cells) // 2 :]):
                    if not self._backoff.seconds_left():  # else there was trouble with the half before
                        self._write_apart({cell: batch[cell] for cell in half})
        else:
            self._settle(batch, receipt)
            self._tell_waiters(receipt)

    def _replace(self, cell: int, outcome: Outcome, error: Error) -> None:
        if other := in_place_of(outcome, error):
            self._in_flight.unwritten[cell] = other
        else:
            self._in_flight.abandon(cell)

    # Giving back

    def _withdraw(self) -> None:
        self._give_back(self._take_unbegun())

    def _take_unbegun(self) -> list[Held]:
        unbegun = [*self._fetched, *self._isolation.withdraw(), *self.slots.withdraw()]
        self._fetched.clear()
        return unbegun

    def _heed(self, limits: PendingLimits) -> None:
        changed = self._limits.heed(limits)
        self._cursors.limits_changed(changed)
        if any(map(self._limits.is_paused, changed)):
            unbegun = self._take_unbegun()
            self._fetched = self._isolation.sort_out([held for held in unbegun if not self._is_paused(held)])
            self._give_back(filter(self._is_paused, unbegun))

    def _is_paused(self, held: Held) -> bool:
        return self._limits.is_paused(held[1].queue)

    def _give_back(self, unrun: Iterable[Held]) -> None:
        """Have jobs written as released; one that no slot has begun must not keep the child for itself either."""
        returned = [(cell, Outcome(job, Fate.RELEASED)) for cell, job in unrun]
        self._returned.update(outcome.job.queue for _, outcome in returned)
        self._buffer_outcomes(returned)

    def _buffer_outcomes(self, ended: Iterable[tuple[int, Outcome]]) -> None:
        self._in_flight.unwritten.update(ended)
        self._isolation.ended(self._in_flight.unwritten)
        if self._limited and (cells := self._limited.keys() & self._in_flight.unwritten.keys()):
            self._cursors.ended({self._limited.pop(cell) for cell in cells})

    def _release_stalled(self) -> None:
        """Give back what was fetched ahead and is not begun for a second: another worker may be free.

        Slots for plain tasks may be busy while those for ``async def`` go on, so each job is looked at.
        """
        now = time.monotonic()
        if now < self._look_again_at:
            return
        unbegun = self._shared.unbegun() if self.slots.waiting() else set()
        if stalled := unbegun & self._unbegun:
            waiting = self.slots.withdraw()
            self._give_back((cell, job) for cell, job in waiting if job.run_id in stalled)
            self._fetched += [(cell, job) for cell, job in waiting if job.run_id not in stalled]
            self._prefetch.forget()
        self._unbegun, self._look_again_at = unbegun, now + STALLED_SECONDS
