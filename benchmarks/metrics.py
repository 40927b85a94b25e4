"""Measure the cost of metrics: counting outcomes, cycles and enqueued jobs; a scrape; a drain with all of it.

Outcomes are counted in batches of 500 without and with a meter, in turn. A scrape is measured by the processor time of
those who answer it, the supervisor and the server's backend, less what they take without: so it matters little how busy
the machine is. The worker then has many queues, each with a backlog. At last workers drain no-op jobs without metrics,
with them, and scraped each second, in turn.

    python -m benchmarks.metrics
"""

import argparse
import contextlib
import socket
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from unittest import mock

import psutil

from benchmarks.enqueue import take_turns
from benchmarks.findings import Finding, Samples, alternate, at_most, medians, ratio, say
from benchmarks.harness import QUEUE, begin_empty, drain_rate, main, seed, settle, sql, wait_until, worker

BATCH = 500


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=200_000, help="drained in each run; 0: none")
    parser.add_argument("--batches", type=int, default=200, help="of outcomes that are counted in each run")
    parser.add_argument("--single", type=int, default=1000, help="enqueued one by one in each run")
    parser.add_argument("--queues", type=int, nargs="+", default=[10, 50], help="of the worker that is scraped")
    parser.add_argument("--backlog", type=int, default=2000, help="of each of these")
    parser.add_argument("--scrapes", type=int, default=20, help="one a second")


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    yield from counting(options)
    yield from enqueueing(options)
    for queues in options.queues:
        yield from scraping(options, queues)
    if options.jobs:
        yield from draining(options)


def counting(options: argparse.Namespace) -> Iterator[Finding]:
    samples = alternate(
        options.runs,
        without=lambda: seconds_of_counting(options.batches, is_metered=False) * 1e6,
        metered=lambda: seconds_of_counting(options.batches, is_metered=True) * 1e6,
    )
    yield Finding(
        f"count {BATCH} outcomes and their cycle: metered to without",
        ratio(samples, "metered", "without"),
        note=medians(samples, "µs"),
        samples=samples,
    )


def seconds_of_counting(batches: int, *, is_metered: bool) -> float:
    """Return what a batch takes: successes of one task, as almost always."""
    from django_pgqueue.db.connections import QueueConnection
    from django_pgqueue.jobs.claim import claim
    from django_pgqueue.jobs.stats import ProcessCounters, StatsBuffer
    from django_pgqueue.records import Fate, Outcome

    seed(BATCH, "noop")
    with contextlib.closing(QueueConnection("default", "benchmark")) as database:
        jobs = claim(database, QUEUE, limit=BATCH, worker_id=1)
        outcomes = [Outcome(job, Fate.SUCCEEDED, run_seconds=0.001 * number) for number, job in enumerate(jobs)]
        meter = ProcessCounters() if is_metered else None
        tally = StatsBuffer(database, meter)
        begun = time.perf_counter()
        for _ in range(batches):
            if meter:
                meter.count_cycle(0.005, claimed=BATCH, acked=BATCH)
            tally.count(outcomes, stale=())
        return (time.perf_counter() - begun) / batches


def enqueueing(options: argparse.Namespace) -> Iterator[Finding]:
    """Enqueue single jobs in turn, without and with a receiver that counts them once they are committed."""
    from benchmarks.tasks import noop
    from django_pgqueue.jobs.stats import ProcessCounters
    from django_pgqueue.signals import job_enqueued
    from django_pgqueue.worker.metrics import on_enqueued

    with mock.patch.object(job_enqueued, "receivers", []):
        on_enqueued(ProcessCounters().enqueued)
        counting = job_enqueued.receivers

    def counted(_number: int) -> None:
        with mock.patch.object(job_enqueued, "receivers", counting):
            noop.enqueue()

    def without(_number: int) -> None:
        with mock.patch.object(job_enqueued, "receivers", []):
            noop.enqueue()

    samples: Samples = {"without": [], "counted": []}
    for number in range(1, options.runs + 1):
        begin_empty()
        took = take_turns({"without": (without, False), "counted": (counted, False)}, options.single)
        for name, seconds in took.items():
            samples[name].append(seconds / options.single * 1e6)
        say(f"run {number} of {options.runs}: {medians(samples, 'µs')}")
    yield Finding(
        "single enqueue: counted to without",
        ratio(samples, "counted", "without"),
        note=medians(samples, "µs"),
        samples=samples,
    )


