"""Charts, drawn by ``charts.js``: an island of JSON in the page, and the same numbers as a table for screen readers."""

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from django_pgqueue.insights.formatting import grouped, short
from django_pgqueue.insights.throughput import Interval, StatsCounts

Value = float | None


class ChartLine(NamedTuple):
    kind: str  # succeeded, failed or wait; the stylesheet gives it its colour
    label: str
    values: Sequence[Value]  # one for each time; None where there is nothing to say


@dataclass(frozen=True)
class Chart:
    id: str  # of the island in the page, and of its region for live refresh
    title: str
    unit: str  # behind a value, such as ``/min``
    times: Sequence[dt.datetime]
    lines: Sequence[ChartLine]
    nothing: str  # to say in place of a chart without any value

    @property
    def has_values(self) -> bool:
        return any(any(line.values) for line in self.lines)

    def island(self) -> dict[str, Any]:
        return {
            "times": [int(time.timestamp()) for time in self.times],
            "zone": getattr(timezone.get_current_timezone(), "key", "UTC"),  # browsers know no bare offsets
            "unit": self.unit,
            "lines": [line._asdict() for line in self.lines],
        }

    def rows(self) -> list[tuple[dt.datetime, list[str]]]:
        columns = [line.values for line in self.lines]
        found = zip(self.times, zip(*columns, strict=True), strict=True)
        return [(time, [_shown(value) for value in values]) for time, values in found if any(values)][::-1]


STYLES = ("django_pgqueue/charts.css", "django_pgqueue/uplot/uPlot.min.css")


def throughput_chart(series: Sequence[Interval], *, name: str, span: str, minutes: int) -> list[Chart]:
    """Return the charts of throughput and of waiting; ``minutes`` is the length of one stretch."""
    times = [timezone.localtime(stretch.begins_at) for stretch in series]
    lines = [
        ChartLine("succeeded", _("succeeded"), _values(series, lambda counts: counts.succeeded / minutes)),
        ChartLine("failed", _("failed"), _values(series, lambda counts: (counts.failed + counts.lost) / minutes)),
    ]
    nothing = ngettext(
        "Nothing ran in this time, up to the last full minute.",
        "Nothing ran in this time, up to the last full %(number)s minutes.",
        minutes,
    ) % {"number": minutes}
    waits = [ChartLine("wait", _("mean wait"), _values(series, lambda counts: counts.mean_wait_seconds))]
    attempts = _("Attempts per minute, %(span)s") % {"span": span}
    mean_wait = _("Mean wait in seconds, %(span)s") % {"span": span}
    return [
        Chart(f"{name}-throughput", attempts, _("/min"), times, lines, nothing),
        Chart(f"{name}-wait", mean_wait, pgettext("seconds", "s"), times, waits, nothing),
    ]


def _values(series: Iterable[Interval], value: Callable[[StatsCounts], Value]) -> list[Value]:
    return [None if (number := value(stretch.counts)) is None else round(number, 3) for stretch in series]


def _shown(value: Value) -> str:
    if value is None:
        return "-"
    return short(value, 4) if value < 1000 else grouped(round(value))  # noqa: PLR2004 - digits
