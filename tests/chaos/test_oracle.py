"""The oracle is only worth something if it finds what is wrong: each break by a small ledger made by hand."""

import json
import random
from collections import Counter
from copy import deepcopy
from datetime import UTC, datetime, timedelta

import pytest

from tests.chaos import report
from tests.chaos.case_facts import Call, CaseFacts, Document, Outcome, Read, Schedule, _odd_ends
from tests.chaos.flows import REPORT, Begun, FlowFacts, Stage, drawn
from tests.chaos.journal import Fault, Journal
from tests.chaos.ledger import COMMITTED, ROLLED_BACK, UNKNOWN, Ending, Job, Ledger, Left, read_jobs
from tests.chaos.marks import END, LATER, RAISE, Run, read_runs
from tests.chaos.oracle import CHECKS, STARVED, excused_starts, judge

SECOND = 1_000_000
EPOCH = datetime.fromtimestamp(0, tz=UTC)

WELL, DEAD, FROZEN = 100, 200, 300
"""Process ids: of one that nothing has happened to, one that was killed, one that was frozen."""


def run(key: int, attempt: int = 1, *, pid: int = WELL, at: int = 10, how: str | None = END, token: int = 0) -> Run:
    return Run(key, key, attempt, token or key * 100 + attempt, pid, at, how, at + 1 if how else 0)


def finished(key: int, attempts: int = 1, *, at: int = 50, errors: list | None = None) -> Ending:
    return Ending(key, key, attempts, 0, at, "", errors or [])


def dead(key: int, reason: str, attempts: int, *, errors: list) -> Ending:
    return Ending(key, key, attempts, 0, 50, reason, errors)


def failed(attempt: int) -> dict:
    return {"kind": "failed", "attempt": attempt, "error": "RuntimeError"}


def lost(attempt: int, pid: int = DEAD, *, at: int = 40) -> dict:
    told = {"at": (EPOCH + timedelta(microseconds=at)).isoformat(), "worker": f"host pid {pid}"}
    return {"kind": "lost", "attempt": attempt, "error": "worker lost", **told}


@pytest.fixture
def ledger() -> Ledger:
    """All that may happen, and nothing wrong with any of it."""
    jobs = [
        Job(1, "plain", 10, keep=True, fate=COMMITTED),  # ran once
        Job(2, "plain", 10, keep=True, fate=COMMITTED),  # ran, was lost, ran again
        Job(3, "effect", 10, keep=True, fate=COMMITTED),
        Job(4, "once", 1, keep=True, fate=COMMITTED),  # lost in its only attempt
        Job(5, "doomed", 3, keep=True, fate=COMMITTED),
        Job(6, "discarded", 10, keep=True, fate=COMMITTED),
        Job(7, "later", 10, keep=True, fate=COMMITTED),  # put itself off once
        Job(8, "plain", 10, keep=False, fate=COMMITTED),
        Job(9, "plain", 10, keep=True, fate=ROLLED_BACK),
        Job(10, "plain", 10, keep=True, fate=UNKNOWN),  # was not inserted
        Job(11, "plain", 10, keep=True, fate=UNKNOWN),  # was
        Job(12, "plain", 10, keep=True, fate=COMMITTED),  # claimed twice: the first worker froze
    ]
    runs = [
        run(1),
        *(run(2, 1, pid=DEAD, how=None), run(2, 2, at=20)),
        run(3),
        run(4, pid=DEAD, how=None),
        *(run(5, attempt, at=attempt * 10, how=RAISE) for attempt in (1, 2, 3)),
        run(6, how="discard"),
        *(run(7, how=LATER, token=701), run(7, at=20, token=702)),
        run(8),
        run(11),
        *(run(12, 2, at=20), run(12, 1, pid=FROZEN, at=60)),
    ]
    endings = [
        *(finished(key) for key in (1, 3, 7, 11)),
        finished(2, 2, errors=[lost(1)]),
        dead(4, "lost", 1, errors=[lost(1)]),
        dead(5, "exhausted", 3, errors=[failed(1), failed(2), failed(3)]),
        dead(6, "discarded", 1, errors=[failed(1)]),
        finished(12, 2, errors=[lost(1, FROZEN)]),
    ]
    faults = [Fault("kill_child", [DEAD], 15, 15), Fault("stop_command", [FROZEN], 5, 55)]
    known = {"effects": Counter({3: 1}), "faults": faults, "cases": cases(), "flows": flows()}
    return Ledger({job.key: job for job in jobs}, runs, endings, **known)


