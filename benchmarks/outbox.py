"""Measure the hand-over of calls out of an outbox, compared with enqueue_many() of the same jobs.

The calls are put into an outbox in another database of the same server, by enqueue_many() in one transaction for each
thousand. Then the pass of one relay, as a worker command runs it, makes jobs of all of them; what is measured is from
its first look to its last commit. Beside the rate is the processor time of a call, of the relay and of the server's
processes for it.

    python -m benchmarks.outbox
"""

import argparse
import contextlib
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.findings import Finding, Samples, alternate, at_least, medians, ratio
from benchmarks.harness import begin_empty, main, sql

DATA = "data"
SETTINGS = {"OUTBOXES": {DATA: 0}}
TOGETHER = 1000
"""Number of calls in a transaction of the database of the data, and of jobs in one of the counterpart."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=50_000, help="handed over in each run; default: 50000")


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    prepare_data()
    costs: list[float] = []
    samples: Samples = alternate(
        options.runs,
        enqueue_many=lambda: rate_of_enqueueing(options.jobs),
        relay=lambda: rate_of_relay(options.jobs, costs),
        put=lambda: rate_of_putting(options.jobs),
    )
    yield Finding("hand-over by one relay", statistics.median(samples["relay"]), at_least(15_000), unit="jobs/s")
    yield Finding(
        "hand-over by one relay, against enqueue_many",
        ratio(samples, "relay", "enqueue_many"),
        note=medians(samples, "jobs/s"),
        samples=samples,
    )
    yield Finding("processor time of a hand-over", statistics.median(costs), unit="µs")


def prepare_data() -> None:
    """Make the database of the data with its outbox, unless it is there."""
    from django.core.management import call_command
    from django.db import connection, connections
    from django.test import override_settings

    name = connections[DATA].settings_dict["NAME"]
    with connection._nodb_cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
        if not cursor.fetchone():
            cursor.execute(f'CREATE DATABASE "{name}"')
    with override_settings(PGQUEUE=SETTINGS):
        call_command("migrate", "pgqueue_outbox", database=DATA, verbosity=0)
        call_command("migrate", "pgqueue_outbox", verbosity=0)


def rate_of_enqueueing(jobs: int) -> float:
    from benchmarks.tasks import noop

    begin_empty()
    begun = time.perf_counter()
    for first in range(0, jobs, TOGETHER):
        noop.enqueue_many([(number,) for number in range(first, min(first + TOGETHER, jobs))])
    return jobs / (time.perf_counter() - begun)


def rate_of_putting(jobs: int) -> float:
    begin_empty()
    empty_outbox()
    begun = time.perf_counter()
    put(jobs)
    return jobs / (time.perf_counter() - begun)


def rate_of_relay(jobs: int, costs: list[float]) -> float:
    """Hand over all of an outbox; return calls per second, and add the processor time of one to ``costs``, in µs."""
    from django.test import override_settings

    from django_pgqueue.outbox.relay import Relay

    begin_empty()
    empty_outbox()
    put(jobs)
    with override_settings(PGQUEUE=SETTINGS), contextlib.closing(Relay("default", DATA)) as relay:
        used, begun = processor_seconds(), time.perf_counter()
        while relay.handed_over < jobs:
            relay.pass_once()
        seconds = time.perf_counter() - begun
        costs.append((processor_seconds() - used) / jobs * 1e6)
    [(made,)] = sql("SELECT count(*) FROM pgqueue_jobs")
    if made != jobs:
        raise RuntimeError(f"{jobs} calls were handed over and {made} jobs are there.")
    return jobs / seconds


def put(jobs: int) -> None:
    from django.db import transaction
    from django.test import override_settings

    from benchmarks.tasks import noop

    with override_settings(PGQUEUE=SETTINGS):
        for first in range(0, jobs, TOGETHER):
            with transaction.atomic(using=DATA):
                noop.enqueue_many([(number,) for number in range(first, min(first + TOGETHER, jobs))])


def empty_outbox() -> None:
    from django.db import connections

    with connections[DATA].cursor() as cursor:
        cursor.execute("TRUNCATE pgqueue_outbox")
        cursor.execute("VACUUM ANALYZE pgqueue_outbox")


def processor_seconds() -> float:
    """Return the processor time of this process, and of the server's processes for relays where Linux tells."""
    pids = sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'pgqueue relay'")
    told = [Path(f"/proc/{pid}/schedstat") for (pid,) in pids]
    return time.process_time() + sum(int(one.read_text().split()[0]) / 1e9 for one in told if one.exists())


if __name__ == "__main__":
    main(sys.modules[__name__])
