"""Shared parts of the benchmarks: their database, seeded jobs, real workers, a command line.

A figure of one machine says little about another, and machines are shared and noisy. So a benchmark measures what the
queue does and a bare counterpart in turn, several times in one run, and judges the ratio of the medians.

The server is the embedded one, or that of DATABASE_URL, whose user must be allowed to make a database, to truncate and
to checkpoint. The database is called pgqueue_bench; what is in it is thrown away.
"""

import argparse
import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import django
import psutil
import psycopg

from benchmarks.findings import Finding, collect, table

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.site")

MANAGE = Path(__file__).with_name("manage.py")
QUEUE = "default"
PLANS = "-c plan_cache_mode=force_generic_plan " + " ".join(
    f"-c enable_{way}=off" for way in ("seqscan", "bitmapscan", "sort", "hashjoin", "mergejoin")
)
"""Plans by index alone, made once, as workers ask for: statistics of a queue mislead."""

LOOK_SECONDS = 0.01
TAIL = 1000


# Command line


def main(benchmark: ModuleType | Any, arguments: list[str] | None = None) -> list[Finding]:
    """Run one benchmark from its command line; return what it has found."""
    options = parser(benchmark).parse_args(arguments)
    return show(benchmark.findings(options), options.json, clean=not getattr(options, "keep", False))


