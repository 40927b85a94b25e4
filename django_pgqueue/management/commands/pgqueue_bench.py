import argparse
import contextlib
import json
import math
import signal
import sys
import threading
from dataclasses import asdict, fields
from typing import Any, NoReturn

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser, OutputWrapper
from django.db import Error

from django_pgqueue.bench.measure import measure
from django_pgqueue.bench.report import QUEUE, BenchFailed, BenchReport, Load, Spread
from django_pgqueue.cli.arguments import add_json, check_database, seconds
from django_pgqueue.conf import conf
from django_pgqueue.db.connections import postgresql
from django_pgqueue.worker.supervisor import stop_signals

DEFAULTS = Load()
BAR = 30
BOUNDS = {"jobs": (1, 1_000_000), "processes": (1, 256), "concurrency": (1, 1000)}
LONGEST_SLEEP_MS = 60_000

HELP = f"""
Measure the queue on your own database: what its bare statements do, what a real worker makes of them, and how soon a
job on an idle queue is picked up. The jobs do nothing, or sleep. They are on a queue of their own, {QUEUE!r}, and all
their rows are removed at the end, also after Ctrl-C and SIGTERM. Workers that serve all queues would take these jobs
without knowing their task, so the bench does not start while they run: stop them, or start them with --queue.
"""


