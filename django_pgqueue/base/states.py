"""The words for where a job is and why it died. The same words stand in SQL, admin, metrics and docs."""

import datetime as dt
from enum import StrEnum


class Status(StrEnum):
    """Where a row of ``pgqueue_jobs`` stands."""

    SCHEDULED = "scheduled"  # due later: delayed, or backing off after a failed attempt
    QUEUED = "queued"  # may be claimed now
    WAITING = "waiting"  # not admitted yet: a concurrency key or a limit of its queue is exhausted
    RUNNING = "running"  # claimed by a worker that holds its lease
    HELD = "held"  # finished; only its unique key still counts


class Reason(StrEnum):
    """Why a job stands in ``pgqueue_dead_jobs``."""

    EXHAUSTED = "exhausted"  # every attempt failed
    DISCARDED = "discarded"  # the task raised Discard
    LOST = "lost"  # its workers died, more often than the job may be attempted
    KILLED = "killed"  # somebody stopped it
    EXPIRED = "expired"  # not started before its deadline
    UNKNOWN_TASK = "unknown_task"  # no worker knew the task for a day


# What a claim overwrites is NOT NULL, so that a claimed row is no larger than a queued one; this means "not yet".
NEVER = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

# Later than any job is meant for; keeps infinity out, with which neither Python nor older servers can reckon.
LATEST = dt.datetime(9999, 1, 1, tzinfo=dt.UTC)

LOWEST_PRIORITY, HIGHEST_PRIORITY = -100, 100

# A job whose worker died this often is taken for the cause, whatever attempts it has left.
MAX_LOST = 3
