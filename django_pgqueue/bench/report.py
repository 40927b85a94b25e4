"""Load of a bench, and its report. The names carry the units, for they are the keys of the JSON."""

import math
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from django.db import DatabaseError, transaction

from django_pgqueue.db.connections import postgresql
from django_pgqueue.exceptions import PgQueueError

QUEUE: Final = "pgqueue_bench"  # all its jobs are removed


class BenchFailed(PgQueueError):  # noqa: N818 - the name says what happened
    """There is no measurement. The message says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The jobs and their workers; validated by the command."""

    jobs: int = 20_000  # in the backlog, 1 or more
    processes: int = 1  # 1 or more
    concurrency: int = 8  # jobs at once in each process, 1 or more
    sleep_ms: tuple[float, float] = (0.0, 0.0)  # shortest and longest sleep of a handler; 0 and 0: none
    is_async: bool = False  # the handlers are ``async def``
    payload_bytes: int = 0  # size of the text that is each job's argument
    history: bool = False  # the jobs are kept when they are done

    @property
    def slots(self) -> int:
        return self.processes * self.concurrency

    @property
    def slots_per_second(self) -> float | None:
        """Jobs a second that the slots could do if nothing but the sleep took time; None if handlers do not sleep."""
        mean_ms = sum(self.sleep_ms) / 2
        return self.slots / mean_ms * 1000 if mean_ms else None


# Report


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle and the slow end of many measurements, in milliseconds."""

    p50_ms: float
    p99_ms: float
    samples: int


@dataclass(frozen=True, slots=True)
class Enqueued:
    jobs_per_second: float
    wal_bytes_per_job: float | None


@dataclass(frozen=True, slots=True)
class Floor:
    """The bare statements on one connection: no handlers, no slots, no threads."""

    jobs: int
    batch: int
    jobs_per_second: float
    claim: Spread  # of one batch
    claim_us_per_job: float
    ack: Spread
    ack_us_per_job: float
    commit_us_per_job: float  # the rest: begin, settings, commit


@dataclass(frozen=True, slots=True)
class Drained:
    seconds: float  # from the commit of the jobs until the last of them was gone
    jobs_per_second: float
    wait: Spread  # from the commit of the jobs to the start of each
    wal_bytes_per_job: float | None  # None: the server does not report it
    worker_cpu_us_per_job: float | None  # None: not Linux
    server_cpu_us_per_job: float | None  # None: the server runs elsewhere, or does not report it
    reaped_leases: int


@dataclass(frozen=True, slots=True)
class BenchReport:
    version: str
    python: str
    server: str
    load: Load
    is_beside_jobs: bool  # of others
    other_workers: int  # processes that were alive at the beginning
    round_trip: Spread
    floor: Floor
    pick_up: Spread  # from the commit of one job on an idle queue to its start
    enqueued: Enqueued
    drained: Drained
    ratio_to_floor: float
    ratio_to_slots: float | None  # None: handlers do not sleep


def spread(seconds: Collection[float]) -> Spread:
    """Sum up durations; at least one is needed."""
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return round(ordered[math.ceil(share * len(ordered)) - 1] * 1000, 4)

    return Spread(at(0.5), at(0.99), len(ordered))


def per_job(before: float | None, after: float | None, jobs: int, *, unit: float = 1.0) -> float | None:
    """Divide the use between two readings by the number of jobs; None if one of them is not known."""
    return None if before is None or after is None else round((after - before) / jobs / unit, 2)


# Usage

PROC = Path("/proc")
POSTGRES = {"postgres", "postmaster"}


@dataclass(frozen=True, slots=True)
class Usage:
    """Readings at one moment; the difference of two is the use between them."""

    wal_bytes: int | None
    worker_seconds: float | None
    server_seconds: float | None


def usage(alias: str, workers: Collection[int], sessions: Collection[int]) -> Usage:
    """Read what a worker command has used, by the pids of its processes, and of its sessions in the server."""
    is_here = bool(sessions) and all(command_of(pid) in POSTGRES for pid in sessions)
    return Usage(wal_bytes(alias), cpu_seconds(workers), cpu_seconds(sessions) if is_here else None)


def wal_bytes(alias: str) -> int | None:
    """Return how much WAL the whole server has written since it was made."""
    try:
        with transaction.atomic(using=alias), postgresql(alias).cursor() as cursor:
            cursor.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
            return int(cursor.fetchone()[0])
    except DatabaseError:  # not allowed, or not that kind of server
        return None


def worker_sessions(alias: str) -> list[int]:
    """Return the server's pids of the connections on which the bench's worker processes claim and ack."""
    with postgresql(alias).cursor() as cursor:
        cursor.execute(
            "SELECT activity.pid FROM pg_stat_activity AS activity JOIN pgqueue_workers AS worker "
            "ON activity.application_name = 'pgqueue consumer ' || worker.id WHERE worker.name = %s",
            [QUEUE],
        )
        return [pid for (pid,) in cursor.fetchall()]


def cpu_seconds(pids: Collection[int]) -> float | None:
    """Return the processor time of living processes, as Linux reports it.

    Source: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
    """
    try:
        texts = [(PROC / str(pid) / "stat").read_text() for pid in pids]
    except OSError:
        return None
    fields = [text.rpartition(")")[2].split() for text in texts]  # the name before it may hold anything
    return sum(int(field[11]) + int(field[12]) for field in fields) / os.sysconf("SC_CLK_TCK")


def command_of(pid: int) -> str:
    """Return the name of the program that a process runs; nothing if there is no such process."""
    try:
        return (PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""
