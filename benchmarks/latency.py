"""Pick-up latency: from the commit of a job on an idle queue to the start of its handler.

The counterpart is a process with one bare psycopg connection that listens, claims with claim.sql, and finishes with
finish.sql; its producer is a bare INSERT and a NOTIFY. On both sides the clock starts when the INSERT is committed and
the wake-up not yet sent, and is read when the job may begin. It is the clock that all processes share; the instant
comes back through a local socket.

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
WARM_UP = 20
PATIENCE_SECONDS = 60.0

Send = Callable[[], int]
"""Commits a job and sends its wake-up; returns the instant between the two, in nanoseconds."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=300, help="in each run; default: 300")


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    everything: Samples = {"bare": [], "worker": []}
    middles: Samples = {"bare": [], "worker": []}
    tails: Samples = {"bare": [], "worker": []}
    for number in range(1, options.runs + 1):
        for name, side in (("bare", bare_side), ("worker", worker_side)):
            seen = latencies(side, options.jobs)
            everything[name] += seen
            middles[name].append(statistics.median(seen))
            tails[name].append(percentile(seen, 99))
        say(f"run {number} of {options.runs}, so far: p50 {medians(middles, 'ms')}; p99 {medians(tails, 'ms')}")
    p50, p99 = ratio(middles, "worker", "bare"), statistics.median(tails["worker"])
    yield Finding("pick-up latency, p50", p50, at_most(2), note=medians(middles, "ms"), samples=everything)
    yield Finding("pick-up latency, p99", p99, at_most(15), unit="ms", note=medians(tails, "ms"), samples=tails)


def latencies(side: Callable[[str], contextlib.AbstractContextManager[Send]], jobs: int) -> list[float]:
    """Send one job after another to a side that is idle; return the latencies in milliseconds."""
    begin_empty()
    seen = []
    with ear() as (address, hear), side(address) as send:
        for _ in range(WARM_UP + jobs):
            sent = send()
            seen.append((hear() - sent) / 1e6)
            time.sleep(random.uniform(0.01, 0.03))
    return seen[WARM_UP:]


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
    from django.db import transaction

    from benchmarks.tasks import report_start

    def send() -> int:
        instants: list[int] = []
        with transaction.atomic():
            transaction.on_commit(lambda: instants.append(time.monotonic_ns()))  # runs before the wake-up does
            report_start.enqueue(address)
        return instants[0]

    with worker():
        yield send


@contextlib.contextmanager
def bare_side(address: str) -> Iterator[Send]:
    from django_pgqueue.db.queries import sized, statement

    listener = multiprocessing.get_context("spawn").Process(
        target=answer, args=(connection_parameters(), sized("claim", 1), statement("finish"), address)
    )
    with bare_connection() as connection:

        def send() -> int:
            connection.execute("INSERT INTO pgqueue_jobs (task) VALUES ('bare')")
            sent = time.monotonic_ns()
            connection.execute(f"NOTIFY {CHANNEL}")
            return sent

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
            claimed = connection.execute(claim, {"queue": QUEUE, "worker_id": 1, "lease_token": 1})
            if claimed.rowcount:
                channel.sendto(str(time.monotonic_ns()).encode(), address)
                connection.execute(finish, successes(claimed.pgresult, 1))
            else:
                list(connection.notifies(stop_after=1))


if __name__ == "__main__":
    main(sys.modules[__name__])
