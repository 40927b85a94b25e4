"""Measure the cost of an idle worker: processor time of all its processes, and transactions.

Transactions are counted by the server, in pg_stat_database. A look around of an idle worker is one transaction.

    python -m benchmarks.idle
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator

import psutil

from benchmarks.findings import Finding, alternate, at_most
from benchmarks.harness import main, seed, sql, wait_until, worker

REPORTED_SECONDS = 12.0
"""Until then the server has counted what its other processes did: they report every 10 s when idle."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run; default: 20")


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    transactions: list[float] = []
    cpu = alternate(options.runs, worker=lambda: idle_cost(options.seconds, transactions))
    yield Finding(
        "idle worker: processor", statistics.median(cpu["worker"]), at_most(1), unit="% of a core", samples=cpu
    )
    yield Finding(
        "idle worker: transactions",
        statistics.median(transactions),
        at_most(2),
        unit="/s",
        samples={"worker": transactions},
    )


def idle_cost(seconds: float, transactions: list[float]) -> float:
    """Return which part of a core a worker takes when idle, in percent; add its transactions per second."""
    seed(100, "noop")
    with worker() as command:
        wait_until(lambda: not sql("SELECT 1 FROM pgqueue_jobs LIMIT 1"), command)
        time.sleep(REPORTED_SECONDS)
        begun, used, done = time.perf_counter(), cpu_seconds(command), count_transactions()
        time.sleep(seconds)
        elapsed = time.perf_counter() - begun
        transactions.append((count_transactions() - done - 1) / elapsed)  # one is the counting itself
        return (cpu_seconds(command) - used) / elapsed * 100


def cpu_seconds(command: psutil.Popen) -> float:
    """Return the processor time of a worker and all its processes so far."""
    times = [process.cpu_times() for process in (command, *command.children(recursive=True))]
    return sum(spent.user + spent.system for spent in times)


def count_transactions() -> int:
    [(count,)] = sql("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()")
    return count


if __name__ == "__main__":
    main(sys.modules[__name__])
