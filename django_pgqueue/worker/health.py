"""Health of a worker command: collect the facts, evaluate them, answer probes over HTTP, in a file and to systemd.

Alive means that a restart would not help: a command whose database is away is alive. Ready means that it does its work.
"""

import contextlib
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Protocol

from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.maintenance.pending_work import oldest_runnable
from django_pgqueue.services import ServiceRunner
from django_pgqueue.validation import UNNAMED
from django_pgqueue.worker.config import WorkerConfig
from django_pgqueue.worker.heartbeat import HeartbeatMonitor
from django_pgqueue.worker.http import Page, Response
from django_pgqueue.worker.processes import STUCK_SECONDS, ProcessPool, WorkerProcess, stuck_seconds
from django_pgqueue.worker.shared_state import now

logger = logging.getLogger("django_pgqueue.worker")

LOOK_SECONDS = 1.0

FRESH_SECONDS = 10.0
"""Maximum age of a verdict. One is made each second, so an older one means that the thread has stopped."""

STALLED_PROCESS_SECONDS = 3.0
"""Maximum time between cycles of a consumer at work: it finishes one a second at least."""

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
    quiet_by: str | None = None  # who has asked it to claim nothing; None: it is not quiet
    unwatched_seconds: float  # since the main thread has checked its processes
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
    others: tuple[str, ...] = ()  # problems with databases that are not served while another one is


def evaluate(facts: HealthFacts) -> HealthStatus:
    """Return the problems. A command that is not alive is not ready either."""
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
    if facts.quiet_by is not None:
        yield f"quiet, as {facts.quiet_by or UNNAMED} has asked for: it claims no jobs"
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


class HealthMonitor:
    """Evaluates one command once a second, for its probes; ``loops`` are those whose work no other thread does."""

    def __init__(
        self,
        probes: "ProbesOfOne",
        pool: ProcessPool,
        monitor: HeartbeatMonitor,
        loops: Sequence[ServiceRunner],
        *,
        is_stopping: Callable[[], bool],
    ) -> None:
        self.watched_at = time.monotonic()  # written by the main thread
        self._probes = probes
        self._pool = pool
        self._monitor = monitor
        self._database = QueueConnection(pool.plan.alias, "health")
        self._oldest_seconds = 0.0  # for which the oldest job has waited that could run
        self._asked_at = time.monotonic()
        self._loop = ServiceRunner("health", self.pass_once)
        self._backlog_loop = ServiceRunner("look at the backlog", self._look_at_backlog)
        self._loops = (*loops, self._backlog_loop)
        self._is_stopping = is_stopping
        self._cycles: dict[int, tuple[int, float]] = {}  # of each process, and when they were last seen to grow

    def start(self) -> None:
        if self._pool.plan.health_max_age:
            self._backlog_loop.start()
        if self._probes.are_wanted:
            self._loop.start()

    def stop(self, seconds: float) -> None:
        """Stop as the last: a command is alive until it has settled everything. ``seconds``: timeout of each thread."""
        for loop in (self._backlog_loop, self._loop):
            loop.stop()
            if loop.is_alive():
                loop.join(seconds)
        self._database.close()

    def pass_once(self) -> float:
        facts = self._facts()
        self._probes.tell(evaluate(facts), facts.at_work >= facts.planned)
        return LOOK_SECONDS

    def _look_at_backlog(self) -> float:
        """Ask how long jobs have to wait, seldom enough to take a tenth of one connection's time."""
        begun = time.monotonic()
        self._oldest_seconds = oldest_runnable(self._database, self._pool.plan.served)
        self._asked_at = time.monotonic()
        return min(max(LOOK_SECONDS, 10 * (self._asked_at - begun)), STALE_SECONDS / 2)

    def _facts(self) -> HealthFacts:
        plan, at = self._pool.plan, time.monotonic()
        processes = [process for process in list(self._pool.living) if not process.is_leaving]
        self._cycles = {process.worker_id: self._cycles_of(process, at) for process in processes}
        return HealthFacts(
            is_stopping=self._is_stopping(),
            quiet_by=self._pool.quiet_by,
            unwatched_seconds=at - self.watched_at,
            unbeaten_seconds=now() - self._monitor.last,
            lease_seconds=self._pool.lease_seconds,
            planned=plan.processes,
            loops=tuple(
                LoopFacts(
                    service=loop.service,
                    is_alive=loop.is_alive(),
                    pass_seconds=loop.pass_seconds(),
                    failures=loop.failures,
                )
                for loop in self._loops
                if loop.ident is not None
            ),
            processes=tuple(
                ProcessFacts(
                    pid=process.pid,
                    is_at_work=process.is_at_work,
                    stalled_seconds=at - self._cycles[process.worker_id][1],
                    failures=process.shared.failures(),
                )
                for process in processes
            ),
            oldest_seconds=self._oldest_seconds,
            unasked_seconds=at - self._asked_at,
            max_age_seconds=plan.health_max_age,
            stuck_seconds=stuck_seconds(),
        )

    def _cycles_of(self, process: WorkerProcess, at: float) -> tuple[int, float]:
        cycles, (before, since) = process.shared.cycles(), self._cycles.get(process.worker_id, (-1, at))
        return (cycles, since) if cycles == before else (cycles, at)


class ProbesOfOne(Protocol):
    """The probes as the supervisor of one database sees them."""

    @property
    def are_wanted(self) -> bool: ...
    @property
    def pages(self) -> Mapping[str, Page]: ...
    def tell(self, verdict: HealthStatus, is_at_work: bool) -> None: ...  # noqa: FBT001 - as below
    def stopping(self) -> None: ...
    def close(self) -> None: ...


