"""Measure the cost of captured log lines: workers drain jobs that log ten lines each.

The lines are not made, as below the level of their logger; or written, by a formatter and a stream handler to a file
that drops them, as projects have for stderr; or written and captured, too. With
``--quiet`` the jobs log nothing, and the counterpart is a worker that captures nothing: what capturing costs others.

    python -m benchmarks.logs
    python -m benchmarks.logs --quiet
"""

import argparse
import functools
import os
import sys
from collections.abc import Iterator
from unittest import mock

from benchmarks.findings import Finding, alternate, at_least, medians, ratio
from benchmarks.harness import drain_rate, main, seed, worker

LINES = 10


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--quiet", action="store_true", help="jobs that log nothing")
    parser.add_argument("--drop", action="store_true", help="keep no succeeded jobs, so that nothing is stored")


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    ways = ("silent", "captured") if options.quiet else ("silent", "written", "captured")
    samples = alternate(options.runs, **{way: functools.partial(rate, options, way) for way in ways})
    title = f"drain of {options.jobs:,} with {'no' if options.quiet else LINES} lines each"
    for counterpart in ways[:-1]:
        target = at_least(0.98) if options.quiet else at_least(0.85) if counterpart == "written" else None
        yield Finding(
            f"{title}: captured to {counterpart}",
            ratio(samples, "captured", counterpart),
            target,
            note=medians(samples, "jobs/s"),
            samples=samples,
        )


def rate(options: argparse.Namespace, way: str) -> float:
    seed(options.jobs, "noop" if options.quiet else "chat", keep=not options.drop)
    chosen = ("--settings=benchmarks.logged", "--processes=1", "--concurrency=8")
    with mock.patch.dict(os.environ, LOGS=way), worker(*chosen) as command:
        return drain_rate(command, options.jobs)


if __name__ == "__main__":
    main(sys.modules[__name__])