def show(findings: Iterator[Finding], path: Path | None, *, clean: bool = True) -> list[Finding]:
    """Make findings one by one, print them, then all as a table; clean up, even when stopped by a signal."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Stopped."))
    prepare()
    try:
        found = collect(findings, path)
    finally:
        if clean:
            empty()
    print(f"\n{table(found)}")
    return found


def parser(benchmark: ModuleType | Any) -> argparse.ArgumentParser:
    """Return the parser of one benchmark's options: its own, and those that all have."""
    made = argparse.ArgumentParser(description=benchmark.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--runs", type=int, default=5, help="of each measure, in turn; default: 5")
    made.add_argument("--json", type=Path, metavar="FILE", help="write the findings with all their samples")
    benchmark.add_options(made)
    return made


# Database


def prepare() -> None:
    """Make the database and its tables, unless they are there."""
    django.setup()
    from django.core.management import call_command
    from django.db import connection

    name = connection.settings_dict["NAME"]
    with connection._nodb_cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
        if not cursor.fetchone():
            cursor.execute(f'CREATE DATABASE "{name}"')
    call_command("migrate", run_syncdb=True, verbosity=0)


def bare_connection(parameters: dict[str, Any] | None = None, *, schema: str = "public") -> psycopg.Connection[Any]:
    """Return a psycopg connection without Django around it: autocommit, prepared statements, plans by index.

    Args:
        parameters: where Django is not set up, the ``connection_parameters()`` of where it is.
        schema: where its tables are.
    """
    session = f"{PLANS} -c search_path={schema},public"
    made = psycopg.connect(**(parameters or connection_parameters()), autocommit=True, options=session)
    made.prepare_threshold = 0
    return made


def connection_parameters() -> dict[str, Any]:
    from django.db import connection

    parameters = connection.get_connection_params()
    return {name: value for name, value in parameters.items() if name not in {"cursor_factory", "context"}}


def sql(statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Run one statement on Django's connection, return its rows."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement, parameters or None)
        return cursor.fetchall() if cursor.description else []


def empty() -> None:
    """Leave nothing in the tables."""
    sql(
        "TRUNCATE pgqueue_jobs, pgqueue_dead_jobs, pgqueue_succeeded_jobs, pgqueue_queues, pgqueue_workers,"
        " pgqueue_stats, pgqueue_schedules, pgqueue_bulk_actions,"
        " pgqueue_workflows, pgqueue_stages, pgqueue_stage_edges, pgqueue_stage_results, pgqueue_stage_additions,"
        " pgqueue_kept_calls,"
        " benchmarks_visit, benchmarks_start, benchmarks_place RESTART IDENTITY"
    )


def begin_empty() -> None:
    """Begin a run without jobs."""
    empty()
    settle()


def seed(jobs: int, task: str, *, keep: bool = True, args: str = "'[]'", priority: str = "0", keys: int = 0) -> None:
    """Begin a run: fill empty tables with jobs that have the ids 1 to ``jobs``, and let the server settle.

    Args:
        keep: whether they go to the history when they have succeeded.
        args: an SQL expression; ``number`` in it is the job's.
        priority: as ``args``.
        keys: how many concurrency keys they have in turn, of which each lets one job run; 0: none.
    """
    empty()
    control = "'limited', 'key ' || number %% %s, 1" if keys else "'queued', NULL, %s::smallint"
    sql(
        "INSERT INTO pgqueue_jobs (task, queue, keep, args, priority, status, concurrency_key, concurrency_limit)"
        f" SELECT %s, %s, %s, {args}, {priority}, {control} FROM generate_series(1, %s) AS number",
        *(f"benchmarks.tasks.{task}", QUEUE, keep, keys or None, jobs),
    )
    settle()


def settle() -> None:
    """Let the server do now what it would do meanwhile."""
    sql("VACUUM ANALYZE pgqueue_jobs")
    sql("CHECKPOINT")


@contextlib.contextmanager
def old_snapshot() -> Iterator[None]:
    """Hold a snapshot meanwhile, as a report or a backup does: no row that dies after it can be removed."""
    with bare_connection() as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT FROM pgqueue_jobs LIMIT 1")
        yield
        connection.execute("ROLLBACK")


# Workers


@contextlib.contextmanager
def worker(*options: str, environment: dict[str, str] | None = None) -> Iterator[psutil.Popen]:
    """Run a real ``pgqueue_worker`` meanwhile; end it gracefully, unless it has ended."""
    words = [sys.executable, str(MANAGE), "pgqueue_worker", "--verbosity=0", *options]
    command = psutil.Popen(words, env=environment)
    try:
        yield command
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):  # a benchmark may have ended it
            command.send_signal(signal.SIGTERM)
        command.wait()


def children(command: psutil.Popen) -> list[psutil.Process]:
    """Return the processes of a worker that run jobs."""
    return [child for child in command.children(recursive=True) if re.fullmatch(r"pgqueue-\d+", child.name())]


def wait_until(is_true: Callable[[], Any], command: psutil.Popen | None = None) -> float:
    """Look until the condition holds; return when that was seen, as ``time.perf_counter()`` tells it.

    Raises:
        RuntimeError: the worker that should bring it about has ended.
    """
    while not is_true():
        if command is not None and command.poll() is not None:
            raise RuntimeError(f"The worker has ended with exit code {command.returncode}.")
        time.sleep(LOOK_SECONDS)
    return time.perf_counter()


def drain_rate(command: psutil.Popen, jobs: int) -> float:
    """Wait until the worker has drained what ``seed`` made; return jobs per second, from the first one done.

    Counting rows would be a load of its own. So every 10 ms one connection looks whether the first job is still there,
    then whether any of the last ones is: an index entry each time. Jobs are taken in order of their ids; when the last
    ones are gone, a look at the whole table finds stragglers.
    """
    with bare_connection() as connection:

        def is_gone(condition: str) -> bool:
            return not connection.execute(f"SELECT EXISTS (SELECT FROM pgqueue_jobs WHERE {condition})").fetchone()[0]

        begun = wait_until(lambda: is_gone("id = 1"), command)
        [done] = connection.execute("SELECT coalesce(min(id) - 1, 0) FROM pgqueue_jobs").fetchone()
        ended = wait_until(lambda: is_gone(f"id > {jobs - TAIL}"), command)
        if not is_gone("true"):
            ended = wait_until(lambda: is_gone("true"), command)
    return (jobs - done) / (ended - begun)
