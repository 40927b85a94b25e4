"""Check that a late tenant with ten jobs gets its turns behind another's backlog; measure the cost of turns.

- a claim from a backlog of one fair key, against one from a plain backlog, each rolled back, in turn;
- the place of the last of ten late jobs behind such a backlog, counted from their commit, while small claims are made;
- enqueueing a job of the key that has the backlog, and of new keys, against a plain one, in turn;
- the same beside an old snapshot, with many entries of claimed jobs before the head;
- a real worker that drains the backlog: how long the ten late jobs take, and how many of the others are done meanwhile.

    python -m benchmarks.fairness
"""

import argparse
import functools
import itertools
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.claims import claim_time, filled
from benchmarks.enqueue import take_turns
from benchmarks.findings import Finding, Samples, alternate, at_most, medians, ratio, say
from benchmarks.harness import QUEUE, bare_connection, empty, main, old_snapshot, settle, sql, wait_until, worker

LATE = 10
BACKLOG = """
INSERT INTO pgqueue_jobs (task, fair_key, keep, run_at)
SELECT 'benchmarks.tasks.noop', 'a', false, statement_timestamp() + number * interval '1 microsecond'
FROM generate_series(1, %s) AS number
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--backlog", type=int, default=1_000_000)
    parser.add_argument("--dead", type=int, default=100_000, help="jobs claimed beside the old snapshot")
    parser.add_argument("--claims", type=int, default=40, help="in each run; default: 40")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=300, help="enqueued one by one in each run")


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    yield from cost_of_claims(options)
    fill(options.backlog)
    yield from turn_of_late_jobs(options)
    yield from cost_of_enqueueing(options)
    yield from beside_an_old_snapshot(options)
    yield from beside_a_worker(options)


def fill(backlog: int) -> None:
    empty()
    sql(BACKLOG, backlog)
    settle()
    say(f"{backlog:,} jobs of one key")


def enqueue_late(key: str) -> list[int]:
    from benchmarks.tasks import noop

    return [job.id for job in noop.using(fair_key=key, keep_result=False).enqueue_many([()] * LATE)]


def turn_of_late_jobs(options: argparse.Namespace) -> Iterator[Finding]:
    from django_pgqueue.db.connections import QueueConnection
    from django_pgqueue.jobs.claim import claim

    database, places = QueueConnection("default", "benchmark"), []
    for number in range(options.runs):
        claim(database, QUEUE, limit=1000, worker_id=1)
        late, claimed = set(enqueue_late(f"late {number}")), []
        while late.difference(claimed):
            claimed += [job.id for job in claim(database, QUEUE, limit=5, worker_id=1)]
        places.append(1.0 + max(claimed.index(job_id) for job_id in late))
    database.close()
    yield Finding(
        f"the last of {LATE} late jobs behind {options.backlog:,} others is claimed as number",
        max(places),
        at_most(50),
        unit="",
        samples={"place": places},
    )


def cost_of_claims(options: argparse.Namespace) -> Iterator[Finding]:
    rows = options.backlog
    with filled("bench_plain", {"queued": rows}) as plain, filled("bench_fair", {"fair": rows}) as fair:
        samples = alternate(
            options.runs, plain=lambda: claim_time(plain, options), fair=lambda: claim_time(fair, options)
        )
    yield Finding(
        f"claim from {options.backlog:,} jobs with a fair key, against as many without",
        ratio(samples, "fair", "plain"),
        at_most(1.1),
        note=medians(samples, "ms"),
        samples=samples,
    )


def cost_of_enqueueing(options: argparse.Namespace) -> Iterator[Finding]:
    samples = enqueue_times(options.runs, options.jobs)
    for kind in ("same", "new"):
        yield Finding(
            f"enqueue a job of the {kind} key, against a plain one",
            ratio(samples, kind, "plain"),
            note=medians(samples, "µs"),
            samples=samples,
        )


def enqueue_times(runs: int, jobs: int) -> Samples:
    """Enqueue plain jobs, jobs of the key that has the backlog, and jobs of new keys in turn; return microseconds."""
    from benchmarks.tasks import noop

    names = itertools.count()
    calls = {
        "plain": (lambda _: noop.using(queue="other").enqueue(), False),
        "same": (lambda _: noop.using(fair_key="a").enqueue(), False),
        "new": (lambda _: noop.using(fair_key=f"new {next(names)}").enqueue(), False),
    }
    samples: Samples = {name: [] for name in calls}
    for _ in range(runs):
        for name, seconds in take_turns(calls, jobs).items():
            samples[name].append(seconds / jobs * 1e6)
    return samples


def beside_an_old_snapshot(options: argparse.Namespace) -> Iterator[Finding]:
    from django_pgqueue.db.connections import QueueConnection
    from django_pgqueue.flow import fairness

    database = QueueConnection("default", "benchmark")
    with old_snapshot():
        drain(database, options.dead)
        unnoted = enqueue_times(1, 30)
        begun = time.perf_counter()
        fairness.advance_fair_keys(database)
        milliseconds = (time.perf_counter() - begun) * 1000
        noted = enqueue_times(options.runs, options.jobs)
    database.close()
    before, after = statistics.median(unnoted["new"]), statistics.median(noted["new"])
    yield Finding(
        f"enqueue a job of a new key after {options.dead:,} claims beside an old snapshot, against a plain one",
        after / statistics.median(noted["plain"]),
        note=f"{after:,.0f} µs; {before:,.0f} µs until a worker notes the head, which takes it {milliseconds:.0f} ms",
        samples=noted,
    )


def drain(database: Any, number: int) -> None:
    from django_pgqueue.jobs import ack
    from django_pgqueue.jobs.claim import claim
    from django_pgqueue.records import Fate, Outcome

    done = 0
    while done < number and (jobs := claim(database, QUEUE, limit=1000, worker_id=1)):
        ack.write(database, [Outcome(job, Fate.SUCCEEDED) for job in jobs])
        done += len(jobs)


def beside_a_worker(options: argparse.Namespace) -> Iterator[Finding]:
    fill(options.backlog)
    samples: Samples = {"ms": [], "others": []}
    with worker("--concurrency=8") as command, bare_connection() as connection:
        wait_until(lambda: count_done(connection) > options.backlog // 50, command)
        for number in range(options.runs):
            done, begun = count_done(connection), time.perf_counter()
            wait_until(functools.partial(are_gone, connection, enqueue_late(f"late {number}")), command)
            samples["ms"].append((time.perf_counter() - begun) * 1000)
            samples["others"].append(float(count_done(connection) - done))
            time.sleep(0.37)
    yield Finding(
        f"{LATE} late jobs are done beside a worker that drains {options.backlog:,}",
        statistics.median(samples["ms"]),
        unit="ms",
        note=f"{statistics.median(samples['others']):,.0f} others meanwhile; {max(samples['ms']):.0f} ms at most",
        samples=samples,
    )


def are_gone(connection: Any, ids: list[int]) -> bool:
    return not connection.execute("SELECT FROM pgqueue_jobs WHERE id = ANY (%s)", [ids]).fetchall()


def count_done(connection: Any) -> int:
    """Return how far the worker has come in the backlog, whose jobs it does in order of their ids."""
    [first] = connection.execute("SELECT coalesce(min(id), 0) FROM pgqueue_jobs").fetchone()
    return first


if __name__ == "__main__":
    main(sys.modules[__name__])
