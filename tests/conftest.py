import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection

from django_pgqueue.db import QueueConnection
from tests.workers import Worker


@pytest.fixture
def queue(transactional_db) -> Iterator[QueueConnection]:
    """A worker's connection to the test database, whose writes are committed."""
    opened = QueueConnection("default", "test")
    yield opened
    opened.close()


@pytest.fixture
def other_queue(transactional_db) -> Iterator[QueueConnection]:
    """A second one."""
    opened = QueueConnection("default", "other test")
    yield opened
    opened.close()


@pytest.fixture
def start_worker(transactional_db, tmp_path: Path) -> Iterator:
    """Start real ``pgqueue_worker`` commands on the test database; whatever still runs at the end is killed."""
    started: list[Worker] = []

    def start(*options: str, **environment: str) -> Worker:
        worker = Worker(options, environment, log=tmp_path / f"worker-{len(started)}.log")
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.end()


@pytest.fixture
def sql(db):
    """Run SQL on Django's connection and return the rows."""

    def run(text: str, *parameters):
        with connection.cursor() as cursor:
            cursor.execute(text, parameters or None)
            return cursor.fetchall() if cursor.description else []

    return run


@pytest.fixture(scope="session")
def project() -> Path:
    return Path(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
