"""Reap the jobs of dead workers: decide which workers are gone, send their jobs back or move them to ``dead_jobs``.

``settle_dead_process()`` is for a process whose end its supervisor has seen, ``Reaper`` for the workers of others.
"""

import json
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

from django.db import Error

from django_pgqueue.db.connections import Database, QueueConnection, Row, fence, number_array
from django_pgqueue.db.errors import is_of_a_row, primary
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import JobInterrupted, JobKilled, JobTimeout
from django_pgqueue.jobs.dead_letter import DeadLetter, DeadLetterResult, dead_letter
from django_pgqueue.jobs.leases import (
    BEAT_SECONDS,
    RECONNECTED_SECONDS,
    SILENT_SECONDS,
    release,
    silent_workers,
    worker_leases,
)
from django_pgqueue.jobs.stats import StatsBuffer
from django_pgqueue.log_lines import fields
from django_pgqueue.records import EndCounts, Kinds, Lease, ReapResult
from django_pgqueue.retry_policy import DEFAULT_BACKOFF, with_jitter
from django_pgqueue.services import AdaptiveBatch
from django_pgqueue.signals import (
    JobEvent,
    attempt_lost,
    job_died,
    lost_event,
    send_deaths_from_maintenance,
    send_from_maintenance,
)
from django_pgqueue.states import MAX_LOST, AttemptOutcome, DeathReason, EntryKind

logger = logging.getLogger("django_pgqueue.jobs")
worker_logger = logging.getLogger("django_pgqueue.worker")

REAP_SECONDS = 1.0
FORGET_SECONDS = 3600.0

LATE_SECONDS = 1.0  # maximum delay of a heartbeat that still counts as in time

GONE_SECONDS = 2.0
"""Minimum time for which a command must be silent and without a session to count as gone."""

GAP_SECONDS = 2.0
"""Maximum time that counts from one look to the next: in a longer one the server may have been frozen."""

Arguments = Sequence[str]  # args and kwargs as JSON text


# Workers of others


class Steadiness(Protocol):
    """Heartbeats of this command: ``HeartbeatMonitor``."""

    lease_seconds: float

    def is_reliable(self) -> bool: ...
    def has_stood(self, seconds: float) -> bool: ...


class OwnProcesses(Protocol):
    """Processes of this command: ``ProcessPool``."""

    def worker_ids(self) -> list[int]: ...


class SilenceTimer:
    """For how long worker processes have been seen in one state at every look: silent, their lease passed, or locked.

    One look proves nothing: the clock of the database may have been put forward, or its server may have been frozen,
    and a living process sends another heartbeat.
    """

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}  # by the id of a worker process
        self._looked_at = 0.0  # monotonic

    def see(self, worker_ids: Iterable[int], at: float) -> dict[int, float]:
        """Note who is in that state at an instant, monotonic; return for how many seconds each has been."""
        more = min(at - self._looked_at, GAP_SECONDS)
        self._seconds = {worker_id: self._seconds.get(worker_id, -more) + more for worker_id in worker_ids}
        self._looked_at = at
        return self._seconds

    def known(self) -> set[int]:
        """Return those that were in that state at the last look."""
        return set(self._seconds)

    def forget(self, worker_ids: Iterable[int]) -> None:
        for worker_id in worker_ids:
            self._seconds.pop(worker_id, None)


