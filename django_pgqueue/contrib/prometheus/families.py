"""Metrics: their names, kinds, labels and texts, and the families that are made of them."""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString


@dataclass(frozen=True)
class MetricName:
    """One metric; a counter's name gets ``_total`` in addition."""

    name: str
    kind: str  # gauge, counter or histogram
    labels: tuple[str, ...]
    help: str


QUEUE: Final = ("queue",)
TASK: Final = ("queue", "task")
WORKFLOW: Final = ("workflow",)
OUTBOX: Final = ("outbox",)

# Metrics of the tables

UP: Final = MetricName("pgqueue_up", "gauge", (), "Whether the tables could be read in time: 1 or 0.")
JOBS: Final = MetricName("pgqueue_jobs", "gauge", ("queue", "status"), "Live and dead jobs, counted up to a limit.")
CAPPED: Final = MetricName(
    "pgqueue_jobs_capped",
    "gauge",
    ("queue", "status"),
    "Whether counting has stopped at its limit, so that there may be more jobs: 1 or 0.",
)
OLDEST: Final = MetricName(
    "pgqueue_oldest_runnable_seconds",
    "gauge",
    QUEUE,
    "For how long the job has been due that could have run for longest; 0 where none waits.",
)
WAITING_P99: Final = MetricName(
    "pgqueue_waiting_p99_seconds",
    "gauge",
    QUEUE,
    "For how long 99 of 100 of the next 1,000 queued jobs have been due at most; 0 where none waits.",
)
PAUSED: Final = MetricName("pgqueue_queue_paused", "gauge", QUEUE, "Whether the queue is paused: 1 or 0.")
LIMITED: Final = MetricName(
    "pgqueue_queue_limited", "gauge", QUEUE, "Whether the queue has a limit, max_running or a rate: 1 or 0."
)
MAX_BACKLOG: Final = MetricName(
    "pgqueue_queue_max_backlog",
    "gauge",
    QUEUE,
    "Queued jobs from which on the queue takes no more; only of queues with a max_backlog.",
)
WORKERS: Final = MetricName("pgqueue_workers", "gauge", QUEUE, "Living worker processes that serve the queue.")

WORKFLOWS_OPEN: Final = MetricName("pgqueue_workflows_open", "gauge", WORKFLOW, "Open workflows, by their name.")
WORKFLOWS_STUCK: Final = MetricName(
    "pgqueue_workflows_stuck", "gauge", WORKFLOW, "Open workflows that will not end before people do something."
)
WORKFLOWS_OVERDUE: Final = MetricName(
    "pgqueue_workflows_overdue", "gauge", WORKFLOW, "Open workflows whose deadline has passed."
)
STAGES_OPEN: Final = MetricName("pgqueue_stages_open", "gauge", WORKFLOW, "Open stages of workflows.")
STAGES_STUCK: Final = MetricName(
    "pgqueue_stages_stuck",
    "gauge",
    WORKFLOW,
    "Open stages that wait for dead members, or for failed workflows of members, and for nothing else.",
)
STAGES_UNSEALED: Final = MetricName(
    "pgqueue_stages_unsealed",
    "gauge",
    WORKFLOW,
    "Open stages without members that were not sealed within an hour.",
)
OLDEST_WORKFLOW: Final = MetricName(
    "pgqueue_oldest_workflow_seconds",
    "gauge",
    WORKFLOW,
    "Since when the open workflow was begun that was begun first; 0 where none is open.",
)
WORKFLOWS_ENDED: Final = MetricName(
    "pgqueue_workflows_ended", "gauge", (*WORKFLOW, "status"), "Workflows that have ended within the last hour."
)
WORKFLOW_P50: Final = MetricName(
    "pgqueue_workflow_p50_seconds",
    "gauge",
    WORKFLOW,
    "How long half of the workflows took at most, from begin to end, that have ended within the last hour.",
)
WORKFLOW_P95: Final = MetricName(
    "pgqueue_workflow_p95_seconds",
    "gauge",
    WORKFLOW,
    "How long 95 of 100 workflows took at most, from begin to end, of those that have ended within the last hour.",
)
WORKFLOWS_CAPPED: Final = MetricName(
    "pgqueue_workflows_capped",
    "gauge",
    (),
    "Whether counting has stopped at its limit, so that there may be more workflows or stages: 1 or 0.",
)

OUTBOX_WAITING: Final = MetricName(
    "pgqueue_outbox_waiting", "gauge", OUTBOX, "Calls in the outbox that are no jobs yet, counted up to a limit."
)
OUTBOX_OLDEST: Final = MetricName(
    "pgqueue_outbox_oldest_seconds",
    "gauge",
    OUTBOX,
    "For how long the first call in the outbox has waited; 0 where none waits.",
)

