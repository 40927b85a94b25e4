"""Checks of every ledger. Each check is one sentence of the promise, and yields what breaks it.

A check's ``means`` says what a break of it is: work lost, work silently duplicated, a job stuck, or something else that
is wrong. A second run that the job's history tells of is no silent one: that is what "at least once" allows.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from django_pgqueue.states import EntryKind
from tests.chaos import case_checks, flows
from tests.chaos.ledger import ROLLED_BACK, Ending, Ledger
from tests.chaos.marks import DISCARD, END, LATER, Run

LOST, DUPLICATED, STUCK, MISSED, EARLY, WRONG = (
    "lost",
    "silently duplicated",
    "stuck",
    "missed changes",
    "opened early",
    "wrong",
)

Breaks = Iterator[tuple[int | None, str]]
"""The key of the job, where there is one, and what is wrong with it."""

FREEZING = ("stop_child", "stop_command")
KILLING = ("kill_child", "kill_supervisor", "kill_command", "terminate_command")
CUTTING_OFF = ("stall",)
STARVING = ("starve",)
HISTORY_HOLDS = 20
LONGEST_STOP = 120_000_000  # microseconds from SIGTERM to the end, at the very most
STARVED = 60_000_000  # microseconds before and after a standstill of the machine in which its workers may lose jobs
MAX_LOST = 3


@dataclass(frozen=True)
class Check:
    """One thing that must hold."""

    means: str
    find: Callable[[Ledger], Breaks]

    @property
    def name(self) -> str:
        return self.find.__name__.replace("_", " ")


@dataclass(frozen=True)
class Violation:
    """One break of a check."""

    check: str
    means: str
    key: int | None
    what: str


def judge(ledger: Ledger) -> list[Violation]:
    """Return everything that is wrong with a ledger."""
    return [Violation(check.name, check.means, key, what) for check in CHECKS for key, what in check.find(ledger)]


def every_committed_job_ran_or_is_dead(ledger: Ledger) -> Breaks:
    """One that is not kept leaves no row: then its marks must say that a run came to its end."""
    for job in ledger.committed():
        if job.key in ledger.endings_of or job.key in ledger.left_keys:
            continue
        if job.keep or not any(run.how == END for run in ledger.runs_of.get(job.key, ())):
            yield job.key, "committed, and neither in a table nor run to its end"


def what_is_finished_was_done(ledger: Ledger) -> Breaks:
    """The run that the queue has accepted came to its end before."""
    for ending in ledger.endings:
        if not ending.reason and not any(_was_accepted(run, ending) for run in ledger.runs_of.get(ending.key, ())):
            yield ending.key, f"finished by attempt {ending.attempts}, which never came to its end"


def dead_jobs_tell_the_true_reason(ledger: Ledger) -> Breaks:
    for ending in ledger.endings:
        if ending.reason and (lie := _lie(ledger, ending)):
            yield ending.key, f"dead as {ending.reason}, but {lie}"


def what_rolled_back_never_ran(ledger: Ledger) -> Breaks:
    for key in ledger.runs_of.keys() | ledger.endings_of.keys() | ledger.left_keys:
        if key not in ledger.jobs:
            yield key, "no producer has enqueued it"
        elif ledger.jobs[key].fate == ROLLED_BACK:
            yield key, "rolled back, and there all the same"


def one_outcome_is_accepted(ledger: Ledger) -> Breaks:
    for key, endings in ledger.endings_of.items():
        if len(endings) > 1 or key in ledger.left_keys:
            yield key, f"{len(endings)} outcomes are accepted{', and it is still in jobs' * (key in ledger.left_keys)}"
    ids = Counter(ending.job_id for ending in ledger.endings)
    for ending in ledger.endings:
        if ids[ending.job_id] > len(ledger.endings_of[ending.key]):
            yield ending.key, f"shares its id {ending.job_id} with another job"


def no_run_starts_after_the_accepted_outcome(ledger: Ledger) -> Breaks:
    """Unless its process was frozen before: it may have been about to start. Its own outcome was refused."""
    for key, endings in ledger.endings_of.items():
        accepted_at = min(ending.at for ending in endings)
        for run in ledger.runs_of.get(key, ()):
            if run.started_at > accepted_at and not ledger.was_hit(run.pid, FREEZING, by=run.started_at):
                yield (
                    key,
                    f"process {run.pid} started it {(run.started_at - accepted_at) / 1e6:.3f} s after its outcome",
                )


def one_claim_is_one_run(ledger: Ledger) -> Breaks:
    claims = Counter((run.key, run.lease_token) for run in ledger.runs)
    for (key, _), number in claims.items():
        if number > 1:
            yield key, f"{number} runs by one claim"


def one_attempt_is_one_run(ledger: Ledger) -> Breaks:
    """Unless the attempt was given back: the job put itself off, or its command had to stop before it was done."""
    for key, runs in ledger.runs_of.items():
        counted = Counter(run.attempt for run in runs if not _was_given_back(ledger, run))
        for attempt, number in counted.items():
            if number > 1:
                yield key, f"attempt {attempt} was run {number} times"


def the_history_tells_of_each_attempt(ledger: Ledger) -> Breaks:
    """A job that ran again says why: each attempt before the last stands in its history."""
    for ending in ledger.endings:
        if ending.attempts > HISTORY_HOLDS:
            continue
        told = {entry.get("attempt") for entry in ending.errors}
        silent = set(range(1, ending.attempts + bool(ending.reason))) - told
        silent |= {run.attempt for run in ledger.runs_of.get(ending.key, ())} - set(range(1, ending.attempts + 1))
        if silent:
            yield ending.key, f"its history does not tell of attempts {sorted(silent)}"


def atomic_tasks_take_effect_once(ledger: Ledger) -> Breaks:
    """Exactly once if finished, and not at all otherwise."""
    for key in ledger.effects.keys() | {job.key for job in ledger.jobs.values() if job.task == "effect"}:
        expected = sum(not ending.reason for ending in ledger.endings_of.get(key, ()))
        if ledger.effects[key] != min(expected, 1):
            yield key, f"{ledger.effects[key]} effects"


def jobs_of_one_attempt_start_once(ledger: Ledger) -> Breaks:
    for key, runs in ledger.runs_of.items():
        if len(runs) > 1 and key in ledger.jobs and ledger.jobs[key].max_attempts == 1:
            yield key, f"started {len(runs)} times"


def attempts_stay_in_bounds(ledger: Ledger) -> Breaks:
    for key, job in ledger.jobs.items():
        numbers = [run.attempt for run in ledger.runs_of.get(key, ())]
        numbers += [ending.attempts for ending in ledger.endings_of.get(key, ())]
        if numbers and not 1 <= min(numbers) <= max(numbers) <= job.max_attempts:
            yield key, f"attempts {sorted(set(numbers))} of {job.max_attempts}"


def only_workers_in_trouble_lose_jobs(ledger: Ledger) -> Breaks:
    """No worker that was alive and in touch is taken for dead."""
    for ending in ledger.endings:
        for pid, at in _losers(ending):
            if not ledger.was_hit(pid, KILLING + FREEZING + CUTTING_OFF, by=at) and not _was_starved(ledger, at):
                yield ending.key, f"process {pid} is said to have lost it, and nothing had happened to that"


def nothing_is_stuck(ledger: Ledger) -> Breaks:
    for left in ledger.left:
        yield left.key, f"still {left.status}: {left.text}"


def nothing_leaks(ledger: Ledger) -> Breaks:
    for leak in ledger.leaks:
        yield None, leak


def workers_do_as_they_are_told(ledger: Ledger) -> Breaks:
    for trouble in ledger.troubles:
        yield None, trouble


CHECKS = (
    Check(LOST, every_committed_job_ran_or_is_dead),
    Check(LOST, what_is_finished_was_done),
    Check(LOST, dead_jobs_tell_the_true_reason),
    Check(WRONG, what_rolled_back_never_ran),
    Check(DUPLICATED, one_outcome_is_accepted),
    Check(DUPLICATED, no_run_starts_after_the_accepted_outcome),
    Check(DUPLICATED, one_claim_is_one_run),
    Check(DUPLICATED, one_attempt_is_one_run),
    Check(DUPLICATED, the_history_tells_of_each_attempt),
    Check(DUPLICATED, atomic_tasks_take_effect_once),
    Check(DUPLICATED, jobs_of_one_attempt_start_once),
    Check(WRONG, attempts_stay_in_bounds),
    Check(WRONG, only_workers_in_trouble_lose_jobs),
    Check(STUCK, nothing_is_stuck),
    Check(MISSED, case_checks.each_change_is_seen_by_a_later_run),
    Check(LOST, case_checks.no_call_is_swallowed_by_its_conflict),
    Check(STUCK, case_checks.what_a_stuck_process_fetched_goes_to_others),
    Check(LOST, case_checks.sound_schedules_keep_their_ticks),
    Check(LOST, flows.every_member_of_a_workflow_did_its_work),
    Check(DUPLICATED, flows.atomic_members_of_a_workflow_did_it_once),
    Check(EARLY, flows.no_stage_opens_before_those_before_it_are_over),
    Check(STUCK, flows.no_workflow_is_stuck),
    Check(WRONG, flows.no_workflow_runs_that_rolled_back),
    Check(WRONG, case_checks.killed_processes_are_replaced_in_time),
    Check(WRONG, case_checks.no_process_ends_by_itself),
    Check(WRONG, nothing_leaks),
    Check(WRONG, workers_do_as_they_are_told),
)


def excused_starts(ledger: Ledger) -> int:
    """Count the runs that started after their job's outcome in a process that had been frozen."""
    return sum(
        run.started_at > min(ending.at for ending in endings)
        for key, endings in ledger.endings_of.items()
        for run in ledger.runs_of.get(key, ())
    )