def scraping(options: argparse.Namespace, queues: int) -> Iterator[Finding]:
    """Scrape a worker with 4 processes and many queues once a second, after as many seconds without."""
    begin_empty()
    sql(
        "INSERT INTO pgqueue_jobs (task, queue, status, run_at) "
        "SELECT 'benchmarks.tasks.noop', 'queue ' || mod(number, %s), 'scheduled', now() + interval '1 day' "
        "FROM generate_series(1, %s) AS number",
        *(queues, queues * options.backlog),
    )
    one_each = "UPDATE pgqueue_jobs SET status = 'queued', run_at = now() WHERE id <= %s"
    sql(one_each, queues)
    settle()
    port = free_port()
    with worker("--processes=4", f"--metrics-port={port}") as command:
        wait_until(lambda: scraped(port).count(b"pgqueue_job_run_seconds_count") >= queues, command)
        size, samples = len(scraped(port)), {"without": [], "scraped": []}
        for _ in range(2):
            samples["without"].append(processor_ms(command, lambda: None, options.scrapes))
            samples["scraped"].append(processor_ms(command, lambda: scraped(port), options.scrapes))
    seen = statistics.median(samples["scraped"]) - statistics.median(samples["without"])
    yield Finding(
        f"processor time of a scrape a second, {queues} queues with a task each, {size / 1024:.0f} KiB",
        *(seen, at_most(10.0 + 0.5 * queues)),
        unit="ms",
        note=f"{medians(samples, 'ms')}; {seen / 10:.2g} % of one core, {seen / 150:.2g} % at 15 s",
        samples=samples,
    )


def processor_ms(command: psutil.Popen, act: Callable[[], object], times: int) -> float:
    """Do something once a second; return the processor time of supervisor and backend, in milliseconds for each."""
    [(pid,)] = sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'pgqueue metrics' LIMIT 1")
    watched = (psutil.Process(command.pid), psutil.Process(pid))
    before, due = spent(watched), time.monotonic()
    for _ in range(times):
        act()
        due += 1.0
        time.sleep(max(due - time.monotonic(), 0.0))
    return (spent(watched) - before) / times * 1000


def spent(processes: Iterable[psutil.Process]) -> float:
    """Return the seconds of processor time that processes have taken, by threads that have ended too."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def scraped(port: int) -> bytes:
    """Return what a worker tells; nothing while it does not listen yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            return answer.read()
    except OSError:
        return b""


def free_port() -> int:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        return taken.getsockname()[1]


def draining(options: argparse.Namespace) -> Iterator[Finding]:
    samples = alternate(
        options.runs,
        without=lambda: rate(options, is_served=False, is_scraped=False),
        served=lambda: rate(options, is_served=True, is_scraped=False),
        scraped=lambda: rate(options, is_served=True, is_scraped=True),
    )
    for name in ("served", "scraped"):
        yield Finding(
            f"drain of {options.jobs:,}: {name} to without",
            ratio(samples, name, "without"),
            note=medians(samples, "jobs/s"),
            samples=samples,
        )


def rate(options: argparse.Namespace, *, is_served: bool, is_scraped: bool) -> float:
    """Let a worker drain the queue; return jobs per second."""
    seed(options.jobs, "noop", keep=False)
    port, over = free_port(), threading.Event()

    def scrape() -> None:
        while not over.wait(1.0):
            scraped(port)

    with worker("--processes=1", *([f"--metrics-port={port}"] if is_served else [])) as command:
        scraping = threading.Thread(target=scrape)
        if is_scraped:
            scraping.start()
        try:
            return drain_rate(command, options.jobs)
        finally:
            over.set()
            if is_scraped:
                scraping.join()


if __name__ == "__main__":
    main(sys.modules[__name__])
