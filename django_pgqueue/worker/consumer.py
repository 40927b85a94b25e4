"""Claim jobs, hand them to the slots, acknowledge their outcomes: the main thread of a child.

It works on a connection of its own. It waits at its mailbox, into which slots put outcomes, and other threads a None to
wake it, and at the same time for notifications on that connection: the next step after a notification is the claim.
"""

import logging
import queue
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import NamedTuple

from django.db import Error

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import PendingResult, QueueConnection
from django_pgqueue.db.errors import is_of_a_row, is_of_connection, is_refusal, is_too_slow, is_transient
from django_pgqueue.db.notify import CHANNEL, announce_maintenance, announce_queues, notify_waiters, queues_in
from django_pgqueue.db.queries import statement
from django_pgqueue.flow.concurrency import AdmissionRequests
from django_pgqueue.flow.queue_limits import PendingLimits, register_queue
from django_pgqueue.jobs import ack
from django_pgqueue.jobs.claim import Claim
from django_pgqueue.jobs.stats import ProcessCounters, StatsBuffer
from django_pgqueue.logs import report_all
from django_pgqueue.records import Ended, Fate, Outcome, Receipt
from django_pgqueue.signals import announce_deaths, deaths, sent_elsewhere
from django_pgqueue.worker.database_backoff import DatabaseBackoff
from django_pgqueue.worker.in_flight import InFlight, in_place_of
from django_pgqueue.worker.limits_cache import LimitsCache
from django_pgqueue.worker.prefetch import LINGER_SECONDS, WORTHWHILE, Prefetch
from django_pgqueue.worker.progress import SentUpdates
from django_pgqueue.worker.queue_cursor import REMEMBERED, QueueCursors
from django_pgqueue.worker.shared_state import SharedState
from django_pgqueue.worker.slots import Slots
from django_pgqueue.worker.user_code import UserThread
from django_pgqueue.workflows.advance import Advanced, StageRequests, ends_in

logger = logging.getLogger("django_pgqueue.worker")

SLEEP_AGAIN_SECONDS = 0.002
"""Pause after a try to sleep, which fails while a caller asks whether a session does; each failure doubles it."""

OFTEN_SECONDS = 0.01
"""A session that is called less often than this stays asleep: to say so twice a job would cost more than it saves."""

RECEIVERS_SECONDS = 3.0
"""Timeout of the wait, at the end of the process, for receivers of ``job_died``."""


class RoundTrip(NamedTuple):
    receipt: Receipt
    claim: Claim | None  # None: there was none
    found: int | None  # number of jobs that it has brought
    admitted: Collection[str] = ()  # queues in which jobs were admitted to their concurrency keys
    advanced: Advanced | None = None  # result of the look at stages of workflows; None: at none


