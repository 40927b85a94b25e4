"""Jobs that are claimed and not begun: how many to claim, when to start each, which to give back."""

import logging
import operator
import time
from collections.abc import Callable, Iterable

from django_pgqueue.jobs.dead_letter import expired_entry
from django_pgqueue.records import EXPIRED, ClaimedJob, Fate, Outcome
from django_pgqueue.states import DeathReason
from django_pgqueue.worker.in_flight import Held, InFlight
from django_pgqueue.worker.isolation import APART_SECONDS, CAREFUL_SECONDS, Isolation
from django_pgqueue.worker.queue_cursor import QueueCursors
from django_pgqueue.worker.shared_state import SharedState
from django_pgqueue.worker.slots import Slots

logger = logging.getLogger("django_pgqueue.worker")

LINGER_SECONDS = 0.01
"""Time in which outcomes are collected before they are written, while slots are busy."""

CYCLES = 4  # number of cycles of the consumer for which work is fetched ahead, within the bounds below
LEAST_SECONDS, MOST_SECONDS = 0.03, 0.2  # of work that is fetched ahead

WINDOW_SECONDS, TELLING = 0.02, 32
"""The speed is measured over this time, or over this number of jobs if these finish sooner: after an idle time it has
to be known within a few cycles."""

TIMEOUT = operator.attrgetter("timeout_seconds")

WORTHWHILE = 250
"""Number of outcomes from which on they are written at once: more would make each of them hardly cheaper."""

STALLED_SECONDS = 1.0
"""Time after which a job that was fetched ahead goes back if no slot has begun it; at most twice as long."""

BEGUN_SECONDS = 0.01
"""Interval, in a careful process, between checks whether a claimed job was begun."""


class PrefetchSize:
    """Number of jobs to fetch ahead, from the speed of this child and the duration of a cycle."""

    def __init__(self) -> None:
        self.jobs = 0
        self._cycle_seconds = 0.005
        self._per_second = 0.0
        self._since = time.monotonic()
        self._finished = 0

    def measure(self, *, seconds: float, finished: int) -> None:
        self._cycle_seconds += (seconds - self._cycle_seconds) / 4
        self._finished += finished
        elapsed = time.monotonic() - self._since
        if elapsed >= WINDOW_SECONDS or self._finished >= max(self.jobs, TELLING):
            rate = self._finished / max(elapsed, 0.001)
            self._per_second = rate if rate > 2 * self._per_second else (rate + self._per_second) / 2
            self._since, self._finished = time.monotonic(), 0
            ahead = CYCLES * self._cycle_seconds + LINGER_SECONDS
            self.jobs = int(self._per_second * min(max(ahead, LEAST_SECONDS), MOST_SECONDS))

    def forget(self) -> None:
        self.jobs, self._per_second = 0, 0.0


