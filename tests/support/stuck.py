"""A supervisor's look at processes that stand still, by a clock that the test moves."""

from django_pgqueue.models import Job
from django_pgqueue.worker.heartbeat import HeartbeatMonitor
from django_pgqueue.worker.maintenance import MaintenanceRunner

LEASE_SECONDS = 30


class Clock:
    """The monotonic clock of the supervisor's main thread."""

    seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


def watch(pool, clock, seconds: float) -> None:
    """Let the main thread look after its processes once a second, for so long."""
    for _ in range(round(seconds)):
        clock.seconds += 1
        pool.remove_stuck()


def settle(pool) -> set[tuple]:
    """Let maintenance settle what the process has left that was ended; return what stands in the rows of its jobs."""
    [process] = pool.killed
    pool.living.remove(process)
    pool.ended.append(process)
    process.close = lambda: None
    maintenance = MaintenanceRunner(
        "default", pool, HeartbeatMonitor(LEASE_SECONDS), wake=lambda queues: None, drained=None
    )
    try:
        maintenance.settle_ended()
    finally:
        maintenance.database.close()
    return {(row.id, row.attempts, row.lost) for row in Job.objects.all()}
