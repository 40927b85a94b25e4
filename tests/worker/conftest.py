"""A command's pool with one process that is not started, and its probes."""

from types import SimpleNamespace

import pytest

from django_pgqueue.worker.config import WorkerConfig
from django_pgqueue.worker.health import Probes
from django_pgqueue.worker.heartbeat import Heartbeat, Liveness
from django_pgqueue.worker.http import PageServer
from django_pgqueue.worker.processes import ProcessPool, Vacancy, WorkerProcess
from django_pgqueue.worker.shared_state import now
from tests.support.ports import free_port
from tests.support.probes import get
from tests.support.stuck import LEASE_SECONDS, Clock
from tests.support.waiting import PATIENCE_SECONDS


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr("django_pgqueue.worker.processes.time", made)
    return made


@pytest.fixture
def pool(queue, clock):
    """A command with one process, which is not started: the test writes its shared, and it cannot be killed."""
    made = ProcessPool(WorkerConfig(), supervisor_id=1, lease_seconds=LEASE_SECONDS)
    worker_id = made._write_down(queue)
    process = WorkerProcess(WorkerConfig(), worker_id, Vacancy())
    process.pid, process._process = 4711, SimpleNamespace(kill=lambda: killed.append(process), exitcode=None)
    killed = made.killed = []
    made.living.append(process)
    process.shared.extend_lease(now() + LEASE_SECONDS)
    yield made
    process._orders_read.close()
    process._orders.close()


@pytest.fixture
def heartbeat_of_pool(pool):
    made = Heartbeat(
        *("default", pool, Liveness(changed=lambda: None)), told_to_stop=lambda by: None, told_quiet=pool.set_quiet
    )
    yield made
    made.database.close()


@pytest.fixture
def probes(monkeypatch):
    monkeypatch.setattr("django_pgqueue.worker.health.FRESH_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr("django_pgqueue.worker.http.LONGEST_SECONDS", PATIENCE_SECONDS)
    address = ("127.0.0.1", free_port())
    made = Probes(WorkerConfig(health_port=address[1]))
    pages = PageServer({address: made.pages})
    pages.start()
    made.address = address
    made.get = lambda path: get(address[1], path)
    yield made
    pages.close()