def flows() -> FlowFacts:
    """A workflow with two members that may run twice, one of them added later, and a report."""
    stages = {
        "first": Stage(3, 1, "mender", is_atomic=False, after=[], when="succeeded"),
        REPORT: Stage(1, 0, "member", is_atomic=True, after=["first"], when="succeeded"),
    }
    steps = Counter({(1, "first", 0): 1, (1, "first", 1): 2, (1, "first", 2): 1, (1, REPORT, 0): 1})
    return FlowFacts({1: Begun(1, stages, "succeeded")}, steps)


def cases() -> CaseFacts:
    """Likewise of what producers do beside their batches."""
    return CaseFacts(
        documents=[Document(1, 5, 1000), Document(2, 3, 1000)],  # the second one's job was lost each time
        reads=[Read(1, 4, 900), Read(1, 5, 990), Read(1, 5, 1100)],
        calls=[
            Call(71, created=True, at=100, was_fetched=False),
            Call(71, created=False, at=110, was_fetched=False),
            Call(72, created=True, at=100, was_fetched=False),  # expired
            Call(72, created=False, at=140, was_fetched=False),  # before that
            Call(72, created=False, at=160, was_fetched=True),  # it was given back
        ],
        outcomes={
            71: Outcome(71, 1, "", 120, 1, 0),
            72: Outcome(72, 2, "expired", 200, 0, 150),
            73: Outcome(73, 2, "lost", 1200, 3, 0),
        },
        reminded={71},
        schedules=[
            Schedule("sound", 2.0, "", [10 * SECOND, 12 * SECOND, 14 * SECOND]),
            Schedule("broken", 1.0, "RuntimeError", []),
        ],
        paused_at=15 * SECOND,
        replaced_seconds=[0.2, 1.9],
    )


def found(ledger: Ledger) -> set[tuple[str, int | None]]:
    return {(violation.check, violation.key) for violation in judge(ledger)}


def without(ledger: Ledger, name: str, key: int) -> None:
    setattr(ledger, name, [one for one in getattr(ledger, name) if one.key != key])


def ending_of(ledger: Ledger, key: int) -> Ending:
    return next(ending for ending in ledger.endings if ending.key == key)


def test_nothing_is_wrong_with_what_may_happen(ledger):
    assert judge(ledger) == []
    assert excused_starts(ledger) == 1
    assert (
        report.verdict(ledger, [])
        == "lost 0, silently duplicated 0, stuck 0, missed changes 0, opened early 0, replaced within 1.90 s (of 2)"
    )


def never_ran(ledger):
    without(ledger, "runs", 1)
    without(ledger, "endings", 1)


def unkept_and_never_ran(ledger):
    without(ledger, "runs", 8)


def unkept_and_broken_off(ledger):
    without(ledger, "runs", 8)
    ledger.runs.append(run(8, how=None, pid=DEAD))


def finished_without_a_run(ledger):
    without(ledger, "runs", 1)


def finished_by_a_run_that_broke_off(ledger):
    without(ledger, "runs", 1)
    ledger.runs.append(run(1, how=None, pid=DEAD))


def finished_before_it_was_done(ledger):
    ending_of(ledger, 1).at = 10


def dead_with_attempts_left(ledger):
    ledger.jobs[5].max_attempts = 4


def dead_for_failing_while_it_was_lost(ledger):
    ending_of(ledger, 5).errors[-1] = lost(3)


def lost_by_no_worker(ledger):
    ending_of(ledger, 4).errors = [failed(1)]


def lost_with_attempts_left(ledger):
    ledger.jobs[4].max_attempts = 2


def discarded_by_no_task(ledger):
    without(ledger, "runs", 6)
    ledger.runs.append(run(6, how=RAISE))


def killed_without_a_kill(ledger):
    ending_of(ledger, 6).reason = "killed"


def ran_though_rolled_back(ledger):
    ledger.runs.append(run(9))


def finished_though_rolled_back(ledger):
    ledger.runs.append(run(9))
    ledger.endings.append(finished(9))


def queued_though_rolled_back(ledger):
    ledger.left.append(Left(9, 9, "queued", ""))


def ran_though_it_was_never_enqueued(ledger):
    ledger.runs.append(run(99))


def finished_twice(ledger):
    ledger.endings.append(finished(1))


def finished_and_dead(ledger):
    ledger.endings.append(dead(1, "lost", 1, errors=[lost(1)]))


