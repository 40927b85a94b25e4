"""A reason why a job is where it is: a sentence for people, which the command prints and the admin shows with links."""

import datetime as dt
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.utils import timezone
from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgqueue.staff.figures import whole


class Ref(NamedTuple):
    """What a sentence speaks of, and where there may be a page for it."""

    kind: str  # job, queue, worker, schedule; key and task have no page
    key: Any
    words: str

    def __str__(self) -> str:
        return f"'{self.words}'" if self.kind in QUOTED else self.words


QUOTED = {"queue", "key", "task", "schedule"}
"""Names that people give, which may be any words."""

Part = str | int | dt.datetime | Ref | list[Ref]


@dataclass(frozen=True, slots=True)
class Sentence:
    """One reason.

    Attributes:
        words: one sentence or more, with the names of parts in braces.
        parts: what stands for those names.
        remedy: what can be done about it by a command, in words that end before that.
        command: what to type.
    """

    words: str
    parts: Mapping[str, Part] = field(default_factory=dict)
    remedy: str = ""
    command: str = ""

    @property
    def is_about_jobs(self) -> bool:
        """Whether the command does what a button of the job's page does too."""
        return "pgqueue_jobs" in self.command


def say(words: str, /, *, remedy: str = "", command: str = "", **parts: Part) -> Sentence:
    """Return a sentence."""
    return Sentence(words, parts, remedy, command)


def text_of(sentence: Sentence, scrub: Callable[[str], str] = str) -> str:
    """Return a sentence as plain text.

    Args:
        scrub: takes what is sensitive out of a text.
    """
    text = scrub(sentence.words.format(**{name: _text(part) for name, part in sentence.parts.items()}))
    return f"{text} {sentence.remedy} {sentence.command}" if sentence.command else text


def job(job_id: int) -> Ref:
    """Speak of a job, in whichever table it is."""
    return Ref("job", job_id, str(job_id))


def named(kind: str, name: str) -> Ref:
    """Speak of what is known by its name: a queue, a key, a task."""
    return Ref(kind, name, name)


def at(value: dt.datetime) -> str:
    """Return an instant to the second, in the time zone of the settings."""
    local = timezone.localtime(value) if timezone.is_aware(value) else value
    return local.isoformat(sep=" ", timespec="seconds")


def duration(seconds: float, *, most_units: int = 2) -> str:
    """Return a length of time in words, by its largest units."""
    seconds = max(seconds, 0.0)
    if seconds < 1:
        return _("%(number)s ms") % {"number": math.ceil(seconds * 1000)}
    if seconds < 60:  # noqa: PLR2004 - a minute
        return _("%(number)s s") % {"number": number_format(f"{seconds:.1f}".removesuffix(".0"))}
    rest = round(seconds)
    parts: list[tuple[int, str]] = []
    for size, words in _units():
        number, rest = divmod(rest, size)
        if number or parts:
            parts.append((number, words(number)))
    largest, *others = parts[:most_units]
    return " ".join(words for number, words in (largest, *others) if number)


def _units() -> list[tuple[int, Callable[[int], str]]]:
    return [
        (86_400, lambda number: ngettext("%(number)d day", "%(number)d days", number) % {"number": number}),
        (3600, lambda number: _("%(number)s h") % {"number": number}),
        (60, lambda number: _("%(number)s min") % {"number": number}),
        (1, lambda number: _("%(number)s s") % {"number": number}),
    ]


def _text(part: Part) -> str:
    if isinstance(part, dt.datetime):
        return at(part)
    if isinstance(part, list):
        return ", ".join(map(str, part))
    return whole(part) if isinstance(part, int) else str(part)
