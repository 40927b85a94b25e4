"""Measure the cost of a job to the server: bytes of WAL and processor time, from a plain INSERT to the end of a worker.

WAL is counted from a checkpoint on, at the server's ``full_page_writes``. Processor time is that of all processes of
the server, from the start of the worker to its end. The server must run on this machine.

    python -m benchmarks.wal
"""

import argparse
import contextlib
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks.findings import Finding, Samples, at_most, say
from benchmarks.harness import empty, main, settle, sql, worker

FILL = """
INSERT INTO pgqueue_jobs (task, keep) SELECT 'benchmarks.tasks.noop', %s FROM generate_series(1, %s)
"""
SETTLED_SECONDS = 0.5  # in which the worker's last server process ends


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=20_000)


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    for history, bound in ((False, 720), (True, 950)):
        samples: Samples = {"bytes": [], "µs": []}
        for number in range(1, options.runs + 1):
            for name, seen in zip(samples, cost(options.jobs, history=history), strict=True):
                samples[name].append(seen)
            say(f"run {number} of {options.runs}: {samples['bytes'][-1]:.0f} bytes, {samples['µs'][-1]:.1f} µs")
        title, medians = f"history {'on' if history else 'off'}", {k: statistics.median(v) for k, v in samples.items()}
        yield Finding(f"WAL of a job, {title}", medians["bytes"], at_most(bound), unit="bytes", samples=samples)
        yield Finding(f"processor of the server for a job, {title}", medians["µs"], unit="µs")


def cost(jobs: int, *, history: bool) -> tuple[float, float]:
    """Insert jobs and let a worker drain them; return the bytes of WAL and the microseconds of the server for one."""
    empty()
    settle()
    begun = position()
    sql(FILL, history, jobs)
    used = server_seconds()
    with worker("--drain") as command:
        command.wait()
    time.sleep(SETTLED_SECONDS)
    return (position() - begun) / jobs, (server_seconds() - used) / jobs * 1e6


def position() -> int:
    """Return where the WAL ends, in bytes."""
    [(end,)] = sql("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
    return end


def server_seconds() -> float:
    """Return the processor time of the server so far, that of processes that have ended included."""
    [(folder,)] = sql("SHOW data_directory")
    server = psutil.Process(int(Path(folder, "postmaster.pid").read_text().split()[0]))
    seconds = sum(server.cpu_times()[:4])
    for process in server.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            seconds += sum(process.cpu_times()[:2])
    return seconds


if __name__ == "__main__":
    main(sys.modules[__name__])
