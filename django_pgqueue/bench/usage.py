"""Resource usage of the database and the processes so far; None where it cannot be read."""

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from django.db import DatabaseError, transaction

from django_pgqueue.bench.load import QUEUE
from django_pgqueue.db.connections import postgresql

PROC = Path("/proc")
POSTGRES = {"postgres", "postmaster"}


@dataclass(frozen=True, slots=True)
class Usage:
    """Readings at one moment; the difference of two is what was used between them."""

    wal_bytes: int | None
    worker_seconds: float | None
    server_seconds: float | None


@dataclass(frozen=True, slots=True)
class UsageReader:
    """Reads what a worker command and its database sessions use.

    Args:
        alias: of the queue's database.
        workers: the pids of the command and its processes.
        sessions: the pids, on the database's machine, of the connections that claim and ack for it.
    """

    alias: str
    workers: Collection[int]
    sessions: Collection[int]

    def read(self) -> Usage:
        is_here = bool(self.sessions) and all(command_of(pid) in POSTGRES for pid in self.sessions)
        return Usage(
            wal_bytes(self.alias),
            cpu_seconds(self.workers),
            cpu_seconds(self.sessions) if is_here else None,
        )


def between(before: float | None, after: float | None) -> float | None:
    """Return the difference of two readings, if there are both."""
    return None if before is None or after is None else after - before


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
    """Return the processor time of living processes, as Linux tells it.

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