def finished_and_still_there(ledger):
    ledger.left.append(Left(1, 1, "queued", ""))


def two_jobs_with_one_id(ledger):
    ending_of(ledger, 1).job_id = 3


def started_after_it_was_finished(ledger):
    ledger.runs.append(run(2, 1, pid=DEAD, at=60, token=999))


def started_in_a_worker_that_was_frozen_only_later(ledger):
    ledger.faults[1].at = 61


def one_claim_run_twice(ledger):
    ledger.runs.append(run(1, pid=DEAD))


def one_attempt_run_twice(ledger):
    ledger.runs.append(run(1, at=30, token=999))


def attempt_that_is_not_recorded(ledger):
    ending_of(ledger, 2).errors = []


def attempt_after_the_last(ledger):
    ledger.runs.append(run(1, 2, at=30))


def effect_missing(ledger):
    ledger.effects[3] = 0


def effect_doubled(ledger):
    ledger.effects[3] = 2


def effect_of_a_job_that_did_not_finish(ledger):
    without(ledger, "endings", 3)
    ledger.endings.append(dead(3, "exhausted", 10, errors=[failed(attempt) for attempt in range(1, 11)]))


def effect_of_what_rolled_back(ledger):
    ledger.effects[9] = 1


def one_attempt_started_twice(ledger):
    ledger.runs.append(run(4, at=12, pid=DEAD, token=999))


def more_attempts_than_allowed(ledger):
    ledger.jobs[2].max_attempts = 1


def lost_by_a_worker_that_was_well(ledger):
    ending_of(ledger, 2).errors = [lost(1, WELL)]


def lost_before_anything_happened(ledger):
    ledger.faults[0].at = 70


def lost_long_after_a_standstill(ledger):
    ledger.faults.append(Fault("starve", [], 20, 20))
    ending_of(ledger, 2).errors = [lost(1, WELL, at=20 + STARVED + 1)]


def stuck(ledger):
    without(ledger, "endings", 1)
    ledger.left.append(Left(1, 1, "running", ""))


def leaking(ledger):
    ledger.leaks.append("a connection")


def disobedient(ledger):
    ledger.troubles.append("a command ended by itself")


def changed_after_its_last_run(ledger):
    ledger.cases.documents[0].version = 6


def changed_while_its_last_run_was_on(ledger):
    ledger.cases.reads.pop()


def read_in_vain_by_what_was_lost_before(ledger):
    ledger.cases.outcomes[73].at = 999


def call_without_a_job(ledger):
    del ledger.cases.outcomes[71]


def call_whose_job_finished_without_a_run(ledger):
    ledger.cases.reminded.clear()


def call_that_met_what_had_expired(ledger):
    ledger.cases.calls[3].at = 151


def fetched_behind_a_hog(ledger):
    ledger.jobs[11].task = "hog"
    ledger.runs.append(Run(11, 11, 1, 1111, DEAD, 1 * SECOND, END, 20 * SECOND))
    ledger.runs.append(run(2, 2, pid=DEAD, at=20 * SECOND, token=2222))
    ending_of(ledger, 2).claimed_at = 2 * SECOND


def tick_missed(ledger):
    del ledger.cases.schedules[0].ticks[1]


def tick_doubled(ledger):
    ledger.cases.schedules[0].ticks.append(14 * SECOND)


def ticked_no_more(ledger):
    ledger.cases.paused_at = 60 * SECOND


def broken_schedule_says_nothing(ledger):
    ledger.cases.schedules[1].last_error = ""


def member_did_nothing(ledger):
    del ledger.flows.steps[1, REPORT, 0]


def late_member_did_nothing(ledger):
    del ledger.flows.steps[1, "first", 2]


def report_came_twice(ledger):
    ledger.flows.steps[1, REPORT, 0] = 2


def late_member_was_added_twice(ledger):
    ledger.flows.steps[1, "first", 2] = 2


def report_came_early(ledger):
    ledger.flows.early.append((1, REPORT, 0, 1))


def workflow_is_left_open(ledger):
    ledger.flows.begun[1].status = "open"


def workflow_ran_though_rolled_back(ledger):
    ledger.flows.steps[2, REPORT, 0] = 1


def replaced_late(ledger):
    ledger.cases.replaced_seconds.append(2.1)


def ended_by_itself(ledger):
    ledger.cases.odd_ends.append("Process 7 ended (exit code 1), starting another")


