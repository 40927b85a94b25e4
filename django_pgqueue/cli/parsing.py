"""Words of the command line into values. Each error names the value and says what is wanted instead."""

import argparse
import datetime as dt
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from django.core.management.base import CommandError
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from django_pgqueue.insights.formatting import UNITS
from django_pgqueue.jobs.search import Filter
from django_pgqueue.states import LONGEST_DELAY, Reason

NONE = "none"
"""Removes a limit."""

MOST_LISTED = 10_000
MOST_MINUTES = 1440
LONGEST_PAUSE = 3600

REASONS = tuple(reason.value for reason in Reason)


def job_id(text: str) -> int:
    """Return the id of a job, 1 to 2⁶³-1."""
    if not re.fullmatch(r"\d{1,19}", text, re.ASCII) or not 0 < int(text) < 2**63:
        raise argparse.ArgumentTypeError(f"no job has the id {text}: ids are 1 to {2**63 - 1}")
    return int(text)


def limit(text: str) -> int:
    """Return a number of jobs to list, 1 to 10,000."""
    if not re.fullmatch(r"\d{1,5}", text, re.ASCII) or not 0 < int(text) <= MOST_LISTED:
        raise argparse.ArgumentTypeError(f"1 to {MOST_LISTED} jobs are listed at once, not {text}")
    return int(text)


def minutes(text: str) -> int:
    """Return a number of minutes to look back at, 1 to 1,440."""
    if not re.fullmatch(r"\d{1,4}", text, re.ASCII) or not 0 < int(text) <= MOST_MINUTES:
        raise argparse.ArgumentTypeError(f"it looks back 1 to {MOST_MINUTES} minutes, not {text}")
    return int(text)


def pause(text: str) -> float:
    """Return a number of seconds between two looks, 1 to 3,600."""
    if not re.fullmatch(r"\d{1,4}(\.\d{1,3})?", text, re.ASCII) or not 1 <= float(text) <= LONGEST_PAUSE:
        raise argparse.ArgumentTypeError(f"the pause is 1 to {LONGEST_PAUSE} seconds, not {text}")
    return float(text)


def age(text: str) -> dt.timedelta:
    """Return a duration such as ``90s``, ``15m``, ``2h``, ``7d`` or ``1.5w``, of 100 years at most."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)([smhdw])", text, re.ASCII)
    seconds = float(match[1]) * UNITS[match[2]] if match else -1.0
    if not 0 <= seconds <= LONGEST_DELAY.total_seconds():
        raise argparse.ArgumentTypeError(
            f"{text!r} is no duration: write a number and s, m, h, d or w, as in 90s; {LONGEST_DELAY.days}d at most"
        )
    return dt.timedelta(seconds=seconds)


def number_or_none(text: str) -> int | None:
    """Return a number, or None for ``none``."""
    if text == NONE:
        return None
    if not re.fullmatch(r"\d{1,7}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is no limit: write a number, or none to remove it")
    return int(text)


class Rate(NamedTuple):
    """A number in a time."""

    number: int
    period: dt.timedelta


def rate_or_none(text: str) -> Rate | None:
    """Return a rate such as ``100/s``, ``60/m`` or ``5/10s``, or None for ``none``."""
    if text == NONE:
        return None
    number, _, period = text.partition("/")
    if not re.fullmatch(r"\d{1,7}", number, re.ASCII) or not period:
        raise argparse.ArgumentTypeError(f"{text!r} is no rate: write it as in 100/s, 60/m or 5/10s, or none")
    return Rate(int(number), age(period if period[0].isdigit() else f"1{period}"))


def instant(text: str) -> dt.datetime:
    """Return a date and time in ISO 8601; without an offset it is in the current time zone."""
    try:
        value = parse_datetime(text)
    except ValueError:
        value = None
    if value is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write it as in 2031-05-01T09:00 or 2031-05-01T07:00Z")
    return value if timezone.is_aware(value) else timezone.make_aware(value)


def json_array(text: str) -> list[Any]:
    """Return a JSON array; errors leave out what is in it."""
    value = _json(text)
    if not isinstance(value, list):
        raise argparse.ArgumentTypeError("""it must be a JSON array of positional arguments, as in '[17, "x"]'""")
    return value


def json_object(text: str) -> dict[str, Any]:
    """Return a JSON object; errors leave out what is in it."""
    value = _json(text)
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("""it must be a JSON object of names and values, as in '{"order_id": 17}'""")
    return value


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        where = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else "too long"
        raise argparse.ArgumentTypeError(f"it is no JSON: {where}") from error


def filter_from(options: Mapping[str, Any], kinds: tuple[str, ...] = ()) -> Filter:
    """Return what the options of a filter choose.

    Args:
        kinds: statuses or reasons where the options name none.
    """
    older_than = options.get("older_than")
    return Filter(
        queues=tuple(options.get("queue") or ()),
        tasks=tuple(options.get("task") or ()),
        kinds=kinds,
        older_than_seconds=older_than.total_seconds() if older_than is not None else None,
        error=options.get("error"),
    )


def must_choose(options: Mapping[str, Any]) -> None:
    """Raise CommandError unless jobs are chosen by ids, or by a filter, or all of them; by one way only."""
    given = [
        f"--{name.replace('_', '-')}"
        for name in ("queue", "task", "status", "reason", "older_than", "error", "all")
        if options.get(name) not in (None, False, [])
    ]
    if options["ids"] and given:
        raise CommandError(
            f"Jobs are chosen by ids or by a filter, not both: leave out the ids, or {', '.join(given)}."
        )
    if not options["ids"] and not given:
        raise CommandError("Say which jobs: give ids, a filter such as --queue or --older-than, or --all.")
    if options.get("finished") and options["reason"]:
        raise CommandError("Finished jobs have no --reason: leave it out, or --finished.")
