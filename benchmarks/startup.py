"""Measure the start of a worker in a project with Django's default apps: time to its first job, and memory.

The counterparts are ``manage.py check``, which imports the same project, and ``manage.py shell`` for the memory.
Times are from the exec of the command: to the first line of a job that was there before, and to the end of the check.

    python -m benchmarks.startup
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.findings import Finding, alternate, at_most, medians, ratio
from benchmarks.harness import MANAGE, children, main, seed, worker
from benchmarks.latency import ear

MANY = 8
MIB = 1024 * 1024
SHELL = "import os; print(*(open('/proc/self/statm').read().split()[1:2]), os.sysconf('SC_PAGE_SIZE'))"
SITE = os.environ | {"BENCHMARKS_SETTINGS": "benchmarks.site"}
"""With Django's default apps, unlike other benchmarks: what people start has them."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--processes", type=int, default=MANY, help=f"of the larger worker; default: {MANY}")


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    times = alternate(
        options.runs,
        check=check_time,
        worker=lambda: start_time(1),
        many=lambda: start_time(options.processes),
    )
    for name, bound, title in (("worker", 1.5, "1 process"), ("many", 2, f"{options.processes} processes")):
        yield Finding(
            f"command to first job, {title}, to check",
            *(ratio(times, name, "check"), at_most(bound)),
            note=medians({"check": times["check"], name: times[name]}, "ms"),
            samples=times,
        )
    sizes = alternate(options.runs, shell=shell_size, child=child_size)
    note = medians(sizes, "MiB")
    yield Finding(
        "resident memory of a process", ratio(sizes, "child", "shell"), at_most(1.2), note=note, samples=sizes
    )


def check_time() -> float:
    """Return the milliseconds of ``manage.py check``."""
    begun = time.monotonic_ns()
    subprocess.run([sys.executable, str(MANAGE), "check"], env=SITE, stdout=subprocess.DEVNULL, check=True)
    return (time.monotonic_ns() - begun) / 1e6


def start_time(processes: int) -> float:
    """Return the milliseconds from the start of a worker to that of its first job."""
    with ear() as (address, hear):
        seed(1, "report_start", args=f"jsonb_build_array('{address}')")
        begun = time.monotonic_ns()
        with worker(f"--processes={processes}", environment=SITE):
            return (hear()["started"] - begun) / 1e6


def shell_size() -> float:
    """Return the MiB of a command that has set Django up and does nothing."""
    command = [sys.executable, str(MANAGE), "shell", "-c", SHELL]
    shell = subprocess.run(command, env=SITE, stdout=subprocess.PIPE, text=True, check=True)
    pages, page_bytes = map(int, shell.stdout.split()[-2:])
    return pages * page_bytes / MIB


def child_size() -> float:
    """Return the MiB of a worker process after its first job."""
    with ear() as (address, hear):
        seed(1, "report_start", args=f"jsonb_build_array('{address}')")
        with worker(environment=SITE) as command:
            hear()
            return statistics.median([process.memory_info().rss for process in children(command)]) / MIB


if __name__ == "__main__":
    main(sys.modules[__name__])
