"""One soak: a server, workers and producers; a storm; then calm, until all is done; then the ledger."""

import contextlib
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import django
import psutil
import psycopg

from tests.chaos.cases import DOCUMENTS, UNKNOWN_TASKS
from tests.chaos.cluster import Cluster
from tests.chaos.command import MANAGE, Command, within
from tests.chaos.faults import Scene
from tests.chaos.journal import Journal
from tests.chaos.ledger import Ledger, gather
from tests.chaos.marks import now
from tests.chaos.storm import Storm, watched
from tests.chaos.stream import replace_processes
from tests.support.proxy import Proxy
from tests.support.waiting import LONG_PATIENCE_SECONDS, PATIENCE_SECONDS

ROOT = Path(__file__).parent.parent.parent
PRODUCERS = 2
CONCURRENCY = 16
SHUTDOWN_TIMEOUT_SECONDS = 2
STREAM_PROCESSES = 3
OPEN_FLOWS = "SELECT EXISTS (SELECT FROM pgqueue_workflows WHERE status = 'open')"
PUT_BACK = "queue = 'poison' AND task = ANY (%s) AND run_at > enqueued_at"
"""A job of an unknown task is put back, again and again, for a day."""

CALM_SECONDS = LONG_PATIENCE_SECONDS
"""Timeout of all that is left once nothing goes wrong any more: leases, restarts and the backlog."""


@dataclass(frozen=True)
class Plan:
    """How to soak.

    Args:
        folder: an empty one, in which everything is kept.
        storm_seconds: how long things go wrong.
        rate: jobs in a second, of all producers.
        commands: worker processes of each command; every second command is behind the proxy.
        stream_seconds: how long jobs come due by the thousand before that; 0: not at all.
        hog_seconds: how long a job may keep its process from anything else.
    """

    folder: Path
    seed: str
    storm_seconds: float
    rate: float
    commands: tuple[int, ...]
    lease_seconds: int
    stream_seconds: float
    hog_seconds: float


