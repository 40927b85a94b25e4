"""Measure the cost of concurrency keys; check that they hold while workers are killed.

The cost is a ratio: how fast jobs are drained of which each key lets one run at a time, to the same jobs without keys.

Then handlers write down when they begin, and take an exclusive row as long as they run, while processes are killed at
random, and once a whole command. Never may two run for one key, none may begin before those that come before it, and in
the end none may be left.

    python -m benchmarks.keys
    python -m benchmarks.keys --measure kills
"""

import argparse
import contextlib
import random
import sys
import time
from collections.abc import Iterator

import psutil

from benchmarks.findings import Finding, alternate, at_least, at_most, medians, ratio, say
from benchmarks.harness import children, drain_rate, main, seed, sql, worker

KILL_SECONDS = (1.0, 3.0)
"""A process is killed after a time between these, again and again."""

LONGEST_SECONDS = 300.0

DISORDER = """
SELECT
    count(*) FILTER (WHERE is_breach),
    count(*) FILTER (WHERE job_id < before),
    count(*) FILTER (WHERE job_id = before)
FROM (SELECT *, lag(job_id) OVER (PARTITION BY key ORDER BY id) AS before FROM benchmarks_start) AS start
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--keys", type=int, default=500)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--measure", choices=["cost", "kills"], help="only one of the two")


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    if options.measure != "kills":
        yield from cost(options)
    if options.measure != "cost":
        yield while_killed(options)


def cost(options: argparse.Namespace) -> Iterator[Finding]:
    samples = alternate(
        options.runs, plain=lambda: rate(options, keys=0), keyed=lambda: rate(options, keys=options.keys)
    )
    title = f"drain {options.jobs:,} jobs of {options.keys} concurrency keys, {options.processes} processes"
    note = medians(samples, "jobs/s")
    yield Finding(title, ratio(samples, "keyed", "plain"), at_least(0.3), note=note, samples=samples)


def rate(options: argparse.Namespace, *, keys: int) -> float:
    seed(options.jobs, "noop", keep=False, keys=keys)
    with worker(f"--processes={options.processes}") as command:
        return drain_rate(command, options.jobs)


def while_killed(options: argparse.Namespace) -> Finding:
    seed(
        options.jobs,
        "exclusive",
        keep=False,
        args=f"jsonb_build_array('key ' || number %% {options.keys})",
        keys=options.keys,
    )
    with contextlib.ExitStack() as stack:
        commands = [stack.enter_context(worker(f"--processes={options.processes // 2}")) for _ in range(2)]
        kills = kill_until_drained(commands, stack, options)
    [(breaches, disorders, again)] = sql(DISORDER)
    [(dead, done)] = sql(
        "SELECT (SELECT count(*) FROM pgqueue_dead_jobs), (SELECT count(DISTINCT job_id) FROM benchmarks_start)"
    )
    return Finding(
        f"{options.jobs:,} jobs of {options.keys} keys while workers are killed: two at once, or out of order",
        *(breaches + disorders, at_most(0), ""),
        note=f"{kills} kills, {again} runs again, {done:,} jobs run, {dead} dead, 0 left",
    )


def kill_until_drained(commands: list[psutil.Popen], stack: contextlib.ExitStack, options: argparse.Namespace) -> int:
    """Kill processes at random, and one command when half is done, until no job is left; return how many kills.

    Raises:
        RuntimeError: jobs are left that no worker runs.
    """
    kills, left, deadline = 0, options.jobs, time.monotonic() + LONGEST_SECONDS
    while left and time.monotonic() < deadline:
        time.sleep(random.uniform(*KILL_SECONDS))
        if commands[0].is_running() and left < options.jobs / 2:
            kill_command(commands[0])
            commands.append(stack.enter_context(worker(f"--processes={options.processes // 2}")))
            kills += 1
        elif victims := children(random.choice([command for command in commands if command.is_running()])):
            with contextlib.suppress(psutil.NoSuchProcess):
                random.choice(victims).kill()
                kills += 1
        [(left,)] = sql("SELECT count(*) FROM pgqueue_jobs")
        say(f"{left:,} left after {kills} kills")
    if left:
        raise RuntimeError(f"{left} jobs are left: {sql('SELECT status, count(*) FROM pgqueue_jobs GROUP BY 1')}")
    return kills


def kill_command(command: psutil.Popen) -> None:
    command.suspend()  # or it would see its children die, and send their jobs back itself
    for process in (*command.children(recursive=True), command):
        process.kill()
    command.wait()


if __name__ == "__main__":
    main(sys.modules[__name__])
