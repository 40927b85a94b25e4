"""Report of a bench. The names carry the units, for they are the keys of the JSON."""

import math
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from django_pgqueue.bench.load import Load


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle and the slow end of many measurements, in milliseconds."""

    p50_ms: float
    p99_ms: float
    samples: int


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The cost of making the backlog by ``enqueue_many``."""

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
    commit_us_per_job: float  # what is left: begin, settings, commit


@dataclass(frozen=True, slots=True)
class Drained:
    """The cost of draining the backlog."""

    seconds: float  # from the commit of the jobs until the last of them was gone
    jobs_per_second: float
    wait: Spread  # from the commit of the jobs to the start of each
    wal_bytes_per_job: float | None  # None: the server does not tell
    worker_cpu_us_per_job: float | None  # None: not Linux
    server_cpu_us_per_job: float | None  # None: the server runs elsewhere, or does not tell
    reaped_leases: int


@dataclass(frozen=True, slots=True)
class BenchReport:
    """All of it."""

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

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def spread(seconds: Collection[float]) -> Spread:
    """Sum up durations; at least one is needed."""
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return round(ordered[math.ceil(share * len(ordered)) - 1] * 1000, 4)

    return Spread(at(0.5), at(0.99), len(ordered))


def per_job(total: float | None, jobs: int, *, unit: float = 1.0) -> float | None:
    """Divide what may not be known by the number of jobs."""
    return None if total is None else round(total / jobs / unit, 2)
