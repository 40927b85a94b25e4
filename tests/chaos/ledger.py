"""All that is known at the end of a soak: what producers, handlers, tables and journal say."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg

from tests.chaos.case_facts import CaseFacts, gather_cases
from tests.chaos.flows import FlowFacts, gather_flows
from tests.chaos.journal import Fault
from tests.chaos.marks import Run, read_runs

COMMITTED, ROLLED_BACK, UNKNOWN = "committed", "rolled back", "unknown"


@dataclass(slots=True)
class Job:
    """One job as its producer knows it. A key is never given twice; ids of what rolls back in a crash may be."""

    key: int
    task: str
    max_attempts: int
    keep: bool
    fate: str  # COMMITTED, ROLLED_BACK, or UNKNOWN: an INSERT whose answer never came


@dataclass(slots=True)
class Ending:
    """One row of succeeded_jobs or dead_jobs: an outcome that the queue has accepted."""

    key: int
    job_id: int
    attempts: int
    lost: int
    at: int
    reason: str  # empty: succeeded
    errors: list[dict[str, Any]]  # without tracebacks
    claimed_at: int = 0  # for the last time


@dataclass(slots=True)
class Left:
    """One row that is still in jobs."""

    key: int | None
    job_id: int
    status: str
    text: str


@dataclass
class Ledger:
    """Everything the oracle judges by."""

    jobs: dict[int, Job] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    effects: Counter[int] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    cases: CaseFacts = field(default_factory=CaseFacts)
    flows: FlowFacts = field(default_factory=FlowFacts)
    lease_seconds: int = 4

    @cached_property
    def runs_of(self) -> dict[int, list[Run]]:
        """The runs of each key, in the order in which they started."""
        found = defaultdict(list)
        for run in sorted(self.runs, key=lambda run: run.started_at):
            found[run.key].append(run)
        return found

    @cached_property
    def endings_of(self) -> dict[int, list[Ending]]:
        found = defaultdict(list)
        for ending in self.endings:
            found[ending.key].append(ending)
        return found

    @cached_property
    def left_keys(self) -> set[int]:
        return {left.key for left in self.left if left.key is not None}

    @cached_property
    def faults_of(self) -> dict[int, list[Fault]]:
        """What each process has been through."""
        found = defaultdict(list)
        for fault in self.faults:
            for pid in fault.pids:
                found[pid].append(fault)
        return found

    def was_hit(self, pid: int, kinds: Sequence[str], *, by: int) -> bool:
        """Whether a process had been through one of these faults, or was in it, at an instant."""
        return any(fault.kind in kinds and fault.at <= by for fault in self.faults_of.get(pid, ()))

    def committed(self) -> Iterator[Job]:
        return (job for job in self.jobs.values() if job.fate == COMMITTED)

    def lines(self, key: int) -> list[str]:
        """Return all that is known of one job, for people."""
        known = [self.jobs.get(key, f"no producer knows the key {key}"), *self.runs_of.get(key, ())]
        known += [*self.endings_of.get(key, ()), *(left for left in self.left if left.key == key)]
        if self.effects[key]:
            known.append(f"effects: {self.effects[key]}")
        pids = dict.fromkeys(run.pid for run in self.runs_of.get(key, ()))
        return [str(one) for one in (*known, *(fault for pid in pids for fault in self.faults_of.get(pid, ())))]


def gather(folder: Path, database: psycopg.Connection) -> Ledger:
    """Read what the producers wrote, what the handlers marked, and what the tables hold."""
    return Ledger(
        jobs={job.key: job for job in read_jobs(folder, _witnesses(database))},
        runs=list(read_runs(folder / "marks")),
        endings=[Ending(*row) for name in ("succeeded_jobs", "dead_jobs") for row in _rows(database, ENDINGS[name])],
        left=[Left(*row) for row in _rows(database, LEFT)],
        effects=Counter(dict(_rows(database, "SELECT key, count(*) FROM chaos_effect GROUP BY key"))),
        cases=gather_cases(folder, database),
        flows=gather_flows(database),
    )


def read_jobs(folder: Path, witnesses: set[int]) -> Iterator[Job]:
    """Yield all jobs that producers have meant to enqueue, with what became of that."""
    for path in sorted(folder.glob("producer-*.jsonl")):
        planned, answered = [], set()
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if "jobs" in entry:
                planned.append(entry)
            else:
                answered.add(entry["answered"])
        for batch in planned:
            has_answer = batch["batch"] in answered
            yield from _jobs_of(batch, has_answer=has_answer, is_witnessed=batch["batch"] in witnesses)


def _jobs_of(batch: dict[str, Any], *, has_answer: bool, is_witnessed: bool) -> Iterator[Job]:
    """Say what became of a batch. A commit that was answered counts, whether or not its witness is there."""
    if batch["rolls_back"]:
        fate = ROLLED_BACK
    elif has_answer or is_witnessed:
        fate = COMMITTED
    else:
        fate = ROLLED_BACK if batch["in_transaction"] else UNKNOWN
    for key, task, max_attempts, keep, is_undone in batch["jobs"]:
        yield Job(key, task, max_attempts, keep, ROLLED_BACK if is_undone else fate)


def _witnesses(database: psycopg.Connection) -> set[int]:
    return {batch for (batch,) in _rows(database, "SELECT batch FROM chaos_witness")}


def _rows(database: psycopg.Connection, query: str) -> list[tuple[Any, ...]]:
    return database.execute(query).fetchall()


HISTORY = (
    "COALESCE((SELECT jsonb_agg(entry - 'traceback' - 'message' ORDER BY place) "
    "FROM jsonb_array_elements(errors) WITH ORDINALITY AS history (entry, place)), '[]')"
)
KEYED = "queue IN ('default', 'emails', 'reports', 'stream')"
"""Jobs whose runs are compared one by one: each has a key of its own, as its first argument."""

ENDINGS = {
    "succeeded_jobs": (
        "SELECT (args ->> 0)::bigint, id, attempts, lost, (extract(epoch FROM succeeded_at) * 1e6)::bigint, '', "
        f"{HISTORY}, (extract(epoch FROM started_at) * 1e6)::bigint FROM pgqueue_succeeded_jobs WHERE {KEYED}"
    ),
    "dead_jobs": (
        "SELECT (args ->> 0)::bigint, id, attempts, lost, (extract(epoch FROM died_at) * 1e6)::bigint, reason, "
        f"{HISTORY}, (extract(epoch FROM started_at) * 1e6)::bigint FROM pgqueue_dead_jobs WHERE {KEYED}"
    ),
}
LEFT = (
    f"SELECT CASE WHEN {KEYED} THEN (args ->> 0)::bigint END, id, status, left(to_jsonb(job)::text, 5000) "
    "FROM pgqueue_jobs AS job"
)
