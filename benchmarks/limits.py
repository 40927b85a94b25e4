"""Check that limits of a queue hold over several processes; measure how much of them is used.

Starts are counted by the instants at which the database has claimed the jobs, which their rows keep. In any time there
may be as many as the rate gives, and the bucket more. The same rows say how many ran at once.

    python -m benchmarks.limits
"""

import argparse
import statistics
import sys
from collections.abc import Iterator
from itertools import accumulate

from benchmarks.findings import Finding, at_most
from benchmarks.harness import QUEUE, main, seed, sql, wait_until, worker

SPARE_SECONDS = 3.0
REST_MICROSECONDS = 5000


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rate", type=int, default=100, help="starts in a second; default: 100")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run; default: 20")
    parser.add_argument("--max-running", type=int, default=5, help="default: 5")
    parser.add_argument("--jobs", type=int, default=2000, help="with max_running; default: 2,000")
    parser.add_argument("--processes", type=int, default=4, help="default: 4")


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    from django_pgqueue.flow.queue_limits import default_burst

    rate, seconds, wanted = options.rate, options.seconds, options.rate * options.seconds
    runs = [starts_at_rate(options) for _ in range(options.runs)]
    counts = [float(sum(at < seconds for at in starts)) for starts in runs]
    deviations = [abs(count / wanted - 1) * 100 for count in counts]
    measure = f"{rate}/s, {options.processes} processes, {seconds:g} s"
    yield Finding(
        f"{measure}: starts, off {wanted:,.0f}",
        max(deviations),
        at_most(3),
        unit="%",
        note=f"starts {statistics.median(counts):,.0f}",
        samples={"starts": counts},
    )
    excesses = [most_above(rate, starts) for starts in runs]
    yield Finding(
        f"{measure}: most above the rate, in any time",
        max(excesses),
        at_most(default_burst(rate, 1.0)),
        unit="starts",
        samples={"above": excesses},
    )
    yield most_at_once(options)


def starts_at_rate(options: argparse.Namespace) -> list[float]:
    """Return when jobs of a queue with a rate were started, in seconds from the first one on."""
    from django_pgqueue import queues

    seed(int(options.rate * (options.seconds + 2 * SPARE_SECONDS)), "noop")
    queues.limit(QUEUE, rate=options.rate)
    with worker("--processes", str(options.processes)) as command:
        wait_until(lambda: lasted() > options.seconds + SPARE_SECONDS / 2, command)
    return [at for (at,) in sql(f"SELECT extract(epoch FROM started_at - {FIRST})::float FROM {DONE} ORDER BY 1")]


DONE = "pgqueue_succeeded_jobs"
FIRST = f"(SELECT min(started_at) FROM {DONE})"


def lasted() -> float:
    [(seconds,)] = sql(f"SELECT extract(epoch FROM max(started_at) - min(started_at))::float FROM {DONE}")
    return seconds or 0.0


def most_above(rate: float, starts: list[float]) -> float:
    """Return how many starts more than the rate gives there were in any time, at most: what the bucket had to give."""
    spare = [rate * at - number for number, at in enumerate(starts)]
    return max(best - now + 1 for best, now in zip(accumulate(spare, max), spare, strict=True))


def most_at_once(options: argparse.Namespace) -> Finding:
    from django_pgqueue import queues

    most, rates = [], []
    for _ in range(options.runs):
        seed(options.jobs, "rest", args=f"'[{REST_MICROSECONDS}]'")
        queues.limit(QUEUE, max_running=options.max_running)
        with worker("--processes", str(options.processes)) as command:
            wait_until(lambda: not sql("SELECT 1 FROM pgqueue_jobs LIMIT 1"), command)
        steps = sql(f"SELECT started_at, 1 FROM {DONE} UNION ALL SELECT succeeded_at, -1 FROM {DONE} ORDER BY 1, 2")
        most.append(float(max(accumulate(step for _, step in steps))))
        rates.append(options.jobs / lasted())
    return Finding(
        f"max_running {options.max_running}, {options.processes} processes: most at once",
        max(most),
        at_most(options.max_running),
        unit="jobs",
        note=f"{statistics.median(rates):,.0f} jobs/s of {REST_MICROSECONDS / 1000:g} ms",
        samples={"most": most, "rates": rates},
    )


if __name__ == "__main__":
    main(sys.modules[__name__])