RAN = "every committed job ran or is dead"
DONE = "what is finished was done"
REASON = "dead jobs tell the true reason"
ROLLED = "what rolled back never ran"
ONE = "one outcome is accepted"
AFTER = "no run starts after the accepted outcome"
CLAIM = "one claim is one run"
ATTEMPT = "one attempt is one run"
HISTORY = "the history tells of each attempt"
ATOMIC = "atomic tasks take effect once"
ONCE = "jobs of one attempt start once"
BOUNDS = "attempts stay in bounds"
SEEN = "each change is seen by a later run"
SWALLOWED = "no call is swallowed by its conflict"
OTHERS = "what a stuck process fetched goes to others"
TICKS = "sound schedules keep their ticks"
MEMBERS = "every member of a workflow did its work"
MEMBERS_ONCE = "atomic members of a workflow did it once"
WELL_OFF = "only workers in trouble lose jobs"


@pytest.mark.parametrize(
    ("break_it", "check", "key"),
    [
        (never_ran, RAN, 1),
        (unkept_and_never_ran, RAN, 8),
        (unkept_and_broken_off, RAN, 8),
        (finished_without_a_run, DONE, 1),
        (finished_by_a_run_that_broke_off, DONE, 1),
        (finished_before_it_was_done, DONE, 1),
        (dead_with_attempts_left, REASON, 5),
        (dead_for_failing_while_it_was_lost, REASON, 5),
        (lost_by_no_worker, REASON, 4),
        (lost_with_attempts_left, REASON, 4),
        (discarded_by_no_task, REASON, 6),
        (killed_without_a_kill, REASON, 6),
        (ran_though_rolled_back, ROLLED, 9),
        (finished_though_rolled_back, ROLLED, 9),
        (queued_though_rolled_back, ROLLED, 9),
        (ran_though_it_was_never_enqueued, ROLLED, 99),
        (finished_twice, ONE, 1),
        (finished_and_dead, ONE, 1),
        (finished_and_still_there, ONE, 1),
        (two_jobs_with_one_id, ONE, 1),
        (started_after_it_was_finished, AFTER, 2),
        (started_in_a_worker_that_was_frozen_only_later, AFTER, 12),
        (one_claim_run_twice, CLAIM, 1),
        (one_attempt_run_twice, ATTEMPT, 1),
        (attempt_that_is_not_recorded, HISTORY, 2),
        (attempt_after_the_last, HISTORY, 1),
        (effect_missing, ATOMIC, 3),
        (effect_doubled, ATOMIC, 3),
        (effect_of_a_job_that_did_not_finish, ATOMIC, 3),
        (effect_of_what_rolled_back, ATOMIC, 9),
        (one_attempt_started_twice, ONCE, 4),
        (more_attempts_than_allowed, BOUNDS, 2),
        (lost_by_a_worker_that_was_well, WELL_OFF, 2),
        (lost_before_anything_happened, WELL_OFF, 2),
        (lost_long_after_a_standstill, WELL_OFF, 2),
        (stuck, "nothing is stuck", 1),
        (changed_after_its_last_run, SEEN, None),
        (changed_while_its_last_run_was_on, SEEN, None),
        (read_in_vain_by_what_was_lost_before, SEEN, None),
        (call_without_a_job, SWALLOWED, None),
        (call_whose_job_finished_without_a_run, SWALLOWED, None),
        (call_that_met_what_had_expired, SWALLOWED, None),
        (fetched_behind_a_hog, OTHERS, 2),
        (tick_missed, TICKS, None),
        (tick_doubled, TICKS, None),
        (ticked_no_more, TICKS, None),
        (broken_schedule_says_nothing, TICKS, None),
        (member_did_nothing, MEMBERS, None),
        (late_member_did_nothing, MEMBERS, None),
        (report_came_twice, MEMBERS_ONCE, None),
        (late_member_was_added_twice, MEMBERS_ONCE, None),
        (report_came_early, "no stage opens before those before it are over", None),
        (workflow_is_left_open, "no workflow is stuck", None),
        (workflow_ran_though_rolled_back, "no workflow runs that rolled back", None),
        (replaced_late, "killed processes are replaced in time", None),
        (ended_by_itself, "no process ends by itself", None),
        (leaking, "nothing leaks", None),
        (disobedient, "workers do as they are told", None),
    ],
)
def test_each_break_is_found(ledger, break_it, check, key):
    break_it(ledger)
    assert (check, key) in found(ledger)


