"""Facts known at the end of the cases that producers run beside their batches, of schedules, and of the stream."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from tests.chaos.marks import read_lines

SOUND, BROKEN = "sound", "broken"
SAW, REMINDED = "saw", "reminded"


@dataclass(slots=True)
class Document:
    """A row as it is at the end."""

    key: int
    version: int
    committed_at: int  # microseconds since 1970, as all instants; of the transaction that wrote this version


@dataclass(slots=True)
class Read:
    """A run that has read a document."""

    key: int
    version: int
    began_at: int


@dataclass(slots=True)
class Call:
    """A call that had its answer, after the commit if it was in a transaction."""

    job_id: int
    created: bool
    at: int  # before the call
    was_fetched: bool  # the job was running then, fetched before it expired


@dataclass(slots=True)
class Outcome:
    """What became of a job that is read to documents or reminds, as the tables have it."""

    job_id: int
    key: int
    reason: str  # empty: succeeded
    at: int
    attempts: int
    expires_at: int


@dataclass(slots=True)
class Schedule:
    """A schedule, with the ``run_at`` of all its jobs."""

    name: str
    seconds: float
    last_error: str
    ticks: list[int]


@dataclass
class CaseFacts:
    """Everything that the checks of the cases judge by."""

    documents: list[Document] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    reminded: set[int] = field(default_factory=set)  # ids of jobs whose handler has run
    schedules: list[Schedule] = field(default_factory=list)
    paused_at: int = 0
    replaced_seconds: list[float] = field(default_factory=list)
    odd_ends: list[str] = field(default_factory=list)  # lines of logs about processes that ended by themselves

    def told(self) -> str:
        """Say how much of everything there was, for people."""
        met = [call for call in self.calls if not call.created]
        expired = sum(outcome.reason == "expired" for outcome in self.outcomes.values())
        return (
            f"{sum(document.version for document in self.documents):,} changes in {len(self.reads):,} runs, "
            f"{len(self.calls):,} calls of which {len(met):,} met a conflicting job and {expired:,} jobs expired, "
            f"{sum(len(schedule.ticks) for schedule in self.schedules):,} ticks"
        )


def gather_cases(folder: Path, database: psycopg.Connection) -> CaseFacts:
    """Read the notes, the calls, the tables and the logs."""

    def rows(query: str) -> list[tuple[Any, ...]]:
        return database.execute(query).fetchall()

    notes = list(read_lines(folder / "notes"))
    return CaseFacts(
        documents=[Document(*row) for row in rows(DOCUMENTS)],
        reads=[Read(*numbers[:3]) for word, numbers in notes if word == SAW],
        calls=list(_calls(folder)),
        outcomes={row[0]: Outcome(*row) for row in rows(OUTCOMES)},
        reminded={numbers[0] for word, numbers in notes if word == REMINDED},
        schedules=[Schedule(*row) for row in rows(SCHEDULES)],
        odd_ends=list(_odd_ends(folder)),
    )


def _calls(folder: Path) -> Iterator[Call]:
    for path in sorted(folder.glob("calls-*.jsonl")):
        for line in path.read_text().splitlines():
            yield Call(**json.loads(line))


ODD_END = re.compile(
    r"Process \d+ (ended \((?!killed by SIGKILL|exit code 0\)).*|is ended: .* it has not finished a cycle)"
)


def _odd_ends(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("worker-*.log")):
        for line in path.read_text(errors="replace").splitlines():
            if ODD_END.search(line):
                yield f"{path.name}: {line}"


DOCUMENTS = (
    "SELECT id, version, (extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1e6)::bigint "
    "FROM chaos_document WHERE version > 0"
)
OUTCOMES = """
SELECT id, (args ->> 0)::bigint, '', (extract(epoch FROM succeeded_at) * 1e6)::bigint, attempts::integer, 0
FROM pgqueue_succeeded_jobs WHERE queue IN ('search', 'reminders')
UNION ALL
SELECT
    id, (args ->> 0)::bigint, reason, (extract(epoch FROM died_at) * 1e6)::bigint, attempts::integer,
    COALESCE((extract(epoch FROM NULLIF(expires_at, 'infinity')) * 1e6)::bigint, 0)
FROM pgqueue_dead_jobs WHERE queue IN ('search', 'reminders')
"""
SCHEDULES = """
SELECT name, every_seconds, last_error, ARRAY(
    SELECT (extract(epoch FROM job.run_at) * 1e6)::bigint
    FROM (
        SELECT run_at, schedule_id FROM pgqueue_succeeded_jobs
        UNION ALL SELECT run_at, schedule_id FROM pgqueue_dead_jobs
        UNION ALL SELECT run_at, schedule_id FROM pgqueue_jobs
    ) AS job
    WHERE job.schedule_id = schedule.id
    ORDER BY job.run_at
)
FROM pgqueue_schedules AS schedule
"""
