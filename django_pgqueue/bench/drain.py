"""Measure a real worker command: with single jobs on an idle queue, and with a backlog."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from django.conf import settings
from django.db import connections, transaction

from django_pgqueue.bench import worker
from django_pgqueue.bench.report import (
    QUEUE,
    BenchFailed,
    Drained,
    Enqueued,
    Load,
    Spread,
    Usage,
    per_job,
    spread,
    usage,
    wal_bytes,
    worker_sessions,
)
from django_pgqueue.bench.room import Ids, Seed, check_rivals
from django_pgqueue.bench.tasks import BOARD, Board
from django_pgqueue.models import Job

LAST_LINES = 20
PATIENCE_SECONDS = 10.0


class WorkerCommand:
    """``pgqueue_worker`` on the bench's queue, apart from the terminal; it ends whenever this process does."""

    def __init__(self, load: Load, *, board: Path, log: Path) -> None:
        self._log = log
        self._shutdown_timeout_seconds = 1.0 + load.sleep_ms[1] / 1000
        environment = {
            "DJANGO_SETTINGS_MODULE": settings.SETTINGS_MODULE,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            BOARD: str(board),
        }
        with log.open("wb") as file:
            self._process = subprocess.Popen(  # noqa: S603 - nothing here comes from outside
                [sys.executable, "-m", worker.__name__],
                env=os.environ | environment,
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._brief(load)

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        code = self._process.poll()
        if code is not None:
            raise BenchFailed(f"The worker ended with exit code {code}. Its last lines:\n{self.last_lines()}")

    def last_lines(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        return "\n".join(lines) or "(none)"

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(self._shutdown_timeout_seconds + PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdin:
            self._process.stdin.close()

    def _brief(self, load: Load) -> None:
        """Send its options. Its stdin stays open: when that ends, the bench is gone, and so it ends too."""
        options = {
            "queue": [QUEUE],
            "processes": load.processes,
            "concurrency": load.concurrency,
            "shutdown_timeout": self._shutdown_timeout_seconds,
            "name": QUEUE,
            "verbosity": 0,
        }
        databases = {alias: connections[alias].settings_dict["NAME"] for alias in connections}
        if self._process.stdin:
            self._process.stdin.write(json.dumps({"options": options, "databases": databases}).encode() + b"\n")
            self._process.stdin.flush()


Progress = Callable[[float], None]

START_SECONDS = 60.0
STALL_SECONDS = 60.0
WARM_SECONDS = 0.02
PICK_UPS = 200
PICK_UP_SECONDS = 10.0
SHORTEST_LOOK_SECONDS, LONGEST_LOOK_SECONDS = 0.002, 0.2


def beside_backlog(load: Load) -> int:
    """Return the number of jobs with numbers of their own, in addition to those of the backlog."""
    return max(2 * load.slots, pick_ups(load))


def pick_ups(load: Load) -> int:
    return min(PICK_UPS, load.jobs)


class Drain:
    """Gives jobs to the worker command. ``board`` has room for the backlog and, behind it, for ``beside_backlog()``."""

    def __init__(self, load: Load, seed: Seed, board: Board, command: WorkerCommand) -> None:
        self.load = load
        self.seed = seed
        self.board = board
        self.command = command
        self.alias = seed.room.alias
        self._pids: set[int] = set()

    def warm_up(self, progress: Progress) -> None:
        """Run short jobs until every process has taken some, so that no start is measured later."""
        numbers = range(self.load.jobs, self.load.jobs + 2 * self.load.slots)
        deadline = time.monotonic() + START_SECONDS
        while len(self._pids) < self.load.processes:
            self._wait_until_gone(self.seed.alike(numbers, seconds=WARM_SECONDS))
            self._pids |= {run.pid for run in self.board.runs(numbers)}
            progress(len(self._pids) / self.load.processes)
            if time.monotonic() > deadline:
                raise BenchFailed(
                    f"After {START_SECONDS:g} s only {len(self._pids)} of {self.load.processes} worker processes have "
                    f"run a job. The worker's last lines:\n{self.command.last_lines()}"
                )

    def pick_up(self, progress: Progress) -> Spread:
        """Enqueue single jobs, each when the last is gone, and measure from the commit to the start of each.

        Ends early after ten seconds: without LISTEN, each is found by polling.
        """
        waits: list[float] = []
        wanted, deadline = pick_ups(self.load), time.monotonic() + PICK_UP_SECONDS
        while len(waits) < wanted and (not waits or time.monotonic() < deadline):
            time.sleep(random.uniform(0.005, 0.025))  # noqa: S311 - idle again, and in step with nothing
            number = self.load.jobs + len(waits)
            job_id, committed_at = self.seed.one(number)
            self._wait_until_gone((job_id, job_id))
            [run] = self.board.runs(range(number, number + 1))
            waits.append(max(run.started_at - committed_at, 0.0))
            progress(len(waits) / wanted)
        progress(1.0)
        return spread(waits)

    def backlog(self, seeding: Progress, draining: Progress) -> tuple[Enqueued, Drained]:
        """Commit the whole backlog at once to workers that wait for it, and measure until the last job is gone."""
        read = partial(usage, self.alias, {self.command.pid, *self._pids}, worker_sessions(self.alias))
        committed: list[float] = []
        with transaction.atomic(using=self.alias):
            transaction.on_commit(lambda: committed.append(time.monotonic()), using=self.alias)
            wal_before = wal_bytes(self.alias)
            ids, insert_seconds = self.seed.backlog(range(self.load.jobs), seeding)
            before, commit_begun = read(), time.monotonic()
        self._wait_until_gone(ids, draining)
        ended_at, after = time.monotonic(), read()
        enqueued = Enqueued(
            jobs_per_second=round(self.load.jobs / (insert_seconds + committed[0] - commit_begun), 1),
            wal_bytes_per_job=per_job(wal_before, before.wal_bytes, self.load.jobs),
        )
        return enqueued, self._sum_up(committed[0], ended_at, before, after)

    def _sum_up(self, committed_at: float, ended_at: float, before: Usage, after: Usage) -> Drained:
        jobs, seconds = self.load.jobs, ended_at - committed_at
        runs = list(self.board.runs(range(jobs)))
        check_rivals(self.alias)
        if not_run := sum(not run.started_at for run in runs):
            raise BenchFailed(f"{not_run} of {jobs} jobs are gone and were not run. Were they killed?")
        return Drained(
            seconds=round(seconds, 4),
            jobs_per_second=round(jobs / seconds, 1),
            wait=spread([max(run.started_at - committed_at, 0.0) for run in runs]),
            wal_bytes_per_job=per_job(before.wal_bytes, after.wal_bytes, jobs),
            worker_cpu_us_per_job=per_job(before.worker_seconds, after.worker_seconds, jobs, unit=1e-6),
            server_cpu_us_per_job=per_job(before.server_seconds, after.server_seconds, jobs, unit=1e-6),
            reaped_leases=sum(run.attempt - 1 for run in runs),
        )

    def _wait_until_gone(self, ids: Ids, progress: Progress | None = None) -> None:
        """Wait until the jobs are gone. Looks again after 1 % of the time passed, so it ends at most 1 % too late."""
        lowest, begun = ids[0], time.monotonic()
        changed_at = now = begun
        while (found := self._lowest_left(lowest, ids[1])) is not None:
            if found != lowest:
                lowest, changed_at = found, now
            self._check(now - changed_at)
            if progress:
                progress(self.board.share_started(range(self.load.jobs)))
            time.sleep(min(max((now - begun) / 100, SHORTEST_LOOK_SECONDS), LONGEST_LOOK_SECONDS))
            now = time.monotonic()
        if progress:
            progress(1.0)

    def _lowest_left(self, lowest: int, last: int) -> int | None:
        left = Job.objects.using(self.alias).filter(id__range=(lowest, last), queue=QUEUE)
        return left.order_by("id").values_list("id", flat=True).first()

    def _check(self, still_seconds: float) -> None:
        self.command.check()
        if still_seconds > STALL_SECONDS + 2 * self.load.sleep_ms[1] / 1000:
            check_rivals(self.alias)
            raise BenchFailed(
                f"No job was finished for {still_seconds:.0f} s. The worker's last lines:\n{self.command.last_lines()}"
            )
