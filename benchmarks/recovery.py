"""Measure how soon jobs run elsewhere when their worker was killed, and how soon an idle worker is gone.

Jobs that sleep are running in a worker when one of its processes, or all of them and the supervisor, get SIGKILL. The
clock runs from there until the last of them has been claimed again: by the process that replaces the killed one, or by
another worker, which has been there for longer than it needs to judge. The lease is the default one, 30 seconds.

    python -m benchmarks.recovery
"""

import argparse
import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import psutil

from benchmarks.findings import Finding, alternate, at_most
from benchmarks.harness import begin_empty, children, main, seed, sql, wait_until, worker

JOBS = 8
LONG_MICROSECONDS = 600_000_000
SETTLED_SECONDS = 20.0
"""Others judge by sessions only 15 s after they have connected."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """It has none of its own."""


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    for name, measure, most in (
        ("killed process: its jobs run again after", process_killed, 2),
        ("killed command: its jobs run elsewhere after", command_killed, 10),
        ("idle worker: gone after SIGTERM in", idle_stopped, 1),
    ):
        samples = alternate(options.runs, worker=measure)
        yield Finding(name, statistics.median(samples["worker"]), at_most(most), unit="s", samples=samples)


def process_killed() -> float:
    with at_work() as command:
        return seconds_until_claimed_again(lambda: [child.kill() for child in children(command)])


def command_killed() -> float:
    with at_work() as doomed, worker("--shutdown-timeout=0"):
        time.sleep(SETTLED_SECONDS)

        def kill() -> None:
            doomed.suspend()  # or it would see its children die, and send their jobs back itself
            for process in (*doomed.children(recursive=True), doomed):
                process.kill()

        return seconds_until_claimed_again(kill)


def idle_stopped() -> float:
    begin_empty()
    with worker() as command:
        wait_until(lambda: sql("SELECT 1 FROM pgqueue_workers WHERE pid <> 0"), command)
        time.sleep(2.0)
        begun = time.perf_counter()
        command.terminate()
        command.wait()
        return time.perf_counter() - begun


@contextlib.contextmanager
def at_work() -> Iterator[psutil.Popen]:
    """Run a worker that has all jobs running."""
    seed(JOBS, "rest", args=f"'[{LONG_MICROSECONDS}]'")
    with worker("--shutdown-timeout=0", f"--concurrency={JOBS}") as command:
        wait_until(lambda: claimed(1), command)
        yield command


def seconds_until_claimed_again(kill: Callable[[], object]) -> float:
    begun = time.perf_counter()
    kill()
    return wait_until(lambda: claimed(2)) - begun


def claimed(times: int) -> bool:
    """Whether all jobs are running, having been claimed so often."""
    [(running,)] = sql("SELECT count(*) FROM pgqueue_jobs WHERE status = 'running' AND attempts = %s", times)
    return running == JOBS


if __name__ == "__main__":
    main(sys.modules[__name__])