class Soak:
    """One soak, to be run once.

    Attributes:
        facts: what is worth a line in the report beside the ledger.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.facts: dict[str, str] = {}
        for name in ("marks", "notes"):
            (plan.folder / name).mkdir(parents=True)
        self._replaced_seconds: list[float] = []
        self.journal = Journal(plan.folder / "journal.jsonl")

    def run(self) -> Ledger:
        """Soak; return what is known at the end. Nothing that was started is left running."""
        with contextlib.ExitStack() as stack:
            self._timed("started in", lambda: self._set_up(stack))
            with watched(self.journal):
                if self.plan.stream_seconds:
                    self._timed("stream", self._stream)
                self._timed("storm", lambda: self._storm(stack))
                self._timed("calm", self._calm)
            return self._timed("ended in", self._gather)

    def _timed(self, fact: str, phase: Callable[[], Any]) -> Any:
        began = time.monotonic()
        result = phase()
        self.facts[fact] = f"{time.monotonic() - began:.0f} s{self.facts.get(fact, '')}"
        return result

    def _set_up(self, stack: contextlib.ExitStack) -> None:
        """Start everything but the workers, and say how each is ended."""
        self._lifeline, life = os.pipe()
        stack.callback(os.close, self._lifeline)
        stack.callback(os.close, life)
        self.cluster = Cluster(self.plan.folder / "postgres")
        stack.callback(self.cluster.stop)
        self.proxy = Proxy(self.cluster.address)
        stack.callback(self.proxy.close)
        self._django("migrate", "--verbosity", "0")
        with self.cluster.connect() as database:
            database.execute("INSERT INTO chaos_document (version) SELECT 0 FROM generate_series(1, %s)", [DOCUMENTS])
        self.commands = [self._command(number, processes) for number, processes in enumerate(self.plan.commands, 1)]
        for command in self.commands:
            stack.callback(command.end)

    def _stream(self) -> None:
        """Let jobs come due by the thousand, and kill the processes of the only command there is; run what came due."""
        command = self._command(0, STREAM_PROCESSES, "--queue=stream")
        producer = self._python("tests.chaos.stream", "stream", seconds=self.plan.stream_seconds)
        try:
            command.start()
            with self.cluster.connect() as database:
                replaced = replace_processes(command, STREAM_PROCESSES, database, self.journal)
                self._replaced_seconds = list(replaced)
                left = "SELECT count(*) FROM pgqueue_jobs WHERE queue = 'stream'"
                within(CALM_SECONDS, lambda: database.execute(left).fetchone() == (0,))
            command.terminate()
        finally:
            end(command)
            end(producer)

    def _storm(self, stack: contextlib.ExitStack) -> None:
        self.producers = [self._producer(number) for number in range(1, PRODUCERS + 1)]
        for producer in self.producers:
            stack.callback(end, producer)
        for command in self.commands:
            command.start()
        marks = self.plan.folder / "marks"
        scene = Scene(self.cluster, self.proxy, self.commands, self.journal, marks, self.plan.lease_seconds)
        Storm(scene, seed=self.plan.seed).blow(self.plan.storm_seconds)

    def _calm(self) -> None:
        """Let the workers do what is left."""
        for producer in self.producers:
            producer.stdin.close()
            if producer.wait():
                self.journal.trouble(f"a producer ended with {producer.returncode}")
        within(CALM_SECONDS, self._are_at_work)
        left = f"SELECT count(*) FROM pgqueue_jobs WHERE queue <> 'ticks' AND NOT ({PUT_BACK})"
        with self.cluster.connect() as database:
            [(number,)] = database.execute(left, [list(UNKNOWN_TASKS)]).fetchall()
            within(CALM_SECONDS, lambda: database.execute(left, [list(UNKNOWN_TASKS)]).fetchone() == (0,))
            within(CALM_SECONDS, lambda: not database.execute(OPEN_FLOWS).fetchone()[0])
            self._paused_at = now()
            database.execute("UPDATE pgqueue_schedules SET is_enabled = false, paused_by = 'soak'")
            database.execute(f"DELETE FROM pgqueue_jobs WHERE {PUT_BACK}", [list(UNKNOWN_TASKS)])
            within(CALM_SECONDS, lambda: database.execute("SELECT count(*) FROM pgqueue_jobs").fetchone() == (0,))
        self.facts["calm"] = f", for {number:,} jobs that were left"

    def _gather(self) -> Ledger:
        """Look for leaks while the workers are idle and when they have gone; read what is known."""
        with self.cluster.connect() as database:
            leaks = leaks_of_idle(self.commands, database)
            with ThreadPoolExecutor() as pool:
                list(pool.map(Command.terminate, self.commands))
            ledger = gather(self.plan.folder, database)
            ledger.leaks = [*leaks, *leaks_of_gone(database)]
            self._write_facts(database)
        ledger.faults, ledger.troubles = self.journal.faults, self.journal.troubles
        ledger.lease_seconds = self.plan.lease_seconds
        ledger.cases.paused_at, ledger.cases.replaced_seconds = self._paused_at, self._replaced_seconds
        return ledger

    def _are_at_work(self) -> bool:
        return all(command.is_at_work() for command in self.commands)

    def _write_facts(self, database: psycopg.Connection) -> None:
        [(version,)] = database.execute("SHOW server_version").fetchall()
        self.facts["on"] = f"PostgreSQL {version}, Python {platform.python_version()}, Django {django.__version__}"
        self.facts["commands"] = f"{sum(command.starts for command in self.commands)} started"
        logs = [path.read_text(errors="replace") for path in self.plan.folder.glob("worker-*.log")]
        for fact, text in (("reaps", "Reaped jobs of lost workers"), ("stale outcomes", "Stale result dropped")):
            self.facts[fact] = str(sum(log.count(text) for log in logs))

    def _environment(self, url: str) -> dict[str, str]:
        return {
            "DJANGO_SETTINGS_MODULE": "tests.chaos.settings",
            "DATABASE_URL": url,
            "CHAOS_FOLDER": str(self.plan.folder),
            "LEASE_SECONDS": str(self.plan.lease_seconds),
            "PYTHONPATH": str(ROOT),
        }

    def _django(self, *arguments: str) -> None:
        environment = {**os.environ, **self._environment(self.cluster.url)}
        subprocess.run([sys.executable, str(MANAGE), *arguments], env=environment, stdin=self._lifeline, check=True)

    def _command(self, number: int, processes: int, *more: str) -> Command:
        is_proxied = number > 0 and number % 2 == 0
        url = f"postgresql://postgres@127.0.0.1:{self.proxy.port}/postgres" if is_proxied else self.cluster.url
        options = [
            f"--processes={processes}",
            f"--concurrency={CONCURRENCY}",
            f"--shutdown-timeout={SHUTDOWN_TIMEOUT_SECONDS}",
        ]
        return Command(
            number,
            self.plan.folder,
            environment=self._environment(url),
            options=[*options, f"--name=soak {number}", *more],
            journal=self.journal,
            lifeline=self._lifeline,
            is_proxied=is_proxied,
        )

    def _producer(self, number: int) -> subprocess.Popen[bytes]:
        return self._python(
            "tests.chaos.load",
            str(number),
            number=number,
            rate=self.plan.rate / PRODUCERS,
            seed=self.plan.seed,
            hog_seconds=self.plan.hog_seconds,
        )

    def _python(self, module: str, name: str, **arguments: float | str) -> subprocess.Popen[bytes]:
        """Start a producer; it is told where everything is kept."""
        given = {"folder": self.plan.folder, **arguments}
        options = [f"--{key.replace('_', '-')}={value}" for key, value in given.items()]
        with (self.plan.folder / f"producer-{name}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", module, *options],
                env={**os.environ, **self._environment(self.cluster.url), "CHAOS_NAME": f"chaos producer {name}"},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )


def end(one: Command | subprocess.Popen[bytes]) -> None:
    """Kill a command or a producer that still runs."""
    if isinstance(one, Command):
        one.end()
    else:
        one.kill()
        one.wait()
        one.stdin.close()


def leaks_of_idle(commands: list[Command], database: psycopg.Connection) -> list[str]:
    """Return which connections and threads there are too many of while all commands are idle."""
    children = {command: len(command.children()) for command in commands}
    bounds = {"pgqueue (heartbeat|maintenance|listener|table-maintenance)": 4 * len(commands)}
    bounds["pgqueue consumer"] = sum(children.values())
    bounds["chaos worker"] = 2 * CONCURRENCY * sum(children.values())
    bounds["chaos producer"] = 0
    leaks = [leak for name, bound in bounds.items() if (leak := too_many(database, name, bound))]
    for command in commands:
        for pid in (command.pid, *command.children()):
            with contextlib.suppress(psutil.NoSuchProcess):  # it has been recycled
                threads = psutil.Process(pid).num_threads()
                if threads > 2 * CONCURRENCY + 8:
                    leaks.append(f"process {pid} of command {command.number} has {threads} threads")
    return leaks


def leaks_of_gone(database: psycopg.Connection) -> list[str]:
    """Return what is left of workers in the database when all have gone.

    The row of one that was killed stays for an hour, unless it keeps a job; then any worker removes it.
    """
    leaks = [leak] if (leak := too_many(database, "(pgqueue|chaos)", 0)) else []
    database.execute("UPDATE pgqueue_workers SET lease_until = lease_until - interval '2 hours'")
    from django_pgqueue.db.queries import statement

    database.execute(statement("forget_workers"), {})
    rows = database.execute("SELECT to_jsonb(worker)::text FROM pgqueue_workers AS worker").fetchall()
    return leaks + [f"a worker's row is never removed: {row}" for (row,) in rows]


def too_many(database: psycopg.Connection, name: str, bound: int) -> str | None:
    """Say so if there stay more connections of some name than there should be."""
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name ~ %s"
    if within(PATIENCE_SECONDS, lambda: database.execute(count, [f"^{name}"]).fetchone()[0] <= bound):
        return None
    return f"more than {bound} connections of {name!r}"
