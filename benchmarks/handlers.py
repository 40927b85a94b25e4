"""Handlers that do one ORM INSERT, compared with the same INSERTs without a queue on as many connections.

The counterpart is eight threads, each with a Django connection of its own (for ``async def`` eight lanes of an event
loop, each with a thread of its own for the ORM), that insert until as many rows are there. The worker's connections are
counted in pg_stat_activity when it has done the last job.

    python -m benchmarks.handlers                   # plain functions
    python -m benchmarks.handlers --task avisit     # async def
"""

import argparse
import asyncio
import contextvars
import sys
import threading
import time
from collections.abc import Iterator

from asgiref.sync import ThreadSensitiveContext, sync_to_async

from benchmarks.findings import Finding, alternate, at_least, at_most, medians, ratio
from benchmarks.harness import begin_empty, drain_rate, main, seed, sql, worker

OTHER_CONNECTIONS = 6
"""What a worker with one process may have beside those of its slots."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--task", choices=["visit", "avisit"], default="visit")
    parser.add_argument("--concurrency", type=int, default=8, metavar="SLOTS")


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    bare = bare_threads if options.task == "visit" else bare_lanes
    connections: list[float] = []
    samples = alternate(
        options.runs,
        bare=lambda: bare(options.jobs, options.concurrency),
        worker=lambda: worker_rate(options, connections),
    )
    kind = "plain" if options.task == "visit" else "async def"
    title = f"{kind} handlers with one ORM INSERT, {options.concurrency} slots"
    note = medians(samples, "jobs/s")
    yield Finding(title, ratio(samples, "worker", "bare"), at_least(0.8), note=note, samples=samples)
    yield Finding(
        f"{title}: connections",
        max(connections),
        at_most(options.concurrency + OTHER_CONNECTIONS),
        unit="",
        samples={"worker": connections},
    )


def worker_rate(options: argparse.Namespace, connections: list[float]) -> float:
    """Return jobs per second; add the number of connections the worker had open at the end."""
    seed(options.jobs, options.task, args="jsonb_build_array(number)")
    others = count_connections()
    with worker(f"--concurrency={options.concurrency}") as command:
        rate = drain_rate(command, options.jobs)
        connections.append(count_connections() - others)
    check(options.jobs)
    return rate


def count_connections() -> int:
    [(connections,)] = sql(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
    )
    return connections


def check(inserts: int) -> None:
    [(visits,)] = sql("SELECT count(*) FROM benchmarks_visit")
    if visits != inserts:
        raise RuntimeError(f"{visits} rows were inserted instead of {inserts}.")


# Without a queue


def bare_threads(inserts: int, threads: int) -> float:
    """Insert rows from threads with a connection each; return rows per second."""
    from benchmarks.tasks import visit

    begin_empty()
    numbers, ready = iter(range(inserts)), threading.Barrier(threads + 1)

    def insert_until_done() -> None:
        connect()
        ready.wait()
        for number in numbers:
            visit(number)
        disconnect()

    workers = [threading.Thread(target=insert_until_done) for _ in range(threads)]
    for thread in workers:
        thread.start()
    ready.wait()
    begun = time.perf_counter()
    for thread in workers:
        thread.join()
    elapsed = time.perf_counter() - begun
    check(inserts)
    return inserts / elapsed


def bare_lanes(inserts: int, lanes: int) -> float:
    """Insert rows from lanes of an event loop, with a thread and a connection each; return rows per second."""
    begin_empty()
    nothing_inherited = contextvars.Context()  # Django keeps connections by context: a lane must not find this one's
    elapsed = nothing_inherited.run(asyncio.run, run_lanes(iter(range(inserts)), lanes))
    check(inserts)
    return inserts / elapsed


async def run_lanes(numbers: Iterator[int], lanes: int) -> float:
    """Return for how long the lanes took, from when all were connected."""
    from benchmarks.tasks import avisit

    ready = asyncio.Barrier(lanes + 1)

    async def insert_until_done() -> None:
        async with ThreadSensitiveContext():
            await sync_to_async(connect)()
            await ready.wait()
            for number in numbers:
                await avisit(number)
            await sync_to_async(disconnect)()

    async with asyncio.TaskGroup() as group:
        for _ in range(lanes):
            group.create_task(insert_until_done())
        await ready.wait()
        begun = time.perf_counter()
    return time.perf_counter() - begun


def connect() -> None:
    """Open the caller's connection: each thread and each lane has its own."""
    from django.db import connection

    connection.ensure_connection()


def disconnect() -> None:
    from django.db import connection

    connection.close()


if __name__ == "__main__":
    main(sys.modules[__name__])
