"""Report of a soak, for people."""

from collections import Counter
from collections.abc import Iterator, Mapping

from tests.chaos.ledger import Ledger
from tests.chaos.oracle import CHECKS, DUPLICATED, EARLY, LOST, MISSED, STUCK, Violation, excused_starts
from tests.chaos.storm import kinds

SHOWN, WIDEST = 20, 300
"""Maximum number of violations printed, with what is known of their jobs, and the width of lines; the file has all."""


def table(ledger: Ledger, violations: list[Violation], facts: Mapping[str, str]) -> str:
    """Return the counts of jobs, runs, endings, faults and checks, and the verdict."""
    return "\n".join([*_counts(ledger, facts), "", *_checks(violations), "", verdict(ledger, violations)])


def verdict(ledger: Ledger, violations: list[Violation]) -> str:
    """Return the line that all is about."""
    means = Counter(violation.means for violation in violations)
    line = ", ".join(f"{meaning} {means[meaning]}" for meaning in (LOST, DUPLICATED, STUCK, MISSED, EARLY))
    replaced = ledger.cases.replaced_seconds
    return line + (f", replaced within {max(replaced):.2f} s (of {len(replaced)})" if replaced else "")


def details(ledger: Ledger, violations: list[Violation]) -> Iterator[str]:
    """Yield each violation with everything that is known of its job."""
    for violation in violations:
        yield f"\n{violation.check}: key {violation.key}: {violation.what}"
        if violation.key is not None:
            yield from (f"    {line}" for line in ledger.lines(violation.key))


def _counts(ledger: Ledger, facts: Mapping[str, str]) -> Iterator[str]:
    faults = Counter(fault.kind for fault in ledger.faults if fault.until)
    yield from (_row(*fact) for fact in facts.items())
    yield _row("jobs", _told(Counter(job.fate for job in ledger.jobs.values())))
    yield _row("runs", _told(Counter(run.how or "cut off" for run in ledger.runs)))
    yield _row("outcomes", _told(Counter(ending.reason or "succeeded" for ending in ledger.endings)))
    yield _row("jobs run again", f"{sum(len(runs) > 1 for runs in ledger.runs_of.values()):,}")
    yield _row("late starts", f"{excused_starts(ledger)}, in processes that had been frozen")
    yield _row("cases", ledger.cases.told())
    yield _row("workflows", ledger.flows.told())
    yield _row("faults", f"{faults.total():,}")
    yield from (_row(f"  {kind}", f"{faults[kind]:,}") for kind in (*kinds(), "starve") if faults[kind])


def _checks(violations: list[Violation]) -> Iterator[str]:
    found = Counter(violation.check for violation in violations)
    for check in CHECKS:
        number = found[check.name]
        yield f"{check.name:<50} {f'{number} TIMES BROKEN' if number else 'holds'}"


def _row(name: str, value: str) -> str:
    return f"{name:<20} {value}"


def _told(counts: Counter[str]) -> str:
    return f"{counts.total():,}: " + ", ".join(f"{name} {number:,}" for name, number in sorted(counts.items()))
