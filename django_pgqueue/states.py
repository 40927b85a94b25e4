"""Statuses, reasons and other words stored in the tables, with the bounds of stored values."""

import datetime as dt
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

__all__ = ["AttemptOutcome", "DeathReason", "JobStatus", "OnDeath", "OpensWhen", "StageStatus", "WorkflowStatus"]


class Status(TextChoices):
    """The status of a row of ``pgqueue_jobs``."""

    SCHEDULED = "scheduled", _("scheduled")  # due later: delayed, or backing off after a failed attempt
    QUEUED = "queued", _("queued")  # may be claimed now
    LIMITED = "limited", _("limited")  # not admitted yet: all slots of its concurrency key are in use
    RUNNING = "running", _("running")  # claimed by a worker that holds its lease
    RESERVED = "reserved", _("reserved")  # succeeded; only its unique key still counts
    BLOCKED = "blocked", _("blocked")  # a member of a stage that is not open yet


# Where a job is that does not live any more.
DEAD, SUCCEEDED = "dead", "succeeded"


class JobStatus(StrEnum):
    """The status of a job, whichever table it is in: of a live one that of its row."""

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    LIMITED = "limited"
    RUNNING = "running"
    RESERVED = "reserved"  # it has succeeded, and nothing is left but its unique key
    BLOCKED = "blocked"
    DEAD = "dead"
    SUCCEEDED = "succeeded"


class DeathReason(TextChoices):
    """The reason why a job is in ``pgqueue_dead_jobs``."""

    EXHAUSTED = "exhausted", _("exhausted")  # every attempt failed, or it snoozed once more than it may
    DISCARDED = "discarded", _("discarded")  # the task raised Discard, or what its discard_on names
    LOST = "lost", _("lost")  # its workers died, more often than the job may be attempted
    KILLED = "killed", _("killed")  # stopped on request
    EXPIRED = "expired", _("expired")  # not started before its deadline
    UNKNOWN_TASK = "unknown_task", _("unknown task")  # no worker knew the task for a day
    SUPERSEDED = "superseded", _("superseded")  # a newer job has its unique key


class AttemptOutcome(StrEnum):
    """The outcome of an attempt, as signals, the log and the metrics name it."""

    SUCCEEDED = "succeeded"
    RETRIED = "retried"  # it failed, and the job is tried again
    DIED = "died"  # it failed, and the job is dead
    SNOOZED = "snoozed"  # it asked to run later, which is no attempt
    RELEASED = "released"  # it does not count: the job goes back with its attempt restored
    LOST = "lost"  # its worker died, and the job is tried again


class UniqueUntil(StrEnum):
    """The time for which a job holds its unique key: no other live job may have it meanwhile."""

    END = "end"  # until it has succeeded or died
    START = "start"  # until it starts, so that a change that comes during the run is not missed
    STARTED = "started"  # it has started, and given the key up
    GIVEN_UP = "given_up"  # it was held to the end; as it would not run any more, a newer job took the key


class OnConflict(StrEnum):
    """The rule for the job that has the unique key when another is enqueued."""

    KEEP = "keep"  # it stays as it is
    REPLACE = "replace"  # it gets the new arguments
    LATER = "later"  # it runs at the later of the two times
    EARLIER = "earlier"  # it runs at the earlier of the two times


class WorkflowStatus(TextChoices):
    """The status of a workflow."""

    OPEN = "open", _("open")  # some of its stages are not over
    SUCCEEDED = "succeeded", _("succeeded")
    FAILED = "failed", _("failed")  # members died and nothing waits for them, or its deadline has passed
    KILLED = "killed", _("killed")  # on request


class StageStatus(TextChoices):
    """The status of a stage of a workflow."""

    BLOCKED = "blocked", _("blocked")  # stages before it are not over
    OPEN = "open", _("open")  # its members run, or wait as any other job
    ENDED = "ended", _("ended")  # it is over: no member lives
    SKIPPED = "skipped", _("skipped")  # its members are not run: its condition was not met, or on request


class OnDeath(TextChoices):
    """The rule for a stage of which a member has died."""

    WAIT = "wait", pgettext_lazy("when a member dies", "wait")  # it stays open until that is retried, or skipped
    STOP = (
        "stop",
        pgettext_lazy("when a member dies", "stop"),
    )  # it ends, and stages that wait for its success are skipped
    GO_ON = "go_on", pgettext_lazy("when a member dies", "go on")  # it ends as if that had succeeded


