"""Checks of the cases that producers run beside their batches. Each is one of the oracle's checks."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from tests.chaos.case_facts import BROKEN, SOUND, Call, Document, Schedule

if TYPE_CHECKING:
    from tests.chaos.ledger import Ledger

Breaks = Iterator[tuple[int | None, str]]

REPLACED_WITHIN = 2.0
"""Maximum seconds from SIGKILL to the row of the new process, in the stream of due jobs."""

HELD_WITHIN = 10_000_000
"""Maximum time beyond a lease that a job waits in a process that stands still, in microseconds.

The supervisor looks once a second, and the server may be away for some."""

STILL_TICKS_WITHIN = 30_000_000  # microseconds before the schedules were paused


def each_change_is_seen_by_a_later_run(ledger: "Ledger") -> Breaks:
    """Of each row the last version; unless the job that was to read it is dead, as one is that is lost each time."""
    facts = ledger.cases
    for document in facts.documents:
        is_seen = any(
            read.version >= document.version and read.began_at >= document.committed_at
            for read in facts.reads
            if read.key == document.key
        )
        if not is_seen and not _died(ledger, document):
            yield None, f"no run that began after it has seen {document}"


def no_call_is_swallowed_by_its_conflict(ledger: "Ledger") -> Breaks:
    """The job that a call got has done its work, or died in a way that the call had to expect.

    One that has expired is no such way, unless it expires after the call, or was running at the time of the call.
    """
    facts = ledger.cases
    left = {left.job_id for left in ledger.left}
    for call in facts.calls:
        outcome = facts.outcomes.get(call.job_id)
        if outcome is None:
            if call.job_id not in left:
                yield None, f"the job of {call} is nowhere"
        elif not outcome.reason and call.job_id not in facts.reminded:
            yield None, f"{outcome} of {call} never ran"
        elif outcome.reason == "expired" and _was_over(call, outcome.expires_at) and not outcome.attempts:
            yield None, f"{call} met {outcome}, which had expired"


def what_a_stuck_process_fetched_goes_to_others(ledger: "Ledger") -> Breaks:
    """No job waits for the end of another that lets nothing else run in its process.

    A job with one attempt may: from outside it cannot be seen whether it is just about to begin.
    """
    hogs = defaultdict(list)
    for run in ledger.runs:
        if run.key in ledger.jobs and ledger.jobs[run.key].task == "hog":
            hogs[run.pid].append(run)
    for ending in ledger.endings:
        for run in ledger.runs_of.get(ending.key, ()):
            if run.attempt != ending.attempts or ledger.jobs[ending.key].max_attempts == 1:
                continue
            for hog in hogs[run.pid]:
                held = min(run.started_at, hog.ended_at) - max(ending.claimed_at, hog.started_at)
                if held > ledger.lease_seconds * 1_000_000 + HELD_WITHIN:
                    yield ending.key, f"waited {held / 1e6:.1f} s in process {run.pid} for the end of {hog}"


def sound_schedules_keep_their_ticks(ledger: "Ledger") -> Breaks:
    """Each tick is one job, to the end, whatever stands beside it; and what is broken says so."""
    facts = ledger.cases
    for schedule in facts.schedules:
        if schedule.name.startswith(BROKEN) and (schedule.ticks or not schedule.last_error):
            yield None, f"{schedule.name!r} has {len(schedule.ticks)} jobs, and says {schedule.last_error!r}"
        if schedule.name.startswith(SOUND):
            yield from _gaps(schedule, facts.paused_at)


def killed_processes_are_replaced_in_time(ledger: "Ledger") -> Breaks:
    for seconds in ledger.cases.replaced_seconds:
        if seconds > REPLACED_WITHIN:
            yield None, f"{seconds:.2f} s from SIGKILL to the next process"


def no_process_ends_by_itself(ledger: "Ledger") -> Breaks:
    """Neither by a row of no known writer, nor by anything else."""
    for line in ledger.cases.odd_ends:
        yield None, line


def _died(ledger: "Ledger", document: Document) -> bool:
    return any(
        outcome.reason == "lost" and outcome.key == document.key and outcome.at >= document.committed_at
        for outcome in ledger.cases.outcomes.values()
    )


def _was_over(call: Call, expires_at: int) -> bool:
    return not call.created and not call.was_fetched and expires_at < call.at


def _gaps(schedule: Schedule, paused_at: int) -> Breaks:
    step = round(schedule.seconds * 1_000_000)
    if not schedule.ticks or schedule.ticks[-1] < paused_at - STILL_TICKS_WITHIN - step:
        yield None, f"{schedule.name!r} ticked no more: {len(schedule.ticks)} ticks, paused at {paused_at}"
    for earlier, later in pairwise(schedule.ticks):
        if later - earlier != step:
            yield None, f"{schedule.name!r} ticked at {earlier} and next at {later}"
