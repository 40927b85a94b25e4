"""Findings of a benchmark: a figure, its target, and the runs behind it; as a table and as JSON."""

import contextlib
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Samples = dict[str, list[float]]
"""Each run's figure, by what was measured."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure must reach."""

    sign: str
    bound: float

    def is_met_by(self, seen: float) -> bool:
        return seen >= self.bound if self.sign == "≥" else seen <= self.bound

    def __str__(self) -> str:
        return f"{self.sign} {self.bound:g}"


def at_least(bound: float) -> Target:
    return Target("≥", bound)


def at_most(bound: float) -> Target:
    return Target("≤", bound)


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of the table.

    Attributes:
        seen: the figure that is judged.
        target: None if it is only reported.
        unit: of ``seen``; none given: a ratio to the bare counterpart.
        note: the figures behind it, for people.
        samples: the runs behind it, for machines.
    """

    measure: str
    seen: float
    target: Target | None = None
    unit: str = "×"  # noqa: RUF001 - what it is
    note: str = ""
    samples: Samples = field(default_factory=dict)

    @property
    def is_ok(self) -> bool | None:
        return None if self.target is None else self.target.is_met_by(self.seen)

    def as_row(self) -> tuple[str, ...]:
        target = f"{self.target} {self.unit}".strip() if self.target else ""
        return self.measure, target, f"{figure(self.seen)} {self.unit}".strip(), OK[self.is_ok], self.note

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"target": str(self.target or ""), "ok": self.is_ok}


THOUSANDS = 1000
OK = {True: "yes", False: "NO", None: ""}
HEADINGS = ("measure", "target", "seen", "ok", "medians")


# Runs


def alternate(runs: int, /, **measures: Callable[[], float]) -> Samples:
    """Call each measure in turn, again and again; return what each returned."""
    samples: Samples = {name: [] for name in measures}
    for number in range(1, runs + 1):
        for name, measure in measures.items():
            samples[name].append(measure())
        say(f"run {number} of {runs}: " + ", ".join(f"{name} {figure(seen[-1])}" for name, seen in samples.items()))
    return samples


def say(line: str) -> None:
    """Print how far it is."""
    print(f"  {line}", file=sys.stderr, flush=True)


def ratio(samples: Samples, subject: str, counterpart: str) -> float:
    return statistics.median(samples[subject]) / statistics.median(samples[counterpart])


def medians(samples: Samples, unit: str) -> str:
    """Return the median of each series as text."""
    return ", ".join(f"{name} {figure(statistics.median(seen))}" for name, seen in samples.items()) + f" {unit}"


def figure(value: float) -> str:
    """Return a figure with as many digits as mean something."""
    return f"{value:,.0f}" if abs(value) >= THOUSANDS else f"{value:.3g}"


def percentile(values: Iterable[float], percent: float) -> float:
    """Return the smallest value that is not below ``percent`` of all."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


# Output


def collect(findings: Iterator[Finding], path: Path | None) -> list[Finding]:
    """Print each finding when it is there; write all so far to ``path``, so that a run cut short is not lost."""
    found: list[Finding] = []
    for finding in findings:
        found.append(finding)
        print("   ".join(part for part in finding.as_row() if part), flush=True)
        if path:
            path.write_text(json.dumps(document(found), ensure_ascii=False, indent=1))
    return found


def table(found: list[Finding]) -> str:
    return grid([HEADINGS, *(finding.as_row() for finding in found)])


def grid(rows: list[tuple[str, ...]]) -> str:
    """Return rows, the first of them headings, as a Markdown table that also reads well as it is."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    ruled = [rows[0], tuple("-" * width for width in widths), *rows[1:]]
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |" for row in ruled
    )


def document(found: list[Finding]) -> dict[str, Any]:
    return {"environment": environment(), "findings": [finding.as_json() for finding in found]}


def environment() -> dict[str, Any]:
    """Return what the figures depend on, apart from the machine's mood."""
    import django
    import psycopg
    from django.db import connection

    with contextlib.closing(connection.cursor()) as cursor:
        cursor.execute("SELECT current_setting('server_version')")
        [postgresql] = cursor.fetchone()
    return {
        "python": platform.python_version(),
        "django": django.get_version(),
        "psycopg": f"{psycopg.__version__} {psycopg.pq.__impl__}",
        "postgresql": postgresql,
        "cores": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
    }
