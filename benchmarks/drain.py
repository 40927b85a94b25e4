"""Measure how fast a real worker drains no-op jobs, as a ratio to the same statements without a worker.

The counterpart is a bare loop: one psycopg connection in pipeline mode, statements prepared, and for each batch one
transaction of the project's own finish.sql (archive.sql with --history) for the last batch and claim_above.sql for the
next; claim.sql once a second, as workers do. It reads of each job nothing but the id.

Both are timed from the first jobs done to the last, and what was done by then is not counted.

    python -m benchmarks.drain                      # 300,000 jobs, no history
    python -m benchmarks.drain --history            # as is the default for users
    python -m benchmarks.drain --payload 1024       # 1 KB of arguments
    python -m benchmarks.drain --task anoop         # async def
    python -m benchmarks.drain --snapshot           # with and without an old snapshot held elsewhere
"""

import argparse
import contextlib
import functools
import secrets
import sys
import time
from collections.abc import Iterator

from benchmarks.findings import Finding, alternate, at_least, medians, ratio
from benchmarks.harness import QUEUE, bare_connection, drain_rate, main, old_snapshot, seed, sql, worker

SCAN_SECONDS = 1.0
PLACE = ("rank", "run_at", "id")
"""The first columns of a claim's answer, as claim_above.sql calls them."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=300_000)
    parser.add_argument("--history", action="store_true", help="keep succeeded jobs")
    parser.add_argument("--task", choices=["noop", "anoop"], default="noop")
    parser.add_argument("--payload", type=int, default=0, metavar="BYTES", help="size of each job's arguments")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--batch", type=int, default=500, help="of the bare loop")
    parser.add_argument("--snapshot", action="store_true", help="measure what an old snapshot costs instead")


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    if options.snapshot:
        yield from with_snapshot(options)
        return
    samples = alternate(options.runs, bare=lambda: bare_rate(options), worker=lambda: worker_rate(options))
    target = at_least(0.45 if options.payload or options.task == "anoop" else 0.60) if options.processes == 1 else None
    yield Finding(
        title(options), ratio(samples, "worker", "bare"), target, note=medians(samples, "jobs/s"), samples=samples
    )


def with_snapshot(options: argparse.Namespace) -> Iterator[Finding]:
    scanning = functools.partial(bare_rate, always_scan=True)
    for name, rate, target in (("worker", worker_rate, at_least(0.9)), ("bare loop of claim.sql", scanning, None)):
        samples = alternate(
            options.runs,
            without=lambda rate=rate: rate(options),
            snapshot=lambda rate=rate: rate(options, holding=old_snapshot),
        )
        yield Finding(
            f"{title(options)}, old snapshot held: {name}",
            *(ratio(samples, "snapshot", "without"), target),
            note=medians(samples, "jobs/s"),
            samples=samples,
        )


def title(options: argparse.Namespace) -> str:
    processes = "1 process" if options.processes == 1 else f"{options.processes} processes"
    payload = f", {options.payload} bytes of arguments" if options.payload else ""
    return f"drain {options.jobs:,} {options.task}, {processes}, history {'on' if options.history else 'off'}{payload}"


def worker_rate(options: argparse.Namespace, *, holding=contextlib.nullcontext) -> float:
    """Let a real worker drain the queue; return jobs per second."""
    fill(options)
    with holding(), worker(f"--processes={options.processes}", f"--concurrency={options.concurrency}") as command:
        rate = drain_rate(command, options.jobs)
    check(options)
    return rate


def bare_rate(options: argparse.Namespace, *, holding=contextlib.nullcontext, always_scan: bool = False) -> float:
    """Claim and ack every job in a bare loop; return jobs per second."""
    fill(options)
    with bare_connection() as connection, holding():
        rate = loop(connection, batch=options.batch, history=options.history, always_scan=always_scan)
    check(options)
    return rate


def loop(connection, *, batch: int, history: bool, always_scan: bool) -> float:
    """Drain the queue; return jobs per second from the first ack to the last.

    Args:
        always_scan: claim from the head of the queue each time, over the entries of what was claimed before.
    """
    from django_pgqueue.db.queries import sized, statement

    scan, go_on, ack = sized("claim", batch), sized("claim_above", batch), statement("archive" if history else "finish")
    done, first, begun, outcomes, place, scan_at = 0, 0, 0.0, None, {}, 0.0
    with connection.pipeline() as pipeline:
        while True:
            if always_scan or time.perf_counter() >= scan_at:
                place, scan_at = {}, time.perf_counter() + SCAN_SECONDS
            right = {"queue": QUEUE, "worker_id": 1, "lease_token": secrets.randbits(62) + 1}
            with connection.transaction():
                acked = connection.execute(ack, outcomes) if outcomes else None
                claimed = connection.execute(go_on if place else scan, right | place)
            pipeline.sync()
            if acked:
                done += acked.rowcount
                begun, first = (begun, first) if begun else (time.perf_counter(), done)
            if claimed.rowcount:
                place, outcomes = last_place(claimed.pgresult), successes(claimed.pgresult, right["lease_token"])
            elif place:
                outcomes, scan_at = None, 0.0
            else:
                return (done - first) / (time.perf_counter() - begun)


def last_place(claimed) -> dict[str, str]:
    """Return where the last job of a claim stands in its queue: no job that comes before it is left."""
    row = claimed.ntuples - 1
    return {name: claimed.get_value(row, column).decode() for column, name in enumerate(PLACE)}


def successes(claimed, token: int) -> dict[str, str | None]:
    """Return what finish.sql and archive.sql need of jobs that returned None: ids as they came, not made numbers."""
    size, column = claimed.ntuples, PLACE.index("id")
    return {
        "ids": f"{{{b','.join([claimed.get_value(row, column) for row in range(size)]).decode()}}}",
        "lease_tokens": f"{{{','.join([str(token)] * size)}}}",
        "results": None,
        "left_out": None,
        "last_progress": None,
        "run_seconds": f"{{{','.join(['0'] * size)}}}",
    }


def fill(options: argparse.Namespace) -> None:
    args = f"jsonb_build_array(left(repeat(md5(number::text), {options.payload // 32 + 1}), {options.payload}))"
    seed(options.jobs, options.task, keep=options.history, args=args if options.payload else "'[]'")


def check(options: argparse.Namespace) -> None:
    """Raise RuntimeError unless every job was done."""
    [(left, kept)] = sql("SELECT (SELECT count(*) FROM pgqueue_jobs), (SELECT count(*) FROM pgqueue_succeeded_jobs)")
    if left or kept != options.jobs * options.history:
        raise RuntimeError(f"{left} jobs are left and {kept} are finished of {options.jobs}.")


if __name__ == "__main__":
    main(sys.modules[__name__])
