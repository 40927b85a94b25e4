"""Measure a drain, and the bare claim and ack statements that no worker can do without."""

import contextlib
import platform
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from django.db import transaction

from django_pgqueue.bench.drain import Drain, WorkerCommand, beside_backlog
from django_pgqueue.bench.report import QUEUE, BenchFailed, BenchReport, Floor, Load, Spread, spread
from django_pgqueue.bench.room import BenchQueue, Seed, bench_queue
from django_pgqueue.bench.tasks import Board
from django_pgqueue.conf import conf
from django_pgqueue.db.connections import QueueConnection, number_array, postgresql
from django_pgqueue.db.queries import sized, statement
from django_pgqueue.jobs.claim import new_lease_token
from django_pgqueue.version import VERSION

BATCH = 500
ROUND_TRIPS = 100

Claimed = list[tuple[int, int]]  # id and lease token of each job of a batch


class BareLoop:
    """Drives the statements and keeps their times, in seconds for each batch."""

    def __init__(self, alias: str, *, history: bool) -> None:
        self.database = QueueConnection(alias, "bench")
        self.connection = self.database.autocommit()
        self.history = history
        self.claims: list[float] = []
        self.acks: list[float] = []
        self.whole = 0.0

    def round_trip(self) -> Spread:
        return spread([self._timed("SELECT 1", {})[1] for _ in range(ROUND_TRIPS)][1:])

    def drain(self, *, jobs: int, progress: Callable[[float], None]) -> Floor:
        """Claim and ack the jobs of the bench's queue; ack the last batch and claim the next in one transaction."""
        done, claimed = 0, self._round([])
        while claimed:
            done += len(claimed)
            claimed = self._round(claimed)
            progress(done / jobs)
        if done != jobs:
            raise BenchFailed(f"Only {done} of {jobs} jobs were there to claim: is another worker serving {QUEUE!r}?")
        statements = sum(self.claims) + sum(self.acks)
        return Floor(
            jobs=jobs,
            batch=min(BATCH, jobs),
            jobs_per_second=round(jobs / self.whole, 1),
            claim=spread(self.claims),
            claim_us_per_job=round(sum(self.claims) / jobs * 1e6, 2),
            ack=spread(self.acks),
            ack_us_per_job=round(sum(self.acks) / jobs * 1e6, 2),
            commit_us_per_job=round((self.whole - statements) / jobs * 1e6, 2),
        )

    def close(self) -> None:
        self.database.close()

    def _round(self, claimed: Claimed) -> Claimed:
        begun = time.perf_counter()
        with self.database.transaction():
            if claimed:
                self._ack(claimed)
            claimed = self._claim()
        self.whole += time.perf_counter() - begun
        return claimed

    def _claim(self) -> Claimed:
        token = new_lease_token()
        parameters = {"queue": QUEUE, "worker_id": 0, "lease_token": token}
        ids, seconds = self._timed(sized("claim", BATCH), parameters)
        if ids:
            self.claims.append(seconds)
        return [(job_id, token) for job_id in ids]

    def _ack(self, claimed: Claimed) -> None:
        parameters: dict[str, Any] = {
            "ids": number_array(job_id for job_id, _ in claimed),
            "lease_tokens": number_array(token for _, token in claimed),
        }
        if self.history:
            parameters["results"] = f"[{','.join(['null'] * len(claimed))}]"
            parameters |= {"left_out": None, "last_progress": None}
            parameters["run_seconds"] = number_array(0.0 for _ in claimed)
        _, seconds = self._timed(statement("archive" if self.history else "finish"), parameters)
        self.acks.append(seconds)

    def _timed(self, sql: str, parameters: dict[str, Any]) -> tuple[list[int], float]:
        begun = time.perf_counter()
        cursor = self.connection.execute(sql, parameters)
        rows = cursor.fetchall()
        seconds = time.perf_counter() - begun
        names = [column.name for column in cursor.description or ()]
        return [row[names.index("id")] for row in rows] if "id" in names else [], seconds


Progress = Callable[[str, float], None]  # takes the name of a step, and the share of it that is done, 0 to 1

LARGEST_FLOOR = 50_000


def measure(load: Load, *, beside_others: bool, progress: Progress) -> BenchReport:
    """Measure the queue's database under a load; leave nothing behind, also after a KeyboardInterrupt.

    Raises BenchFailed if there is no measurement: if there are jobs of others, unless ``beside_others`` is set.
    """
    alias = conf.database
    with (
        bench_queue(alias, beside_others=beside_others) as kept,
        tempfile.TemporaryDirectory(prefix="pgqueue_bench") as name,
    ):
        round_trip, floor = measure_floor(load, kept, progress)
        board = Board.make(Path(name, "board"), size=load.jobs + beside_backlog(load))
        with contextlib.closing(WorkerCommand(load, board=Path(name, "board"), log=Path(name, "log"))) as command:
            drain = Drain(load, Seed(load, kept), board, command)
            drain.warm_up(partial(progress, "Start workers"))
            pick_up = drain.pick_up(partial(progress, "Idle queue"))
            kept.vacuum()
            enqueued, drained = drain.backlog(partial(progress, "Enqueue"), partial(progress, "Drain"))
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
        Seed(load, kept).backlog(range(jobs), partial(progress, "Enqueue for the floor"))
    with contextlib.closing(BareLoop(kept.alias, history=load.history)) as bare:
        measured = bare.round_trip(), bare.drain(jobs=jobs, progress=partial(progress, "Floor"))
    kept.vacuum()
    return measured


def server_version(alias: str) -> str:
    with postgresql(alias).cursor() as cursor:
        cursor.execute("SHOW server_version")
        return str(cursor.fetchone()[0])
