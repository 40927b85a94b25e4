"""Measure the time from a job's commit until result() returns, on an idle machine.

The job is a real worker's; this process waits for it. The instant of the commit is the database's: succeeded_at is that
of the statement that wrote the outcome, and the commit comes after it. So the latency is measured from a little too
early, on the clock that the server on the same machine shares.

Without NOTIFY a caller that waits looks every POLL_SECONDS, so that half of that is to be expected.

    python -m benchmarks.waiting --json waiting.json
"""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Iterator

from benchmarks.findings import Finding, Samples, at_most, medians, percentile, say
from benchmarks.harness import begin_empty, main, worker

WARM_UP = 5
PATIENCE_SECONDS = 60.0
LONGEST_SECONDS = 0.2
"""Of what a job takes, chosen at random: some have ended before they are waited for, most are waited for."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=200, help="in each run; default: 200")


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    samples: Samples = {"NOTIFY": [], "polling": []}
    tails: dict[str, list[float]] = {name: [] for name in samples}
    for number in range(1, options.runs + 1):
        for name, notify in (("NOTIFY", True), ("polling", False)):
            seen = latencies(options.jobs if notify else max(options.jobs // 10, 5), notify=notify)
            samples[name] += seen
            tails[name].append(percentile(seen, 95))
        say(f"run {number} of {options.runs}, so far: {medians(samples, 'ms')}")
    for name, seen in samples.items():
        note = ", ".join(f"p{share} {percentile(seen, share):.1f} ms" for share in (50, 95, 99))
        target = at_most(20) if name == "NOTIFY" else None
        yield Finding(
            f"result() after the commit, {name}, p95",
            *(statistics.median(tails[name]), target),
            unit="ms",
            note=note,
            samples={name: seen},
        )


def latencies(jobs: int, *, notify: bool) -> list[float]:
    """Enqueue one job after another, wait for each; return the milliseconds from its commit to the return."""
    from django.test import override_settings

    from benchmarks.tasks import rest
    from django_pgqueue.jobs import waiter

    begin_empty()
    seen = []
    with worker(), override_settings(PGQUEUE=settings(notify=notify)):
        rest.enqueue(0).result(PATIENCE_SECONDS)
        for _ in range(WARM_UP + jobs):
            handle = rest.enqueue(int(random.uniform(0, LONGEST_SECONDS) * 1e6))
            handle.result(PATIENCE_SECONDS)
            returned = time.time()
            seen.append((returned - handle.state().ended_at.timestamp()) * 1e3)
            time.sleep(random.uniform(0.01, 0.03))
        waiter.stop_all()
    return seen[WARM_UP:]


def settings(*, notify: bool) -> dict[str, object]:
    from django.conf import settings as given

    return {**getattr(given, "PGQUEUE", {}), "NOTIFY": notify}


if __name__ == "__main__":
    main(sys.modules[__name__])
