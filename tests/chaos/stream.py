"""Thousands of jobs that come due each second, and one command, whose processes are killed meanwhile.

``python -m tests.chaos.stream`` enqueues them in bulk, ahead of their time; ``replace_processes`` kills and measures.
"""

import argparse
import datetime as dt
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import django
import psutil
import psycopg
from django.db.models import F
from django.utils import timezone

from tests.chaos.command import Command, within
from tests.chaos.journal import Journal
from tests.support.waiting import LONG_PATIENCE_SECONDS

RATE = 8000
PARTS = 10  # of a second
AHEAD_SECONDS = 3600
BEGIN_SECONDS = 2
KEYS_FROM = 10**12
PAUSE_SECONDS = 2.0
LOOK_SECONDS = 0.01
GIVEN_UP_AFTER = 60.0


def enqueue_ahead(folder: Path, seconds: float) -> None:
    """Enqueue what comes due in a number of seconds, and write it down as any producer does.

    On a slow machine they would come due while they are enqueued; so it begins when all are there.
    """
    from django_pgqueue.models import Job
    from tests.chaos.tasks import plain

    first = timezone.now() + dt.timedelta(seconds=AHEAD_SECONDS)
    number = RATE // PARTS
    attempts = plain.options.attempts_allowed
    with (folder / "producer-stream.jsonl").open("w") as file:
        for part in range(round(seconds * PARTS)):
            start = KEYS_FROM + part * number
            jobs = [[key, "plain", attempts, False, False] for key in range(start, start + number)]
            entry = {"batch": start, "in_transaction": False, "rolls_back": False, "jobs": jobs}
            file.write(json.dumps(entry) + "\n")
            due = first + dt.timedelta(seconds=part / PARTS)
            plain.using(queue="stream", keep_result=False, run_at=due).enqueue_many([(key,) for key, *_ in jobs])
            file.write(json.dumps({"answered": start}) + "\n")
    early = first - timezone.now() - dt.timedelta(seconds=BEGIN_SECONDS)
    Job.objects.filter(queue="stream").update(run_at=F("run_at") - early)


def replace_processes(
    command: Command, processes: int, database: psycopg.Connection, journal: Journal
) -> Iterator[float]:
    """Kill one process after the other for as long as jobs come due; yield how long each was missing, in seconds."""

    def is_due(condition: str) -> bool:
        query = f"SELECT EXISTS (SELECT FROM pgqueue_jobs WHERE queue = 'stream' AND {condition})"
        return bool(database.execute(query).fetchone() == (True,))

    if not within(LONG_PATIENCE_SECONDS, lambda: is_due("run_at <= clock_timestamp()")):
        journal.trouble("nothing came due in the stream")
    number = 0
    while is_due("run_at > clock_timestamp()"):
        if len(command.children()) == processes:
            number += 1
            victim = min(command.children(), key=_started_at)
            with journal.fault("kill_child", [victim]):
                yield _seconds_without(victim, database)
        time.sleep(PAUSE_SECONDS)
    if not number:
        journal.trouble("no process could be killed while jobs came due")


def _seconds_without(victim: int, database: psycopg.Connection) -> float:
    """SIGKILL a process; return the seconds until the row of another, less those in which the machine stood still."""
    [(newest,)] = database.execute("SELECT max(id) FROM pgqueue_workers").fetchall()
    still, began = 0.0, time.monotonic()
    os.kill(victim, signal.SIGKILL)
    while database.execute("SELECT max(id) FROM pgqueue_workers").fetchone() in ((newest,), (None,)):
        if time.monotonic() > began + GIVEN_UP_AFTER:
            break
        at = time.monotonic()
        time.sleep(LOOK_SECONDS)
        still += time.monotonic() - at - LOOK_SECONDS
    return time.monotonic() - began - still


def _started_at(pid: int) -> float:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).create_time()
    return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    django.setup()
    enqueue_ahead(options.folder, options.seconds)


if __name__ == "__main__":
    main()
