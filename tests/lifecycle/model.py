"""Model of the state of every job: the lifecycle in memory, against which the database is held.

Instants are whole hours of a clock that only ``advance`` moves. What a party has changed in a transaction that is still
open stands in its ``Book``: others see what was there before, and step over it.
"""

import copy
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from django_pgqueue.exceptions import JobKilled
from django_pgqueue.records import Fate, Lease, Outcome, ReapResult, Receipt

HOUR = 3600
KILLED = f"{JobKilled.__module__}.{JobKilled.__qualname__}"


@dataclass
class Job:
    """One job; ``state`` is a status of ``pgqueue_jobs``, or dead, succeeded or gone."""

    id: int
    task: str
    queue: str
    priority: int
    max_attempts: int
    lease_hours: int
    keep: bool
    state: str
    due: tuple[int, int]  # the hour, and which one it was of all the times that were set
    attempts: int = 0
    lost: int = 0
    snoozes: int = 0
    errors: list[tuple[int, str]] = field(default_factory=list)  # attempt, title
    token: int = 0
    worker_id: int = 0
    lease_until: int = 0
    first_started: int | None = None
    is_kill_requested: bool = False
    killed_by: str | None = None
    reason: str | None = None
    key: str | None = None
    scope: str | None = None
    held_hours: int = 0
    reserved: tuple[int, int] | None = None  # what it leaves in the table of jobs when it has succeeded: due then
    limited_by: str | None = None  # its concurrency key
    limit: int = 1
    is_strict: bool = False
    slot: int | None = None

    @property
    def has_key(self) -> bool:
        """Whether no other may have its key."""
        is_there = self.state in ("scheduled", "queued", "running") or self.reserved is not None
        return is_there and self.scope in ("end", "start")

    @property
    def came_back(self) -> bool:
        """Whether it has given its key up, and is to run again."""
        return self.scope == "started" and self.state in ("scheduled", "queued") and not self.is_kill_requested

    def is_over(self, now: int) -> bool:
        """Whether nothing but its end is before it."""
        if self.reserved is not None:
            return self.reserved[0] <= now
        return self.is_kill_requested and self.state in ("scheduled", "queued")

    @property
    def place(self) -> tuple[int, tuple[int, int], int]:
        """Where in its queue it stands."""
        return -self.priority, self.due, self.id

    def leave(self, state: str) -> None:
        """End the run: the lease is over."""
        self.state, self.token, self.worker_id = state, 0, 0
        if state in ("dead", "succeeded", "gone"):
            self.slot = None

    def back_off(self) -> None:
        """Let others of its concurrency key pass, unless their order is strict."""
        self.leave("scheduled")
        if not self.is_strict:
            self.slot = None

    def come_due(self) -> None:
        self.state = "limited" if self.limited_by and not self.slot else "queued"

    def die(self, reason: str, error: str, by: str | None = None) -> None:
        self.leave("dead")
        self.lost += reason == "lost"
        self.reason = reason
        self.killed_by = self.killed_by or by
        self.note(error)

    def note(self, error: str) -> None:
        if len(self.errors) >= 20:
            del self.errors[10]
        self.errors.append((self.attempts, error))

    def note_of_staff(self, error: str) -> None:
        """The last error stays the last entry."""
        self.note(error)
        self.errors[-2:] = reversed(self.errors[-2:])


@dataclass
class Process:
    """One row of ``pgqueue_workers``."""

    id: int
    lease_until: int
    pid: int = 0


class Model:
    """What is committed, and the books of those who have not committed yet."""

    def __init__(self) -> None:
        self.now = 0
        self.jobs: dict[int, Job] = {}
        self.processes: dict[int, Process] = {}
        self.books: list[Book] = []
        self.times_set = 0

    def due(self, hours: int) -> tuple[int, int]:
        """Return an instant set by a statement of its own; later statements set later ones."""
        self.times_set += 1
        return self.now + hours, self.times_set

    def open(self) -> "Book":
        self.books.append(Book(self))
        return self.books[-1]

    def close(self, book: "Book", *, commits: bool) -> None:
        self.books.remove(book)
        if commits:
            self.jobs |= book.changes

    def silent_processes(self) -> list[int]:
        """Return those that have been silent for an hour and run nothing."""
        busy = {job.worker_id for job in self.jobs.values() if job.state == "running"}
        silent = [process.id for process in self.processes.values() if process.lease_until + 1 <= self.now]
        return [process_id for process_id in silent if process_id not in busy]


