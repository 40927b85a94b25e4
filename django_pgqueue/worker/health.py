"""Health of a command: judges from facts alone whether it is alive and whether it is ready.

Alive means that a restart would not help; so a command is alive while only its database is away. Ready means that it
does its work.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from django_pgqueue.conf import conf

STALLED_PROCESS_SECONDS = 3.0
"""Maximum time between cycles of a consumer at work: it finishes one a second at least."""

STUCK_SECONDS = 300.0
"""Maximum time without progress: all time limits of a pass together are shorter."""

STALE_SECONDS = 15.0  # maximum age of the database's answer about the backlog


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopFacts:
    """One thread of the supervisor."""

    service: str
    is_alive: bool
    pass_seconds: float  # for which its pass has been under way, or late
    failures: int  # in a row


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """One worker process that is not about to leave."""

    pid: int
    is_at_work: bool
    stalled_seconds: float  # since its consumer has finished a cycle
    failures: int  # cycles in a row that failed at the database


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFacts:
    is_stopping: bool
    unwatched_seconds: float  # since the main thread has looked after its processes
    unbeaten_seconds: float  # since the last heartbeat that went through
    lease_seconds: float
    planned: int  # processes
    loops: tuple[LoopFacts, ...]
    processes: tuple[ProcessFacts, ...]
    oldest_seconds: float = 0.0  # for which the oldest job has waited that could run
    unasked_seconds: float = 0.0  # since the database has said so
    max_age_seconds: float | None = None  # that the oldest may have; None: any
    stuck_seconds: float = STUCK_SECONDS

    @property
    def at_work(self) -> int:
        return sum(process.is_at_work for process in self.processes)


@dataclass(frozen=True, slots=True)
class HealthStatus:
    """Reasons why a command is not alive, and not ready; empty: it is."""

    dead: tuple[str, ...]
    unready: tuple[str, ...]


def stuck_seconds() -> float:
    """Return after how long what has not moved counts as stuck."""
    return max(STUCK_SECONDS, 4.0 * conf.statement_timeout_seconds)


def evaluate(facts: HealthFacts) -> HealthStatus:
    """Say what is wrong. What is not alive is not ready either."""
    dead = tuple(_dead(facts))
    return HealthStatus(dead, dead + tuple(_unready(facts)))


def _dead(facts: HealthFacts) -> Iterator[str]:
    if facts.is_stopping:
        return  # the process manager that asked for it bounds the time
    if facts.unwatched_seconds > facts.stuck_seconds:
        yield f"the supervisor has not checked its processes for {facts.unwatched_seconds:.0f} s"
    for loop in facts.loops:
        if not loop.is_alive:
            yield f"the {loop.service} has ended"
        elif loop.pass_seconds > facts.stuck_seconds:
            yield f"the {loop.service} has been stuck for {loop.pass_seconds:.0f} s"
    for process in facts.processes:
        if process.stalled_seconds > facts.stuck_seconds:
            yield f"process {process.pid} has been stuck for {process.stalled_seconds:.0f} s"


def _unready(facts: HealthFacts) -> Iterator[str]:
    if facts.is_stopping:
        yield "stopping"
    if facts.unbeaten_seconds > facts.lease_seconds * 2 / 3:
        yield f"the last heartbeat was {facts.unbeaten_seconds:.0f} s ago"
    for loop in facts.loops:
        if loop.failures:
            yield f"the {loop.service} cannot work with the database (failure {loop.failures})"
    yield from _idle_processes(facts)
    if facts.max_age_seconds and facts.unasked_seconds > STALE_SECONDS:
        yield f"the database has not returned the age of the oldest job for {facts.unasked_seconds:.0f} s"
    elif facts.max_age_seconds and facts.oldest_seconds > facts.max_age_seconds:
        yield f"a job that could run has waited for {facts.oldest_seconds:.0f} s"


def _idle_processes(facts: HealthFacts) -> Iterator[str]:
    if facts.at_work < facts.planned:
        yield f"{facts.at_work} of {facts.planned} processes are at work"
    for process in facts.processes:
        if process.is_at_work and process.stalled_seconds > STALLED_PROCESS_SECONDS:
            yield f"process {process.pid} has not looked for jobs for {process.stalled_seconds:.0f} s"
        if process.failures:
            yield f"process {process.pid} cannot work with the database (failure {process.failures})"
