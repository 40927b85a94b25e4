"""The curves: jobs/s of the bare loop over the size of its batch, and of a worker over its number of processes.

python -m benchmarks.sweep --json sweep.json
"""

import argparse
import statistics
import sys
from collections.abc import Iterator

from benchmarks import drain
from benchmarks.findings import Finding, alternate
from benchmarks.harness import main

BATCHES = (1, 5, 10, 20, 50, 100, 200, 500, 1000)
PROCESSES = (1, 2, 3, 4)
SMALL = 10
"""Batches below this drain a tenth of the jobs: they are that much slower."""


def add_options(parser: argparse.ArgumentParser) -> None:
    drain.add_options(parser)
    parser.set_defaults(jobs=100_000)


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    batches = alternate(options.runs, **{str(size): lambda size=size: batch_rate(options, size) for size in BATCHES})
    yield best("bare loop over batch size", batches)
    processes = alternate(options.runs, **{str(count): lambda count=count: rate(options, count) for count in PROCESSES})
    yield best("worker over processes", processes)


def batch_rate(options: argparse.Namespace, size: int) -> float:
    jobs = options.jobs // 10 if size < SMALL else options.jobs
    return drain.bare_rate(argparse.Namespace(**vars(options) | {"batch": size, "jobs": jobs}))


def rate(options: argparse.Namespace, processes: int) -> float:
    return drain.worker_rate(argparse.Namespace(**vars(options) | {"processes": processes}))


def best(measure: str, samples: dict[str, list[float]]) -> Finding:
    rates = {name: statistics.median(seen) for name, seen in samples.items()}
    note = ", ".join(f"{name}: {rate:,.0f}" for name, rate in rates.items())
    return Finding(measure, max(rates.values()), unit="jobs/s at best", note=note, samples=samples)


if __name__ == "__main__":
    main(sys.modules[__name__])
