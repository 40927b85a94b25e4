"""The tables that have jobs, and their times."""

from django_pgqueue.jobs.search import Source

TABLES = {Source.LIVE: "pgqueue_jobs", Source.DEAD: "pgqueue_dead_jobs", Source.SUCCEEDED: "pgqueue_succeeded_jobs"}

TIMES = {Source.LIVE: "enqueued_at", Source.DEAD: "died_at", Source.SUCCEEDED: "succeeded_at"}
