"""Benches in processes of their own, and what they leave behind."""

import datetime as dt
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.utils import timezone

import django_pgqueue.bench.tasks  # noqa: F401 - registers its tasks, once for all tests
from django_pgqueue.bench import drain
from django_pgqueue.bench.report import QUEUE
from django_pgqueue.models import DeadJob, Job, SucceededJob, Worker
from tests.support.patient_bench import PATIENT
from tests.support.waiting import LONG_PATIENCE_SECONDS
from tests.support.workers import database_url

ROOT = Path(__file__).parent.parent.parent

real = pytest.mark.django_db(transaction=True, databases=["default", "other"])

FEW_PICK_UPS = 3

WHOLE, SHORT = (("-m", "tests.support.patient_bench", str(number)) for number in (drain.PICK_UPS, FEW_PICK_UPS))


class Bench:
    """One ``pgqueue_bench`` as a process, what it prints in files."""

    def __init__(self, command: tuple[str, ...], options: tuple[str, ...], folder: Path) -> None:
        self.out, self.err = folder / "bench.out", folder / "bench.err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, *command, *options],
                cwd=ROOT,
                env={**os.environ, "DATABASE_URL": database_url(), "TMPDIR": str(folder)},
                stdout=out,
                stderr=err,
            )

    def wait(self) -> int:
        return self.process.wait(LONG_PATIENCE_SECONDS)

    def text(self) -> str:
        return self.out.read_text() + self.err.read_text()


@pytest.fixture
def start_bench(transactional_db, tmp_path):
    started = []

    def start(*options: str, command: tuple[str, ...] = SHORT) -> Bench:
        started.append(Bench(command, options, tmp_path))
        return started[-1]

    yield start
    for bench in started:
        bench.process.kill()
        bench.process.wait()


def of_the_bench() -> list[int]:
    """Return how many rows it has in each table."""
    return [
        *(model.objects.filter(queue=QUEUE).count() for model in (Job, DeadJob, SucceededJob)),
        Worker.objects.filter(name=QUEUE).count(),
    ]


def everything() -> list[list[dict]]:
    return [list(model.objects.order_by("id").values()) for model in (Job, DeadJob, SucceededJob)]


@pytest.fixture
def few_pick_ups(monkeypatch) -> None:
    """Measure few single jobs on the idle queue: between them time passes. And give up no sooner than tests do."""
    for name, value in {**PATIENT, "PICK_UPS": FEW_PICK_UPS}.items():
        monkeypatch.setattr(drain, name, value)


@pytest.fixture
def register(transactional_db):
    """Register a worker process of others that serves these queues: of those that run here, a bench sees that row."""

    def registered(*queues: str) -> None:
        until = timezone.now() + dt.timedelta(hours=1)
        Worker.objects.create(
            supervisor_id=1, pid=1, host="x", version="1", concurrency=8, lease_until=until, queues=list(queues)
        )

    return registered
