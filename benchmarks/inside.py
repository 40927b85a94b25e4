"""Compare three ways to run a job: in the transaction that locks its row, with a lease, and with ``atomic=True``.

The first is what a queue without leases does: each slot has a connection, selects one row FOR UPDATE SKIP LOCKED, runs
the job, deletes the row and commits. It is done here by threads without Django's ORM; the others by a real worker.

First, jobs with one INSERT each are drained. Then one job that inserts a row and sleeps runs each way while others
pass through the table, and before its end VACUUM removes the dead rows that it may: none that is younger than the
oldest open transaction that has written. Those that are left are counted, for each job that was done meanwhile.

    python -m benchmarks.inside --runs 3
"""

import argparse
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

from benchmarks.bloat import COUNTERS, producer
from benchmarks.findings import Finding, alternate, medians, ratio
from benchmarks.harness import QUEUE, bare_connection, begin_empty, drain_rate, main, seed, sql, wait_until, worker

SLOTS = 8
OTHER = "long"
TAKE = """
SELECT id, args -> 0 FROM pgqueue_jobs WHERE queue = %s AND status = 'queued' AND run_at <= statement_timestamp()
ORDER BY (-priority), run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED
"""
VISIT = "INSERT INTO benchmarks_visit (path, seen_at) VALUES (%s, statement_timestamp())"
DELETE = "DELETE FROM pgqueue_jobs WHERE id = %s"
LONG = "INSERT INTO pgqueue_jobs (task, queue, args) VALUES (%s, %s, jsonb_build_array(%s::float))"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=15.0, help="that the long job sleeps; default: 15")
    parser.add_argument("--rate", type=int, default=2000, help="other jobs in a second meanwhile; default: 2,000")


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    samples = alternate(
        options.runs,
        locked=lambda: locked_rate(options.jobs),
        lease=lambda: worker_rate("visit", options.jobs),
        atomic=lambda: worker_rate("visit_atomically", options.jobs),
    )
    for way in ("lease", "atomic"):
        both = {"locked": samples["locked"], way: samples[way]}
        title = f"jobs with one INSERT, {SLOTS} slots: {way} to locked"
        yield Finding(title, ratio(both, way, "locked"), note=medians(both, "jobs/s"), samples=both)
    dead = {way: [dead_rows(long, options)] for way, long in LONG_JOBS.items()}
    for way in LONG_JOBS:
        title = f"dead rows that VACUUM leaves beside a long job, for each other job: {way}"
        yield Finding(title, dead[way][0], unit="rows", samples={way: dead[way]})


def locked_rate(jobs: int) -> float:
    """Run jobs in the transactions that lock their rows; return jobs per second."""
    seed(jobs, "visit", args="jsonb_build_array(number)")
    ready = threading.Barrier(SLOTS + 1)

    def run() -> None:
        with bare_connection() as connection:
            ready.wait()
            while run_locked(connection, QUEUE):
                pass

    threads = [threading.Thread(target=run) for _ in range(SLOTS)]
    for thread in threads:
        thread.start()
    ready.wait()
    begun = time.perf_counter()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - begun
    check(jobs)
    return jobs / elapsed


def run_locked(connection, queue: str, *, sleeps: bool = False) -> bool:
    with connection.transaction():
        taken = connection.execute(TAKE, (queue,)).fetchone()
        if taken is None:
            return False
        job_id, number = taken
        connection.execute(VISIT, (f"/{number}/",))
        if sleeps:
            time.sleep(number)
        connection.execute(DELETE, (job_id,))
    return True


def worker_rate(task: str, jobs: int) -> float:
    seed(jobs, task, args="jsonb_build_array(number)", keep=False)
    with worker(f"--concurrency={SLOTS}") as command:
        rate = drain_rate(command, jobs)
    check(jobs)
    return rate


def check(jobs: int) -> None:
    [(visits,)] = sql("SELECT count(*) FROM benchmarks_visit")
    if visits != jobs:
        raise RuntimeError(f"{visits} jobs ran instead of {jobs}.")


# A long job


@contextlib.contextmanager
def long_locked() -> Iterator[None]:
    def run() -> None:
        with bare_connection() as connection:
            while not run_locked(connection, OTHER, sleeps=True):  # the look for it may have the row
                pass

    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join()


@contextlib.contextmanager
def long_in_worker() -> Iterator[None]:
    with worker(f"--queue={OTHER}"):
        yield


LONG_JOBS: dict[str, tuple[str, Callable[[], contextlib.AbstractContextManager[None]]]] = {
    "locked": ("visit_and_rest", long_locked),
    "lease": ("visit_and_rest", long_in_worker),
    "atomic": ("visit_and_rest_atomically", long_in_worker),
}


def dead_rows(
    long: tuple[str, Callable[[], contextlib.AbstractContextManager[None]]], options: argparse.Namespace
) -> float:
    """Return the dead rows that a VACUUM leaves while the long job runs, for each job done meanwhile."""
    task, running = long
    begin_empty()
    with bare_connection() as connection, worker(f"--queue={QUEUE}") as command, producer(options.rate):
        wait_until(lambda: connection.execute(COUNTERS).fetchone()[4] > 0, command)
        connection.execute(LONG, (f"benchmarks.tasks.{task}", OTHER, options.seconds))
        with running():
            begun = wait_until(lambda: is_under_way(connection), command)
            done = connection.execute(COUNTERS).fetchone()[4]
            time.sleep(begun + options.seconds * 0.8 - time.perf_counter())
            connection.execute("VACUUM pgqueue_jobs")
            [dead, *_, now_done] = connection.execute(COUNTERS).fetchone()
    begin_empty()
    return dead / (now_done - done)


def is_under_way(connection) -> bool:
    """Whether the long job has begun: its row is locked, or it is claimed."""
    taken = connection.execute(
        "SELECT NOT EXISTS (SELECT FROM (SELECT FROM pgqueue_jobs WHERE queue = %s AND status = 'queued' "
        "FOR UPDATE SKIP LOCKED) AS free)",
        (OTHER,),
    ).fetchone()
    return bool(taken[0])


if __name__ == "__main__":
    main(sys.modules[__name__])