def test_each_check_has_its_break():
    [mark] = test_each_break_is_found.pytestmark
    assert {check for _, check, _ in mark.args[1]} == {check.name for check in CHECKS}


def test_what_is_no_break_is_not_found(ledger):
    """A command that had to stop gives attempts back; a machine that stood still may cost any worker its lease."""
    ledger.runs.append(run(1, at=5, how=None, pid=400, token=999))
    ledger.faults.append(Fault("terminate_command", [400], 7, 8))
    ledger.faults.append(Fault("starve", [], 20, 20))
    ending_of(ledger, 2).errors = [lost(1, WELL, at=20 + STARVED)]
    assert judge(ledger) == []


def test_table_counts_what_is_lost_duplicated_and_stuck(ledger):
    stuck(ledger)
    ledger.effects[3] = 2
    violations = judge(ledger)
    text = report.table(ledger, violations, {"on": "this machine"})
    assert "lost 0, silently duplicated 1, stuck 1" in text
    assert "atomic tasks take effect once                      1 TIMES BROKEN" in text
    assert "committed 9, rolled back 1, unknown 2" in text
    assert "  stop_command       1" in text
    details = "\n".join(report.details(ledger, violations))
    assert "nothing is stuck: key 1: still running" in details
    assert "started_at=10" in details


def test_made_up_graphs_are_graphs():
    draw = random.Random(1)
    for stages in (drawn(draw) for _ in range(100)):
        names = list(stages)
        assert all(names.index(before) < names.index(name) for name, one in stages.items() for before in one.after)
        assert stages[REPORT].after == names[:-1]
        assert all(one.late < one.members for one in stages.values())


def test_ends_without_a_cause_are_found_in_the_logs(tmp_path):
    odd = [
        "Process 2 ended (exit code 1), starting another",
        "Process 3 ended (killed by SIGSEGV), starting another",
        "Process 4 is ended: for 241 s it has not finished a cycle",
    ]
    even = ["Process 1 ended (killed by SIGKILL), starting another", "Process 5 ended (exit code 0), starting another"]
    (tmp_path / "worker-1-0001.log").write_text("\n".join([*even, *odd]))
    assert [line.partition(": ")[2] for line in _odd_ends(tmp_path)] == odd


def test_marks_become_runs(tmp_path):
    (tmp_path / "7-1").write_text("start 1 11 1 99 7 1000\nstart 2 12 1 98 7 1001\nend 1 11 1 99 7 1002\n")
    (tmp_path / "8-1").write_text("start 1 11 2 97 8 1003\nraise 1 11 2 97 8 1004\n")
    assert list(read_runs(tmp_path)) == [
        Run(1, 11, 1, 99, 7, 1000, END, 1002),
        Run(2, 12, 1, 98, 7, 1001),
        Run(1, 11, 2, 97, 8, 1003, RAISE, 1004),
    ]


@pytest.mark.parametrize(
    ("plan", "is_answered", "is_witnessed", "fate"),
    [
        ("commit", True, True, COMMITTED),
        ("commit", False, True, COMMITTED),  # the answer to COMMIT was lost
        ("commit", False, False, ROLLED_BACK),
        ("commit", True, False, COMMITTED),  # and gone since: the oracle will miss its jobs
        ("roll back", True, False, ROLLED_BACK),
        ("autocommit", True, False, COMMITTED),
        ("autocommit", False, False, UNKNOWN),
    ],
)
def test_what_became_of_a_batch(tmp_path, plan, is_answered, is_witnessed, fate):
    jobs = [[1, "plain", 10, True, False], [2, "plain", 10, True, True]]
    batch = {"batch": 5, "in_transaction": plan != "autocommit", "rolls_back": plan == "roll back", "jobs": jobs}
    lines = [batch] + [{"answered": 5}] * is_answered
    (tmp_path / "producer-1.jsonl").write_text("\n".join(map(json.dumps, lines)))
    first, undone = read_jobs(tmp_path, {5} if is_witnessed else set())
    assert (first.fate, undone.fate) == (fate, ROLLED_BACK)


def test_fault_that_fails_halfway_is_no_injected_one_but_excuses(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    with pytest.raises(OSError), journal.fault("stall", [1]):
        raise OSError
    with journal.fault("cut"):
        pass
    assert journal.counts() == {"cut": 1}
    assert Ledger(faults=deepcopy(journal.faults)).was_hit(1, ["stall"], by=journal.faults[0].at)
