"""Pick-up latency on an idle queue: from the return of ``enqueue`` to the first line of the task.

The counterpart is a process with one bare psycopg connection that listens, claims with claim.sql, and finishes with
finish.sql; its producer is a bare INSERT and a NOTIFY. Both wait all the time, each for a queue of its own, and take
turns job by job, so that they meet the same machine. The clock is one that all processes share; the instant of the
start comes back through a local socket. With ``--parts``, a worker of ``benchmarks.marked`` also says when each step
before it was, and so does the counterpart.

    python -m benchmarks.latency --json latency.json
    python -m benchmarks.latency --parts
"""

import argparse
import contextlib
import itertools
import json
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

Instants = dict[str, int]
"""When each step of a pick-up was, in nanoseconds."""

STEPS = {
    "heard": "enqueue returns to notification is read",
    "asked": "to the claim is sent",
    "answered": "to its rows are read",
    "started": "to the first line of the task",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=300, help="in each run; default: 300")
    parser.add_argument("--parts", action="store_true", help="also tell what each step takes")


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    everything: Samples = {"bare": [], "worker": []}
    middles: Samples = {"bare": [], "worker": []}
    tails: Samples = {"bare": [], "worker": []}
    steps: dict[str, Samples] = {step: {"bare": [], "worker": []} for step in STEPS}
    for number in range(1, options.runs + 1):
        for name, pick_ups in pick_ups_of(options.jobs, settings="marked" if options.parts else "settings").items():
            seen = [milliseconds(pick_up, "sent", "started") for pick_up in pick_ups]
            everything[name] += seen
            middles[name].append(statistics.median(seen))
            tails[name].append(percentile(seen, 99))
            if options.parts:
                for before, step in itertools.pairwise(["sent", *STEPS]):
                    steps[step][name] += [milliseconds(pick_up, before, step) for pick_up in pick_ups]
        say(f"run {number} of {options.runs}, so far: p50 {medians(middles, 'ms')}; p99 {medians(tails, 'ms')}")
    p50, p99 = ratio(middles, "worker", "bare"), ratio(tails, "worker", "bare")
    yield Finding("pick-up latency, p50", p50, at_most(1.3), note=medians(middles, "ms"), samples=everything)
    yield Finding("pick-up latency, p99", p99, at_most(2), note=medians(tails, "ms"), samples=tails)
    best = {name: percentile(seen, 10) for name, seen in everything.items()}
    note = ", ".join(f"{name} {seen:.2f}" for name, seen in best.items()) + " ms"
    yield Finding("pick-up latency, p10", best["worker"] / best["bare"], note=note)
    if options.parts:
        for step, samples in steps.items():
            more = statistics.median(samples["worker"]) - statistics.median(samples["bare"])
            yield Finding(STEPS[step], more, unit="ms more", note=medians(samples, "ms"), samples=samples)


def milliseconds(pick_up: Instants, begin: str, end: str) -> float:
    return (pick_up[end] - pick_up[begin]) / 1e6


def pick_ups_of(jobs: int, *, settings: str) -> dict[str, list[Instants]]:
    """Send jobs to each side in turn, one after another, when both are idle; return when the steps of each were."""
    begin_empty()
    seen: dict[str, list[Instants]] = {"bare": [], "worker": []}
    with ear() as (address, hear), bare_side(address) as send_bare, worker_side(address, settings) as send:
        for _ in range(WARM_UP + jobs):
            for name, commit in (("bare", send_bare), ("worker", send)):
                sent = commit()
                seen[name].append({"sent": sent, **hear()})
                time.sleep(random.uniform(0.01, 0.03))
    return {name: one[WARM_UP:] for name, one in seen.items()}


@contextlib.contextmanager
def ear() -> Iterator[tuple[str, Callable[[], Instants]]]:
    """Open a socket; yield its address and a function that waits for the instants that come next."""
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel,
    ):
        address = str(Path(folder, "ear"))
        channel.bind(address)
        channel.settimeout(PATIENCE_SECONDS)
        yield address, lambda: json.loads(channel.recv(1000))


@contextlib.contextmanager
def worker_side(address: str, settings: str) -> Iterator[Send]:
    from benchmarks.tasks import report_start

    def send() -> int:
        report_start.enqueue(address)
        return time.monotonic_ns()

    with worker(f"--queue={QUEUE}", f"--settings=benchmarks.{settings}"):
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
    """Claim a job for each notification, send the instants, and finish the job; for ever, in a process of its own."""
    with (
        bare_connection(parameters) as connection,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel,
    ):
        connection.execute(f"LISTEN {CHANNEL}")
        heard = time.monotonic_ns()
        while True:
            asked = time.monotonic_ns()
            claimed = connection.execute(claim, {"queue": BARE_QUEUE, "worker_id": 1, "lease_token": 1})
            if claimed.rowcount:
                started = time.monotonic_ns()
                instants = {"heard": heard, "asked": asked, "answered": started, "started": started}
                channel.sendto(json.dumps(instants).encode(), address)
                connection.execute(finish, successes(claimed.pgresult, 1))
            else:
                list(connection.notifies(stop_after=1))
                heard = time.monotonic_ns()


if __name__ == "__main__":
    main(sys.modules[__name__])