class Reaper:
    """Three services; ``announce`` is called with the queues and the concurrency keys of jobs that were reaped."""

    def __init__(
        self,
        database: QueueConnection,
        pool: OwnProcesses,
        monitor: Steadiness,
        *,
        announce: Callable[[Collection[str], Collection[str]], None],
        stats: StatsBuffer,
    ) -> None:
        self._database = database
        self._pool = pool  # whose processes this command knows better than by their sessions
        self._monitor = monitor
        self._announce = announce
        self._stats = stats
        self._reaping = AdaptiveBatch()
        self._lapsed, self._absent = SilenceTimer(), SilenceTimer()
        self._locked_of_lapsed, self._locked_of_absent = SilenceTimer(), SilenceTimer()

    def forget_workers(self) -> None:
        forget_workers(self._database)

    def forget_absences(self) -> None:
        """Reset how long others have been absent: this may be another server, where no session is visible."""
        self._absent.forget(self._absent.known())

    def reap_lost(self) -> float | None:
        """Settle jobs without a lease, once living workers have had time for a heartbeat. 0: there may be more."""
        if not self._monitor.is_reliable():
            return None
        lapsed = lapsed_workers(self._database, session_seconds=BEAT_SECONDS)  # -> seconds between its heartbeats
        seen, unknown = self._lapsed.see(lapsed, time.monotonic()), self._monitor.lease_seconds / 3
        silent = [
            worker_id
            for worker_id, seconds in lapsed.items()
            if seen[worker_id] >= (unknown if seconds is None else seconds) + LATE_SECONDS
        ]
        return self._reap(reap_lost, self._judged(silent, self._locked_of_lapsed))

    def reap_gone(self, *, has_running: bool) -> float | None:
        """Settle the jobs of commands that are gone; return 0 if there may be more.

        Waiting for their leases would only lose time: by then a living command has ordered its children to start
        nothing. After an outage all get time to connect.
        """
        if not has_running or not self._monitor.has_stood(RECONNECTED_SECONDS):
            self.forget_absences()
            return None
        return self._reap(reap_gone, self._judged(self._gone(), self._locked_of_absent))

    def _gone(self) -> list[int]:
        """Return those absent at each look for ``GONE_SECONDS``; if a look fails, nothing seen before counts."""
        at = time.monotonic()
        try:
            silent = silent_workers(self._database, seconds=SILENT_SECONDS)
        except Exception:
            self.forget_absences()
            raise
        seen = self._absent.see(set(silent).difference(self._pool.worker_ids()), at)
        return [worker_id for worker_id, seconds in seen.items() if seconds >= GONE_SECONDS]

    def _judged(self, worker_ids: Collection[int], locks: SilenceTimer) -> list[int]:
        """Return those whose jobs may be taken: of locked rows, only those that have been locked for a lease.

        Until then their processes may live and be unable to say so, and they get the time for it afterwards. But what
        holds the lock may be the last heartbeat of a machine that is lost, half of which has come.

        Args:
            locks: those of the rows of workers that were found silent in the same way.
        """
        locked = locked_workers(self._database, worker_ids) if worker_ids else set()
        released = locks.known() - locked
        seen, patience = locks.see(locked, time.monotonic()), self._monitor.lease_seconds + LATE_SECONDS
        self._lapsed.forget(released)
        spared = {worker_id for worker_id in locked | released if seen.get(worker_id, 0.0) < patience}
        return [worker_id for worker_id in worker_ids if worker_id not in spared]

    def _reap(self, reap: Callable[..., ReapResult], worker_ids: list[int]) -> float | None:
        if not worker_ids:
            return None
        with self._reaping.taken() as limit:
            reaped = reap(self._database, worker_ids, limit=limit)
        if reaped.returned or reaped.dead:
            worker_logger.warning("Reaped jobs of lost workers: %d go back, %d dead", reaped.returned, reaped.dead)
            self._stats.count_ends(reaped.ends)
            self._announce(reaped.queues, reaped.keys)
        return 0.0 if reaped.returned + reaped.dead >= limit else None


def lapsed_workers(database: Database, *, session_seconds: float) -> dict[int, float | None]:
    """Return the worker processes that run jobs by the book and whose leases have passed.

    With each goes how far apart its heartbeats are, in seconds: ``session_seconds`` at most where its command has a
    session; None where it has no row.
    """
    return dict(database.rows(statement("expired_workers"), {"session_seconds": session_seconds}))


def locked_workers(database: Database, worker_ids: Collection[int]) -> set[int]:
    """Return which of these have a row that is locked: they cannot renew their lease, even if they live."""
    rows = database.rows(statement("locked_workers"), {"worker_ids": list(worker_ids)})
    return {worker_id for (worker_id,) in rows}


def reap_lost(database: Database, worker_ids: Collection[int], *, limit: int = 1000) -> ReapResult:
    """Settle up to ``limit`` jobs, 1 to 1,000, of these processes, whose lease has passed together with theirs.

    Only a worker whose own heartbeats have gone through for a full lease may call it: after an outage of the database
    every lease in the table has passed, and living workers need time for a heartbeat.
    """
    lost = database.rows(statement("expired_leases"), {"worker_ids": list(worker_ids)})
    return settle(database, [Lease._make(row) for row in lost[:limit]])