class Command(BaseCommand):
    help = HELP
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--jobs", type=int, default=DEFAULTS.jobs, help=f"default: {DEFAULTS.jobs}")
        parser.add_argument(
            "--processes", type=int, default=DEFAULTS.processes, help=f"worker processes; default: {DEFAULTS.processes}"
        )
        parser.add_argument(
            "--concurrency",
            type=int,
            default=DEFAULTS.concurrency,
            help=f"jobs at once in each process; default: {DEFAULTS.concurrency}",
        )
        parser.add_argument(
            "--sleep", default="0", metavar="LOW-HIGH", help="how long handlers sleep, as 2ms-5ms or 1s; default: 0"
        )
        parser.add_argument("--async", action="store_true", dest="is_async", help="the handlers are async def")
        parser.add_argument(
            "--payload",
            type=int,
            default=0,
            dest="payload_bytes",
            metavar="BYTES",
            help="size of arguments; default: 0",
        )
        parser.add_argument("--history", action="store_true", help="keep the jobs in the history, until the end")
        parser.add_argument(
            "--yes", action="store_true", help="run though there are other jobs; they are left alone, but may be slowed"
        )
        add_json(parser, "print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        load = load_from(options)
        check_surroundings()
        progress = Progress(self.stderr, is_silent=options["verbosity"] == 0)
        with interruptible():
            try:
                report = measure(load, beside_others=options["yes"], progress=progress)
            except (BenchFailed, Error) as error:
                raise CommandError(str(error)) from error
            except KeyboardInterrupt as interrupt:
                self.stderr.write("Interrupted. The bench's jobs are removed.")
                sys.exit(128 + (interrupt.args[0] if interrupt.args else signal.SIGINT))
            finally:
                progress.end()
        self.stdout.write(json.dumps(asdict(report)) if options["json"] else as_text(report))


def load_from(options: dict[str, Any]) -> Load:
    """Return the load; raise CommandError that names each option that cannot work."""
    problems = [
        f"--{option} must be {lowest} to {highest}, not {options[option]}."
        for option, (lowest, highest) in BOUNDS.items()
        if not lowest <= options[option] <= highest
    ]
    sleep_ms = sleep_from(options["sleep"])
    if sleep_ms is None:
        problems.append(f"--sleep must be as 5ms or 2ms-5ms, 1m at most, not {options['sleep']}.")
    largest = conf.max_payload_bytes - 1024
    if not 0 <= options["payload_bytes"] <= largest:
        problems.append(f"--payload must be 0 to {largest} bytes, not {options['payload_bytes']}.")
    if options["history"] and not conf.retention_days:
        problems.append("--history cannot be measured: PGQUEUE['RETENTION_DAYS'] is 0, so nothing is kept.")
    if problems:
        raise CommandError(" ".join(problems))
    chosen = options | {"sleep_ms": sleep_ms}
    return Load(**{field.name: chosen[field.name] for field in fields(Load)})


def sleep_from(text: str) -> tuple[float, float] | None:
    """Return the shortest and the longest sleep, in milliseconds; None where the text is not one or two of them."""
    first, _, second = text.partition("-")
    try:
        low, high = (seconds(one) * 1000 for one in (first, second or first))
    except argparse.ArgumentTypeError:
        return None
    return (low, high) if low <= high <= LONGEST_SLEEP_MS else None


def check_surroundings() -> None:
    """Raise CommandError where no worker could see the bench's jobs."""
    check_database()
    if postgresql(conf.database).in_atomic_block:
        raise CommandError("The bench cannot run inside a transaction: its workers would not see the jobs.")
    if conf.immediate:
        raise CommandError("PGQUEUE['IMMEDIATE'] is on: jobs run where they are enqueued. Turn it off for the bench.")
    if not getattr(settings, "SETTINGS_MODULE", None):
        raise CommandError("The bench's worker needs a settings module: set DJANGO_SETTINGS_MODULE.")


def interruptible() -> contextlib.AbstractContextManager[None]:
    """Turn the first SIGINT or SIGTERM into KeyboardInterrupt; ignore more of them, so that cleaning up is not cut off.

    psycopg cancels its query for a KeyboardInterrupt, and for no other exception.
    """

    def interrupt(number: int) -> NoReturn:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt(number)

    is_main = threading.current_thread() is threading.main_thread()
    return stop_signals(interrupt) if is_main else contextlib.nullcontext()


class Progress:
    """A bar on a terminal; elsewhere one line for each step."""

    def __init__(self, out: OutputWrapper, *, is_silent: bool) -> None:
        self._out = out
        self._is_silent = is_silent
        self._shown = ("", -1)

    def __call__(self, title: str, share: float) -> None:
        shown = (title, int(share * 100))
        if self._is_silent or shown == self._shown:
            return
        if title != self._shown[0]:
            self.end()
        if self._out.isatty():
            filled = "#" * int(share * BAR)
            self._write(f"\r{title:<22} [{filled:<{BAR}}] {shown[1]:>3} %", ending="")
        elif title != self._shown[0]:
            self._write(f"{title} ...")
        self._shown = shown

    def end(self) -> None:
        if self._shown[0] and self._out.isatty():
            self._write("")
        self._shown = ("", -1)

    def _write(self, text: str, ending: str = "\n") -> None:
        self._out.write(text, style_func=str, ending=ending)
        self._out.flush()


def as_text(report: BenchReport) -> str:
    load, floor, drained = report.load, report.floor, report.drained
    rows = [
        ("Database", ""),
        ("  round trip", _times(report.round_trip)),
        ("  enqueue_many", f"{report.enqueued.jobs_per_second:,.0f} jobs/s{_wal(report.enqueued.wal_bytes_per_job)}"),
        (f"  claim of {floor.batch}", f"{_times(floor.claim)}   {floor.claim_us_per_job:.1f} µs a job"),
        (f"  ack of {floor.batch}", f"{_times(floor.ack)}   {floor.ack_us_per_job:.1f} µs a job"),
        ("  begin, commit", f"{floor.commit_us_per_job:.1f} µs a job"),
        ("  floor", f"{floor.jobs_per_second:,.0f} jobs/s: these statements on one connection, without a worker"),
        ("Worker", ""),
        ("  pick-up, idle queue", f"{_times(report.pick_up)}   {report.pick_up.samples} jobs, from commit to start"),
        ("  drained", f"{load.jobs:,} jobs in {drained.seconds:.2f} s"),
        ("  throughput", f"{drained.jobs_per_second:,.0f} jobs/s, {report.ratio_to_floor:.2f} x floor{_slots(report)}"),
        ("  wait", f"{_times(drained.wait)}   from commit to start"),
        ("  WAL", _known(drained.wal_bytes_per_job, "bytes a job", "the server does not report it")),
        ("  CPU of the worker", _known(drained.worker_cpu_us_per_job, "µs a job", "known on Linux only")),
        ("  CPU of the server", _known(drained.server_cpu_us_per_job, "µs a job", "it is not on this machine")),
        ("  reaped leases", f"{drained.reaped_leases}{'' if not drained.reaped_leases else ' (0 is normal)'}"),
    ]
    table = "\n".join(f"{name:<24}{value}".rstrip() for name, value in rows)
    return f"{_describe(report)}\n\n{table}\n\n{NOTES}{_beside(report)}"


NOTES = """\
All jobs were there before the first began, so the wait is that of a backlog: the time a job spends in the queue.
WAL counts all that the server wrote in that time. The server's CPU is that of the sessions which claim and ack."""


def _beside(report: BenchReport) -> str:
    others = [
        *(["jobs of other queues"] if report.is_beside_jobs else []),
        *([f"{report.other_workers} other worker process(es)"] if report.other_workers else []),
    ]
    return f"\nMeasured together with {' and '.join(others)}: the figures include their work." if others else ""


def _describe(report: BenchReport) -> str:
    load = report.load
    low, high = load.sleep_ms
    work = f"sleep {low:g} to {high:g} ms" if high else "do nothing"
    return (
        f"{load.jobs:,} {'async' if load.is_async else 'plain'} jobs that {work}, {load.payload_bytes} bytes of "
        f"arguments, history {'on' if load.history else 'off'}; {load.processes} process(es) x {load.concurrency}\n"
        f"PostgreSQL {report.server}, Python {report.python}, django-pgqueue {report.version}"
    )


def _times(spread: Spread) -> str:
    return f"p50 {duration(spread.p50_ms):<9} p99 {duration(spread.p99_ms):<9}".rstrip()


def duration(milliseconds: float) -> str:
    if milliseconds >= 1000:  # noqa: PLR2004
        return f"{milliseconds / 1000:.2f} s"
    digits = 2 - math.floor(math.log10(milliseconds)) if milliseconds > 0 else 0
    return f"{milliseconds:.{min(max(digits, 0), 3)}f} ms"


def _wal(per_job: float | None) -> str:
    return "" if per_job is None else f", {per_job:,.0f} bytes of WAL a job"


def _known(value: float | None, unit: str, why_not: str) -> str:
    return f"unknown: {why_not}" if value is None else f"{value:,.0f} {unit}"


def _slots(report: BenchReport) -> str:
    return "" if report.ratio_to_slots is None else f", {report.ratio_to_slots:.2f} x what the slots could do"
