"""Measure what workflows cost: members against plain jobs, many into one, one into many, the hops of a chain.

- a worker drains members of one stage, and plain jobs, in turn: the ratio of their rates. Behind the members is a call
  that runs once they have succeeded, whose start is part of the time;
- a stage of as many members opens behind one, against plain jobs again;
- a chain: the median time from the success of one member to the start of the next;
- stages of a few members, that several processes end: how long after its last outcome the next stage opens;
- with --pinned, members and plain jobs in turn while a session keeps a snapshot, so that no dead entry can be removed;
- with --idle, open workflows whose members are due tomorrow: the processor time of a worker and its session for
  maintenance, less that without them;
- with --statements, each statement alone on one connection: what a member costs over a plain job, and to be opened.

    python -m benchmarks.workflows
    python -m benchmarks.workflows --jobs 0 --hops 0 --processes 8    # only how late stages open
    python -m benchmarks.workflows --pinned
    python -m benchmarks.workflows --jobs 0 --hops 0 --stages 0 --idle 10000
    python -m benchmarks.workflows --jobs 0 --hops 0 --stages 0 --statements 20000
"""

import argparse
import contextlib
import functools
import itertools
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import psutil

from benchmarks.findings import Finding, alternate, at_least, at_most, medians, percentile, ratio, say
from benchmarks.harness import (
    QUEUE,
    bare_connection,
    begin_empty,
    drain_rate,
    main,
    old_snapshot,
    seed,
    settle,
    sql,
    wait_until,
    worker,
)
from benchmarks.idle import REPORTED_SECONDS, cpu_seconds

MILLISECONDS = 1000


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=100_000, help="members, and plain jobs; 0: not measured")
    parser.add_argument("--hops", type=int, default=300, help="of the chain; 0: not measured")
    parser.add_argument("--stages", type=int, default=200, help="that several processes end; 0: not measured")
    parser.add_argument("--pinned", action="store_true", help="drain with an old snapshot too")
    parser.add_argument("--idle", type=int, default=0, help="open workflows of an idle worker")
    parser.add_argument("--statements", type=int, default=0, help="jobs for which each statement is measured alone")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run of an idle worker; default: 20")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--concurrency", type=int, default=8)


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    if options.jobs:
        yield from drains(options, contextlib.nullcontext, into=0.9)
    if options.jobs and options.pinned:
        yield from drains(options, old_snapshot, into=0.8, beside=", with an old snapshot")
    if options.hops:
        hops = [hop_milliseconds(options) for _ in range(options.runs)]
        yield Finding(f"hop of a chain of {options.hops}, median", statistics.median(hops), at_most(3), unit="ms")
    if options.stages:
        late = [close_milliseconds(options) for _ in range(options.runs)]
        title = f"stage opens after the last outcome before it, {options.processes} processes, 99 %"
        yield Finding(title, statistics.median(late), at_most(50), unit="ms")
    if options.idle:
        cpu = alternate(options.runs, none=lambda: idle_cost(options, 0), open=lambda: idle_cost(options, options.idle))
        more = statistics.median(cpu["open"]) - statistics.median(cpu["none"])
        yield Finding(
            f"{options.idle:,} open workflows: processor",
            more,
            at_most(2),
            unit="% of a core",
            note=medians(cpu, "%"),
            samples=cpu,
        )
    if options.statements:
        yield from statements(options)


def statements(options: argparse.Namespace) -> Iterator[Finding]:
    """Compare the statements of members with those of plain jobs, by the fastest run of each."""
    measures = {kind: functools.partial(statement_costs, kind, options.statements) for kind in ("plain", "members")}
    costs = alternate_costs(options.runs, measures)
    for step in ("insert", "claim", "finish"):
        own = {kind: costs[kind, step] for kind in measures}
        cost = min(own["members"]) / min(own["plain"])
        note = ", ".join(f"{kind} {min(seconds):.1f}" for kind, seconds in own.items()) + " µs"
        yield Finding(f"{step} a member, to a plain job", cost, note=note, samples=own)
    opening = {"members": costs["members", "open"]}
    yield Finding("open a member", min(opening["members"]), unit="µs", samples=opening)


