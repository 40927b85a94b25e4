"""One bench from beginning to end."""

import contextlib
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path

from django.db import transaction

from django_pgqueue.bench.board import Board
from django_pgqueue.bench.command import WorkerCommand
from django_pgqueue.bench.drain import Drain, beside_backlog
from django_pgqueue.bench.floor import BareLoop
from django_pgqueue.bench.load import Load
from django_pgqueue.bench.report import BenchReport, Floor, Spread
from django_pgqueue.bench.room import BenchQueue, bench_queue
from django_pgqueue.bench.seed import Seed
from django_pgqueue.conf import conf
from django_pgqueue.db.connections import postgresql
from django_pgqueue.version import VERSION

Progress = Callable[[str, float], None]
"""Told what is being done, and which share of it is done, 0 to 1."""

LARGEST_FLOOR = 50_000


def measure(load: Load, *, beside_others: bool, progress: Progress) -> BenchReport:
    """Measure the queue's database under a load; leave nothing behind, whatever happens.

    Args:
        beside_others: whether to go on although there are other jobs.

    Raises:
        BenchFailed: there is no measurement.
        KeyboardInterrupt: from a signal; the bench's rows are removed and its worker has ended.
    """
    alias = conf.database
    with (
        bench_queue(alias, beside_others=beside_others) as kept,
        tempfile.TemporaryDirectory(prefix="pgqueue_bench") as name,
    ):
        round_trip, floor = measure_floor(load, kept, progress)
        board = Board.make(Path(name, "board"), size=load.jobs + beside_backlog(load))
        with WorkerCommand(load, board=Path(name, "board"), log=Path(name, "log")) as command:
            drain = Drain(load, Seed(load, kept), board, command)
            drain.warm_up(step(progress, "Start workers"))
            pick_up = drain.pick_up(step(progress, "Idle queue"))
            kept.vacuum()
            enqueued, drained = drain.backlog(step(progress, "Enqueue"), step(progress, "Drain"))
    slots_per_second = load.slots_per_second
    return BenchReport(
        version=VERSION,
        python=platform.python_version(),
        server=server_version(alias),
        load=load,
        is_beside_jobs=kept.is_shared,
        other_workers=kept.other_workers,
        round_trip=round_trip,
        floor=floor,
        pick_up=pick_up,
        enqueued=enqueued,
        drained=drained,
        ratio_to_floor=round(drained.jobs_per_second / floor.jobs_per_second, 3),
        ratio_to_slots=round(drained.jobs_per_second / slots_per_second, 3) if slots_per_second else None,
    )


def measure_floor(load: Load, kept: BenchQueue, progress: Progress) -> tuple[Spread, Floor]:
    """Return how far away the server is, and what the bare statements do with some of the jobs."""
    jobs = min(load.jobs, LARGEST_FLOOR)
    with transaction.atomic(using=kept.alias):
        Seed(load, kept).backlog(range(jobs), step(progress, "Enqueue for the floor"))
    with contextlib.closing(BareLoop(kept.alias, history=load.history)) as bare:
        measured = bare.round_trip(), bare.drain(jobs=jobs, progress=step(progress, "Floor"))
    kept.vacuum()
    return measured


def step(progress: Progress, title: str) -> Callable[[float], None]:
    """Return the part of the progress that one step tells."""
    return lambda share: progress(title, share)


def server_version(alias: str) -> str:
    """Return what the server calls its version."""
    with postgresql(alias).cursor() as cursor:
        cursor.execute("SHOW server_version")
        return str(cursor.fetchone()[0])
