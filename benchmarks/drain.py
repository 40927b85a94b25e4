"""How fast a real worker drains no-op jobs, as a ratio to a floor measured in the same run.

The floor is one loop over the same claim and ack statements without handlers, slots or threads. Runs of both alternate,
and medians are compared, because machines are shared and noisy.

    python -m benchmarks.drain --jobs 100000 --runs 5
    python -m benchmarks.drain --history --processes 2
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.settings")

BATCH = 500
MANAGE = Path(__file__).with_name("manage.py")


def main() -> None:
    options = parse()
    prepare()
    floors, rates = [], []
    for number in range(1, options.runs + 1):
        floors.append(measure_floor(options))
        rates.append(measure_worker(options))
        print(f"run {number}: floor {floors[-1]:>9,.0f} jobs/s   worker {rates[-1]:>9,.0f} jobs/s", flush=True)
    floor, rate = statistics.median(floors), statistics.median(rates)
    print(f"median: floor {floor:>8,.0f} jobs/s   worker {rate:>9,.0f} jobs/s   ratio {rate / floor:.2f}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--history", action="store_true", help="keep finished jobs, as is the default for users")
    parser.add_argument("--task", choices=["noop", "anoop"], default="noop")
    return parser.parse_args()


def prepare() -> None:
    """Make the database and its tables."""
    django.setup()
    from django.core.management import call_command
    from django.db import connection

    with connection._nodb_cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", [connection.settings_dict["NAME"]])
        if not cursor.fetchone():
            cursor.execute(f'CREATE DATABASE "{connection.settings_dict["NAME"]}"')
    call_command("migrate", verbosity=0)


def seed(options: argparse.Namespace) -> None:
    """Fill an empty queue, and let the server rest."""
    from django.db import connection

    from benchmarks import tasks
    from django_pgqueue import enqueue_many

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE pgqueue_jobs, pgqueue_finished_jobs")
    task = getattr(tasks, options.task).using(keep=options.history)
    for begin in range(0, options.jobs, 20_000):
        enqueue_many(task, [()] * min(20_000, options.jobs - begin))
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE pgqueue_jobs")
        cursor.execute("CHECKPOINT")


def measure_floor(options: argparse.Namespace) -> float:
    """Claim and ack every job on one connection, one transaction for each batch; return jobs per second."""
    from django_pgqueue.base.records import Fate, Outcome
    from django_pgqueue.db import QueueConnection
    from django_pgqueue.lifecycle import ack
    from django_pgqueue.lifecycle.claim import claim

    seed(options)
    database, outcomes, done, begun = QueueConnection("default", "floor"), [], 0, time.perf_counter()
    while True:
        with database.transaction():
            if outcomes:
                done += len(ack.write(database, outcomes).written)
            jobs = claim(database, "default", limit=BATCH, worker_id=1)
        if not jobs:
            break
        outcomes = [Outcome(job, Fate.SUCCEEDED) for job in jobs]
    elapsed = time.perf_counter() - begun
    database.close()
    assert done == options.jobs, f"{done} of {options.jobs}"
    return done / elapsed


def measure_worker(options: argparse.Namespace) -> float:
    """Let a real ``pgqueue_worker`` drain the queue; return jobs per second from the first one it finished."""
    from django.db import connection

    seed(options)
    worker = subprocess.Popen(
        [
            *(sys.executable, str(MANAGE), "pgqueue_worker", "--verbosity=0"),
            *(f"--processes={options.processes}", f"--concurrency={options.concurrency}"),
        ]
    )
    try:
        with connection.cursor() as cursor:
            left, first = options.jobs, (0.0, 0)
            while left:
                cursor.execute("SELECT count(*) FROM pgqueue_jobs")
                [left] = cursor.fetchone()
                if left < options.jobs and not first[1]:
                    first = (time.perf_counter(), left)
                time.sleep(0.02)
        return first[1] / (time.perf_counter() - first[0])
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait()


if __name__ == "__main__":
    main()
