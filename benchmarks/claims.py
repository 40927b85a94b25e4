"""Measure the cost of a claim beside many other rows: claim.sql for a fixed batch, each time rolled back.

The crowd and the few are in schemas of their own, with a table like ``pgqueue_jobs`` each, filled once; claims in both
take turns. Vacuum is kept away from them, so that both pay alike for what the claims before have left.

    python -m benchmarks.claims                     # beside 1,000,000 scheduled and 100,000 running jobs
    python -m benchmarks.claims --queued 10000000   # among 10 million queued ones, which takes 6 GB meanwhile
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.findings import Finding, alternate, at_most, medians, ratio, say
from benchmarks.harness import QUEUE, bare_connection, main, sql

FEW = 10_000
SLICE = 500_000
WARM_UP = 5

MAKE = """
CREATE SCHEMA {schema};
CREATE TABLE {schema}.pgqueue_jobs (LIKE public.pgqueue_jobs INCLUDING ALL);
DO $$ BEGIN EXECUTE (
    SELECT format(
        'ALTER TABLE {schema}.pgqueue_jobs SET (%s)', array_to_string(reloptions || 'autovacuum_enabled=off'::text, ',')
    )
    FROM pg_class
    WHERE oid = 'public.pgqueue_jobs'::regclass
); END $$;
"""
FILL = """
INSERT INTO {schema}.pgqueue_jobs (task, status, run_at, lease_token, lease_until, worker_id, fair_key)
SELECT 'benchmarks.tasks.noop', {values}
FROM generate_series(%s, %s) AS number
"""
DAY = "interval '1 day'"
VALUES = {
    "queued": "'queued', statement_timestamp(), 0, 'epoch', 0, NULL",
    "fair": "'queued', statement_timestamp() - interval '1 h' + number * interval '1 microsecond', 0, 'epoch', 0, 'a'",
    "scheduled": f"'scheduled', statement_timestamp() + {DAY}, 0, 'epoch', 0, NULL",
    "running": f"'running', statement_timestamp(), number, statement_timestamp() + {DAY}, 1 + number %% 8, NULL",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queued", type=int, default=FEW, help=f"in the crowd; otherwise {FEW:,}")
    parser.add_argument("--scheduled", type=int, default=1_000_000, help="in the crowd, unless --queued says more")
    parser.add_argument("--running", type=int, default=100_000, help="the same")
    parser.add_argument("--claims", type=int, default=40, help="in each run; default: 40")
    parser.add_argument("--batch", type=int, default=100)


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    crowd = {"scheduled": options.scheduled, "running": options.running, "queued": FEW}
    title, target = f"claim beside {options.scheduled:,} scheduled and {options.running:,} running", at_most(1.2)
    if options.queued > FEW:
        crowd = {"queued": options.queued}
        title, target = f"claim among {options.queued:,} queued", at_most(1.5)
    with filled("bench_few", {"queued": FEW}) as few, filled("bench_crowd", crowd) as many:
        samples = alternate(options.runs, few=lambda: claim_time(few, options), crowd=lambda: claim_time(many, options))
    yield Finding(title, ratio(samples, "crowd", "few"), target, note=medians(samples, "ms"), samples=samples)


@contextlib.contextmanager
def filled(schema: str, rows: dict[str, int]) -> Iterator[Any]:
    """Make a schema with a table of jobs, and a connection to it; drop it in the end.

    Args:
        rows: how many of which status, or queued with a fair key, in the order in which they come into the table.
    """
    drop = f"DROP SCHEMA IF EXISTS {schema} CASCADE"
    sql(drop)
    try:
        sql(MAKE.format(schema=schema))
        for status, count in rows.items():
            fill(schema, status, count)
        sql(f"VACUUM ANALYZE {schema}.pgqueue_jobs")
        sql("CHECKPOINT")
        with bare_connection(schema=schema) as connection:
            yield connection
    finally:
        sql(drop)


def fill(schema: str, status: str, count: int) -> None:
    statement = FILL.format(schema=schema, values=VALUES[status])
    for begin in range(1, count + 1, SLICE):
        sql(statement, begin, min(begin + SLICE - 1, count))
        say(f"{schema}: {min(begin + SLICE - 1, count):,} of {count:,} {status}")


def claim_time(connection: Any, options: argparse.Namespace) -> float:
    """Claim and roll back; return the mean time of a claim, in milliseconds."""
    from django_pgqueue.db.queries import sized

    claim, seconds = sized("claim", options.batch), 0.0
    for number in range(-WARM_UP, options.claims):
        with connection.transaction(force_rollback=True):
            begun = time.perf_counter()
            jobs = connection.execute(claim, {"queue": QUEUE, "worker_id": 1, "lease_token": 1}).fetchall()
            seconds += (time.perf_counter() - begun) * (number >= 0)
        if len(jobs) != options.batch:
            raise RuntimeError(f"{len(jobs)} jobs were claimed instead of {options.batch}.")
    return seconds / options.claims * 1000


if __name__ == "__main__":
    main(sys.modules[__name__])
