"""The history of a job, entry by entry: attempts that failed, what else ended it, and what staff did to it."""

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.utils import timezone
from django.utils.dateparse import parse_datetime

from django_pgqueue.states import LATEST, NEVER, NOTES

LONGEST_SECONDS = 10 * 365 * 24 * 3600.0
"""Maximum of a run: more is a slip of somebody's."""


class Kind(StrEnum):
    """What an entry tells of."""

    FAILURE = "failure"  # an attempt has failed
    LOST = "lost"  # its worker died with it
    END = "end"  # it died without another attempt: killed, expired, superseded
    NOTE = "note"  # somebody has done something to it


LOST = "worker lost"
ENDS = ("killed by ", "expired", "superseded by ", "unknown task")


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry, whatever somebody has written there.

    Attributes:
        title: the class of the exception, or what happened.
        attempt: which one it tells of, or after how many it was written.
        at: when it was written, by the database's clock.
        begun_at: when the attempt was claimed; older entries do not know.
        run_seconds: how long the function ran; unknown where the worker died.
    """

    kind: Kind
    title: str
    message: str
    attempt: int | None
    at: dt.datetime | None
    begun_at: dt.datetime | None
    run_seconds: float | None
    raw: Mapping[str, Any]


def entries_of(errors: Any) -> list[Entry]:
    """Return the entries in the order of time; those without one stay where they are."""
    entries = [_entry(raw) for raw in (errors if isinstance(errors, list) else [errors])]
    dated = [(entry.at, place, entry) for place, entry in enumerate(entries) if entry.at is not None]
    return [entry for *_, entry in sorted(dated)] if len(dated) == len(entries) else entries


def instant(value: Any) -> dt.datetime | None:
    """Return the instant that stands in JSON as a text, or None where it is something else."""
    try:
        found = parse_datetime(value) if isinstance(value, str) else None
    except ValueError:
        return None
    if found is None:
        return None
    found = timezone.make_aware(found, dt.UTC) if timezone.is_naive(found) else found
    return found if NEVER <= found <= LATEST else None  # another has no place in every time zone


def _entry(raw: Any) -> Entry:
    if not isinstance(raw, dict):
        raw = {"error": json.dumps(raw, ensure_ascii=False)}
    attempt, seconds = raw.get("attempt"), raw.get("run_seconds")
    is_known = isinstance(seconds, int | float) and 0 <= seconds <= LONGEST_SECONDS
    return Entry(
        kind=_kind(raw),
        title=str(raw.get("error") or ""),
        message=str(raw.get("message") or ""),
        attempt=attempt if isinstance(attempt, int) else None,
        at=instant(raw.get("at")),
        begun_at=instant(raw.get("started_at")),
        run_seconds=float(seconds) if is_known else None,
        raw=raw,
    )


def _kind(raw: Mapping[str, Any]) -> Kind:
    title = str(raw.get("error"))
    if title.startswith(LOST):
        return Kind.LOST
    if "worker_id" in raw or "traceback" in raw:
        return Kind.FAILURE
    if title.startswith(ENDS):
        return Kind.END
    return Kind.NOTE if title.startswith(NOTES) else Kind.FAILURE