class Prefetch:
    """Jobs on their way from the claims of a consumer to its slots; not safe for two threads at once.

    A careful process, see ``CAREFUL_SECONDS``, claims one job at a time. Jobs that are given back become outcomes,
    which the consumer writes as it writes all others.
    """

    def __init__(
        self, slots: Slots, shared: SharedState, in_flight: InFlight, cursors: QueueCursors, *, is_careful: bool
    ) -> None:
        self.size = PrefetchSize()
        self.isolation = Isolation()
        self.returned: set[str] = set()  # queues of jobs that were given back; another worker may be free for them
        self._slots = slots
        self._shared = shared
        self._in_flight = in_flight
        self._cursors = cursors
        self._fetched: list[Held] = []  # not handed over yet
        self._limited: dict[int, str] = {}  # by cell: the queue of a job that a limit of its queue has let in
        self._careful_until = time.monotonic() + CAREFUL_SECONDS if is_careful else 0.0
        self._found_at = 0.0  # when a claim last returned jobs, monotonic
        self._unbegun: set[int] = set()  # run ids of jobs that no slot had begun at the last check
        self._check_at = 0.0  # next check for stalled jobs, monotonic

    # How many to claim

    def demand(self) -> int:
        """Return the number of jobs to claim: those that fill the slots, and those that they need until the next cycle.

        A slot that checks its connections needs none: its job may just have been given back. Jobs are fetched ahead in
        halves: the slots run one while the database returns the other.
        """
        if self.isolation.blocks_others():
            return 0
        if time.monotonic() < self._careful_until:
            return int(self._may_claim_carefully())
        concurrency, half = self._slots.concurrency, self.size.jobs // 2
        wanted = concurrency + self.size.jobs - self._in_flight.outstanding() - self._slots.checking()
        if wanted <= 0 or wanted < half:
            return 0
        return min(wanted, max(half, concurrency), self._in_flight.free())

    def limited_demand(self) -> int:
        """Return the maximum number of jobs of limited queues to claim: none of those is fetched ahead."""
        return self._slots.concurrency - len(self._limited)

    def _may_claim_carefully(self) -> bool:
        """Whether the last job has ended, or has run long enough not to be one that crashes the process at once."""
        outstanding = self._in_flight.outstanding()
        may_add_one = time.monotonic() >= self._found_at + APART_SECONDS and outstanding < self._slots.concurrency
        return (not outstanding or may_add_one) and not self._shared.unbegun()

    # From the claim to the slots

    def accept(self, jobs: list[ClaimedJob], *, is_limited: bool = False) -> None:
        """Take in the jobs of a claim. A few start at once; many with the next ``hand_over()``."""
        if jobs:
            self._found_at = time.monotonic()
        fetched = self._in_flight.add(jobs)
        if is_limited:
            self._limited.update((cell, job.queue) for cell, job in fetched)
        if min(map(TIMEOUT, jobs), default=0) == EXPIRED:
            fetched = self._without_expired(fetched)
        self._fetched += self.isolation.sort_out(fetched)
        self.start_suspect()
        if len(jobs) < WORTHWHILE:
            self.hand_over()
            time.sleep(0)  # a slot that was idle takes the interpreter now, before the answers are processed

    def hand_over(self) -> None:
        """Give the slots their jobs: many just after the next statements were sent.

        Handing Python code to other threads may cost this one the interpreter for milliseconds, in which the database
        would have nothing to do.
        """
        for cell, job in self._fetched:
            self._slots.accept(cell, job)
        self._fetched.clear()

    def start_suspect(self) -> None:
        """Start the next job that may crash the process, if it is time; the others go back to other processes."""
        if suspect := self.isolation.next(others=self._in_flight.outstanding() - self.isolation.waiting()):
            self._slots.accept(*suspect)
            self._give_back(self.isolation.withdraw())

    def _without_expired(self, fetched: list[Held]) -> list[Held]:
        expired = [(cell, job) for cell, job in fetched if job.has_expired]
        self.buffer_outcomes(
            (cell, Outcome(job, Fate.DIED, reason=DeathReason.EXPIRED, error=expired_entry())) for cell, job in expired
        )
        return [(cell, job) for cell, job in fetched if not job.has_expired]

    # Waiting

    def is_waiting(self) -> bool:
        """Whether there are jobs that would go back if their queues were paused."""
        return bool(self._slots.waiting() or self.isolation.waiting())

    def has_to_hand_over(self) -> bool:
        return bool(self._fetched)

    def wait_until(self, now: float) -> float:
        """Return when the consumer has to check these jobs again, monotonic."""
        until = now + STALLED_SECONDS
        if self.isolation.blocks_others():
            until = min(until, self.isolation.until)
        if now < self._careful_until and self._in_flight.outstanding():
            until = min(until, max(self._found_at + APART_SECONDS, now + BEGUN_SECONDS))
        return until

    # Giving back

    def withdraw(self) -> None:
        self._give_back(self._take_unbegun())

    def withdraw_paused(self, is_paused: Callable[[str], bool]) -> None:
        """Give back the jobs of paused queues that no slot has begun."""
        unbegun = self._take_unbegun()
        self._fetched = self.isolation.sort_out([held for held in unbegun if not is_paused(held[1].queue)])
        self._give_back(held for held in unbegun if is_paused(held[1].queue))

    def release_stalled(self) -> None:
        """Give back jobs that were fetched ahead and not begun for a second: another worker may be free.

        Slots for plain tasks may be busy while those for ``async def`` go on, so each job is checked.
        """
        now = time.monotonic()
        if now < self._check_at:
            return
        unbegun = self._shared.unbegun() if self._slots.waiting() else set()
        if stalled := unbegun & self._unbegun:
            waiting = self._slots.withdraw()
            self._give_back((cell, job) for cell, job in waiting if job.run_id in stalled)
            self._fetched += [(cell, job) for cell, job in waiting if job.run_id not in stalled]
            self.size.forget()
        self._unbegun, self._check_at = unbegun, now + STALLED_SECONDS

    def buffer_outcomes(self, ended: Iterable[tuple[int, Outcome]]) -> None:
        """Take in outcomes, by cell: they are written with the next batch, and make room for other jobs."""
        self._in_flight.unwritten.update(ended)
        self.isolation.ended(self._in_flight.unwritten)
        if self._limited and (cells := self._limited.keys() & self._in_flight.unwritten.keys()):
            self._cursors.ended({self._limited.pop(cell) for cell in cells})

    def _take_unbegun(self) -> list[Held]:
        unbegun = [*self._fetched, *self.isolation.withdraw(), *self._slots.withdraw()]
        self._fetched.clear()
        return unbegun

    def _give_back(self, unrun: Iterable[Held]) -> None:
        """Have jobs written as released; one that no slot has begun must not keep the child for itself either."""
        given_back = [(cell, Outcome(job, Fate.RELEASED)) for cell, job in unrun]
        self.returned.update(outcome.job.queue for _, outcome in given_back)
        self.buffer_outcomes(given_back)
