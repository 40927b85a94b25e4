"""The reference harness: jobs of mixed priority whose handlers sleep 2 to 5 ms, compared with bare threads.

The counterpart is as many threads that sleep the same times without a queue. The worker keeps history and is timed by
what the database wrote down: from the first jobs finished to the last. Waits are from enqueueing to the claim; all jobs
are there from the beginning, so the longest wait is the time of the drain.

    python -m benchmarks.reference
    python -m benchmarks.reference --busy           # one slot, and one bare thread, run pure Python all the while
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.findings import Finding, alternate, at_least, at_most, medians, ratio
from benchmarks.harness import main, seed, sql, wait_until, worker

SHORTEST, SPREAD, STEP = 2000, 3001, 7919
"""Of the sleeps, in microseconds. The step is a prime, which mixes long and short ones evenly."""

STATISTICS = """
WITH job AS (
    SELECT succeeded_at, started_at - enqueued_at AS wait, lost, min(succeeded_at) OVER () AS first
    FROM pgqueue_succeeded_jobs
    WHERE task = 'benchmarks.tasks.rest'
)
SELECT
    count(*),
    (
        count(*) FILTER (WHERE succeeded_at > first) / extract(epoch FROM max(succeeded_at) - min(first))
    )::double precision,
    extract(epoch FROM percentile_disc(0.99) WITHIN GROUP (ORDER BY wait))::double precision,
    count(*) FILTER (WHERE lost > 0)
FROM job
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--concurrency", type=int, default=32, metavar="SLOTS")
    parser.add_argument("--busy", action="store_true", help="keep one slot busy in pure Python")


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    waits: list[float] = []
    reaped: list[float] = []
    samples = alternate(
        options.runs, bare=lambda: bare_rate(options), worker=lambda: worker_rate(options, waits, reaped)
    )
    title = f"{options.jobs:,} jobs of 2-5 ms, {options.concurrency} slots" + ", one busy in Python" * options.busy
    target = None if options.busy else at_least(0.95)
    note = medians(samples, "jobs/s")
    yield Finding(title, ratio(samples, "worker", "bare"), target, note=note, samples=samples)
    yield Finding(f"{title}: reaped leases", max(reaped), at_most(0), unit="", samples={"worker": reaped})
    yield Finding(f"{title}: p99 wait", statistics.median(waits), unit="s", samples={"worker": waits})


def worker_rate(options: argparse.Namespace, waits: list[float], reaped: list[float]) -> float:
    """Return jobs per second; add the p99 of the waits, in seconds, and how many jobs had lost a lease."""
    args = f"jsonb_build_array({SHORTEST} + mod(number::bigint * {STEP}, {SPREAD}))"
    seed(options.jobs, "rest", args=args, priority="mod(number, 11)")
    lowest = options.jobs - options.jobs % 11  # of the lowest priority the last: the last of all
    with busy(options, enqueue_spin) as flag, worker(f"--concurrency={options.concurrency}") as command:
        wait_until(lambda: is_gone(f"id = {lowest}"), command)
        wait_until(lambda: is_gone(f"id <= {options.jobs}"), command)
        flag.unlink(missing_ok=True)
    [(done, rate, wait, lost)] = sql(STATISTICS)
    if done != options.jobs:
        raise RuntimeError(f"{done} of {options.jobs} jobs have succeeded.")
    waits.append(wait)
    reaped.append(lost)
    return rate


def is_gone(condition: str) -> bool:
    [(found,)] = sql(f"SELECT EXISTS (SELECT FROM pgqueue_jobs WHERE {condition})")
    return not found


def bare_rate(options: argparse.Namespace) -> float:
    """Sleep as the jobs do in threads; return sleeps per second."""
    from benchmarks.tasks import rest

    numbers = iter(range(1, options.jobs + 1))
    resting = [
        threading.Thread(target=lambda: [rest(SHORTEST + number * STEP % SPREAD) for number in numbers])
        for _ in range(options.concurrency - options.busy)
    ]
    with busy(options, start_spin):
        begun = time.perf_counter()
        for thread in resting:
            thread.start()
        for thread in resting:
            thread.join()
        return options.jobs / (time.perf_counter() - begun)


# One that is busy


@contextlib.contextmanager
def busy(options: argparse.Namespace, start: Callable[[str], None]) -> Iterator[Path]:
    """With --busy, start something that spins until the file is gone whose path is yielded."""
    with tempfile.TemporaryDirectory() as folder:
        flag = Path(folder, "spin")
        if options.busy:
            flag.touch()
            start(str(flag))
        yield flag
        flag.unlink(missing_ok=True)


def enqueue_spin(flag: str) -> None:
    from benchmarks.tasks import spin

    spin.using(priority=100).enqueue(flag)


def start_spin(flag: str) -> None:
    from benchmarks.tasks import spin

    threading.Thread(target=spin, args=(flag,), daemon=True).start()


if __name__ == "__main__":
    main(sys.modules[__name__])
