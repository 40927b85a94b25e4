"""Charts, drawn by ``charts.js``: an island of JSON in the page, and the same numbers as a table for screen readers."""

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from django_pgqueue.insights.formatting import short, whole
from django_pgqueue.insights.throughput import Interval, StatsCounts
from django_pgqueue.stored_values import aware

Value = float | None


@dataclass(frozen=True)
class ChartLine:
    """One line of a chart.

    Attributes:
        kind: succeeded, failed or wait; the stylesheet gives it its colour.
        values: one for each time; None where there is nothing to say.
    """

    kind: str
    label: str
    values: Sequence[Value]


@dataclass(frozen=True)
class Chart:
    """Lines over the same times.

    Attributes:
        id: of the island in the page, and the name of its region for live refresh.
        unit: behind a value, such as ``/min``.
        nothing: what to say in place of a chart without any value.
    """

    id: str
    title: str
    unit: str
    times: Sequence[dt.datetime]
    lines: Sequence[ChartLine]
    nothing: str = ""

    @property
    def has_values(self) -> bool:
        return any(any(line.values) for line in self.lines)

    def island(self) -> dict[str, Any]:
        return {
            "times": [int(time.timestamp()) for time in self.times],
            "zone": getattr(timezone.get_current_timezone(), "key", "UTC"),  # browsers know no bare offsets
            "unit": self.unit,
            "lines": [{"kind": line.kind, "label": line.label, "values": line.values} for line in self.lines],
        }

    def rows(self) -> list[tuple[dt.datetime, list[str]]]:
        columns = [line.values for line in self.lines]
        found = zip(self.times, zip(*columns, strict=True), strict=True)
        return [(time, [_shown(value) for value in values]) for time, values in found if any(values)][::-1]


STYLES = ("django_pgqueue/charts.css", "django_pgqueue/uplot/uPlot.min.css")


def throughput_chart(series: Sequence[Interval], *, name: str, span: str, minutes: int) -> list[Chart]:
    """Return the charts of throughput and of waiting; ``minutes`` is the length of one stretch."""
    times = [aware(stretch.begins_at) for stretch in series]
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
    return [
        Chart(
            f"{name}-throughput", _("Attempts per minute, %(span)s") % {"span": span}, _("/min"), times, lines, nothing
        ),
        Chart(
            f"{name}-wait",
            _("Mean wait in seconds, %(span)s") % {"span": span},
            pgettext("seconds", "s"),
            times,
            waits,
            nothing,
        ),
    ]


def _values(series: Iterable[Interval], value: Callable[[StatsCounts], Value]) -> list[Value]:
    return [None if (number := value(stretch.counts)) is None else round(number, 3) for stretch in series]


def _shown(value: Value) -> str:
    if value is None:
        return "-"
    return short(value, 4) if value < 1000 else whole(round(value))  # noqa: PLR2004 - digits
