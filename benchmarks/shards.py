"""Measure what several databases of the queue cost each other: each a server of its own on this machine, with a worker.

First no-op jobs are drained on one, two and three databases at the same time. What is compared is the processor time of
a job, of servers and workers together, which rises where they share cores, and their caches. So it is judged only where
each has one of its own. Then jobs are enqueued on two databases at a steady rate while all three servers run, and again
after the third was killed. What is compared is the 99th percentile of the time from when a job was enqueued until it
began.

    python -m benchmarks.shards
"""

import argparse
import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg

from benchmarks.findings import Finding, Samples, alternate, at_most, medians, percentile, ratio, say
from benchmarks.harness import MANAGE, main, wait_until, worker

MOST = 3
ALIASES = ("default", *(f"shard_{number}" for number in range(1, MOST)))
FOLDER = Path(__file__).parent.parent / ".postgres" / "shards"
FILL = "INSERT INTO pgqueue_jobs (task, keep) SELECT 'benchmarks.tasks.noop', false FROM generate_series(1, %s)"
CORES = os.cpu_count() or 1
WARM_UP = 1000
"""Number of jobs that each worker has done before its waits count."""

SETTLED_SECONDS = 0.5  # in which the last server process of a worker ends


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=50_000, help="on each database in each run; default: 50000")
    parser.add_argument("--seconds", type=float, default=20.0, help="of steady load, twice; default: 20")
    parser.add_argument("--rate", type=float, default=50.0, help="jobs a second on each database; default: 50")


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    shards = Shards()
    samples: Samples = alternate(
        options.runs,
        one=lambda: shards.cost(1, options.jobs),
        two=lambda: shards.cost(2, options.jobs),
        three=lambda: shards.cost(3, options.jobs),
    )
    for number, cores in (("two", 4), ("three", 6)):
        yield Finding(
            f"processor time of a job on {number} databases, to one",
            ratio(samples, number, "one"),
            at_most(1.05) if cores <= CORES else None,
            note=medians(samples, "µs"),
            samples=samples,
        )
    waits = shards.waits(options.seconds, options.rate)
    p99 = {name: [percentile(seen, 99) * 1e3] for name, seen in waits.items()}
    yield Finding(
        "wait of a job, p99, on two databases with the third down, to up",
        ratio(p99, "down", "up"),
        at_most(1.5),
        note=medians(p99, "ms"),
        samples=waits,
    )


class Shards:
    """Three servers with the queue's tables; the first is that of the other benchmarks."""

    def __init__(self) -> None:
        from django.db import connection

        from django_pgqueue.embedded import embedded_database_url

        urls = [embedded_database_url(FOLDER / alias) for alias in ALIASES[1:]]
        self._environment = os.environ | {
            "SHARD_URLS": " ".join(urls),
            "BENCHMARKS_SETTINGS": "benchmarks.shard_settings",
        }
        first = connection.get_connection_params()
        known = {name: first[name] for name in ("host", "port", "user", "password") if name in first}
        self._servers: list[dict[str, Any]] = [known, *map(address_of, urls)]
        for alias, server in zip(ALIASES, self._servers, strict=True):
            with psycopg.connect(**server, dbname="postgres", autocommit=True) as one:
                if not one.execute("SELECT FROM pg_database WHERE datname = 'pgqueue_bench'").fetchall():
                    one.execute("CREATE DATABASE pgqueue_bench")
            migrate = [sys.executable, MANAGE, "migrate", "pgqueue", "--database", alias, "--verbosity=0"]
            subprocess.run(migrate, env=self._environment, check=True)

    def cost(self, number: int, jobs: int) -> float:
        """Drain jobs on the first databases at the same time; return the processor time of one, in microseconds."""
        servers = self._servers[:number]
        for server in servers:
            run(server, "TRUNCATE pgqueue_jobs, pgqueue_workers")
            run(server, FILL, jobs)
            run(server, "VACUUM ANALYZE pgqueue_jobs")
            run(server, "CHECKPOINT")
        used = sum(map(server_seconds, servers)) + workers_seconds()
        with contextlib.ExitStack() as stack:
            for command in [stack.enter_context(self._worker(alias, "--drain")) for alias in ALIASES[:number]]:
                command.wait()
        time.sleep(SETTLED_SECONDS)
        return (sum(map(server_seconds, servers)) + workers_seconds() - used) / (number * jobs) * 1e6

    def waits(self, seconds: float, rate: float) -> Samples:
        """Enqueue on two databases while the third is up, then down; return for how many seconds jobs have waited."""
        with contextlib.ExitStack() as stack:
            for alias in ALIASES:
                stack.enter_context(self._worker(alias))
            for server in self._servers:
                run(server, FILL, WARM_UP)
            wait_until(lambda: all(map(is_done, self._servers)))
            self._load(seconds, rate)  # what the drained tables leave to do is done by then
            up = self._load(seconds, rate)
            kill(self._servers[-1])
            say("the third server was killed")
            return {"up": up, "down": self._load(seconds, rate)}

    def _worker(self, alias: str, *options: str) -> contextlib.AbstractContextManager[psutil.Popen]:
        return worker("--database", alias, *options, environment=self._environment)

    def _load(self, seconds: float, rate: float) -> list[float]:
        servers = self._servers[:2]
        for server in servers:
            run(server, "TRUNCATE pgqueue_succeeded_jobs")
        begun, sent = time.monotonic(), 0
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(connect(server)) for server in servers]
            while (passed := time.monotonic() - begun) < seconds:
                for connection in connections:
                    connection.execute("SELECT pgqueue_enqueue('benchmarks.tasks.noop')")
                    connection.execute("NOTIFY pgqueue_jobs, 'default'")
                sent += 1
                time.sleep(max(sent / rate - passed, 0.0))
        wait_until(lambda: all(map(is_done, servers)))
        text = "SELECT date_part('epoch', first_started_at - enqueued_at) FROM pgqueue_succeeded_jobs"
        return [wait for server in servers for (wait,) in run(server, text)]


def address_of(url: str) -> dict[str, Any]:
    import environ

    known = environ.Env.db_url_config(url)
    return {"host": known["HOST"], "user": known["USER"]}


def connect(server: dict[str, Any]) -> psycopg.Connection[Any]:
    return psycopg.connect(**server, dbname="pgqueue_bench", autocommit=True)


def run(server: dict[str, Any], text: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with connect(server) as connection:
        cursor = connection.execute(text, parameters or None)
        return cursor.fetchall() if cursor.description else []


def is_done(server: dict[str, Any]) -> bool:
    return not run(server, "SELECT FROM pgqueue_jobs LIMIT 1")


def postmaster(server: dict[str, Any]) -> psutil.Process:
    [(folder,)] = run(server, "SHOW data_directory")
    return psutil.Process(int(Path(folder, "postmaster.pid").read_text().split()[0]))


def server_seconds(server: dict[str, Any]) -> float:
    """Return the processor time of a server so far, that of processes that have ended included."""
    process = postmaster(server)
    seconds = sum(process.cpu_times()[:4])
    for child in process.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            seconds += sum(child.cpu_times()[:2])
    return seconds


def workers_seconds() -> float:
    """Return the processor time of all workers that have ended, with their processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def kill(server: dict[str, Any]) -> None:
    """End a server as a crash does; it is started again by the next run."""
    process = postmaster(server)
    process.send_signal(signal.SIGQUIT)
    process.wait()


if __name__ == "__main__":
    main(sys.modules[__name__])