def alternate_costs(
    runs: int, measures: dict[str, Callable[[], dict[str, float]]]
) -> dict[tuple[str, str], list[float]]:
    """Return the samples of each measure and step, from runs in turn."""
    samples: dict[tuple[str, str], list[float]] = {}
    for _ in range(runs):
        for kind, measure in measures.items():
            for step, cost in measure().items():
                samples.setdefault((kind, step), []).append(cost)
    return samples


def statement_costs(kind: str, jobs: int) -> dict[str, float]:
    """Return the microseconds for each job of what inserts, opens, claims and finishes it, on one connection."""
    from benchmarks.tasks import noop
    from django_pgqueue import chain, enqueue_many
    from django_pgqueue.db.connections import number_array
    from django_pgqueue.db.queries import statement

    seconds: Counter[str] = Counter()

    @contextlib.contextmanager
    def timed(step: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        seconds[step] += time.perf_counter() - begun

    begin_empty()
    calls = [noop.using(keep_result=False).bind()] * jobs
    with timed("insert"):
        if kind == "plain":
            enqueue_many(calls)
        else:
            chain(calls[0], calls).enqueue()
    settle()
    with bare_connection() as connection:
        if kind == "members":
            connection.execute("DELETE FROM pgqueue_jobs WHERE status <> 'blocked'")
            opening = "UPDATE pgqueue_stages SET status = 'open', moves_after = 0 WHERE status = 'blocked' RETURNING id"
            [stage_id] = connection.execute(opening).fetchone()
            with timed("open"):
                while connection.execute("SELECT FROM pgqueue_move_members(%s)", [stage_id]).fetchall():
                    pass
        for token in itertools.count(1):
            claiming = {"lease_token": token, "worker_id": 1, "queue": QUEUE}
            with timed("claim"):
                ids = [row[2] for row in connection.execute(statement("claim"), claiming)]
            if not ids:
                break
            with timed("finish"):
                finishing = {"ids": number_array(ids), "lease_tokens": number_array([token] * len(ids))}
                connection.execute(statement("finish"), finishing)
    return {step: spent / jobs * 1_000_000 for step, spent in seconds.items()}


def drains(
    options: argparse.Namespace,
    around: Callable[[], AbstractContextManager[None]],
    *,
    into: float,
    beside: str = "",
) -> Iterator[Finding]:
    """Drain plain jobs, members and members that one opens in turn, each in a context."""

    def measure(rate: Callable[[argparse.Namespace, Callable[[], AbstractContextManager[None]]], float]) -> Any:
        return lambda: rate(options, around)

    samples = alternate(
        options.runs, plain=measure(plain_rate), members=measure(members_rate), opened=measure(opened_rate)
    )
    for name, title, least in (
        ("members", f"drain {options.jobs:,} members into one, to plain jobs{beside}", into),
        ("opened", f"drain {options.jobs:,} members that one opens, to plain jobs{beside}", 0.8),
    ):
        own = {one: samples[one] for one in ("plain", name)}
        yield Finding(title, ratio(own, name, "plain"), at_least(least), note=medians(own, "jobs/s"), samples=own)


def plain_rate(options: argparse.Namespace, around: Callable[[], AbstractContextManager[None]]) -> float:
    """Return plain jobs per second."""
    seed(options.jobs, "noop", keep=False)
    with around(), one_process(options) as command:
        return drain_rate(command, options.jobs)


def members_rate(options: argparse.Namespace, around: Callable[[], AbstractContextManager[None]]) -> float:
    """Return members per second, up to the end of the workflow."""
    from benchmarks.tasks import noop
    from django_pgqueue import batch

    begin_empty()
    member = noop.using(keep_result=False).bind()
    handle = batch([member] * options.jobs, then=member).enqueue()
    settle()
    with around(), one_process(options) as command:
        rate = drain_rate(command, options.jobs)
        wait_until(lambda: handle.status() == "succeeded", command)
    return rate


def opened_rate(options: argparse.Namespace, around: Callable[[], AbstractContextManager[None]]) -> float:
    """Return members per second, from the success of the one that opens them."""
    from benchmarks.tasks import noop
    from django_pgqueue import chain

    begin_empty()
    member = noop.using(keep_result=False).bind()
    handle = chain(member, [member] * (options.jobs - 1)).enqueue()
    settle()
    with around(), one_process(options) as command:
        rate = drain_rate(command, options.jobs)
        wait_until(lambda: handle.status() == "succeeded", command)
    return rate


def hop_milliseconds(options: argparse.Namespace) -> float:
    """Return the median time from the success of one member of a chain to the start of the next."""
    from benchmarks.tasks import noop
    from django_pgqueue import chain

    begin_empty()
    with one_process(options) as command:
        handle = chain(*[noop.bind()] * options.hops).enqueue()
        wait_until(lambda: handle.status() == "succeeded", command)
    rows = sql(
        "SELECT date_part('epoch', started_at - lag(succeeded_at) OVER (ORDER BY id))"
        " FROM pgqueue_succeeded_jobs ORDER BY id OFFSET 1"
    )
    return statistics.median(seconds for (seconds,) in rows) * MILLISECONDS


def close_milliseconds(options: argparse.Namespace) -> float:
    """Return how long after its last outcome a stage lets the next one open: 99 % of them are faster."""
    from benchmarks.tasks import noop
    from django_pgqueue import batch

    begin_empty()
    handles = [batch([noop.bind()] * 10, then=noop.bind()).enqueue() for _ in range(options.stages)]
    with worker(f"--processes={options.processes}", f"--concurrency={options.concurrency}") as command:
        wait_until(lambda: not sql("SELECT 1 FROM pgqueue_workflows WHERE status = 'open' LIMIT 1"), command)
    rows = sql(
        "SELECT date_part('epoch', next.opened_at - max(job.succeeded_at))"
        " FROM pgqueue_succeeded_jobs AS job JOIN pgqueue_stages AS next ON next.id = job.stage_id + 2"
        " GROUP BY next.id, next.opened_at"
    )
    if len(rows) != len(handles):
        say(f"{len(rows)} of {len(handles)} stages were found")
    return percentile((seconds for (seconds,) in rows), 99) * MILLISECONDS


def idle_cost(options: argparse.Namespace, workflows: int) -> float:
    """Return which part of a core a worker and its session for maintenance take beside open workflows, in percent."""
    begin_empty()
    sql("INSERT INTO pgqueue_workflows (name) SELECT 'idle' FROM generate_series(1, %s)", workflows)
    sql(
        "INSERT INTO pgqueue_stages (id, name, status, members) SELECT id << 16, 'members', 'open', 1"
        " FROM pgqueue_workflows"
    )
    sql(
        "INSERT INTO pgqueue_jobs (task, queue, status, run_at, stage_id)"
        " SELECT 'benchmarks.tasks.noop', 'default', 'scheduled', now() + interval '1 day', id << 16"
        " FROM pgqueue_workflows"
    )
    settle()
    with one_process(options) as command:
        wait_until(lambda: len(maintenance_pids()) == 1, command)
        time.sleep(REPORTED_SECONDS)
        session = psutil.Process(*maintenance_pids())
        begun, used = time.perf_counter(), cpu_seconds(command) + sum(session.cpu_times()[:2])
        time.sleep(options.seconds)
        used = cpu_seconds(command) + sum(session.cpu_times()[:2]) - used
        return used / (time.perf_counter() - begun) * 100


def maintenance_pids() -> list[int]:
    return [pid for (pid,) in sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'pgqueue maintenance'")]


def one_process(options: argparse.Namespace) -> AbstractContextManager[Any]:
    return worker("--processes=1", f"--concurrency={options.concurrency}")


if __name__ == "__main__":
    main(sys.modules[__name__])
