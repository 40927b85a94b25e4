"""Pick-up latency on an idle queue: from the return of ``enqueue`` to the first line of the task.

The counterpart is a process with one bare psycopg connection that listens, claims with claim.sql, and finishes with
finish.sql; its producer is a bare INSERT and a NOTIFY. Both wait all the time, each for a queue of its own, and take
turns job by job, so that they meet the same machine. The clock is one that all processes share; the instant of the
start comes back through a local socket.

    python -m benchmarks.latency --json latency.json
"""

import argparse
import contextlib
import multiprocessing
import random
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.drain import successes
from benchmarks.findings import Finding, Samples, at_most, medians, percentile, ratio, say
from benchmarks.harness import QUEUE, bare_connection, begin_empty, connection_parameters, main, worker

CHANNEL = "pgqueue_bench"
BARE_QUEUE = "bare"
WARM_UP = 20
PATIENCE_SECONDS = 60.0

Send = Callable[[], int]
"""Commits a job and sends its wake-up; returns the instant after that, in nanoseconds."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=300, help="in each run; default: 300")


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    everything: Samples = {"bare": [], "worker": []}
    middles: Samples = {"bare": [], "worker": []}
    tails: Samples = {"bare": [], "worker": []}
    for number in range(1, options.runs + 1):
        for name, seen in latencies(options.jobs).items():
            everything[name] += seen
            middles[name].append(statistics.median(seen))
            tails[name].append(percentile(seen, 99))
        say(f"run {number} of {options.runs}, so far: p50 {medians(middles, 'ms')}; p99 {medians(tails, 'ms')}")
    p50, p99 = ratio(middles, "worker", "bare"), ratio(tails, "worker", "bare")
    yield Finding("pick-up latency, p50", p50, at_most(1.3), note=medians(middles, "ms"), samples=everything)
    yield Finding("pick-up latency, p99", p99, at_most(2), note=medians(tails, "ms"), samples=tails)
    best = {name: percentile(seen, 10) for name, seen in everything.items()}
    note = ", ".join(f"{name} {seen:.2f}" for name, seen in best.items()) + " ms"
    yield Finding("pick-up latency, p10", best["worker"] / best["bare"], note=note)


def latencies(jobs: int) -> Samples:
    """Send jobs to each side in turn, one after another, when both are idle; return the latencies in milliseconds."""
    begin_empty()
    seen: Samples = {"bare": [], "worker": []}
    with ear() as (address, hear), bare_side(address) as send_bare, worker_side(address) as send:
        for _ in range(WARM_UP + jobs):
            for name, commit in (("bare", send_bare), ("worker", send)):
                sent = commit()
                seen[name].append((hear() - sent) / 1e6)
                time.sleep(random.uniform(0.01, 0.03))
    return {name: one[WARM_UP:] for name, one in seen.items()}


@contextlib.contextmanager
def ear() -> Iterator[tuple[str, Callable[[], int]]]:
    """Open a socket; yield its address and a function that waits for the instant that comes next."""
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel,
    ):
        address = str(Path(folder, "ear"))
        channel.bind(address)
        channel.settimeout(PATIENCE_SECONDS)
        yield address, lambda: int(channel.recv(100))


@contextlib.contextmanager
def worker_side(address: str) -> Iterator[Send]:
    from benchmarks.tasks import report_start

    def send() -> int:
        report_start.enqueue(address)
        return time.monotonic_ns()

    with worker(f"--queue={QUEUE}"):
        yield send


@contextlib.contextmanager
def bare_side(address: str) -> Iterator[Send]:
    from django_pgqueue.db.queries import sized, statement

    listener = multiprocessing.get_context("spawn").Process(
        target=answer, args=(connection_parameters(), sized("claim", 1), statement("finish"), address)
    )
    with bare_connection() as connection:

        def send() -> int:
            connection.execute("INSERT INTO pgqueue_jobs (task, queue) VALUES ('bare', %s)", [BARE_QUEUE])
            connection.execute(f"NOTIFY {CHANNEL}")
            return time.monotonic_ns()

        listener.start()
        try:
            yield send
        finally:
            listener.terminate()
            listener.join()


def answer(parameters: dict[str, Any], claim: str, finish: str, address: str) -> None:
    """Claim a job for each notification, send the instant, and finish the job; for ever, in a process of its own."""
    with (
        bare_connection(parameters) as connection,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel,
    ):
        connection.execute(f"LISTEN {CHANNEL}")
        while True:
            claimed = connection.execute(claim, {"queue": BARE_QUEUE, "worker_id": 1, "lease_token": 1})
            if claimed.rowcount:
                channel.sendto(str(time.monotonic_ns()).encode(), address)
                connection.execute(finish, successes(claimed.pgresult, 1))
            else:
                list(connection.notifies(stop_after=1))


if __name__ == "__main__":
    main(sys.modules[__name__])
