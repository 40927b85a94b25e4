"""Check that a worker process does not grow: its resident memory while it runs a million jobs.

A run's figure is the largest distance, up or down, from where it was after the first 50,000 jobs, as a part of that.

    python -m benchmarks.memory
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator

from benchmarks.findings import Finding, Samples, at_most, say
from benchmarks.harness import children, main, seed, sql, wait_until, worker

LOOK_SECONDS = 0.25
MIB = 1024 * 1024


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--warm-up", type=int, default=50_000, metavar="JOBS", help="not counted; default: 50,000")
    parser.add_argument("--task", choices=["noop", "anoop"], default="noop")


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    samples: Samples = {}
    for number in range(1, options.runs + 1):
        sizes = samples[f"run {number}, MiB"] = resident_sizes(options)
        say(f"run {number} of {options.runs}: {sizes[0]:.1f} MiB, then {min(sizes):.1f} to {max(sizes):.1f}")
    yield Finding(
        f"memory of a process over {options.jobs:,} {options.task} jobs, change after {options.warm_up:,}",
        statistics.median(map(largest_change, samples.values())) * 100,
        at_most(10),
        unit="%",
        note=f"{statistics.median(sizes[0] for sizes in samples.values()):.1f} MiB",
        samples=samples,
    )


def largest_change(sizes: list[float]) -> float:
    return max(abs(size / sizes[0] - 1) for size in sizes)


def resident_sizes(options: argparse.Namespace) -> list[float]:
    """Let a worker run the jobs; return the size of its process, in MiB, from the end of the warm-up on."""
    seed(options.jobs, options.task)
    sizes = []
    with worker() as command:
        wait_until(lambda: is_gone(options.warm_up), command)
        [process] = children(command)
        while not is_gone(options.jobs):
            sizes.append(process.memory_info().rss / MIB)
            time.sleep(LOOK_SECONDS)
    return sizes


def is_gone(job_id: int) -> bool:
    return not sql("SELECT 1 FROM pgqueue_jobs WHERE id = %s", job_id)


if __name__ == "__main__":
    main(sys.modules[__name__])