class SharedProbes:
    """The probes of a command that serves several databases: alive while all is well, ready while one is served."""

    def __init__(self, probes: "Probes", aliases: Iterable[str]) -> None:
        self._probes = probes
        self._lock = threading.Lock()
        unknown = HealthStatus((), ("its database is not served yet",))
        self._verdicts = dict.fromkeys(aliases, unknown)
        self._told_at: dict[str, float] = {}  # monotonic
        self._at_work: set[str] = set()

    def of(self, alias: str) -> "MemberProbes":
        return MemberProbes(self, alias)

    @property
    def are_wanted(self) -> bool:
        return self._probes.are_wanted

    def tell(self, alias: str, verdict: HealthStatus, *, is_at_work: bool) -> None:
        with self._lock:
            self._verdicts[alias], self._told_at[alias] = verdict, time.monotonic()
            if is_at_work:
                self._at_work.add(alias)
            self._probes.tell(self._together(), bool(self._at_work))

    def forget(self, alias: str) -> None:
        """Leave a database out, as one whose supervisor has ended."""
        with self._lock:
            self._verdicts[alias] = HealthStatus((), ("stopped",))
            self._told_at.pop(alias, None)

    def _together(self) -> HealthStatus:
        at, dead, unready = time.monotonic(), [], []
        for alias, verdict in self._verdicts.items():
            if at - self._told_at.get(alias, at) > FRESH_SECONDS:
                dead.append(f"{alias}: checks of health have stopped")
            dead += [f"{alias}: {problem}" for problem in verdict.dead]
            unready += [f"{alias}: {problem}" for problem in verdict.unready]
        is_served = any(not verdict.unready for verdict in self._verdicts.values())
        if is_served:
            return HealthStatus(tuple(dead), tuple(dead), tuple(unready))
        return HealthStatus(tuple(dead), (*dead, *unready))


class MemberProbes:
    """Those of one of the databases."""

    pages: Mapping[str, Page] = {}

    def __init__(self, shared: SharedProbes, alias: str) -> None:
        self._shared = shared
        self._alias = alias

    @property
    def are_wanted(self) -> bool:
        return self._shared.are_wanted

    def tell(self, verdict: HealthStatus, is_at_work: bool) -> None:  # noqa: FBT001 - as below
        self._shared.tell(self._alias, verdict, is_at_work=is_at_work)

    def stopping(self) -> None:
        pass  # the command may go on for other databases

    def close(self) -> None:
        self._shared.forget(self._alias)


class Probes:
    """Passes verdicts on to the probes named in the plan or the environment."""

    def __init__(self, plan: WorkerConfig) -> None:
        self._file = Path(plan.health_file) if plan.health_file else None
        self._systemd = os.environ.get("NOTIFY_SOCKET", "")
        self._is_started = False  # as systemd knows
        self._verdict: HealthStatus | None = None
        self._told_at = 0.0
        self.are_wanted = bool(plan.health_port or self._file or self._systemd)
        self.pages: dict[str, Page] = {
            "/live": lambda _: self._answer(lambda verdict: verdict.dead),
            "/ready": lambda _: self._answer(lambda verdict: verdict.unready),
        }

    def tell(self, verdict: HealthStatus, is_at_work: bool) -> None:  # noqa: FBT001 - the two halves of a report
        """Take note of a verdict and pass it on; systemd first, as a disk that is full need not be its end."""
        self._verdict, self._told_at = verdict, time.monotonic()
        if self._systemd:
            self._tell_systemd(verdict, is_at_work=is_at_work)
        if self._file:
            write(self._file, verdict)

    def stopping(self) -> None:
        if self._systemd:
            notify(self._systemd, "STOPPING=1")

    def close(self) -> None:
        if self._file:
            self._file.unlink(missing_ok=True)

    def _answer(self, problems_of: Callable[[HealthStatus], tuple[str, ...]]) -> Response:
        others: tuple[str, ...] = ()
        if self._verdict is None or time.monotonic() - self._told_at > FRESH_SECONDS:
            problems: tuple[str, ...] = (
                "no check of health has been made yet" if self._verdict is None else "checks of health have stopped",
            )
        else:
            problems, others = problems_of(self._verdict), self._verdict.others
        status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
        return Response.json({"ok": not problems, "problems": problems or others}, status)

    def _tell_systemd(self, verdict: HealthStatus, *, is_at_work: bool) -> None:
        lines = [f"STATUS={'; '.join(verdict.unready or verdict.others) or 'at work'}"]
        if is_at_work and not self._is_started:
            self._is_started = True
            lines.append("READY=1")
        if not verdict.dead:
            lines.append("WATCHDOG=1")
        notify(self._systemd, "\n".join(lines))


def write(path: Path, verdict: HealthStatus) -> None:
    """Rewrite the file, as a whole, where the command is alive; remove it where it is not."""
    if verdict.dead:
        path.unlink(missing_ok=True)
        return
    new = path.with_name(f"{path.name}.{os.getpid()}")
    report = {"live": True, "ready": not verdict.unready, "problems": verdict.unready or verdict.others}
    new.unlink(missing_ok=True)  # of a command with this pid that was killed; or a link laid by an attacker
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644), "w") as file:
        file.write(json.dumps(report) + "\n")
    new.replace(path)


def notify(address: str, message: str) -> None:
    """Send one message to systemd; one that does not arrive is lost, which harms only systemd.

    Source: https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
    """
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(f"\0{address[1:]}" if address.startswith("@") else address)
        sender.send(message.encode())
