"""Measure the cost of keeping history, and of dropping it.

Succeeded jobs are spread over as many days as there are partitions, and the older ones are dropped by the pass that
workers make. Beside it one connection claims jobs and writes them down as finished, and times each such turn, as it did
for some seconds before. Then the same days are filled again, and emptied by one DELETE, followed by the VACUUM that it
asks for.

What keeping costs is measured with real workers, which drain a queue with history and without in turns.

    python -m benchmarks.history                        # 5,000,000 succeeded jobs over 30 partitions, 20 of them go
    python -m benchmarks.history --jobs 0               # only what keeping costs
    python -m benchmarks.history --drained 0            # only what getting rid of it takes
"""

import argparse
import contextlib
import datetime as dt
import secrets
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from typing import Self

from benchmarks import drain
from benchmarks.findings import Finding, alternate, at_least, at_most, figure, medians, percentile, ratio, say
from benchmarks.harness import QUEUE, bare_connection, main, parser, seed, settle, sql

BATCH = 10
PAUSE_SECONDS = 0.002
"""Between turns: about 2,000 jobs a second, a busy queue and not a drain."""

FILL = """
INSERT INTO {name} (
    id, succeeded_at, enqueued_at, run_at, first_started_at, started_at, worker_id, run_seconds, priority, attempts,
    lost, queue, task, backend, args, kwargs, result, metadata, errors
)
SELECT
    -number, at, at, at, at, at, 1, 0.01, 0, 1, 0, 'default', 'benchmarks.tasks.noop', '', jsonb_build_array(number),
    '{{}}', 'null', '{{}}', '[]'
FROM (
    SELECT number, %(begins_at)s::timestamptz + number * interval '1 day' / (%(number)s + 1) AS at
    FROM generate_series(1, %(number)s) AS number
) AS succeeded
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=5_000_000, help="finished; default: 5,000,000")
    parser.add_argument("--partitions", type=int, default=30, help="full days they are spread over; default: 30")
    parser.add_argument("--drop", type=int, default=20, help="of them; default: 20")
    parser.add_argument("--seconds", type=float, default=10.0, help="of claims before; default: 10")
    parser.add_argument("--drained", type=int, default=100_000, help="by workers in each run; default: 100,000")


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    if options.jobs:
        try:
            yield from removing(options)
        finally:
            drop_all()
    if options.drained:
        yield keeping(options)


# To get rid of it


def removing(options: argparse.Namespace) -> Iterator[Finding]:
    from django_pgqueue.db.connections import QueueConnection
    from django_pgqueue.maintenance.partitions import maintain_partitions

    drop_all()
    seed(300_000, "noop")
    fill(options)
    database = QueueConnection("default", "benchmark")
    retention_days = options.partitions - options.drop
    days = f"{options.drop} of {options.partitions} days, {options.jobs:,} succeeded jobs"
    with Claims() as claims:
        calm = claims.during(lambda: time.sleep(options.seconds))
        begun = time.perf_counter()
        dropping = claims.during(
            lambda: must_drop(maintain_partitions(database, retention_days=retention_days), options)
        )
        seconds = time.perf_counter() - begun
    database.close()
    yield Finding(f"drop {days}", seconds, at_most(1.0), unit="s", samples={"seconds": [seconds]})
    yield beside("the drop", calm, dropping)
    yield from deleting(options, days, seconds)


def deleting(options: argparse.Namespace, days: str, drop_seconds: float) -> Iterator[Finding]:
    drop_all()
    seed(300_000, "noop")
    names = fill(options)[: options.drop]
    kept_from = midnight(options.partitions - options.drop)
    with Claims() as claims, bare_connection() as connection:
        connection.execute("SET enable_seqscan = on")
        calm = claims.during(lambda: time.sleep(options.seconds))
        begun = time.perf_counter()
        deletion = claims.during(
            lambda: connection.execute("DELETE FROM pgqueue_succeeded_jobs WHERE succeeded_at < %s", [kept_from])
        )
        seconds = time.perf_counter() - begun
        begun = time.perf_counter()
        connection.execute(f"VACUUM {', '.join(names)}", prepare=False)
        vacuum_seconds = time.perf_counter() - begun
    samples = {"drop": [drop_seconds], "delete": [seconds], "vacuum": [vacuum_seconds]}
    yield Finding(
        f"the same by DELETE, to the drop: {days}",
        seconds / drop_seconds,
        note=f"{figure(seconds)} s, and {figure(vacuum_seconds)} s of VACUUM",
        samples=samples,
    )
    yield beside("the DELETE", calm, deletion)


def beside(what: str, calm: list[float], busy: list[float]) -> Finding:
    """Say how long claims took beside something, and before it."""
    return Finding(
        f"claim of {BATCH} with its ack beside {what}, 99th percentile",
        percentile(busy, 99),
        unit="ms",
        note=f"before {figure(percentile(calm, 99))} ms; medians {figure(statistics.median(calm))} and "
        f"{figure(statistics.median(busy))} ms; longest {figure(max(calm))} and {figure(max(busy))} ms",
        samples={"before": calm, "during": busy},
    )


def must_drop(kept, options: argparse.Namespace) -> None:
    if kept.dropped != options.drop:
        raise RuntimeError(f"{kept.dropped} partitions were dropped instead of {options.drop}.")


def fill(options: argparse.Namespace) -> list[str]:
    """Make a partition for each day before today, with its share of the jobs; return their names, the oldest first."""
    names = []
    for offset in range(options.partitions, 0, -1):
        begins_at = midnight(offset)
        name = f"pgqueue_succeeded_jobs_{begins_at:%Y%m%d}"
        sql(
            f"CREATE TABLE {name} PARTITION OF pgqueue_succeeded_jobs "
            f"FOR VALUES FROM ('{begins_at}') TO ('{midnight(offset - 1)}')"
        )
        share = {"begins_at": begins_at, "number": options.jobs // options.partitions}
        with bare_connection() as connection:
            connection.execute(FILL.format(name=name), share)
        names.append(name)
    say(f"{options.jobs:,} succeeded jobs in {options.partitions} partitions")
    sql(f"VACUUM ANALYZE {', '.join(names)}")
    settle()
    return names


def drop_all() -> None:
    """Leave no partition of a day that is over."""
    from django_pgqueue.db.connections import QueueConnection
    from django_pgqueue.maintenance.partitions import maintain_partitions

    database = QueueConnection("default", "benchmark")
    while maintain_partitions(database, retention_days=0).is_blocked:
        pass
    maintain_partitions(database, retention_days=1)
    database.close()


def midnight(days_ago: int) -> dt.datetime:
    [(today,)] = sql("SELECT (now() AT TIME ZONE 'UTC')::date")
    return dt.datetime.combine(today - dt.timedelta(days_ago), dt.time(), dt.UTC)


class Claims:
    """Claims jobs and writes them down as finished, on a connection and a thread of its own, and times each turn."""

    def __init__(self) -> None:
        self._turns: list[float] = []  # in milliseconds
        self._thread = threading.Thread(target=self._run)
        self._stopping = False
        self._error: Exception | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        self._thread.join()
        if self._error:
            raise self._error

    def during(self, act) -> list[float]:
        """Do something meanwhile; return the times of the turns that ended in it, or of the first one after it."""
        begun = len(self._turns)
        act()
        ended = len(self._turns)
        while len(self._turns) <= ended and self._thread.is_alive():
            time.sleep(PAUSE_SECONDS)
        return self._turns[begun : ended + 1]

    def _run(self) -> None:
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(bare_connection())
            pipeline = stack.enter_context(connection.pipeline())
            try:
                self._take_turns(connection, pipeline)
            except Exception as error:  # noqa: BLE001 - raised where it is waited for
                self._error = error

    def _take_turns(self, connection, pipeline) -> None:
        from django_pgqueue.db.queries import sized, statement

        claim, archive, outcomes = sized("claim", BATCH), statement("archive"), None
        while not self._stopping:
            right = {"queue": QUEUE, "worker_id": 1, "lease_token": secrets.randbits(62) + 1}
            begun = time.perf_counter()
            with connection.transaction():
                if outcomes:
                    connection.execute(archive, outcomes)
                claimed = connection.execute(claim, right)
            pipeline.sync()
            self._turns.append((time.perf_counter() - begun) * 1000)
            if claimed.rowcount < BATCH:
                raise RuntimeError("The queue was drained: seed more jobs.")
            outcomes = drain.successes(claimed.pgresult, right["lease_token"])
            time.sleep(PAUSE_SECONDS)


# To keep it


def keeping(options: argparse.Namespace) -> Finding:
    def rate(*words: str) -> float:
        return drain.worker_rate(parser(drain).parse_args([f"--jobs={options.drained}", *words]))

    samples = alternate(options.runs, off=rate, on=lambda: rate("--history"))
    return Finding(
        f"drain {options.drained:,} noop, history on, to off",
        ratio(samples, "on", "off"),
        at_least(0.7),
        note=medians(samples, "jobs/s"),
        samples=samples,
    )


if __name__ == "__main__":
    main(sys.modules[__name__])