def _was_accepted(run: Run, ending: Ending) -> bool:
    return run.attempt == ending.attempts and run.how == END and run.ended_at <= ending.at


def _was_given_back(ledger: Ledger, run: Run) -> bool:
    return run.how == LATER or ledger.was_hit(run.pid, ("terminate_command",), by=run.started_at + LONGEST_STOP)


def _lie(ledger: Ledger, ending: Ending) -> str | None:
    """Say why the reason of a dead job is not true; None if it is."""
    job, lost = ledger.jobs.get(ending.key), sum(EntryKind.of(entry) is EntryKind.LOST for entry in ending.errors)
    is_last_lost = bool(ending.errors) and EntryKind.of(ending.errors[-1]) is EntryKind.LOST
    has_attempts_left = job is not None and ending.attempts < job.max_attempts
    has_said_so = any(run.how == DISCARD for run in ledger.runs_of.get(ending.key, ()))
    lies = {
        "exhausted": {"it had attempts left": has_attempts_left, "it was lost at last": is_last_lost},
        "lost": {
            "no worker lost it at last": not is_last_lost,
            f"it had attempts left, and was lost {lost} times": has_attempts_left and lost < MAX_LOST,
        },
        "discarded": {"it never said so": not has_said_so},
    }
    return next((lie for lie, holds in lies.get(ending.reason, {"no process did that": True}).items() if holds), None)


def _losers(ending: Ending) -> Iterator[tuple[int, int]]:
    """Yield the pid of each process that the history says has lost the job, where it was known; and when it had."""
    for entry in ending.errors:
        _, _, pid = entry.get("worker", "").rpartition(" pid ")
        if EntryKind.of(entry) is EntryKind.LOST and pid.isdigit() and int(pid):
            yield int(pid), round(datetime.fromisoformat(entry["at"]).timestamp() * 1e6)


def _was_starved(ledger: Ledger, at: int) -> bool:
    """Whether the machine stood still around an instant, so that no process could do anything in time."""
    starved = (fault for fault in ledger.faults if fault.kind in STARVING)
    return any(fault.at - STARVED <= at <= fault.until + STARVED for fault in starved)
