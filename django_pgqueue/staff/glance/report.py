"""What programs are told. Names and units stay as they are; what is new is added."""

from collections.abc import Callable
from typing import Any

from django_pgqueue.staff.flow import Counts
from django_pgqueue.staff.glance.look import Glance, QueueGlance
from django_pgqueue.staff.recent import SHARES, Recent

NUMBERS = ("queued", "scheduled", "waiting", "running", "dead")
DONE = ("succeeded", "failed", "retried", "died", "lost", "stale")


def as_json(glance: Glance, *, with_tasks: bool = False) -> dict[str, Any]:
    """Return all that is known; numbers of jobs are counted up to some limit, and ``at_least`` names those."""
    return {
        "at": glance.at,
        "window_seconds": round(glance.seconds, 3),
        "workers": {
            "commands": glance.workers.commands,
            "processes": glance.workers.processes,
            "slots": glance.workers.slots,
            "busy": glance.workers.busy,
        },
        "findings": [finding.as_json() for finding in glance.findings],
        "queues": [_queue(queue, glance.seconds, with_tasks=with_tasks) for queue in glance.queues],
    }


def _queue(queue: QueueGlance, seconds: float, *, with_tasks: bool) -> dict[str, Any]:
    line = queue.line
    numbers = {name: getattr(line, name) for name in NUMBERS}
    tasks = [{"name": task.name, **_done(task.done, seconds)} for task in queue.tasks]
    return {
        "name": line.name,
        "is_paused": line.is_paused,
        **{name: number.value for name, number in numbers.items()},
        "at_least": [name for name, number in numbers.items() if number.is_short],
        "oldest_runnable_seconds": _rounded(line.oldest_seconds),
        "workers": line.workers,
        "drain_seconds": _rounded(queue.drain_seconds),
        **_done(queue.done, seconds),
        **({"tasks": tasks} if with_tasks else {}),
    }


def _done(done: Recent, seconds: float) -> dict[str, Any]:
    counts = done.counts
    return {
        "counts": {name: getattr(counts, name) for name in DONE},
        "per_minute": {name: round(per_minute(counts, name, seconds), 3) for name in DONE},
        "wait_seconds": {"mean": _rounded(counts.mean_wait_seconds), **_percentiles(done.wait_seconds)},
        "run_seconds": {"mean": _rounded(counts.mean_run_seconds), **_percentiles(done.run_seconds)},
    }


def per_minute(counts: Counts, name: str, seconds: float) -> float:
    """Return how often something was counted in a minute, on average."""
    number: int = getattr(counts, name)
    return number * 60 / seconds


def _percentiles(seconds_of: Callable[[float], float | None]) -> dict[str, float | None]:
    return {f"p{share * 100:g}": _rounded(seconds_of(share)) for share in SHARES}


def _rounded(seconds: float | None) -> float | None:
    """Return seconds to the microsecond: nothing here is known more exactly."""
    return None if seconds is None else round(seconds, 6)
