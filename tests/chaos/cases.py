"""Cases of a producer beside its batches: changes that jobs are to see, calls that meet others, odd rows, workflows.

Each is over in a moment; ``case_facts`` reads what has become of it.
"""

import contextlib
import datetime as dt
import json
import os
import time
from pathlib import Path
from random import Random
from typing import Any

from django.db import IntegrityError, connection, transaction

from tests.chaos import flows
from tests.chaos.marks import now
from tests.support.hostile import UNREADABLE

AT_A_TIME, CHANGING_SECONDS = 3, 2
DOCUMENTS = AT_A_TIME * 5000
"""A few change at a time, for some seconds, then others: each has a last change, and only that one can be missed."""

REMINDERS = 20
INTERVAL_SECONDS = 0.05

UNKNOWN_TASKS = ("unknown.task", "?", "\n\x1b[2J")
HUGE = json.dumps("x" * 300_000)
ODD_JSON = [*UNREADABLE, "17", "null", '"text"', "[null]", '[[], {"a": []}]', '{"a": 1}', "1e400", HUGE, f"[{HUGE}]"]
ODD_VALUES: dict[str, list[Any]] = {
    "args": ODD_JSON,
    "kwargs": ODD_JSON,
    "metadata": ODD_JSON,
    "progress": ODD_JSON,
    "errors": [f"[{one}]" for one in ODD_JSON],
    "backend": ["default", "no such alias", "\u202e"],
    "attempts": [1, 32767],
    "lost": [1, 32767],
    "lease_seconds": [1, 5],
    "timeout_seconds": [0, 1, 2**31 - 1],
    "keep_seconds": [-(2**31), 0, 2**31 - 1],
    "parent_id": [-1, 2**63 - 1],
    "worker_id": [-1, 2**63 - 1],
    "fair_key": ["?", "%s"],
    "started_at": ["1970-01-01Z", "9998-12-31Z"],
    "expires_at": ["1970-01-02Z", "9998-12-31Z"],
}
FETCHED_IN_TIME = "SELECT FROM pgqueue_jobs WHERE id = %s AND status = 'running' AND started_at < expires_at"
OF_JSON = ("args", "kwargs", "metadata", "progress", "errors")


class Cases:
    """Does one of them now and then; for one thread.

    Args:
        path: where it writes down which jobs its calls got.
        first_flow: workflows have the keys above this one.
    """

    def __init__(self, path: Path, draw: Random, *, first_flow: int) -> None:
        self._draw = draw
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._next_at = 0.0
        self._flow = first_flow

    def go_on(self) -> None:
        """Do one, unless the last was just now.

        Raises:
            django.db.Error: the database went away, and with it the case.
        """
        if time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + INTERVAL_SECONDS
            self._draw.choices((self._change, self._remind, self._poison, self._begin), (20, 10, 1, 8))[0]()

    def _change(self) -> None:
        """Change some documents, and have them read, in one transaction; sometimes for nothing."""
        from tests.chaos.models import Document
        from tests.chaos.tasks import refresh

        with contextlib.suppress(_UndoneError), transaction.atomic():
            first = int(time.time()) // CHANGING_SECONDS * AT_A_TIME % DOCUMENTS + 1
            for key in sorted(self._draw.sample(range(first, first + AT_A_TIME), self._draw.randint(1, 2))):
                row = Document.objects.select_for_update().get(pk=key)
                row.version += 1
                steps = [row.save, lambda key=key: refresh.enqueue(key)]
                for step in self._draw.sample(steps, 2):
                    step()
            time.sleep(self._draw.uniform(0, 0.05))
            if self._draw.random() < 0.1:
                raise _UndoneError

    def _remind(self) -> None:
        """Enqueue what may expire before it is started, and may conflict; write down which job the call got."""
        from tests.chaos.tasks import remind

        expires = dt.timedelta(seconds=self._draw.choice((0.05, 0.5, 2.0)))
        in_transaction = self._draw.random() < 0.5
        at = now()
        with transaction.atomic() if in_transaction else contextlib.nullcontext():
            handle = remind.using(expires=expires).enqueue(self._draw.randint(1, REMINDERS))
            with connection.cursor() as cursor:
                cursor.execute(FETCHED_IN_TIME, [handle.id])
                is_fetched = cursor.fetchone() is not None
        entry = {"job_id": handle.id, "created": handle.created, "at": at, "was_fetched": is_fetched}
        os.write(self._file, (json.dumps(entry) + "\n").encode())

    def _begin(self) -> None:
        """Begin a workflow."""
        self._flow += 1
        flows.begin(self._flow, self._draw)

    def _poison(self) -> None:
        """Insert a row as no code would write it; the database refuses some."""
        draw = self._draw
        names = draw.sample(sorted(ODD_VALUES), draw.randint(1, 4))
        row = {name: draw.choice(ODD_VALUES[name]) for name in names}
        row |= {"task": draw.choice((*UNKNOWN_TASKS, *["tests.chaos.tasks.victim"] * 3)), "queue": "poison"}
        row |= {"priority": 100, "max_attempts": 1}
        places = ", ".join("%s::jsonb" if name in OF_JSON else "%s" for name in row)
        with contextlib.suppress(IntegrityError), connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO pgqueue_jobs ({', '.join(row)}) VALUES ({places})", list(row.values()))


class _UndoneError(Exception):
    """Makes a transaction roll back."""
