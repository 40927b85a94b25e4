"""What each metric is called, and what it tells: ``docs/reference/metrics.md`` lists the same."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Name:
    """One metric.

    Args:
        name: without the ``_total`` that a counter gets.
    """

    name: str
    kind: str  # gauge, counter or histogram
    labels: tuple[str, ...]
    help: str


QUEUE: Final = ("queue",)
TASK: Final = ("queue", "task")

# What the tables tell, whoever asks

UP: Final = Name("pgqueue_up", "gauge", (), "Whether the tables could be read in time: 1 or 0.")
JOBS: Final = Name("pgqueue_jobs", "gauge", ("queue", "status"), "Live jobs, counted up to a limit.")
DEAD: Final = Name("pgqueue_dead_jobs", "gauge", QUEUE, "Dead jobs, counted up to a limit.")
CAPPED: Final = Name(
    "pgqueue_jobs_capped",
    "gauge",
    ("queue", "status"),
    "Whether counting has stopped at its limit, so that there may be more jobs: 1 or 0.",
)
OLDEST: Final = Name(
    "pgqueue_oldest_runnable_seconds",
    "gauge",
    QUEUE,
    "For how long the job has been due that could have run for longest; 0 where none waits.",
)
PAUSED: Final = Name("pgqueue_queue_paused", "gauge", QUEUE, "Whether the queue is paused: 1 or 0.")
WORKERS: Final = Name("pgqueue_workers", "gauge", QUEUE, "Living worker processes that serve the queue.")

OF_TABLES: Final = (UP, JOBS, DEAD, CAPPED, OLDEST, PAUSED, WORKERS)

# What one command has done, and does

ATTEMPTS: Final = Name(
    "pgqueue_attempts", "counter", (*TASK, "outcome"), "Attempts that are over, by what they came to."
)
RETRIES: Final = Name("pgqueue_retries", "counter", TASK, "Failed attempts after which the job runs again.")
DIED: Final = Name("pgqueue_died", "counter", TASK, "Jobs that went to the dead jobs.")
STALE: Final = Name("pgqueue_stale_results", "counter", TASK, "Results that were dropped, as their lease was gone.")
ENQUEUED: Final = Name("pgqueue_enqueued", "counter", TASK, "Jobs that were enqueued by this process or command.")
WAIT: Final = Name("pgqueue_wait_seconds", "histogram", TASK, "From when a job was due until it was claimed.")
RUN: Final = Name("pgqueue_run_seconds", "histogram", TASK, "How long attempts have run.")
TURNS: Final = Name(
    "pgqueue_turn_seconds",
    "histogram",
    ("does",),
    "How long transactions took that claim jobs, write outcomes, or both.",
)
CLAIMED: Final = Name("pgqueue_claimed_jobs", "histogram", (), "How many jobs a claim has found.")
ACKED: Final = Name("pgqueue_acked_jobs", "histogram", (), "How many outcomes a transaction has written.")
PROCESSES: Final = Name("pgqueue_processes", "gauge", (), "Living worker processes of this command.")
SLOTS: Final = Name("pgqueue_slots", "gauge", (), "Jobs that the living processes may run at once, of each kind.")
BUSY: Final = Name("pgqueue_slots_busy", "gauge", (), "Jobs that run at this moment.")
LAST_PASS: Final = Name(
    "pgqueue_last_pass_timestamp_seconds", "gauge", ("duty",), "When a duty of the command was last done well."
)
BUILD: Final = Name(
    "pgqueue_build_info", "gauge", ("version", "django", "python"), "Versions of the command; always 1."
)

OF_WORKERS: Final = (
    *(ATTEMPTS, RETRIES, DIED, STALE, ENQUEUED, WAIT, RUN, TURNS, CLAIMED, ACKED),
    *(PROCESSES, SLOTS, BUSY, LAST_PASS, BUILD),
)
