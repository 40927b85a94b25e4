"""Measure the effect of an old snapshot on the table of jobs under load: dead rows, disk space, time of a claim.

A producer enqueues at a steady rate and a real worker keeps up with it, in three parts of equal length: undisturbed,
while a session holds an old snapshot, and after that. Twice a second the server's counters are read, and a claim of 100
jobs from the head of the queue, which is rolled back, is timed: it steps over every entry that cannot be removed.
Workers themselves begin after the last job taken, so their rate is the counterpart: jobs done in each half second.

    python -m benchmarks.bloat --json bloat.json
    python -m benchmarks.curves bloat.json
"""

import argparse
import contextlib
import statistics
import sys
import threading
import time
from collections.abc import Iterator

import psycopg

from benchmarks.findings import Finding, Samples, at_least, figure
from benchmarks.harness import QUEUE, bare_connection, begin_empty, main, old_snapshot, wait_until, worker

TICK_SECONDS = 0.1
LOOK_SECONDS = 0.5
BATCH = 100
INSERT = (
    "INSERT INTO pgqueue_jobs (task, queue, keep) SELECT 'benchmarks.tasks.noop', %s, false FROM generate_series(1, %s)"
)
COUNTERS = """
SELECT
    stat.n_dead_tup,
    pg_relation_size(stat.relid) / 1e6,
    pg_indexes_size(stat.relid) / 1e6,
    stat.vacuum_count + stat.autovacuum_count,
    stat.n_tup_del
FROM pg_stat_user_tables AS stat
WHERE stat.relid = 'pgqueue_jobs'::regclass
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rate", type=int, default=5000, help="jobs enqueued in a second; default: 5,000")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each of the three parts; default: 15")


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    samples = watch(options.rate, options.seconds)
    parts = parts_of(samples)
    for what, unit in (("claim from the head", "ms"), ("dead rows", ""), ("table and indexes", "MB")):
        before, meanwhile, after = (last(part, what) for part in parts)
        yield Finding(
            f"old snapshot for {options.seconds:g} s at {options.rate:,} jobs/s: {what}",
            meanwhile / max(before, 1.0),
            note=f"{figure(before)} before, {figure(meanwhile)} at its end, {figure(after)} after {unit}".rstrip(),
        )
    before, meanwhile = (sum(part["jobs done"]) for part in parts[:2])
    note = f"{before:,.0f} jobs done before, {meanwhile:,.0f} meanwhile"
    yield Finding("dead rows over time", meanwhile / max(before, 1.0), at_least(0.9), note=note, samples=samples)


def watch(rate: int, seconds: float) -> Samples:
    """Let a worker keep up with a producer, at times beside an old snapshot; return what is seen."""
    begin_empty()
    samples: Samples = {}
    with bare_connection() as connection, worker() as command, producer(rate):
        wait_until(lambda: connection.execute(COUNTERS).fetchone()[4] > 0, command)
        begun = time.perf_counter()
        for holding in (contextlib.nullcontext, old_snapshot, contextlib.nullcontext):
            with holding():
                look_for(connection, samples, begun, seconds, is_held=holding is old_snapshot)
    begin_empty()
    return samples


def look_for(connection: psycopg.Connection, samples: Samples, begun: float, seconds: float, *, is_held: bool) -> None:
    """Look so long; add what is seen to the samples."""
    ended = time.perf_counter() + seconds
    [*_, done] = connection.execute(COUNTERS).fetchone()
    while time.perf_counter() < ended:
        time.sleep(LOOK_SECONDS)
        claim_ms = time_claim(connection)
        dead, heap, indexes, vacuums, now_done = connection.execute(COUNTERS).fetchone()
        seen = {
            "seconds": time.perf_counter() - begun,
            "held": is_held,
            "claim from the head": claim_ms,
            "dead rows": dead,
            "table": float(heap),
            "indexes": float(indexes),
            "table and indexes": float(heap + indexes),
            "vacuums": vacuums,
            "jobs done": now_done - done,
        }
        done = now_done
        for name, value in seen.items():
            samples.setdefault(name, []).append(value)


def time_claim(connection: psycopg.Connection) -> float:
    """Return the milliseconds of one claim from the head of the queue, which is rolled back."""
    from django_pgqueue.db.queries import sized

    with connection.transaction(force_rollback=True):
        begun = time.perf_counter()
        connection.execute(sized("claim", BATCH), {"queue": QUEUE, "worker_id": 1, "lease_token": 1})
        return (time.perf_counter() - begun) * 1000


@contextlib.contextmanager
def producer(rate: int) -> Iterator[None]:
    """Enqueue jobs at a steady rate meanwhile."""
    stop = threading.Event()

    def produce() -> None:
        due = time.perf_counter()
        with bare_connection() as connection:
            while not stop.wait(max(0.0, due - time.perf_counter())):
                connection.execute(INSERT, (QUEUE, round(rate * TICK_SECONDS)))
                due += TICK_SECONDS

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def parts_of(samples: Samples) -> list[Samples]:
    """Return what was seen before, while and after the snapshot was held."""
    first = samples["held"].index(True)
    after = len(samples["held"]) - samples["held"][::-1].index(True)
    return [
        {name: seen[part] for name, seen in samples.items()}
        for part in (slice(first), slice(first, after), slice(after, None))
    ]


def last(part: Samples, what: str) -> float:
    """Return the median of the last five looks of a part."""
    return statistics.median(part[what][-5:])


if __name__ == "__main__":
    main(sys.modules[__name__])
