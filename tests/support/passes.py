"""Single services out of the passes of a thread, and the maintenance whose services they are."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from django_pgqueue.services import Services
from django_pgqueue.worker.config import WorkerConfig
from django_pgqueue.worker.heartbeat import HeartbeatMonitor
from django_pgqueue.worker.maintenance import MaintenanceRunner


def run_service(services: Services, name: str) -> float:
    """Do what a pass does with one service: run it if it is due. Return the seconds until it wants the next pass."""
    [service] = [service for service in services._services if service.name == name]
    return services._guarded(service)


def idle_pool(**differing) -> SimpleNamespace:
    """Return the pool of a command without processes."""
    idle = {
        "plan": WorkerConfig(),
        "ended": [],
        "living": [],
        "finished": int,
        "spawn_missing": lambda database: None,
        "next_start_seconds": lambda: None,
        "worker_ids": list,
    }
    return SimpleNamespace(**idle | differing)


@pytest.fixture
def maintenance_runner(transactional_db) -> Iterator[Callable[..., MaintenanceRunner]]:
    """Make the maintenance of a command, whose connection is closed at the end, also of a test that fails."""
    made = []

    def make(
        pool=None, *, monitor=None, wake=lambda payloads: None, drained=None, alias="default"
    ) -> MaintenanceRunner:
        pool, monitor = pool or idle_pool(), monitor or HeartbeatMonitor(30)
        made.append(MaintenanceRunner(alias, pool, monitor, wake=wake, drained=drained))
        return made[-1]

    yield make
    for maintenance in made:
        maintenance.database.close()