class Consumer:
    """Keeps the slots of one child busy until a request to stop."""

    def __init__(
        self,
        worker_id: int,
        queues: tuple[str, ...],
        slots: Slots,
        shared: SharedState,
        meter: ProcessCounters | None = None,
        *,
        alias: str | None = None,
        is_careful: bool = False,
    ) -> None:
        self.worker_id = worker_id
        self.slots = slots
        self.mailbox = slots.mailbox
        self.database = QueueConnection(alias or conf.database, f"consumer {worker_id}")
        self._shared = shared
        self._meter = meter  # counters for metrics; None: there are none
        self._in_flight = InFlight(shared)
        self._limits = LimitsCache()
        self._cursors = QueueCursors(queues, self._limits, shared.empty_at)
        self._prefetch = Prefetch(slots, shared, self._in_flight, self._cursors, is_careful=is_careful)
        self._admissions = AdmissionRequests()
        self._stages = StageRequests()
        self._updates = slots.news
        self._announced: deque[Collection[str] | None] = deque()  # queues that have work; None: perhaps any
        self._backoff = DatabaseBackoff(shared)
        self._stats = StatsBuffer(self.database, meter)
        self._receivers = UserThread("signals")
        self._registered: set[str] = set()  # queues that have their rows, as far as this process knows
        self._is_asleep = False  # its session says so: notifications come as soon as there is work
        self._sleep_at = 0.0  # when to say so at the earliest, monotonic
        self._sleep_pause = SLEEP_AGAIN_SECONDS
        self._called_at = 0.0  # when a notification was last answered by a claim alone, monotonic
        self._is_told_to_stop = False
        self._stopping = False
        self._is_quiet = False  # it claims nothing for now

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
        self.mailbox.put(None)

    def wake(self, queues: Collection[str] | None = None) -> None:
        """Look for work now, in these queues or in all; may be called from any thread."""
        self._announced.append(queues)
        self.mailbox.put(None)

    def listen(self) -> None:
        """Listen on the connection of the claims from here on, where that leads to the server directly.

        Else the supervisor listens, by way of ``PGQUEUE["LISTEN_DATABASE"]``, and passes queues on.
        """
        if conf.listen_alias(self.database.alias) == self.database.alias:
            self.database.listen(CHANNEL, self._hear)

    def look_at_limits(self) -> None:
        """Look now which queues are paused or limited; may be called from any thread."""
        self._limits.tell()
        self.mailbox.put(None)

    # Waiting and collecting

    def _patience(self) -> float:
        if pause := self._backoff.seconds_left():
            return pause
        if self._announced or self._in_flight.unwritten or self._prefetch.has_to_hand_over():
            return 0.0
        now = time.monotonic()
        due = self._due_at(), self._prefetch.wait_until(now), self._in_flight.wait_until(), self._stats.add_at()
        return max(min(due) - now, 0.0)

    def _due_at(self) -> float:
        """Return when there will be a reason for a round trip other than outcomes, monotonic."""
        due = self._asks_at()
        if self._demand():
            due = min(due, self._claim_at())
            if self.database.can_listen and not (self._is_asleep and self.database.is_listening):
                due = min(due, max(self._sleep_at, self._backoff.claim_at))
        if self._is_asleep and self._cursors.is_ready:
            return 0.0
        if self._prefetch.is_waiting():
            due = min(due, self._limits.look_at)
        return due

    def _asks_at(self) -> float:
        """Return when there will be something to ask other than for jobs, monotonic."""
        return min(
            self._admissions.wait_until(), self._stages.wait_until(), self._limits.due_at(), self._updates.wait_until()
        )

    def _collect(self, patience: float) -> None:
        try:
            events = [self._next_event(patience)]
        except queue.Empty:
            self._obey()
            return
        is_busy = self.slots.waiting() > self._prefetch.size.jobs // 2
        if is_busy and not self._is_told_to_stop and self.mailbox.qsize() < WORTHWHILE:
            time.sleep(LINGER_SECONDS)
        events += [self.mailbox.get_nowait() for _ in range(self.mailbox.qsize())]
        if ended := [event for event in events if event is not None]:
            self._prefetch.buffer_outcomes(ended)
        self._obey()

    def _next_event(self, patience: float) -> Ended | None:
        """Wait for an outcome, an order or a notification; raise ``queue.Empty`` where no outcome or order has come."""
        if not patience:
            return self.mailbox.get_nowait()
        if not self.database.is_listening:
            return self.mailbox.get(timeout=patience)
        try:
            self.database.take_notifications()  # those that came along with the last answer
            if not self._announced:
                self.mailbox.wait(self.database.fileno(), patience)
                self.database.take_notifications()
        except Error as error:
            self._back_off(error, ())
            self._announced.append(None)  # as soon as it may connect again, which it does to look
        return self.mailbox.get_nowait()

    def _hear(self, payload: str | None) -> None:
        """Take note of a notification, on this thread; None: some may have been missed."""
        if payload is None:
            self._is_asleep = False
            self._announced.append(None)
        elif queues := self._cursors.served.among(queues_in([payload])):
            self._announced.append(queues)

    def _obey(self) -> None:
        while self._announced:
            self._cursors.mark_ready(self._announced.popleft())
        if self._is_told_to_stop and not self._stopping:
            self._stopping = True
            self._in_flight.stop()
            self._prefetch.withdraw()
        if self._shared.is_quiet() is not self._is_quiet:
            self._is_quiet = not self._is_quiet
            if self._is_quiet:
                self._prefetch.withdraw()

    # One cycle

    def _cycle(self) -> None:
        """Write outcomes and claim jobs; after a database error keep the unwritten outcomes for the next cycle."""
        begun = time.monotonic()
        if self._shared.has_lease_lapsed():
            self._prefetch.withdraw()
            self.slots.refuse(self._shared.unbegun())
            self._shared.accept_lapse()
        if self._backoff.seconds_left():
            self._prefetch.hand_over()  # those of a claim after which something else has failed
            return
        if self._is_called(begun):
            self._called_at = begun
            self._claim_apart()
            return
        self._prefetch.release_stalled()
        self._prefetch.start_suspect()
        batch = self._in_flight.batch(self._backoff.most)
        self._request_admissions(batch)
        self._stages.request(ends_in(batch.values()))
        if not batch and begun < self._due_at():
            self._prefetch.hand_over()
            return
        if self._backoff.failures or self._in_flight.is_trying():
            self._work_apart(batch, begun)
        elif self._work(batch, begun) and self._cursors.has_to_retry():
            self._claim_apart()

    def _work(self, batch: dict[int, Outcome], begun: float, *, admits: bool = True, claims: bool = True) -> bool:
        try:
            trip = self._round_trip(batch.values(), begun, admits=admits, claims=claims)
        except Error as error:
            self._prefetch.hand_over()
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
            most = self._backoff.most
            advance = self._stages.send(self.database, worker_id=self.worker_id, limit=most) if admits else None
            admission = self._admissions.send(self.database, limit=most) if admits else None
            said = self._say_whether_asleep() if claims else None
            claim = self._claim() if claims else None
            self._prefetch.hand_over()
        if said is not None:
            self._is_asleep = said.fetchall() == [(True,)]
            pause = SLEEP_AGAIN_SECONDS if self._is_asleep else 2 * self._sleep_pause
            self._sleep_pause = min(pause, conf.poll_seconds)
            self._sleep_at = time.monotonic() + self._sleep_pause
        found = self._accept_claim(claim, begun) if claim is not None else None
        if limits is not None:
            self._apply_limits(limits)
        advanced = self._stages.record(advance) if advance else None
        admitted = self._admissions.record(admission) if admission else frozenset()
        self._updates.took(sent)
        receipt = self._without_doubt(outcomes, ack.receipt(self.database, outcomes, answers))
        receipt = replace(receipt, locked=receipt.locked | locked) if locked else receipt
        return RoundTrip(receipt, claim, found, admitted, advanced)

    def _without_last_news(self, outcomes: Collection[Outcome], sent: SentUpdates | None) -> frozenset[int]:
        """Return the ids of jobs whose rows were locked when the last news of their runs came.

        Their outcomes have to wait too: the lock may be gone before the next statement, and the news with the row.
        """
        missed = sent.missed() if sent else frozenset()
        return ack.still_leased(self.database, [one for one in outcomes if one.job.id in missed]) if missed else missed

    def _without_doubt(self, outcomes: Collection[Outcome], receipt: Receipt) -> Receipt:
        """Take those off the stale outcomes that an earlier cycle has written though it has failed."""
        doubtful = self._backoff.doubtful(outcomes, stale=receipt.stale)
        if not doubtful:
            return receipt
        recorded = ack.recorded(self.database, doubtful, worker_id=self.worker_id)
        return replace(receipt, stale=receipt.stale - recorded)

    def _is_called(self, now: float) -> bool:
        """Whether a notification asks for a claim, and nothing else is due.

        The session stays asleep then, as it may: it has looked for jobs since it said so, and learns of all later ones.
        """
        if not (self._is_asleep and self._cursors.is_ready) or now < self._called_at + OFTEN_SECONDS:
            return False
        is_due = now >= min(self._asks_at(), self._in_flight.wait_until())
        is_other_work = self._in_flight.unwritten or self._backoff.failures or is_due
        return not is_other_work and self._limits.is_empty and self._demand() > 0

    def _claim_apart(self) -> None:
        begun = time.monotonic()
        if not self._demand() or begun < self._claim_at():
            return
        self._prefetch.hand_over()  # a queue that was set back may keep the consumer long
        self._cursors.forget_asked()
        try:
            with self.database.transaction(is_single=self._limits.is_empty):
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
        self._prefetch.accept(jobs, is_limited=claim.is_limited)
        return len(jobs)

    def _apply_limits(self, limits: PendingLimits) -> None:
        changed = self._limits.heed(limits)
        self._cursors.limits_changed(changed)
        if any(map(self._limits.is_paused, changed)):
            self._prefetch.withdraw_paused(self._limits.is_paused)

    def _after_round_trip(self, batch: dict[int, Outcome], trip: RoundTrip, begun: float) -> None:
        receipt, claim, found, admitted, advanced = trip
        if self._meter:
            self._meter.count_cycle(time.monotonic() - begun, claimed=found, acked=len(batch) - len(receipt.locked))
        settled = self._settle(batch, receipt)
        finished = sum(outcome.fate is not Fate.RELEASED for outcome in settled)
        self._shared.add_finished(finished)
        self._prefetch.size.measure(seconds=time.monotonic() - begun, finished=finished)
        self._tell_waiters(receipt)
        if batch and (returned := self._prefetch.returned):
            self._call_others(returned)
            returned.clear()
        if admitted:
            self._tell_of(admitted, claim)
        if advanced:
            self._admissions.request(advanced.keys)
            self._tell_of(advanced.queues, None)
            if advanced.has_more:
                self._follow_up(lambda: announce_maintenance(self.database))
        if claim is not None:
            self._backoff.claimed()
            self._register(claim.queue)

    def _request_admissions(self, batch: dict[int, Outcome]) -> None:
        """Note the concurrency keys of the outcomes in a batch: the same transaction admits their next jobs.

        The next job of a key has the place of the last one in its queue, or one behind it. Claims begin there.
        """
        limited = [outcome.job for outcome in batch.values() if outcome.job.concurrency_key is not None]
        if limited:
            self._admissions.request(job.concurrency_key or "" for job in limited)
            for queue in {job.queue for job in limited}:
                self._cursors.rewind(queue, min(job.place for job in limited if job.queue == queue))

    def _tell_of(self, queues: Collection[str], claim: Claim | None) -> None:
        served = [] if self._stopping or self._is_quiet else self._cursors.served.among(queues)
        self._cursors.mark_ready([queue for queue in served if claim is None or queue != claim.queue])
        self._call_others(set(queues).difference(served))

    def _claim_at(self) -> float:
        return max(self._cursors.wait_until(), self._backoff.claim_at)

    def _demand(self) -> int:
        """Return the number of jobs to claim; 0 where none may be claimed."""
        if self._stopping or self._shared.is_quiet() or not self._shared.is_lease_valid():
            return 0  # as it is now: this turn may have begun long ago, and waited for a connection
        return self._prefetch.demand()

    def _say_whether_asleep(self) -> PendingResult | None:
        """Say that this session sleeps, before a look for jobs, or no longer does, before a claim.

        It is asleep only after that look. Any job is committed before it, and found by it; or after this statement, and
        then a caller that asks after its own commit sees that a session sleeps. While looks fail, none is made here:
        announced jobs are claimed all the same.
        """
        if self._is_asleep and self._cursors.is_ready:
            self._is_asleep = False
            self.database.send(statement("awake"), {})
        elif self._may_sleep():
            self._cursors.mark_ready(None)
            return self.database.send(statement("sleep"), {"queues": list(self._cursors.served.names) or [""]})
        return None

    def _may_sleep(self) -> bool:
        is_time = time.monotonic() >= max(self._sleep_at, self._backoff.claim_at)
        can_sleep = self.database.is_listening and not self._is_asleep and not self._cursors.is_ready
        return is_time and can_sleep and self._demand() > 0

    def _claim(self, *, apart: bool = False) -> Claim | None:
        if not (limit := self._demand()) or time.monotonic() < self._backoff.claim_at:
            return None
        return self._cursors.send(
            self.database,
            limit=limit,
            most_limited=self._prefetch.limited_demand(),
            worker_id=self.worker_id,
            apart=apart,
        )

    def _settle(self, batch: dict[int, Outcome], receipt: Receipt) -> Collection[Outcome]:
        settled = self._in_flight.resolve(batch, locked=receipt.locked)
        self._backoff.settled(settled)
        report_all(settled, stale=receipt.stale)
        if died := deaths(settled, stale=receipt.stale):
            with sent_elsewhere(self._receivers.call_later):
                announce_deaths(died)
        self._stats.count(settled, stale=receipt.stale)
        return settled

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
            self._stages.clear()  # the same
            self._updates.forget()
        # The first time it may be the claim that fails; from then on outcomes are sent by themselves.
        is_about_outcomes = self._backoff.failures > 0 or any(map(self._in_flight.was_put_off, batch))
        if batch and (is_refusal(error) or (is_about_outcomes and is_of_a_row(error))):
            self._write_apart(batch)
            return
        is_own = is_of_a_row(error) or is_too_slow(error) or self._has_ended_session(error)
        self._back_off(error, batch.values())
        if is_about_outcomes and len(batch) == 1:
            [cell] = batch
            if is_own or self._in_flight.was_put_off(cell):
                self._in_flight.put_off(cell, error, is_own=is_own)

    def _has_ended_session(self, error: Error) -> bool:
        return self.database.has_begun and is_of_connection(error)

    def _back_off(self, error: Error, outcomes: Collection[Outcome]) -> None:
        may_be_written, has_ended_session = self.database.may_be_committed, self._has_ended_session(error)
        self._backoff.met(error, outcomes, may_be_written=may_be_written, has_ended_session=has_ended_session)
        self.database.close()

    def _write_apart(self, batch: dict[int, Outcome]) -> None:
        """Write a batch without a claim, and its halves if need be, until the one outcome is found that is refused.

        One whose values are refused is replaced; one whose row cannot be written for another reason is put off.
        """
        begun = time.monotonic()
        self.database.may_be_committed = False
        try:
            receipt = self._without_doubt(batch.values(), ack.write(self.database, batch.values()))
        except Error as error:
            if not is_of_a_row(error) and not is_refusal(error):
                self._back_off(error, batch.values())
            elif len(batch) == 1:
                self._set_aside(*batch.popitem(), error)
            else:
                cells = list(batch)
                for half in (cells[: len(cells) // 2], cells[len(cells) // 2 :]):
                    if not self._backoff.seconds_left():  # else there was trouble with the half before
                        self._write_apart({cell: batch[cell] for cell in half})
        else:
            self._after_round_trip(batch, RoundTrip(receipt, claim=None, found=None), begun)

    def _set_aside(self, cell: int, outcome: Outcome, error: Error) -> None:
        if not is_refusal(error):
            if not self._in_flight.put_off(cell, error):
                self._back_off(error, [outcome])
        elif other := in_place_of(outcome, error):
            self._in_flight.unwritten[cell] = other
        else:
            self._in_flight.abandon(cell)
