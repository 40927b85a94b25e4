"""Durations, numbers, sentences and rows, as the admin and the commands show them."""

import datetime as dt
import getpass
import json
import math
import os
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Model
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgqueue import log_lines
from django_pgqueue.flow.queue_limits import UNITS
from django_pgqueue.jobs.search import Source
from django_pgqueue.models import DeadJob, Job, SucceededJob
from django_pgqueue.states import DEAD, SUCCEEDED

QUOTED = {"queue", "key", "task", "schedule"}  # names that people give, which may be any words

HEAVY = ("args", "kwargs", "metadata", "progress")
HEAD = ("id", "status", "queue", "priority", "attempts", "when", "task", "error")


def json_text(value: Any, *, indent: int | None = 2) -> str:
    """Return a value as the JSON that commands print; instants as Django writes them."""
    return json.dumps(value, cls=DjangoJSONEncoder, indent=indent)


def grouped(number: int) -> str:
    """Return a number with its thousands apart."""
    return str(number_format(number, force_grouping=True))


def at_most(number: int, cap: int) -> str:
    """Return a number that was counted up to a cap; a plus follows the cap."""
    return f"{grouped(cap)}+" if number > cap else grouped(number)


def short(number: float, digits: int = 3) -> str:
    """Return a number by its first digits."""
    return str(number_format(Decimal(f"{number:.{digits}g}")))


def rate(number: int, period_seconds: float) -> str:
    """Return a rate as the command line takes it: ``100/s``, ``60/m`` or ``5/10s``."""
    unit = next((unit for unit in ("w", "d", "h", "m") if period_seconds % UNITS[unit] == 0), "s")
    length = period_seconds / UNITS[unit]
    return f"{number}/{unit}" if length == 1 else f"{number}/{length:.10g}{unit}"


def list_item(name: str) -> str:
    """Return a name as one of a comma-separated list on the command line."""
    return '"{}"'.format(name.replace('"', '""')) if "," in name or name.startswith('"') else name


# Times and durations


def local(at: dt.datetime) -> dt.datetime:
    """Return an instant in the time zone of the settings."""
    return timezone.localtime(at) if timezone.is_aware(at) else at


def at(value: dt.datetime) -> str:
    """Return an instant to the second, in the time zone of the settings."""
    return local(value).isoformat(sep=" ", timespec="seconds")


def when(value: dt.datetime | None, never: str = "") -> str:
    """Return an instant to the second, without its zone."""
    return never if value is None else f"{local(value):%Y-%m-%d %H:%M:%S}"


def duration(seconds: float, *, most_units: int = 2) -> str:
    """Return a duration in words, by its largest units: ``3 h 5 min``."""
    seconds = max(seconds, 0.0)
    if seconds < 1:
        return _("%(number)s ms") % {"number": math.ceil(seconds * 1000)}
    if seconds < 60:  # noqa: PLR2004 - a minute
        return _("%(number)s s") % {"number": number_format(f"{seconds:.1f}".removesuffix(".0"))}
    return " ".join(_in_words(number, unit) for number, unit in _parts(seconds)[:most_units] if number)


def brief(seconds: float) -> str:
    """Return the same without fractions of a second, for an age that is looked at again and again."""
    return _("< 1 s") if seconds < 1 else duration(round(seconds))


def compact(seconds: float) -> str:
    """Return a duration for a table in a terminal, by its two largest units: ``3h5m``."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms" if seconds >= 0.001 else "<1ms"  # noqa: PLR2004 - a millisecond
    if seconds < 10:  # noqa: PLR2004 - two digits
        return f"{seconds:.1f}s"
    return "".join(f"{number}{unit}" for number, unit in _parts(seconds)[:2] if number)


def _parts(seconds: float) -> list[tuple[int, str]]:
    rest = round(seconds)
    parts: list[tuple[int, str]] = []
    for unit in ("d", "h", "m", "s"):
        number, rest = divmod(rest, UNITS[unit])
        if number or parts:
            parts.append((number, unit))
    return parts


def _in_words(number: int, unit: str) -> str:
    words = {
        "d": ngettext("%(number)d day", "%(number)d days", number),
        "h": _("%(number)s h"),
        "m": _("%(number)s min"),
        "s": _("%(number)s s"),
    }
    return words[unit] % {"number": number}


# Sentences


class Ref(NamedTuple):
    """A thing that a sentence names, and for which there may be a page."""

    kind: str  # job, queue, worker, schedule; key and task have no page
    key: Any
    words: str

    def __str__(self) -> str:
        return f"'{self.words}'" if self.kind in QUOTED else self.words


Part = str | int | dt.datetime | Ref | list[Ref]


@dataclass(frozen=True, slots=True)
class Sentence:
    words: str  # one sentence or more, with the names of parts in braces
    parts: Mapping[str, Part] = field(default_factory=dict)
    remedy: str = ""  # the remedy by the command, in words that end before that
    command: str = ""

    @property
    def is_about_jobs(self) -> bool:
        """Whether the command does what a button of the job's page does too."""
        return "pgqueue_jobs" in self.command and "pgqueue_jobs try" not in self.command


