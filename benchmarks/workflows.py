"""Measure what workflows cost: members against plain jobs, many into one, one into many, the hops of a chain.

- a worker drains members of one stage, and plain jobs, in turn: the ratio of their rates. Behind the members is a call
  that runs once they have succeeded, whose start is part of the time;
- a stage of as many members opens behind one, against plain jobs again;
- a chain: the median time from the success of one member to the start of the next;
- stages of a few members, that several processes end: how long after its last outcome the next stage opens.

    python -m benchmarks.workflows
"""

import argparse
import statistics
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from benchmarks.findings import Finding, alternate, at_least, at_most, medians, percentile, ratio, say
from benchmarks.harness import begin_empty, drain_rate, main, seed, settle, sql, wait_until, worker

MILLISECONDS = 1000


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--hops", type=int, default=300, help="of the chain")
    parser.add_argument("--stages", type=int, default=200, help="that several processes end")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--concurrency", type=int, default=8)


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    measures = {"plain": lambda: plain_rate(options), "members": lambda: members_rate(options)}
    samples = alternate(options.runs, **measures, opened=lambda: opened_rate(options))
    for name, title, least in (
        ("members", f"drain {options.jobs:,} members into one, to plain jobs", 0.9),
        ("opened", f"drain {options.jobs:,} members that one opens, to plain jobs", 0.8),
    ):
        own = {one: samples[one] for one in ("plain", name)}
        yield Finding(title, ratio(own, name, "plain"), at_least(least), note=medians(own, "jobs/s"), samples=own)
    hops = [hop_milliseconds(options) for _ in range(options.runs)]
    yield Finding(f"hop of a chain of {options.hops}, median", statistics.median(hops), at_most(3), unit="ms")
    late = [close_milliseconds(options) for _ in range(options.runs)]
    title = f"stage opens after the last outcome before it, {options.processes} processes, 99 %"
    yield Finding(title, statistics.median(late), at_most(50), unit="ms")


def plain_rate(options: argparse.Namespace) -> float:
    """Return plain jobs per second."""
    seed(options.jobs, "noop", keep=False)
    with one_process(options) as command:
        return drain_rate(command, options.jobs)


def members_rate(options: argparse.Namespace) -> float:
    """Return members per second, up to the end of the workflow."""
    from benchmarks.tasks import noop
    from django_pgqueue import batch

    begin_empty()
    member = noop.using(keep_result=False).bind()
    handle = batch([member] * options.jobs, then=member).enqueue()
    settle()
    with one_process(options) as command:
        rate = drain_rate(command, options.jobs)
        wait_until(lambda: handle.status() == "succeeded", command)
    return rate


def opened_rate(options: argparse.Namespace) -> float:
    """Return members per second, from the success of the one that opens them."""
    from benchmarks.tasks import noop
    from django_pgqueue import chain

    begin_empty()
    member = noop.using(keep_result=False).bind()
    handle = chain(member, [member] * (options.jobs - 1)).enqueue()
    settle()
    with one_process(options) as command:
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


def one_process(options: argparse.Namespace) -> AbstractContextManager[Any]:
    return worker("--processes=1", f"--concurrency={options.concurrency}")


if __name__ == "__main__":
    main(sys.modules[__name__])
