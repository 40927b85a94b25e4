"""Measure the cost of a job to the server: bytes of WAL and processor time, from a plain INSERT to the end of a worker.

WAL is counted from a checkpoint on, at the server's ``full_page_writes``. Processor time is that of all processes of
the server, from the start of the worker to its end. The server must run on this machine.

    python -m benchmarks.wal
    python -m benchmarks.wal --records  # what the bytes are: by pg_waldump, of the embedded server or on the PATH
"""

import argparse
import contextlib
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks.findings import Finding, Samples, at_most, say
from benchmarks.harness import empty, main, settle, sql, worker

FILL = """
INSERT INTO pgqueue_jobs (task, keep) SELECT 'benchmarks.tasks.noop', %s FROM generate_series(1, %s)
"""
SETTLED_SECONDS = 0.5  # in which the worker's last server process ends
RECORD = re.compile(r"rmgr: (\S+) +len \(rec/tot\): +\d+/ *(\d+),.* desc: (\w+)(?:.*? rel \d+/\d+/(\d+))?")
"""A line of pg_waldump: resource manager, bytes, kind, and the file of the table or index."""

SMALLEST = 1.0  # bytes a job of a kind of record that is printed


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--records", action="store_true", help="print the bytes of each kind of record instead")


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    for history, bound in ((False, 720), (True, 950)):
        if options.records:
            begun = position()
            cost(options.jobs, history=history)
            say(f"History {'on' if history else 'off'}: bytes a job, of which records a job")
            for record, size, count in records(begun, position(), options.jobs):
                say(f"{size:8.1f} {count:6.2f}  {record}")
            continue
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


def records(begun: int, ended: int, jobs: int) -> list[tuple[str, float, float]]:
    """Return each kind of record with its bytes and its number for one job, the largest first."""
    names = dict(sql("SELECT pg_relation_filenode(oid)::text, relname FROM pg_class WHERE relname LIKE 'pgqueue%%'"))
    span = [f"--start={begun >> 32:X}/{begun & 0xFFFFFFFF:X}", f"--end={ended >> 32:X}/{ended & 0xFFFFFFFF:X}"]
    dump = subprocess.run(
        [pg_waldump(), f"--path={data_directory() / 'pg_wal'}", *span], capture_output=True, text=True, check=True
    )
    sizes, counts = Counter[str](), Counter[str]()
    for line in filter(None, map(RECORD.match, dump.stdout.splitlines())):
        record = f"{line[1]} {line[3]} {names.get(line[4], '')}"
        sizes[record] += int(line[2])
        counts[record] += 1
    shares = ((record, size / jobs, counts[record] / jobs) for record, size in sizes.most_common())
    return [share for share in shares if share[1] >= SMALLEST]


def pg_waldump() -> str:
    """Return the program beside the server's own, or that on the PATH."""
    beside = Path(server().exe()).with_name("pg_waldump")
    return str(beside) if beside.exists() else shutil.which("pg_waldump") or sys.exit("pg_waldump was not found.")


def server() -> psutil.Process:
    return psutil.Process(int((data_directory() / "postmaster.pid").read_text().split()[0]))


def data_directory() -> Path:
    [(folder,)] = sql("SHOW data_directory")
    return Path(folder)


def server_seconds() -> float:
    """Return the processor time of the server so far, that of processes that have ended included."""
    seconds: float = sum(server().cpu_times()[:4])
    for process in server().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            seconds += sum(process.cpu_times()[:2])
    return seconds


if __name__ == "__main__":
    main(sys.modules[__name__])