def say(words: str, /, *, remedy: str = "", command: str = "", **parts: Part) -> Sentence:
    return Sentence(words, parts, remedy, command)


def text_of(sentence: Sentence, scrub: Callable[[str], str] = str) -> str:
    """Return a sentence as plain text; ``scrub`` removes sensitive values."""
    text = scrub(sentence.words.format(**{name: _text(part) for name, part in sentence.parts.items()}))
    return f"{text} {sentence.remedy} {sentence.command}" if sentence.command else text


def job(job_id: int) -> Ref:
    """Speak of a job, in whichever table it is."""
    return Ref("job", job_id, str(job_id))


def named(kind: str, name: str) -> Ref:
    """Return a reference to a thing known by its name: a queue, a key, a task."""
    return Ref(kind, name, name)


def _text(part: Part) -> str:
    if isinstance(part, dt.datetime):
        return at(part)
    if isinstance(part, list):
        return ", ".join(map(str, part))
    return grouped(part) if isinstance(part, int) else str(part)


# Text for a terminal

plain = log_lines.plain


def columns(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as lines of columns, below a head."""
    lines = [head, *(tuple(map(plain, row)) for row in rows)]
    widths = [max(map(width, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(left, line, widths)).rstrip() for line in lines)


def left(text: str, wide: int) -> str:
    """Pad text to a number of columns of a terminal."""
    return text + " " * (wide - width(text))


def right(text: str, wide: int) -> str:
    return " " * (wide - width(text)) + text


def width(text: str) -> int:
    """Return the number of columns of a text in a terminal: two for a wide character, none for a combining one.

    Source: https://www.unicode.org/reports/tr11/
    """
    return len(text) if text.isascii() else sum(map(_width, text))


def cut(text: str, wide: int) -> str:
    """Return text that is no wider: its middle is left out, as names differ at both ends."""
    if width(text) <= wide:
        return text
    head = beginning(text, (wide - 1) // 2)
    return f"{head}…{beginning(text[::-1], wide - 1 - width(head))[::-1]}" if wide > 0 else ""


def confirms(question: str) -> bool:
    try:
        return input(question).strip().lower() in {"y", "yes"}
    except EOFError:
        return False


def user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        return f"user {os.getuid()}"


def _width(character: str) -> int:
    if unicodedata.category(character) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def beginning(text: str, wide: int) -> str:
    """Return the beginning of text that is no wider."""
    end = 0
    while end < len(text) and (wide := wide - _width(text[end])) >= 0:
        end += 1
    return text[:end]


# Rows of jobs

MODELS: dict[Source, type[Model]] = {Source.LIVE: Job, Source.DEAD: DeadJob, Source.SUCCEEDED: SucceededJob}

Row = dict[str, Any]


def rows_of(source: Source, ids: Sequence[int], alias: str) -> list[Row]:
    """Return a row for each of these jobs that is there still, in the order of the ids."""
    model: Any = MODELS[source]
    jobs = model.objects.using(alias).filter(pk__in=ids).defer(*HEAVY).order_by("pk")
    return [row_of(job) for job in jobs]


def row_of(job: Any) -> Row:
    row = {
        "id": job.pk,
        "status": status_of(job),
        "task": job.task,
        "queue": job.queue,
        "priority": job.priority,
        "attempts": job.attempts,
        "tags": job.tags or [],
        "error": error_of(job),
        "enqueued_at": job.enqueued_at,
        "run_at": job.run_at,
    }
    if isinstance(job, DeadJob):
        row |= {"reason": job.reason, "died_at": job.died_at}
    if isinstance(job, SucceededJob):
        row |= {"succeeded_at": job.succeeded_at}
    return row


def status_of(job: Any) -> str:
    """Return the word for where a job is, whichever table that is in."""
    if isinstance(job, DeadJob):
        return DEAD
    return SUCCEEDED if isinstance(job, SucceededJob) else str(job.status)


def error_of(job: Any) -> str | None:
    """Return the class of the last error in the history."""
    last = job.errors[-1] if isinstance(job.errors, list) and job.errors else None
    return str(last["error"]) if isinstance(last, dict) and last.get("error") else None


def table(rows: Iterable[Row]) -> str:
    return columns(HEAD, map(_cells, rows))


def _cells(row: Row) -> Sequence[Any]:
    status = f"{row['status']} ({row['reason']})" if "reason" in row else row["status"]
    moved = when(row.get("died_at") or row.get("succeeded_at") or row["run_at"])
    return (row["id"], status, row["queue"], row["priority"], row["attempts"], moved, row["task"], row["error"] or "")
