"""Why a verb has left jobs alone."""

from collections.abc import Callable, Collection
from enum import StrEnum
from typing import NamedTuple

from django_pgqueue.db.connections import Where, caller_of
from django_pgqueue.db.queries import statement
from django_pgqueue.states import Status


class Left(StrEnum):
    """Why, in words that follow a number of jobs."""

    GONE = "not here any more: finished, killed or removed"
    CHANGING = "just being changed by somebody else; try again"
    QUEUED = "queued already"
    WAITING = "waiting for a limit; due already"
    RUNNING = "running already"
    HELD = "finished; only the unique key still counts"
    KEY_HELD = "a live job holds the unique key; they stay dead"
    REFUSED = "the database refuses to change them; the operation says why"
    OUT_OF_BOUNDS = "a name is too long, or a time cannot be stored; they stay dead"
    ID_TAKEN = "a live job has the same id; they stay dead"


class Standing(NamedTuple):
    """Where a job stands; the columns of ``left_alone.sql``."""

    id: int
    status: str | None  # None: not live
    is_dead: bool
    has_twin: bool  # dead, and a live job has its unique key
    is_out_of_bounds: bool  # dead, and the checks of live jobs would refuse it


Why = Callable[[Standing], Left]


def why_left(ids: Collection[int], why: Why, *, database: Where = None) -> dict[int, Left]:
    """Say why a verb has left these jobs alone, by the function of the verb below."""
    if not ids:
        return {}
    rows = caller_of(database).rows(statement("left_alone"), {"ids": list(ids)})
    return {row[0]: why(Standing._make(row)) for row in rows}


def why_not_killed(job: Standing) -> Left:
    """Neither dead nor asked to stop."""
    if job.status is None:
        return Left.GONE
    return Left.HELD if job.status == Status.HELD else Left.CHANGING


def why_not_changed(job: Standing) -> Left:
    """Neither moved nor given a priority."""
    return Left.RUNNING if job.status == Status.RUNNING else why_not_killed(job)


def why_not_due(job: Standing) -> Left:
    """Not brought forward."""
    if job.status == Status.QUEUED:
        return Left.QUEUED
    return Left.WAITING if job.status == Status.WAITING else why_not_changed(job)


def why_not_requeued(job: Standing) -> Left:
    """Not sent back."""
    if not job.is_dead:
        return Left.GONE
    if job.has_twin:
        return Left.KEY_HELD
    if job.is_out_of_bounds:
        return Left.OUT_OF_BOUNDS
    return Left.ID_TAKEN if job.status else Left.CHANGING


def why_not_purged(job: Standing) -> Left:
    """Not removed."""
    return Left.CHANGING if job.is_dead else Left.GONE
