"""What traces cost: where OpenTelemetry is not installed, where it has no SDK, and where each job has its spans.

Spans go in batches to an exporter that drops them, so what it takes to send them anywhere comes on top. Single jobs are
enqueued in turn; then real workers drain the same number of no-op jobs, whose metadata holds nothing, something, or the
context of a trace.

    python -m benchmarks.tracing
"""

import argparse
import os
import sys
from collections.abc import Iterator
from unittest import mock

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from benchmarks.enqueue import take_turns
from benchmarks.findings import Finding, Samples, alternate, medians, ratio, say
from benchmarks.harness import begin_empty, drain_rate, main, settle, worker


class Dropped(SpanExporter):
    def export(self, _spans):
        return SpanExportResult.SUCCESS


def provider() -> TracerProvider:
    made = TracerProvider()
    made.add_span_processor(BatchSpanProcessor(Dropped(), max_queue_size=100_000))
    return made


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=100_000, help="drained in each run")
    parser.add_argument("--single", type=int, default=1000, help="enqueued one by one in each run")


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    yield from enqueueing(options)
    yield from draining(options)


def enqueueing(options: argparse.Namespace) -> Iterator[Finding]:
    from benchmarks.tasks import noop
    from django_pgqueue.base import hooks

    made = provider()

    def absent(_number):
        with mock.patch.object(hooks, "around_inserts", []):
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


def draining(options: argparse.Namespace) -> Iterator[Finding]:
    ways = {"absent": {}, "idle": {}, "metadata": {"tenant": 7}, "traced": {}}
    samples = alternate(
        options.runs, **{way: lambda way=way, given=given: rate(options, way, given) for way, given in ways.items()}
    )
    yield from compared(f"drain of {options.jobs:,}, rate", samples, "jobs/s", "absent", ["idle", "metadata", "traced"])


def compared(what: str, samples: Samples, unit: str, counterpart: str, names: list[str]) -> Iterator[Finding]:
    for name in names:
        yield Finding(
            f"{what}: {name} to {counterpart}",
            ratio(samples, name, counterpart),
            note=medians(samples, unit),
            samples=samples,
        )


def rate(options: argparse.Namespace, way: str, metadata: dict[str, int]) -> float:
    """Enqueue jobs, then let a worker drain them that was started in this way; return jobs per second."""
    from benchmarks.tasks import noop
    from django_pgqueue import enqueue_many

    begin_empty()
    with mock.patch.object(trace, "_TRACER_PROVIDER", provider() if way == "traced" else None):
        enqueue_many(noop.using(metadata=metadata, keep=False), [()] * options.jobs)
    settle()
    asked = {"TRACING": "idle" if way == "metadata" else way}
    options_of_worker = ("--settings=benchmarks.traced", "--processes=1", "--concurrency=8")
    with mock.patch.dict(os.environ, asked), worker(*options_of_worker) as command:
        return drain_rate(command, options.jobs)


if __name__ == "__main__":
    main(sys.modules[__name__])