def reap_gone(database: Database, worker_ids: Sequence[int], *, limit: int = 1000) -> ReapResult:
    """Settle up to ``limit`` jobs, 1 to 1,000, of processes that are known to be gone, before their leases pass."""
    return settle(database, worker_leases(database, worker_ids)[:limit])


def forget_workers(database: Database) -> int:
    """Remove rows of worker processes that have been silent for an hour and run nothing; return how many."""
    return len(database.rows(statement("forget_workers"), {}))


# Jobs of a dead worker


class Verdict(NamedTuple):
    """Decision about one job of a dead worker."""

    lease: Lease
    reason: DeathReason | None  # of its death; None: it runs again
    entry: dict[str, Any]  # of its history
    has_begun: bool = True


T = TypeVar("T", Lease, Verdict)
R = TypeVar("R")


def settle(database: Database, leases: Sequence[Lease], *, unbegun: Collection[int] = ()) -> ReapResult:
    """Send jobs of a dead worker back to queued, their attempt counted; those without an attempt left die.

    Every change is fenced, so two reapers, or a reaper and a late ack, cannot both have it. That jobs with the run ids
    ``unbegun`` have ended their worker before they were begun is counted, but is no attempt.
    """
    if not leases:
        return ReapResult()
    verdicts = [_judge(lease, has_begun=lease.run_id not in unbegun) for lease in leases]
    lost = [verdict for verdict in verdicts if verdict.reason is None]
    returned = _send_back(database, lost) if lost else {}
    dead, deaths = _dead_letter(database, verdicts)
    for verdict in verdicts:
        if verdict.lease.id in returned or verdict.lease.id in dead:
            _report(verdict)
    _announce(database, verdicts, returned, deaths, outcome=AttemptOutcome.LOST)
    queues = frozenset(verdict.lease.queue for verdict in lost if verdict.lease.id in returned)
    ends = EndCounts(lost=_kinds(leases, returned.keys() | dead.keys()), died=_kinds(leases, dead))
    return ReapResult(len(returned), len(dead), queues, frozenset(filter(None, dead.values())), ends)


def _judge(lease: Lease, *, has_begun: bool) -> Verdict:
    reason = None
    if lease.is_kill_requested:
        reason = DeathReason.KILLED
    elif (has_begun and lease.attempts >= lease.max_attempts) or lease.lost + 1 >= MAX_LOST:
        reason = DeathReason.LOST
    return Verdict(lease, reason, last_entry(lease, reason, has_begun=has_begun), has_begun)


def _send_back(database: Database, lost: Sequence[Verdict]) -> dict[int, Arguments]:
    def write(some: Sequence[Verdict]) -> list[Row]:
        parameters = _parameters(some) | {"begun": [verdict.has_begun for verdict in some]}
        return database.rows(statement("reap"), parameters)

    return {job_id: arguments for rows in _but_for_bad_rows(lost, write) for job_id, *arguments in rows}


