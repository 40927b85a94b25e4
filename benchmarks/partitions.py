"""Measure what partitions of the live table by queue would change: one heap, one partition for each queue, or by hash.

Each layout is a table like ``pgqueue_jobs`` in a schema of its own. A cold queue keeps many queued jobs in it. Through
a hot queue pass batches, which are inserted, claimed and deleted, each with a commit; then the table, or the partition
of the hot queue, is vacuumed. It is done again beside an old snapshot. Vacuum does not come by itself.

The layouts with partitions are made as fast as they can be: claim and delete name the queue, so that one partition is
looked at. Only a look-up by id does not know it. Their index of unique keys holds for one queue alone.

    python -m benchmarks.partitions --runs 2
    python -m benchmarks.partitions --cold 10000000
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.claims import SLICE
from benchmarks.findings import Finding, Samples, medians, ratio, say
from benchmarks.harness import QUEUE, bare_connection, main, old_snapshot, sql

COLD = "cold"
BATCH = 100
LOOK_UPS = 2000

SAME = "LIKE public.pgqueue_jobs INCLUDING ALL EXCLUDING IDENTITY"
HEAP = f"CREATE TABLE {{schema}}.pgqueue_jobs ({SAME})"
PARTITIONED = f"CREATE TABLE {{schema}}.pgqueue_jobs ({SAME} EXCLUDING INDEXES EXCLUDING STORAGE) PARTITION BY "
PART = "CREATE TABLE {schema}.part_{number} PARTITION OF {schema}.pgqueue_jobs "
LAYOUTS = {
    "heap": [HEAP],
    "list": [
        f"{PARTITIONED} LIST (queue)",
        f"{PART} FOR VALUES IN ('{QUEUE}')".replace("{number}", "0"),
        f"{PART} DEFAULT".replace("{number}", "1"),
    ],
    "hash": [
        f"{PARTITIONED} HASH (queue)",
        *(
            f"{PART} FOR VALUES WITH (MODULUS 8, REMAINDER {number})".replace("{number}", str(number))
            for number in range(8)
        ),
    ],
}
INDEXES = (
    "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename = 'pgqueue_jobs' AND indexdef !~ '_pkey'"
)
PARTS = """
SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = '{schema}.pgqueue_jobs'::regclass
"""
OPTIONS = """
SELECT array_to_string(reloptions || 'autovacuum_enabled=off'::text, ',')
FROM pg_class WHERE oid = 'public.pgqueue_jobs'::regclass
"""
INSERT = """
INSERT INTO pgqueue_jobs (id, task, queue, status, run_at)
SELECT nextval('ids'), 'benchmarks.tasks.noop', %s, 'queued', statement_timestamp() FROM generate_series(1, %s)
"""
DELETE = "DELETE FROM pgqueue_jobs WHERE queue = %s AND id = ANY (%s)"
FIND = "SELECT status FROM pgqueue_jobs WHERE id = %s"
HOT_PART = "SELECT tableoid::regclass::text FROM pgqueue_jobs WHERE queue = %s LIMIT 1"
SIZE = "SELECT sum(pg_indexes_size(relid)) / 1e6 FROM pg_stat_user_tables WHERE schemaname = %s"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cold", type=int, default=2_000_000, help="queued jobs of the other queue; default: 2,000,000"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="of each part; default: 5")


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    seen: dict[str, Samples] = {}
    with contextlib.ExitStack() as stack:
        layouts = {name: stack.enter_context(filled(name, options.cold)) for name in LAYOUTS}
        for number in range(1, options.runs + 1):
            for name, layout in layouts.items():
                for what, value in layout.measure(options.seconds).items():
                    seen.setdefault(what, {}).setdefault(name, []).append(value)
            say(f"run {number} of {options.runs}")
    for what, samples in seen.items():
        measure, _, unit = what.rpartition(", ")
        for name in ("list", "hash"):
            both = {"heap": samples["heap"], name: samples[name]}
            yield Finding(
                f"{measure}: {name} to heap", ratio(both, name, "heap"), note=medians(both, unit), samples=both
            )


@contextlib.contextmanager
def filled(name: str, cold: int) -> Iterator["Layout"]:
    schema = f"bench_{name}"
    drop = f"DROP SCHEMA IF EXISTS {schema} CASCADE"
    sql(drop)
    try:
        sql(f"CREATE SCHEMA {schema}")
        sql(f"CREATE SEQUENCE {schema}.ids")
        for statement in LAYOUTS[name]:
            sql(statement.format(schema=schema))
        parts = [part for (part,) in sql(PARTS.format(schema=schema))]
        if parts:
            sql(f"ALTER TABLE {schema}.pgqueue_jobs ADD PRIMARY KEY (id, queue)")
            for (definition,) in sql(INDEXES):
                sql(definition.replace("UNIQUE ", "").replace("public.", f"{schema}."))
        [(storage,)] = sql(OPTIONS)
        for table in parts or [f"{schema}.pgqueue_jobs"]:
            sql(f"ALTER TABLE {table} SET ({storage})")
        with bare_connection(schema=schema) as connection:
            for begin in range(0, cold, SLICE):
                connection.execute(INSERT, (COLD, min(SLICE, cold - begin)))
                say(f"{schema}: {min(begin + SLICE, cold):,} of {cold:,}")
            connection.execute(f"VACUUM ANALYZE {schema}.pgqueue_jobs")
            connection.execute("CHECKPOINT")
            yield Layout(connection, schema, cold, is_partitioned=bool(parts))
    finally:
        sql(drop)


class Layout:
    def __init__(self, connection: Any, schema: str, cold: int, *, is_partitioned: bool) -> None:
        from django_pgqueue.db.queries import sized

        self._connection = connection
        self._schema = schema
        self._cold = cold
        self._claim = sized("claim", BATCH)
        if is_partitioned:  # places of rows are those of one partition
            self._claim = self._claim.replace("WHERE ctid = ANY", "WHERE queue = %(queue)s::text AND ctid = ANY")

    def measure(self, seconds: float) -> dict[str, float]:
        """Return each figure by its name and unit; leave the hot queue empty and vacuumed."""
        hot = self._hot_table()
        seen = self._pass_jobs(seconds, "")
        seen["VACUUM, s"] = self._vacuum(hot)
        with old_snapshot():
            seen |= self._pass_jobs(seconds, ", old snapshot")
        seen["VACUUM, old snapshot, s"] = self._vacuum(hot)
        seen["look-up by id, µs"] = self._look_up()
        [(size,)] = self._connection.execute(SIZE, (self._schema,)).fetchall()
        seen["all indexes, MB"] = float(size)
        return seen

    def _hot_table(self) -> str:
        with self._connection.transaction(force_rollback=True):
            self._connection.execute(INSERT, (QUEUE, 1))
            [(table,)] = self._connection.execute(HOT_PART, (QUEUE,)).fetchall()
        return str(table)

    def _pass_jobs(self, seconds: float, suffix: str) -> dict[str, float]:
        """Pass batches through the hot queue; return jobs in a second, and milliseconds of the last claims."""
        jobs, claims, begun = 0, [], time.perf_counter()
        while time.perf_counter() - begun < seconds:
            self._connection.execute(INSERT, (QUEUE, BATCH))
            claim_begun = time.perf_counter()
            parameters = {"queue": QUEUE, "worker_id": 1, "lease_token": 1}
            rows = self._connection.execute(self._claim, parameters).fetchall()
            claims.append((time.perf_counter() - claim_begun) * 1000)
            ids = [row[2] for row in rows]
            if self._connection.execute(DELETE, (QUEUE, ids)).rowcount != BATCH:
                raise RuntimeError("A batch was not claimed and deleted whole.")
            jobs += BATCH
        last = sorted(claims[-20:])
        return {
            f"hot queue{suffix}, jobs/s": jobs / (time.perf_counter() - begun),
            f"claim at the end{suffix}, ms": last[len(last) // 2],
        }

    def _vacuum(self, table: str) -> float:
        begun = time.perf_counter()
        self._connection.execute(f"VACUUM {table}")
        return time.perf_counter() - begun

    def _look_up(self) -> float:
        """Return the microseconds of finding a cold job by its id."""
        begun = time.perf_counter()
        for number in range(1, LOOK_UPS + 1):
            self._connection.execute(FIND, (number * self._cold // LOOK_UPS,)).fetchone()
        return (time.perf_counter() - begun) / LOOK_UPS * 1e6


if __name__ == "__main__":
    main(sys.modules[__name__])
