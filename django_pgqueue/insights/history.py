"""History of a job: its entries, their words, made of the kind and the values of an entry, and its timeline."""

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_pgqueue.insights.formatting import Part, Sentence, at, duration, job, say, text_of
from django_pgqueue.jobs.captured_log import LOG, split
from django_pgqueue.models import DeadJob, Job, SucceededJob
from django_pgqueue.states import ATTEMPTS, ENDS, LATEST, NEVER, REASONS, EntryKind, Status
from django_pgqueue.stored_values import aware, seconds_between

LONGEST_SECONDS = 10 * 365 * 24 * 3600.0  # of a run: more is an error in the data


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry, with any stored values."""

    kind: EntryKind | None  # its subject; None where this code has not written it
    sentence: Sentence  # the class of the exception, or what happened
    message: str
    attempt: int | None  # number of the attempt, or of those before it
    at: dt.datetime | None  # when it was written, by the database's clock
    begun_at: dt.datetime | None  # when the attempt was claimed; older entries do not know
    run_seconds: float | None  # how long the function ran; unknown where the worker died
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
        """Whether it is about an action of staff, or of no known kind."""
        return not (self.is_attempt or self.is_end)


def entries_of(errors: Any) -> list[Entry]:
    """Return the entries in the order of time; those without one stay where they are."""
    entries = [_entry(raw) for raw in (errors if isinstance(errors, list) else [errors])]
    dated = [(entry.at, place, entry) for place, entry in enumerate(entries) if entry.at is not None]
    return [entry for *_, entry in sorted(dated)] if len(dated) == len(entries) else entries


def instant(value: Any) -> dt.datetime | None:
    """Return an instant that is text in JSON; None for any other value."""
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


def log_of(one: Any) -> str:
    """Return the log lines of the latest run of a job, unless its attempt has them in the history."""
    _, text = split(one.progress)
    attempt = one.progress.get("attempt") if text else None
    is_told = any(entry.attempt == attempt and entry.raw.get(LOG) for entry in entries_of(one.errors))
    return "" if is_told else text


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
    EntryKind.LOST: gettext_lazy("worker lost"),
    EntryKind.KILLED: gettext_lazy("killed by {by}"),
    EntryKind.EXPIRED: gettext_lazy("expired"),
    EntryKind.UNKNOWN_TASK: gettext_lazy("unknown task"),
    EntryKind.SUPERSEDED: gettext_lazy("superseded by job {conflict}"),
    EntryKind.RETRIED: gettext_lazy("died ({reason}), retried by {by}"),
    EntryKind.RETRY_REFUSED: gettext_lazy("not retried by {by}: job {holder} has its unique key"),
    EntryKind.RETRIED_WITH: gettext_lazy("retried with changed arguments as job {retried_as} by {by}"),
    EntryKind.MOVED: gettext_lazy("moved from {from} to {to} by {by}"),
    EntryKind.PRIORITIZED: gettext_lazy("given priority {to} instead of {from} by {by}"),
    EntryKind.MADE_DUE: gettext_lazy("made due at once by {by}"),
}

RETRIED_FROM = gettext_lazy("retried with changed arguments from job {retried_from} by {by}")  # of the new job

JOBS = ("conflict", "holder", "retried_as", "retried_from")
NAMES = ("by", "from", "to", "reason", *JOBS)  # keys that words name; a damaged entry lacks some, or has anything there


def _part(name: str, value: Any) -> Part:
    if value is None:
        return "?"
    if name in JOBS and isinstance(value, int):
        return job(value)
    if name == "by":
        return str(value) or _("a user")
    return str(REASONS.get(str(value), value)) if name == "reason" else str(value)


# Timeline

SHORTEST = 0.001  # seconds; shorter waits are not shown
BOUNDS = (1, 10, 60, 600, 3600)  # seconds; between these, one step is drawn longer than another


@dataclass(frozen=True, slots=True)
class Step:
    kind: str  # enqueued, wait, backoff, failed, lost, note, gap, running, succeeded, ended, died
    sentence: Sentence
    at: dt.datetime | None  # when it began; None where it is not known
    seconds: float | None = None  # it took, has taken or is going to take; None: no time, or it is not known
    is_now: bool = False  # it goes on

    @property
    def duration(self) -> str:
        return "" if self.seconds is None else duration(self.seconds)

    @property
    def length(self) -> int:
        """The length at which it is drawn, 0 to 5."""
        return sum((self.seconds or 0) >= bound for bound in BOUNDS)


def timeline(one: Any) -> list[Step]:
    """Return the steps of a job from any of the three tables, the first one first."""
    return list(_Telling(one).steps())


def lines(steps: list[Step]) -> list[str]:
    told = []
    for step in steps:
        took = f"({step.duration})" if step.duration else ""
        told.append(" ".join(filter(None, (at(step.at) if step.at else "", text_of(step.sentence), took))))
    return told


class _Telling:
    def __init__(self, one: Any) -> None:
        self.one = one
        self.now = aware(timezone.now())
        self.enqueued_at, self.due = aware(one.enqueued_at), aware(one.run_at)
        self.first_started_at, self.started_at = aware(one.first_started_at), aware(one.started_at)
        self.since: dt.datetime | None = self.enqueued_at  # the end of the last thing; from then on the job waits
        self.is_backing_off = self.is_snoozing = False
        self.snoozes: int = getattr(one, "snoozes", 0)
        self.number = 0  # of the last attempt shown
        self.ended_at: dt.datetime | None = None  # when it died without another attempt

    def steps(self) -> Iterator[Step]:
        yield self._enqueued()
        entries = entries_of(self.one.errors)
        attempts = [entry for entry in entries if entry.is_attempt]
        died_at = aware(self.one.died_at) if isinstance(self.one, DeadJob) else LATEST
        later = [entry for entry in entries if entry.is_note and entry.at is not None and entry.at > died_at]
        for entry in entries:
            if entry.is_attempt:
                yield from self._attempt(entry, is_first=entry is attempts[0])
            elif entry.is_end:
                self.ended_at = entry.at
            elif entry not in later:
                yield from self._note(entry)
        if not attempts:
            yield from self._put_back()
        yield from self._snoozed()
        yield from self._end(is_first=not attempts)
        yield from (Step("note", entry.sentence, entry.at) for entry in later)

    def _enqueued(self) -> Step:
        one, words = self.one, _("Enqueued")
        parent = job(one.parent_id) if one.parent_id is not None else ""
        if one.parent_id is not None:
            words = _("Enqueued by job {parent}")
        elif one.schedule_id is not None:
            words = _("Enqueued by a schedule")
        return Step("enqueued", say(words, parent=parent), self.enqueued_at)

    def _note(self, entry: Entry) -> Iterator[Step]:
        was_dead = entry.kind is EntryKind.RETRIED
        is_in_order = entry.at is not None and (self.since is None or entry.at >= self.since)
        if is_in_order:
            yield from self._waits(self.ended_at if was_dead else entry.at)
        if was_dead:
            died_at = self.ended_at or self.since
            self.is_backing_off, self.number, self.ended_at = False, 0, None
            if is_in_order:
                yield from self._wait(died_at, entry.at, _("Was dead"))
        if is_in_order:
            self.since = entry.at
        yield Step("note", entry.sentence, entry.at)

    def _attempt(self, entry: Entry, *, is_first: bool) -> Iterator[Step]:
        number = entry.attempt or 0
        if number > self.number + 1:
            yield self._gap(self.number + 1, number - 1)
        begun = self._begun(entry, is_first=is_first)
        yield from self._waits(begun)
        is_lost = entry.kind is EntryKind.LOST
        words = _("Attempt {number}: its worker died") if is_lost else _("Attempt {number} failed with {error}")
        seconds = seconds_between(begun, entry.at) if begun and entry.at else entry.run_seconds
        sentence = say(words, number=entry.attempt if entry.attempt is not None else "?", error=entry.title)
        yield Step("lost" if is_lost else "failed", sentence, begun or entry.at, seconds)
        self.since, self.is_backing_off, self.number = entry.at, not is_lost, max(number, self.number)

    def _begun(self, entry: Entry, *, is_first: bool) -> dt.datetime | None:
        if entry.begun_at is not None:
            return entry.begun_at
        if entry.run_seconds is not None and entry.at is not None:
            return entry.at - dt.timedelta(seconds=entry.run_seconds)
        is_known = is_first and entry.attempt == 1 and self.first_started_at != NEVER
        return self.first_started_at if is_known else None

    def _gap(self, first: int, last: int) -> Step:
        self.since = None
        words = _("Attempt {first} is not kept in the history")
        if last > first:
            words = _("Attempts {first} to {last} are not kept in the history")
        return Step("gap", say(words, first=first, last=last), None)

    def _waits(self, until: dt.datetime | None) -> Iterator[Step]:
        words = _("Backed off, and waited for its turn") if self.is_backing_off else _("Waited for its turn")
        yield from self._wait(self.since, until, words)

    def _wait(self, since: dt.datetime | None, until: dt.datetime | None, words: str) -> Iterator[Step]:
        if since is not None and until is not None and seconds_between(since, until) >= SHORTEST:
            kind = "backoff" if self.is_backing_off else "wait"
            yield Step(kind, say(words), since, seconds_between(since, until))

    def _put_back(self) -> Iterator[Step]:
        first, last = self.first_started_at, self.started_at
        if first != NEVER and seconds_between(first, last) >= SHORTEST and self.since and first >= self.since:
            yield from self._waits(first)
            words = (
                _("Run for the first time") if self.snoozes else _("Taken by a worker for the first time, and put back")
            )
            yield Step("note", say(words), first)
            self.since = first

    def _snoozed(self) -> Iterator[Step]:
        """Yield the number of snoozes; only the last one has a time."""
        if not self.snoozes:
            return
        words = ngettext("Snoozed {number} time", "Snoozed {number} times", self.snoozes)
        is_last = isinstance(self.one, Job) and self.one.status != Status.RUNNING
        if is_last and self.since is not None and self.since <= self.started_at:
            yield from self._waits(self.started_at)
            yield Step("note", say(words, number=self.snoozes), self.started_at)
            self.since, self.is_backing_off, self.is_snoozing = self.started_at, False, True
        else:
            yield Step("note", say(words, number=self.snoozes), None)

    def _end(self, *, is_first: bool) -> Iterator[Step]:
        one = self.one
        if isinstance(one, DeadJob):
            words = _("Died ({reason}), {time} after it was enqueued")
            died = say(words, reason=one.get_reason_display(), time=self._total(one.died_at))
            yield Step("died", died, one.died_at)
        elif isinstance(one, SucceededJob):
            yield from self._began(is_first=is_first)
            succeeded = say(_("Attempt {number} succeeded"), number=one.attempts)
            yield Step("succeeded", succeeded, self.started_at, one.run_seconds)
            ended = say(_("Succeeded, {time} after it was enqueued"), time=self._total(one.succeeded_at))
            yield Step("ended", ended, one.succeeded_at)
        elif one.status == Status.RESERVED:
            yield Step("ended", say(_("Succeeded; its unique key is held until {time}"), time=one.run_at), None)
        elif one.status == Status.RUNNING:
            yield from self._began(is_first=is_first)
            running = say(_("Attempt {number} is running"), number=one.attempts)
            yield Step("running", running, self.started_at, self._until_now(self.started_at), is_now=True)
        else:
            yield from self._goes_on()

    def _began(self, *, is_first: bool) -> Iterator[Step]:
        if is_first and self.since is not None and self.since < self.due <= self.started_at:
            yield from self._wait(self.since, self.due, _("Put off until it was due"))
            self.since = self.due
        yield from self._waits(self.started_at)

    def _goes_on(self) -> Iterator[Step]:
        since, due = self.since or self.due, self.due
        if due > self.now:
            kind, words = "wait", _("Snoozes; due again at {time}") if self.is_snoozing else _("Due later, at {time}")
            if self.is_backing_off:
                kind, words = "backoff", _("Backs off; due again at {time}")
            yield Step(kind, say(words, time=due), since, seconds_between(since, due), is_now=True)
            return
        yield from self._wait(since, due, _("Backed off") if self.is_backing_off else _("Put off until it was due"))
        since = max(since, due)
        yield Step("wait", say(_("Waits for its turn")), since, self._until_now(since), is_now=True)

    def _until_now(self, since: dt.datetime) -> float:
        return seconds_between(since, self.now)

    def _total(self, end: dt.datetime) -> str:
        return duration(seconds_between(self.enqueued_at, end))