def _but_for_bad_rows(rows: Sequence[T], write: Callable[[Sequence[T]], R]) -> Iterator[R]:
    """Write leases or verdicts; where that fails because of a row, in halves, until the few are found that stay.

    Raises:
        django.db.Error: nothing was written, or too many rows cannot be.
    """
    in_order = sorted(rows, key=lambda row: is_stuck(_lease_of(row)))  # those that are known to be bad at last
    parts, has_written, bad = [in_order] if in_order else [], False, 0
    while parts:
        part = parts.pop()
        try:
            done = write(part)
        except Error as error:
            if not is_of_a_row(error) or bad == MOST_BAD:
                if has_written:
                    return  # the next pass goes on; the rows that were written are reported
                raise
            if len(part) > 1:
                parts += [part[len(part) // 2 :], part[: len(part) // 2]]
            else:
                bad += 1
                _note_bad_row(_lease_of(part[0]), error)
        else:
            has_written = True
            for row in part if _bad_rows else ():
                _bad_rows.pop(_lease_of(row).run_id, None)
            yield done


def _lease_of(row: Lease | Verdict) -> Lease:
    return row if isinstance(row, Lease) else row.lease


MOST_BAD = 10
"""Maximum number of rows in one pass that may stay: where there are more, it is not the rows that are the cause."""

REMEMBERED_BAD = 1000

_bad_rows: dict[int, None] = {}  # run ids of jobs whose rows cannot be written, the oldest first


def _note_bad_row(lease: Lease, error: Error) -> None:
    """Log once that a row stays: it is tried again each second."""
    if lease.run_id in _bad_rows:
        return
    _bad_rows[lease.run_id] = None
    if len(_bad_rows) > REMEMBERED_BAD:
        del _bad_rows[next(iter(_bad_rows))]
    logger.error(
        "Job %s (%s) of a dead worker cannot be taken back: %s",
        *(lease.id, lease.task, primary(error)),
        extra=fields(lease),
    )


def is_stuck(lease: Lease) -> bool:
    """Whether the row of a job cannot be written, so that it stays as it is."""
    return lease.run_id in _bad_rows


def _dead_letter(database: Database, verdicts: Sequence[Verdict]) -> DeadLetterResult:
    def write(some: Sequence[Verdict]) -> DeadLetterResult:
        letters = [
            DeadLetter(lease.id, lease.lease_token, reason, entry)
            for lease, reason, entry, _ in some
            if reason is not None
        ]
        return dead_letter(database, letters, is_told=bool(job_died.receivers or attempt_lost.receivers))

    keys: dict[int, str | None] = {}
    deaths: list[JobEvent] = []
    dying = [verdict for verdict in verdicts if verdict.reason is not None]
    for dead, events in _but_for_bad_rows(dying, write):
        keys |= dead
        deaths += events
    return DeadLetterResult(keys, deaths)


def _parameters(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    leases = [verdict.lease for verdict in verdicts]
    errors = [json.dumps(verdict.entry) for verdict in verdicts]
    return {**fence(leases), "errors": errors, "is_told": bool(attempt_lost.receivers)}


def settle_dead_process(
    database: Database,
    leases: Sequence[Lease],
    *,
    started: Collection[int],
    overdue: Collection[int] = (),
    was_stopped: bool,
    was_careful: bool = False,
) -> ReapResult:
    """Settle the jobs of a worker process whose end its supervisor has seen.

    Jobs that it had only fetched go back as if never claimed. For jobs that it had started the attempt counts; but if
    it was stopped on purpose, only for jobs that may be started just once. Killed jobs die. Jobs whose time limit had
    passed have failed for that.

    Args:
        started: the run ids of the jobs it had started.
        overdue: the run ids of those among them whose time limit had passed, though they still ran.
        was_stopped: the supervisor ended the process itself, because its time to stop was over.
        was_careful: it ended by itself, and claimed one job at a time: if there is one that it had not begun, and none
            that it had, that job has ended it. If one had started, the attempt of that one counts.
    """
    unbegun = {lease.run_id for lease in leases if lease.run_id not in started}
    culprit = unbegun if was_careful and not started and len(unbegun) == 1 else frozenset()

    def goes_back(lease: Lease) -> bool:
        if lease.run_id in culprit or lease.is_kill_requested:
            return False
        return lease.run_id not in started or (was_stopped and lease.max_attempts > 1)

    timed_out = [lease for lease in leases if lease.run_id in overdue and not lease.is_kill_requested]
    rest = [lease for lease in leases if lease.run_id not in overdue or lease.is_kill_requested]
    unrun = [lease for lease in rest if goes_back(lease)]
    failed = fail_overdue(database, timed_out)
    released: set[int] = set()
    for ids in _but_for_bad_rows(unrun, partial(release, database)):
        released.update(ids)
    lost = settle(database, [lease for lease in rest if not goes_back(lease)], unbegun=culprit)
    queues = lost.queues | {lease.queue for lease in unrun if lease.id in released}
    returned = failed.returned + len(released) + lost.returned
    ends = failed.ends.and_also(lost.ends)
    return ReapResult(returned, failed.dead + lost.dead, queues, failed.keys | lost.keys, ends)


def fail_overdue(database: Database, leases: Sequence[Lease]) -> ReapResult:
    """Record that jobs took longer than they may, as a failed attempt each.

    They run again after the default backoff: that of the task is user code, which no supervisor runs.
    """
    verdicts = [
        Verdict(
            lease,
            DeathReason.EXHAUSTED if lease.attempts >= lease.max_attempts else None,
            last_entry(lease, DeathReason.EXHAUSTED),
        )
        for lease in leases
    ]
    again = [verdict for verdict in verdicts if verdict.reason is None]
    retried: dict[int, str | None] = {}
    arguments: dict[int, Arguments] = {}
    delays = {verdict.lease.id: with_jitter(DEFAULT_BACKOFF(verdict.lease.attempts)) for verdict in again}

    def write(some: Sequence[Verdict]) -> list[Row]:
        parameters = _parameters(some) | {"delays": number_array([delays[one.lease.id] for one in some])}
        return database.rows(statement("retry"), parameters)

    for rows in _but_for_bad_rows(again, write):
        for job_id, _, key, *texts in rows:
            retried[job_id], arguments[job_id] = key, texts
    dead, deaths = _dead_letter(database, verdicts)
    written = retried | dead
    for lease, reason, _, _ in verdicts:
        if lease.id in written:
            logger.warning(
                "Timed out: job %s (%s) attempt %d of %d, its process was ended after the limit of %d s",
                *(lease.id, lease.task, lease.attempts, lease.max_attempts, lease.timeout_seconds),
                extra=_fields(lease, reason),
            )
    _announce(database, verdicts, arguments, deaths, outcome=AttemptOutcome.RETRIED, delays=delays)
    ends = EndCounts(failed=_kinds(leases, written), retried=_kinds(leases, retried), died=_kinds(leases, dead))
    return ReapResult(len(retried), len(dead), keys=frozenset(filter(None, written.values())), ends=ends)


def last_entry(lease: Lease, reason: DeathReason | None, *, has_begun: bool = True) -> dict[str, Any]:
    """Return the entry for the history of a job whose worker is gone."""
    match reason:
        case DeathReason.KILLED:
            return _interrupted(JobKilled, "Its process ended before it did.", lease)
        case DeathReason.EXHAUSTED:
            limit = f"Its time limit of {lease.timeout_seconds} s had passed, and it had not stopped"
            return _interrupted(JobTimeout, f"{limit} when its process ended.", lease)
        case _:
            why = {} if has_begun else {"message": "Its process ended before it was begun, and because of it."}
            return {"kind": EntryKind.LOST, "error": "worker lost", **why, "worker": lease.worker}


def _report(verdict: Verdict) -> None:
    lease, reason, _, has_begun = verdict
    died = "its worker died" if has_begun else "its worker died before it was begun"
    about = (lease.id, lease.task, lease.attempts, lease.max_attempts)
    if reason is None:
        logger.warning(
            "Lost: job %s (%s) attempt %d of %d, %s: it goes back", *about, died, extra=_fields(lease, reason)
        )
    else:
        logger.error("Dead: job %s (%s) attempt %d of %d, %s: %s", *about, reason, died, extra=_fields(lease, reason))


def _fields(lease: Lease, reason: DeathReason | None) -> dict[str, Any]:
    outcome = {"outcome": "lost"} if reason is None else {"outcome": "died", "reason": reason.value}
    return fields(lease, **outcome, lost_worker=lease.worker)


def _announce(
    database: Database,
    verdicts: Sequence[Verdict],
    returned: Mapping[int, Arguments],
    deaths: Sequence[JobEvent],
    *,
    outcome: AttemptOutcome,
    delays: Mapping[int, float] = MappingProxyType({}),
) -> None:
    """Send ``attempt_lost`` for the attempts, then ``job_died`` for the jobs that are dead by it.

    Args:
        returned: the arguments of the jobs that run again, by id; not read where nothing receives the signal.
        outcome: of the attempts of those.
        delays: the seconds until they are due, by id; missing: at once.
    """
    if attempt_lost.receivers:
        events = {event.id: event for event in deaths}
        for lease, _, entry, _ in verdicts:
            if lease.id in returned:
                told, delay = returned[lease.id], delays.get(lease.id, 0.0)
                event = lost_event(lease, told, outcome, entry, delay_seconds=delay, database=database.alias)
            elif lease.id in events:
                event = events[lease.id]
            else:
                continue
            send_from_maintenance(attempt_lost, lease.task, event=event, worker=lease.worker)
    send_deaths_from_maintenance(deaths)


def _interrupted(kind: type[JobInterrupted], message: str, lease: Lease) -> dict[str, Any]:
    name = f"{kind.__module__}.{kind.__qualname__}"
    return {"kind": EntryKind.FAILED, "error": name, "message": message, "worker": lease.worker}


def _kinds(leases: Sequence[Lease], ids: Collection[int]) -> Kinds:
    return tuple((lease.queue, lease.task) for lease in leases if lease.id in ids)
