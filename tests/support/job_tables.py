"""The tables that have jobs, and their times."""

from django_pgqueue.jobs.search import Source

TABLES = {Source.LIVE: "pgqueue_jobs", Source.DEAD: "pgqueue_dead_jobs", Source.FINISHED: "pgqueue_finished_jobs"}

TIMES = {Source.LIVE: "enqueued_at", Source.DEAD: "died_at", Source.FINISHED: "finished_at"}