class OpensWhen(TextChoices):
    """The condition on which a stage opens, of the stages before it."""

    SUCCEEDED = "succeeded", pgettext_lazy("stages before", "succeeded")  # all have
    ENDED = "ended", pgettext_lazy("stages before", "ended")  # all are over, either way
    DIED = "died", pgettext_lazy("stages before", "died")  # a member of one of them


MOST_STAGES = 2**15  # of a workflow: 15 bits of the id of a stage, and one that says whether it collects results


class EntryKind(StrEnum):
    """The ``kind`` of an entry of a job's history. Texts in an entry are for people, and never compared."""

    FAILED = "failed"  # an attempt raised, or was interrupted: ``error`` is the class of the exception
    LOST = "lost"  # an attempt's worker died
    KILLED = "killed"  # it was killed while it did not run
    EXPIRED = "expired"  # it was not started before its deadline
    UNKNOWN_TASK = "unknown_task"  # no worker knew the task for a day
    SUPERSEDED = "superseded"  # a newer job has its unique key
    RETRIED = "retried"  # it was dead, and was sent back
    RETRY_REFUSED = "retry_refused"  # a retry was asked for, and a live job had its unique key
    RETRIED_WITH = "retried_with"  # a new job like the dead one, with other arguments; in both histories
    MOVED = "moved"  # to another queue
    PRIORITIZED = "prioritized"  # given another priority
    MADE_DUE = "made_due"  # was scheduled, and due at once

    @classmethod
    def of(cls, entry: Any) -> "EntryKind | None":
        """Return the kind of an entry; None for any value that this code has not written."""
        try:
            return cls(entry["kind"]) if isinstance(entry, Mapping) else None
        except (KeyError, ValueError):
            return None


ATTEMPTS = frozenset({EntryKind.FAILED, EntryKind.LOST})  # kinds of entries about an attempt

ENDS = frozenset({EntryKind.KILLED, EntryKind.EXPIRED, EntryKind.UNKNOWN_TASK, EntryKind.SUPERSEDED})
"""Kinds of entries of jobs that died without another attempt. All others are notes of what staff did."""


class CatchUp(TextChoices):
    """The rule for ticks at which no worker was there: which of them become jobs after all."""

    LAST = "last", pgettext_lazy("missed ticks", "last")
    NONE = "none", pgettext_lazy("missed ticks", "none")
    ALL = "all", pgettext_lazy("missed ticks", "all")  # up to a bound


# What a claim overwrites is NOT NULL, so that a claimed row is no larger than a queued one; this means "not yet".
NEVER = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

# Later than any job is meant for; keeps infinity out, with which neither Python nor older servers can reckon.
LATEST = dt.datetime(9999, 1, 1, tzinfo=dt.UTC)

LONGEST_DELAY = dt.timedelta(days=36500)

LOWEST_PRIORITY, HIGHEST_PRIORITY = -100, 100

# In characters: each of the indexes has an entry of at most 2,704 bytes, and a character up to four of them.
LONGEST_QUEUE, LONGEST_KEY, LONGEST_TAG = 128, 500, 100

LONGEST_NAME = 500  # characters in the name of a task, and in an alias of TASKS

# Maximum number of jobs with one concurrency key that may run at once.
MOST_SLOTS = 1000

# Maximum of ``max_snoozes``, and the number from which on the snoozes of a job are not counted any more.
MOST_SNOOZES = 32767

MOST_TAGS = 20  # of one job

# Of the rate of a queue: a year.
LONGEST_PERIOD_SECONDS = 365 * 24 * 3600

# A job whose worker died this often is taken for the cause, even if it has attempts left.
MAX_LOST = 3


# Labels for the admin

REASONS: Mapping[str, Any] = {reason: reason.label for reason in DeathReason}
STATUSES: Mapping[str, Any] = {status: status.label for status in Status} | {DEAD: _("dead"), SUCCEEDED: _("succeeded")}


def label_of(status: str, reason: str = "") -> str:
    """Return where a job is, and why it died if it has, as in "dead (killed)"."""
    words = str(STATUSES.get(status, status))
    return f"{words} ({REASONS.get(reason, reason)})" if reason else words
