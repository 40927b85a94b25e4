"""Entries of a job's history, and their words: made here, of the kind and the values of an entry."""

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext_lazy as _

from django_pgqueue.insights.formatting import Part, Sentence, job, say, text_of
from django_pgqueue.states import ATTEMPTS, ENDS, LATEST, NEVER, REASONS, EntryKind

LONGEST_SECONDS = 10 * 365 * 24 * 3600.0
"""Maximum of a run: more is an error in the data."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry, whatever is stored there.

    Attributes:
        kind: what it tells of; None where this code has not written it.
        sentence: the class of the exception, or what happened.
        attempt: which one it tells of, or after how many it was written.
        at: when it was written, by the database's clock.
        begun_at: when the attempt was claimed; older entries do not know.
        run_seconds: how long the function ran; unknown where the worker died.
    """

    kind: EntryKind | None
    sentence: Sentence
    message: str
    attempt: int | None
    at: dt.datetime | None
    begun_at: dt.datetime | None
    run_seconds: float | None
    raw: Mapping[str, Any]

    @property
    def title(self) -> str:
        return text_of(self.sentence)

    @property
    def is_attempt(self) -> bool:
        return self.kind in ATTEMPTS

    @property
    def is_end(self) -> bool:
        """Whether the job died then, without another attempt."""
        return self.kind in ENDS

    @property
    def is_note(self) -> bool:
        """Whether it tells what staff did, or is of no known kind."""
        return not (self.is_attempt or self.is_end)


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
        kind=EntryKind.of(raw),
        sentence=_sentence(raw),
        message=str(raw.get("message") or ""),
        attempt=attempt if isinstance(attempt, int) else None,
        at=instant(raw.get("at")),
        begun_at=instant(raw.get("started_at")),
        run_seconds=float(seconds) if is_known else None,
        raw=raw,
    )


# Words


def title_of(entry: Mapping[str, Any]) -> str:
    """Return the class of the exception, or what happened, in words."""
    return text_of(_sentence(entry))


def _sentence(entry: Mapping[str, Any]) -> Sentence:
    kind = EntryKind.of(entry)
    if kind is None or kind is EntryKind.FAILED:
        return say("{title}", title=str(entry.get("error") or ""))
    words = RETRIED_FROM if kind is EntryKind.RETRIED_WITH and "retried_from" in entry else WORDS[kind]
    return Sentence(str(words), {name: _part(name, entry.get(name)) for name in NAMES})


WORDS: Mapping[EntryKind, Any] = {
    EntryKind.LOST: _("worker lost"),
    EntryKind.KILLED: _("killed by {by}"),
    EntryKind.EXPIRED: _("expired"),
    EntryKind.UNKNOWN_TASK: _("unknown task"),
    EntryKind.SUPERSEDED: _("superseded by job {conflict}"),
    EntryKind.RETRIED: _("died ({reason}), retried by {by}"),
    EntryKind.RETRY_REFUSED: _("not retried by {by}: job {holder} has its unique key"),
    EntryKind.RETRIED_WITH: _("retried with changed arguments as job {retried_as} by {by}"),
    EntryKind.MOVED: _("moved from {from} to {to} by {by}"),
    EntryKind.PRIORITIZED: _("given priority {to} instead of {from} by {by}"),
    EntryKind.MADE_DUE: _("made due at once by {by}"),
}

RETRIED_FROM = _("retried with changed arguments from job {retried_from} by {by}")
"""The same in the history of the new job."""

JOBS = ("conflict", "holder", "retried_as", "retried_from")

NAMES = ("by", "from", "to", "reason", *JOBS)
"""Keys of entries for which words have a place. In a damaged entry some are missing, or hold anything."""


def _part(name: str, value: Any) -> Part:
    if value is None:
        return "?"
    if name in JOBS and isinstance(value, int):
        return job(value)
    return str(REASONS.get(str(value), value)) if name == "reason" else str(value)
