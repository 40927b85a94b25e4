"""Measure the cost of traces: without OpenTelemetry, without its SDK, and with spans of each job.

Spans go in batches to an exporter that drops them, so what it takes to send them anywhere comes on top. Single jobs are
enqueued in turn. One thread claims, runs and acks batches of no-op jobs in turn, whose metadata holds nothing,
something, or the context of a trace. At last real workers drain such jobs.

    python -m benchmarks.tracing
"""

import argparse
import contextlib
import functools
import os
import sys
import time
from collections.abc import Iterator
from unittest import mock

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from benchmarks.enqueue import take_turns
from benchmarks.findings import Finding, Samples, alternate, medians, ratio, say
from benchmarks.harness import begin_empty, drain_rate, main, settle, worker

BATCH = 500


class Dropped(SpanExporter):
    def export(self, _spans):
        return SpanExportResult.SUCCESS


def provider() -> TracerProvider:
    made = TracerProvider()
    made.add_span_processor(BatchSpanProcessor(Dropped(), max_queue_size=100_000))
    return made


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=100_000, help="drained in each run; 0: none")
    parser.add_argument("--turns", type=int, default=100, help="of claim, run and ack")
    parser.add_argument("--single", type=int, default=1000, help="enqueued one by one in each run")


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    yield from enqueueing(options)
    yield from turning(options)
    if options.jobs:
        yield from draining(options)


def enqueueing(options: argparse.Namespace) -> Iterator[Finding]:
    from benchmarks.tasks import noop
    from django_pgqueue import middleware

    made = provider()

    def absent(_number):
        with mock.patch.object(middleware, "around_inserts", []):
            noop.enqueue()

    def traced(_number):
        with mock.patch.object(trace, "_TRACER_PROVIDER", made):
            noop.enqueue()

    calls = {"absent": (absent, False), "idle": (lambda _: noop.enqueue(), False), "traced": (traced, False)}
    samples: Samples = {name: [] for name in calls}
    for number in range(1, options.runs + 1):
        begin_empty()
        for name, seconds in take_turns(calls, options.single).items():
            samples[name].append(seconds / options.single * 1e6)
        say(f"run {number} of {options.runs}: {medians(samples, 'µs')}")
    yield from compared("single enqueue, time", samples, "µs", "absent", ["idle", "traced"])
    made.shutdown()


WAYS = {"absent": {}, "idle": {}, "metadata": {"tenant": 7}, "traced": {}}
"""How jobs are run, and the metadata that their enqueuer gives them."""


def turning(options: argparse.Namespace) -> Iterator[Finding]:
    """Claim a batch, run it, write it down, in one thread and one way after the other: noise is the same for all."""
    from django_pgqueue.db.connections import QueueConnection

    begin_empty()
    samples: Samples = {way: [] for way in WAYS}
    with contextlib.closing(QueueConnection("default", "benchmark")) as database:
        for number in range(options.turns):
            for way in sorted(WAYS, key=lambda way: (number % 2, way)):
                samples[way].append(turn(database, way))
    say(medians(samples, "µs a job"))
    yield from compared(f"claim, run and ack of {BATCH}, time", samples, "µs", "absent", ["idle", "metadata", "traced"])


def turn(database, way: str) -> float:
    """Return how long one batch takes, in microseconds for each job."""
    from benchmarks.tasks import noop
    from django_pgqueue import middleware
    from django_pgqueue.jobs import ack
    from django_pgqueue.jobs.claim import claim
    from django_pgqueue.jobs.context import CurrentJob
    from django_pgqueue.jobs.executor import run
    from django_pgqueue.jobs.interrupts import ThreadInterrupts

    border = ThreadInterrupts()
    with mock.patch.object(trace, "_TRACER_PROVIDER", provider_of(way)):
        noop.using(metadata=WAYS[way], keep_result=False).enqueue_many([()] * BATCH)
        installed = middleware.around_runs[:]
        if way == "absent":
            middleware.around_runs.clear()
        begun = time.perf_counter()
        jobs = claim(database, "default", limit=BATCH, worker_id=1)
        ack.write(database, [run(noop, job, CurrentJob(job), border) for job in jobs])
        seconds = time.perf_counter() - begun
        middleware.around_runs[:] = installed
        return seconds / len(jobs) * 1e6


@functools.cache
def provider_of(way: str) -> TracerProvider | None:
    return provider() if way == "traced" else None


def draining(options: argparse.Namespace) -> Iterator[Finding]:
    samples = alternate(options.runs, **{way: functools.partial(rate, options, way) for way in WAYS})
    yield from compared(f"drain of {options.jobs:,}, rate", samples, "jobs/s", "absent", ["idle", "metadata", "traced"])


def compared(what: str, samples: Samples, unit: str, counterpart: str, names: list[str]) -> Iterator[Finding]:
    for name in names:
        yield Finding(
            f"{what}: {name} to {counterpart}",
            ratio(samples, name, counterpart),
            note=medians(samples, unit),
            samples=samples,
        )


def rate(options: argparse.Namespace, way: str) -> float:
    """Enqueue jobs, then let a worker drain them that was started in this way; return jobs per second."""
    from benchmarks.tasks import noop

    begin_empty()
    with mock.patch.object(trace, "_TRACER_PROVIDER", provider_of(way)):
        noop.using(metadata=WAYS[way], keep_result=False).enqueue_many([()] * options.jobs)
    settle()
    asked = {"TRACING": "idle" if way == "metadata" else way}
    options_of_worker = ("--settings=benchmarks.traced", "--processes=1", "--concurrency=8")
    with mock.patch.dict(os.environ, asked), worker(*options_of_worker) as command:
        return drain_rate(command, options.jobs)


if __name__ == "__main__":
    main(sys.modules[__name__])