OF_QUEUES: Final = (JOBS, CAPPED, OLDEST, WAITING_P99, PAUSED, LIMITED, MAX_BACKLOG, WORKERS)
OF_WORKFLOWS: Final = (
    *(WORKFLOWS_OPEN, WORKFLOWS_STUCK, WORKFLOWS_OVERDUE, STAGES_OPEN, STAGES_STUCK, STAGES_UNSEALED),
    *(OLDEST_WORKFLOW, WORKFLOWS_ENDED, WORKFLOW_P50, WORKFLOW_P95, WORKFLOWS_CAPPED),
)
OF_TABLES: Final = (UP, *OF_QUEUES, *OF_WORKFLOWS, OUTBOX_WAITING, OUTBOX_OLDEST)

# Metrics of one process

ATTEMPTS: Final = MetricName("pgqueue_attempts", "counter", (*TASK, "outcome"), "Attempts that have ended, by outcome.")
SUCCEEDED: Final = MetricName("pgqueue_jobs_succeeded", "counter", TASK, "Jobs that have succeeded.")
RETRIED: Final = MetricName("pgqueue_jobs_retried", "counter", TASK, "Failed attempts after which the job runs again.")
DIED: Final = MetricName("pgqueue_jobs_died", "counter", TASK, "Jobs that went to the dead jobs.")
STALE: Final = MetricName(
    "pgqueue_stale_results", "counter", TASK, "Results that were dropped, as their lease was gone."
)
ENQUEUED: Final = MetricName(
    "pgqueue_jobs_enqueued", "counter", TASK, "Jobs that were enqueued by this process or command."
)
WAIT: Final = MetricName("pgqueue_job_wait_seconds", "histogram", TASK, "From when a job was due until it was claimed.")
RUN: Final = MetricName("pgqueue_job_run_seconds", "histogram", TASK, "How long attempts have run.")
CYCLES: Final = MetricName(
    "pgqueue_worker_cycle_seconds",
    "histogram",
    ("phase",),
    "How long transactions took that claim jobs, write outcomes, or both.",
)
CLAIMED: Final = MetricName("pgqueue_claimed_jobs", "histogram", (), "How many jobs a claim has found.")
ACKED: Final = MetricName("pgqueue_acked_jobs", "histogram", (), "How many outcomes a transaction has written.")
PROCESSES: Final = MetricName("pgqueue_processes", "gauge", (), "Living worker processes of this command.")
SLOTS: Final = MetricName("pgqueue_slots", "gauge", (), "Jobs that the living processes may run at once, of each kind.")
BUSY: Final = MetricName("pgqueue_slots_busy", "gauge", (), "Jobs that run at this moment.")
QUIET: Final = MetricName("pgqueue_worker_quiet", "gauge", (), "1 while the command claims no jobs, as it was asked.")
HANDED_OVER: Final = MetricName(
    "pgqueue_outbox_handed_over", "counter", OUTBOX, "Calls in the outbox of which this command has made jobs."
)
LAST_PASS: Final = MetricName(
    "pgqueue_last_pass_timestamp_seconds", "gauge", ("service",), "When a service of the command last ran well."
)
BUILD: Final = MetricName(
    "pgqueue_build_info", "gauge", ("version", "django", "python"), "Versions of the command; always 1."
)

OF_WORKERS: Final = (
    *(ATTEMPTS, SUCCEEDED, RETRIED, DIED, STALE, ENQUEUED, WAIT, RUN, CYCLES, CLAIMED, ACKED),
    *(PROCESSES, SLOTS, BUSY, QUIET, HANDED_OVER, LAST_PASS, BUILD),
)


# Families

KINDS: dict[str, Any] = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
    "histogram": HistogramMetricFamily,
}


def family(name: MetricName, samples: Iterable[Sequence[Any]] = ()) -> Any:
    """Return the family of a metric; a sample is what ``add_metric`` of its kind takes."""
    made = KINDS[name.kind](name.name, name.help, labels=name.labels)
    for sample in samples:
        made.add_metric(*sample)
    return made


def observed(bounds: Sequence[float], counts: Sequence[float]) -> list[tuple[str, float]]:
    """Return how many there are up to each bound, of how many there are in each bucket; the last has no bound."""
    ends = _ends(tuple(bounds))
    return list(zip(ends, accumulate(counts[: len(ends)]), strict=True))


@functools.cache
def _ends(bounds: tuple[float, ...]) -> tuple[str, ...]:
    return (*map(floatToGoString, bounds), "+Inf")