class Book:
    """The lifecycle as one party sees it: what is committed, and above it what this party has changed.

    Each method returns what the action of the same name is to return.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.changes: dict[int, Job] = {}
        self.admitting: set[str] = set()  # concurrency keys that this party has locked

    def see(self, job_id: int) -> Job | None:
        return self.changes.get(job_id) or self.model.jobs.get(job_id)

    def seen(self) -> Iterator[Job]:
        return iter((self.model.jobs | self.changes).values())

    def take(self, job_id: int, condition: Callable[[Job], bool]) -> Job | None:
        """Return the job to be changed; None if it does not meet the condition, or another session holds its row."""
        job = self.see(job_id)
        if job is None or not condition(job) or self._is_locked(job_id):
            return None
        return self.changes.setdefault(job_id, copy.deepcopy(job))

    def take_all(self, ids: Collection[int], condition: Callable[[Job], bool]) -> list[Job]:
        return [job for job_id in sorted(set(ids)) if (job := self.take(job_id, condition))]

    def take_leased(self, lease: "Lease | Outcome") -> Job | None:
        owned = lease.job if isinstance(lease, Outcome) else lease
        return self.take(owned.id, lambda job: job.state == "running" and job.token == owned.lease_token)

    def _is_locked(self, job_id: int) -> bool:
        return any(job_id in book.changes for book in self.model.books if book is not self)

    # Unique keys

    def holder(self, key: str | None) -> Job | None:
        return next((job for job in self.seen() if key is not None and job.key == key and job.has_key), None)

    def must_wait_for(self, keys: Collection[str | None]) -> bool:
        """Whether an actor inside a transaction has done something about one of these keys."""
        others = [book.changes.values() for book in self.model.books if book is not self]
        return any(job.key is not None and job.key in keys for changes in others for job in changes)

    def keys_of(self, ids: Collection[int]) -> set[str]:
        return {job.key for job_id in ids if (job := self.see(job_id)) and job.key is not None}

    def give_up(self, key: str) -> None:
        """Take the key from a job that is over."""
        holder = self.holder(key)
        if holder and holder.is_over(self.model.now) and (job := self._take_any(holder)):
            job.scope = "given_up" if job.scope == "end" else "started"

    def _take_any(self, job: Job) -> Job | None:
        return self.take(job.id, lambda _: True)

    def meet(self, holder: Job, conflict: str, due: tuple[int, int]) -> None:
        """Move the job that has the key of a call."""
        moves = {"later": holder.due < due, "earlier": holder.due > due}
        if holder.state not in ("scheduled", "queued") or not (moves.get(conflict) or holder.scope == "start"):
            return
        job = self._take_any(holder)
        if not moves.get(conflict):
            return  # it is locked
        job.due = due
        if conflict == "later" and due[0] > self.model.now:
            job.state = "scheduled"
        elif conflict == "earlier" and due[0] <= self.model.now:
            job.state = "queued"

    def retake(self, *, most_locked: int) -> tuple[int, int, int, int]:
        came_back = sorted((job for job in self.seen() if job.came_back), key=lambda job: job.id)
        conflicts = {job.id: holder for job in came_back if (holder := self.holder(job.key))}
        taken = superseded = locked = 0
        for job_id in [job_id for job_id, conflict in conflicts.items() if not conflict.is_over(self.model.now)]:
            if job := self.take(job_id, lambda _: True):
                job.die("superseded", f"superseded by job {conflicts[job_id].id}")
                superseded += 1
        for seen in came_back:
            if self.holder(seen.key) or not (job := self.take(seen.id, lambda job: job.came_back)):
                continue
            if self._is_inserted_elsewhere(job.key):
                locked += 1
            else:
                job.scope, taken = "start", taken + 1
            if locked == most_locked:
                return taken, superseded, locked, job.id
        return taken, superseded, locked, 0

    def _is_inserted_elsewhere(self, key: str | None) -> bool:
        others = [book.changes.values() for book in self.model.books if book is not self]
        return any(job.key == key and job.has_key for changes in others for job in changes)

    def prune(self) -> int:
        def is_over(job: Job) -> bool:
            return job.reserved is not None and job.reserved[0] <= self.model.now

        jobs = self.take_all([job.id for job in self.seen()], is_over)
        for job in jobs:
            job.reserved = None
        return len(jobs)

    # From enqueue to ack

    def enqueue(self, job: Job) -> None:
        self.changes[job.id] = job

    def claimable(self, queue: str) -> list[Job]:
        now = self.model.now
        due = [job for job in self.seen() if (job.state, job.queue) == ("queued", queue) and job.due[0] <= now]
        return sorted(due, key=lambda job: job.place)

    def claim(self, queue: str, *, limit: int, worker_id: int, token: int, after: tuple | None = None) -> list[Job]:
        free = [job for job in self.claimable(queue) if not self._is_locked(job.id)]
        best = [job.id for job in free if after is None or job.place > after][:limit]
        jobs = [job for job_id in best if (job := self.take(job_id, lambda _: True))]
        for job in jobs:
            job.state, job.token, job.worker_id = "running", token, worker_id
            job.scope = "started" if job.scope == "start" else job.scope
            job.attempts += 1
            job.lease_until = self.model.now + job.lease_hours
            job.first_started = self.model.now if job.first_started is None else job.first_started
        return jobs

    def write(self, outcomes: Sequence[Outcome], *, history: bool) -> Receipt:
        missing = []
        for fate in (Fate.SUCCEEDED, Fate.RETRIED, Fate.SNOOZED, Fate.RELEASED, Fate.DIED):
            now = self.model.due(0)
            for outcome in [outcome for outcome in outcomes if outcome.fate is fate]:
                if job := self.take_leased(outcome):
                    self._end(job, outcome, history=history, now=now)
                else:
                    missing.append(outcome.job)
        locked = {run.id for run in missing if (job := self.see(run.id)) and job.token == run.lease_token}
        return Receipt(frozenset(locked), frozenset(run.id for run in missing) - locked)

    def _end(self, job: Job, outcome: Outcome, *, history: bool, now: tuple[int, int]) -> None:
        later = (now[0] + round(outcome.delay_seconds / HOUR), now[1])
        match outcome.fate:
            case Fate.SUCCEEDED:
                job.leave("succeeded" if history and job.keep else "gone")
                if job.held_hours:
                    job.reserved = (now[0] + job.held_hours, now[1])
            case Fate.RETRIED:
                job.back_off()
                job.note(outcome.error["error"])
                job.due = later
            case Fate.SNOOZED:
                self._give_back(job, later)
                job.snoozes += 1
            case Fate.RELEASED:
                self._give_back(job, later if outcome.delay_seconds else None)
            case Fate.DIED:
                job.die(outcome.reason, outcome.error["error"])

    def _give_back(self, job: Job, later: tuple[int, int] | None = None) -> None:
        if later:
            job.back_off()
            job.due = later
        else:
            job.leave("queued")
            job.first_started = None if job.attempts == 1 and not job.snoozes else job.first_started
        job.attempts -= 1

    # Concurrency keys

    def admit(self, keys: Collection[str]) -> tuple[set[str], set[str]]:
        others = [book.admitting for book in self.model.books if book is not self]
        missed = {key for key in keys if any(key in admitting for admitting in others)}
        self.admitting |= set(keys) - missed
        jobs = [job for key in sorted(set(keys) - missed) for job in self._admit(key)]
        return {job.queue for job in jobs}, missed

    def _admit(self, key: str) -> list[Job]:
        used = {job.slot for job in self.seen() if job.limited_by == key and job.slot}
        waiting = [job for job in self.seen() if (job.limited_by, job.state) == (key, "limited")]
        waiting = sorted((job for job in waiting if job.due[0] <= self.model.now), key=lambda job: job.place)
        room = waiting[0].limit - len(used) if waiting else 0
        if waiting and waiting[0].is_strict:  # none passes one that is locked
            waiting = itertools.takewhile(lambda job: not self._is_locked(job.id), waiting)
        best = [job.id for job in waiting if not self._is_locked(job.id)][: max(room, 0)]
        jobs, free = self.take_all_in_order(best), (slot for slot in range(1, 100) if slot not in used)
        admitted = []
        for job in itertools.takewhile(lambda job: len(used) + len(admitted) < job.limit, jobs):
            job.state, job.slot = "queued", next(free)
            admitted.append(job)
        return admitted

    def take_all_in_order(self, ids: Sequence[int]) -> list[Job]:
        return [job for job_id in ids if (job := self.take(job_id, lambda _: True))]

    # When workers die

    def leases(self, worker_ids: Collection[int]) -> set[Lease]:
        return {self._lease(job) for job in self.seen() if job.state == "running" and job.worker_id in worker_ids}

    def lost_leases(self) -> set[Lease]:
        return {
            self._lease(job)
            for job in self.seen()
            if job.state == "running" and job.lease_until <= self.model.now and not self._is_alive(job.worker_id)
        }

    def _is_alive(self, worker_id: int) -> bool:
        process = self.model.processes.get(worker_id)
        return process is not None and process.lease_until > self.model.now

    def _lease(self, job: Job) -> Lease:
        process = self.model.processes.get(job.worker_id)
        worker = f"model pid {process.pid}" if process else f"worker {job.worker_id}"
        who = (job.id, job.token, job.worker_id, job.queue)
        return Lease(*who, job.attempts, job.max_attempts, job.lost, job.is_kill_requested, worker, job.task, 0)

    def settle(self, leases: Collection[Lease]) -> ReapResult:
        returned, dead, keys = [], 0, set()
        for lease in leases:
            job = self.take_leased(lease)
            if job is None:
                continue
            if lease.is_kill_requested or lease.attempts >= lease.max_attempts or lease.lost >= 2:
                job.die(*("killed", KILLED) if lease.is_kill_requested else ("lost", "worker lost"))
                dead += 1
                keys |= {job.limited_by} - {None}
            else:
                job.leave("queued")
                job.note("worker lost")
                job.lost += 1
                returned.append(job.queue)
        return ReapResult(len(returned), dead, frozenset(returned), frozenset(keys))

    def release(self, leases: Sequence[Lease]) -> list[Job]:
        released = [job for lease in leases if (job := self.take_leased(lease))]
        for job in released:
            self._give_back(job)
        return released

    def settle_dead_process(self, leases: Sequence[Lease], *, started: set[int], was_stopped: bool) -> ReapResult:
        def goes_back(lease: Lease) -> bool:
            return not lease.is_kill_requested and (
                lease.run_id not in started or (was_stopped and lease.max_attempts > 1)
            )

        released = self.release([lease for lease in leases if goes_back(lease)])
        reaped = self.settle([lease for lease in leases if not goes_back(lease)])
        queues = reaped.queues | {job.queue for job in released}
        return ReapResult(reaped.returned + len(released), reaped.dead, queues, reaped.keys)

    # Staff and the clock

    def kill(self, ids: Collection[int], *, by: str) -> tuple[list[int], list[int]]:
        dead = self.take_all(ids, lambda job: job.state in ("scheduled", "queued", "limited"))
        running = self.take_all(ids, lambda job: job.state == "running")
        for job in dead:
            job.die("killed", f"killed by {by}", by)
        for job in running:
            job.is_kill_requested, job.killed_by = True, job.killed_by or by
        return [job.id for job in dead], [job.id for job in running]

    def retry(self, ids: Collection[int], *, by: str) -> tuple[list[int], dict[int, int]]:
        jobs, now = self.take_all(ids, lambda job: job.state == "dead"), self.model.due(0)
        retried = []
        for job in sorted(jobs, key=lambda job: (job.key is None, job.key, job.id)):
            if self.holder(job.key):
                continue
            job.note(f"died ({job.reason}), retried by {by}")
            job.due, job.attempts, job.lost, job.snoozes, job.first_started = now, 0, 0, 0, None
            job.come_due()
            job.scope = {"started": "start", "given_up": "end"}.get(job.scope, job.scope)
            job.reason = job.killed_by = None
            job.is_kill_requested = False
            retried.append(job.id)
        held_by = {job.id: holder.id for job in jobs if job.state == "dead" and (holder := self.holder(job.key))}
        for job_id, holder_id in held_by.items():
            self.changes[job_id].note_of_staff(f"not retried by {by}: job {holder_id} has its unique key")
        return sorted(retried), held_by

    def run_now(self, ids: Collection[int], *, by: str) -> list[int]:
        def is_later(job: Job) -> bool:
            return job.state == "scheduled" or (job.state == "queued" and job.due[0] > self.model.now)

        jobs, now = self.take_all(ids, is_later), self.model.due(0)
        for job in jobs:
            job.note_of_staff(f"made due at once by {by}")
            job.due = now
            job.come_due()
        return [job.id for job in jobs]

    def promote(self) -> tuple[dict[str, int], dict[str, int]]:
        def is_due(job: Job) -> bool:
            return job.state == "scheduled" and job.due[0] <= self.model.now

        jobs = self.take_all([job.id for job in self.seen()], is_due)
        for job in jobs:
            job.come_due()
        queued = Counter(job.queue for job in jobs if job.state == "queued")
        return dict(queued), dict(Counter(job.limited_by for job in jobs if job.state == "limited"))
