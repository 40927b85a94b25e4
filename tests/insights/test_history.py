"""A job's history: each entry says by its kind what it tells of, and no text in it decides anything."""

import datetime as dt
import json
import re
from collections.abc import Callable

import pytest
from django.utils import timezone
from django.utils.translation import override

import tests.app.tasks as app
from django_pgqueue import Unique, jobs
from django_pgqueue.backend.results import errors_of, worker_ids
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.insights.explain import find, why
from django_pgqueue.insights.history import entries_of, timeline, title_of
from django_pgqueue.jobs import ack, kill, move, retry, run_now, set_priority
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.failure import error_entry, unknown_task
from django_pgqueue.jobs.leases import worker_leases
from django_pgqueue.jobs.retry_with import RetryRefused, RetryWithResult, retry_with
from django_pgqueue.keys import Keys
from django_pgqueue.maintenance.expirer import expire
from django_pgqueue.maintenance.promoter import promote
from django_pgqueue.maintenance.reaper import fail_overdue, settle
from django_pgqueue.maintenance.unique_keys import reacquire_keys
from django_pgqueue.models import DeadJob, Job, SucceededJob
from django_pgqueue.records import ClaimedJob, Fate, Outcome
from django_pgqueue.states import ATTEMPTS, ENDS, DeathReason, EntryKind
from tests.support.running import run_claimed
from tests.support.stories import HOUR, MINUTE, events, fails, kinds, steps, told

pytestmark = pytest.mark.django_db

TABLES = (Job, DeadJob, SucceededJob)


def claimed(queue: QueueConnection, job_id: int) -> ClaimedJob:
    [found] = [one for one in claim(queue, "default", limit=100, worker_id=7) if one.id == job_id]
    return found


def write(queue: QueueConnection, outcome: Outcome) -> int:
    assert not ack.write(queue, [outcome]).stale
    return outcome.job.id


def attempt_fails(queue: QueueConnection, job_id: int, **values) -> int:
    values = {"fate": Fate.RETRIED, "delay_seconds": 60.0, "error": error_entry(ValueError("no luck")), **values}
    return write(queue, Outcome(claimed(queue, job_id), run_seconds=3.0, **values))


# One job for each way in which an entry is written


def failed(queue) -> int:
    return attempt_fails(queue, app.noop.enqueue().id)


def died(queue) -> int:
    return attempt_fails(queue, app.noop.enqueue().id, fate=Fate.DIED, reason=DeathReason.DISCARDED)


def timed_out(queue) -> int:
    found = claimed(queue, app.noop.using(timeout=7).enqueue().id)
    fail_overdue(queue, worker_leases(queue, [7]))
    return found.id


def killed_as_it_ran(queue) -> int:
    found = claimed(queue, app.noop.enqueue().id)
    return write(queue, unknown_task(found._replace(timeout_seconds=-1)))


def lost(queue) -> int:
    found = claimed(queue, app.noop.enqueue().id)
    assert settle(queue, worker_leases(queue, [7])).returned == 1
    return found.id


def lost_at_last(queue) -> int:
    found = claimed(queue, app.noop.using(max_attempts=1).enqueue().id)
    assert settle(queue, worker_leases(queue, [7])).dead == 1
    return found.id


def killed(queue) -> int:
    job_id = attempt_fails(queue, app.noop.enqueue().id)
    kill([job_id], by="eve")
    return job_id


def expired(queue) -> int:
    job_id = app.noop.using(expires=HOUR).enqueue().id
    Job.objects.filter(pk=job_id).update(expires_at=timezone.now() - HOUR)
    assert expire(queue).dead == 1
    return job_id


def unknown(queue) -> int:
    return write(queue, unknown_task(claimed(queue, app.noop.enqueue().id)._replace(is_old=True)))


def superseded(queue) -> int:
    job_id = app.noop.using(unique_key="u", unique=Unique(until="start")).enqueue().id
    found = claimed(queue, job_id)
    assert app.noop.using(unique_key="u", unique=Unique(until="start")).enqueue().created
    write(queue, Outcome(found, Fate.RELEASED))
    assert reacquire_keys(queue).superseded
    return job_id


def retried(queue) -> int:
    job_id = died(queue)
    assert retry([job_id], by="ann").ids == [job_id]
    return attempt_fails(queue, job_id)


def retry_refused(queue) -> int:
    task = app.noop.using(unique_key="k")
    job_id = attempt_fails(queue, task.enqueue().id, fate=Fate.DIED, reason=DeathReason.DISCARDED)
    holder = task.enqueue().id
    assert retry([job_id], by="ann").held_by == {job_id: holder}
    return job_id


def again(job_id: int, form: str) -> RetryWithResult:
    values = {"keys": Keys(None, None, None), "queue": "default", "priority": 0, "form": form, "by": "ann"}
    return retry_with(job_id, app.record, ("x",), {}, **values)


def retried_as(queue) -> int:
    job_id = died(queue)
    assert again(job_id, "f").id
    return job_id


def retried_from(queue) -> int:
    return again(died(queue), "f").id


def moved(queue) -> int:
    return move([failed(queue)], queue="bulk", by="ann")[0]


def prioritized(queue) -> int:
    return set_priority([failed(queue)], priority=-5, by="ann")[0]


def made_due(queue) -> int:
    return run_now([failed(queue)], by="ann")[0]


HISTORIES: dict[Callable[..., int], list[str]] = {
    failed: ["failed"],
    died: ["failed"],
    timed_out: ["failed"],
    killed_as_it_ran: ["failed"],
    lost: ["lost"],
    lost_at_last: ["lost"],
    killed: ["failed", "killed"],
    expired: ["expired"],
    unknown: ["unknown_task"],
    superseded: ["superseded"],
    retried: ["failed", "retried", "failed"],
    retry_refused: ["retry_refused", "failed"],
    retried_as: ["retried_with", "failed"],
    retried_from: ["retried_with"],
    moved: ["moved", "failed"],
    prioritized: ["prioritized", "failed"],
    made_due: ["made_due", "failed"],
}

each_history = pytest.mark.parametrize("make", HISTORIES, ids=lambda make: make.__name__)


def entries(job_id: int) -> list[dict]:
    return jobs.get(job_id).state().errors


@each_history
def test_each_entry_says_of_which_kind_it_is(queue, make):
    assert [entry["kind"] for entry in entries(make(queue))] == HISTORIES[make]


def test_each_kind_is_written():
    assert {kind for kinds in HISTORIES.values() for kind in kinds} == set(EntryKind)


@each_history
def test_results_have_the_failures_and_no_notes(queue, make):
    failures = [kind for kind in HISTORIES[make] if EntryKind(kind) in ATTEMPTS | ENDS]
    assert len(errors_of(entries(make(queue)))) == len(failures)


# Texts


def meaning(job_id: int) -> dict:
    """Return what is made of a history."""
    one = find(job_id, "default")
    state = jobs.get(job_id).state()
    return {
        "kinds": [entry.kind for entry in entries_of(one.errors)],
        "steps": [step.kind for step in timeline(one) if step.kind not in {"wait", "backoff"}],
        "reasons": len(why(one, "default")),
        "classes": [error.exception_class_path for error in errors_of(state.errors)],
        "workers": worker_ids(state.errors, state.attempts, current=state.worker_id),
    }


def reworded(entry: dict) -> dict:
    """Return an entry with other words for people; the class of an exception is none."""
    texts = {"message", "traceback"} | (set() if entry["kind"] == "failed" else {"error"})
    return {name: "Worte, killed by none" if name in texts else value for name, value in entry.items()}


def reword(job_id: int) -> None:
    for model in TABLES:
        for pk, errors in model.objects.filter(pk=job_id).values_list("pk", "errors"):
            model.objects.filter(pk=pk).update(errors=[reworded(entry) for entry in errors])


@each_history
def test_other_words_in_a_history_change_nothing(queue, make):
    job_id = make(queue)
    before, written = meaning(job_id), entries(job_id)
    reword(job_id)
    texts = [name for entry in written for name in entry if name in {"error", "message"} and entry["kind"] != "failed"]
    assert not texts or entries(job_id) != written
    assert meaning(job_id) == before


@each_history
def test_other_languages_change_nothing(queue, make):
    job_id = make(queue)
    before, written = meaning(job_id), entries(job_id)
    with override("de"):
        assert meaning(job_id) == before
        in_german = [title_of(entry) for entry in written]
    for kind, english, german in zip(HISTORIES[make], map(title_of, written), in_german, strict=True):
        assert (english == german) is (kind == "failed"), english


def test_other_words_change_nothing_of_what_sql_finds(queue):
    """A form that was sent is known by its number, and an outcome that was written by its attempt and class."""
    dead_id = retried_as(queue)
    reword(dead_id)
    assert again(dead_id, "f").refused is RetryRefused.ALREADY
    found = claimed(queue, app.noop.enqueue().id)
    outcome = Outcome(found, Fate.RETRIED, error=error_entry(ValueError("no luck")))
    reword(write(queue, outcome))
    assert ack.recorded(queue, [outcome], worker_id=7) == {found.id}
    assert ack.recorded(queue, [outcome], worker_id=8) == set()


def test_lost_attempt_is_no_failure_that_was_written(queue):
    found = claimed(queue, lost(queue))
    error = {"kind": EntryKind.FAILED, "error": "worker lost"}
    assert ack.recorded(queue, [Outcome(found, Fate.RETRIED, error=error)], worker_id=7) == set()


# Reading


WORDS = [
    ({"kind": "failed", "error": "shop.Late"}, "shop.Late"),
    ({"kind": "lost", "error": "x"}, "worker lost"),
    ({"kind": "killed", "by": "eve"}, "killed by eve"),
    ({"kind": "expired"}, "expired"),
    ({"kind": "unknown_task"}, "unknown task"),
    ({"kind": "superseded", "conflict": 4711}, "superseded by job 4711"),
    ({"kind": "retried", "reason": "unknown_task", "by": "ann"}, "died (unknown task), retried by ann"),
    ({"kind": "retry_refused", "holder": 7, "by": "ann"}, "not retried by ann: job 7 has its unique key"),
    ({"kind": "retried_with", "retried_as": 7, "by": "a"}, "retried with changed arguments as job 7 by a"),
    ({"kind": "retried_with", "retried_from": 7, "by": "a"}, "retried with changed arguments from job 7 by a"),
    ({"kind": "moved", "from": "a", "to": "b", "by": "{to}"}, "moved from a to b by {to}"),
    ({"kind": "prioritized", "from": 0, "to": -5, "by": "ann"}, "given priority -5 instead of 0 by ann"),
    ({"kind": "made_due", "by": "ann"}, "made due at once by ann"),
]


@pytest.mark.parametrize(("entry", "words"), WORDS, ids=[words for _, words in WORDS])
def test_words_are_made_of_what_an_entry_holds(entry, words):
    assert title_of(entry) == words


@pytest.mark.parametrize("kind", EntryKind)
def test_damaged_entry_is_told_of_with_what_it_has(kind):
    for value in (None, [], {"a": 1}, 10**30, "?", True, 1.5):
        values = dict.fromkeys(
            ("by", "from", "to", "reason", "conflict", "holder", "retried_as", "retried_from"), value
        )
        assert title_of({"kind": kind, "error": "x", **values})
    assert title_of({"kind": kind, "error": "x"})


@pytest.mark.parametrize("kind", ["", "Failed", "redone", None, 7, ["failed"], {"failed": 1}], ids=repr)
def test_entry_of_no_known_kind_is_shown_and_counts_for_nothing(kind):
    [entry] = entries_of([{"kind": kind, "error": "worker lost", "worker_id": 1}])
    assert (entry.kind, entry.is_note, entry.title) == (None, True, "worker lost")
    assert errors_of([{"kind": kind, "error": "worker lost"}]) == []


@pytest.mark.parametrize("entry", [None, 7, "failed", ["kind"], {}, {"error": "killed by eve"}], ids=json.dumps)
def test_what_is_no_entry_is_no_failure(entry):
    assert EntryKind.of(entry) is None
    assert errors_of([entry]) == []


def test_entries_stand_in_the_order_of_time():
    early, late = "2026-01-02T03:00:00+00:00", "2026-01-02T04:00:00+00:00"
    found = entries_of([{"kind": "retried_with", "retried_as": 2, "at": late}, {"kind": "failed", "at": early}])
    assert [entry.kind for entry in found] == [EntryKind.FAILED, EntryKind.RETRIED_WITH]
    assert [(entry.is_attempt, entry.is_note) for entry in found] == [(True, False), (False, True)]


# Timeline


def test_timeline_of_a_job_that_fails_backs_off_and_dies(queue):
    job_id = app.fail.enqueue().id
    fails(queue, job_id)
    assert events(job_id) == ["enqueued", "failed"]
    assert kinds(job_id)[-1] == "backoff"
    assert "Attempt 1 failed with ValueError" in steps(job_id)
    assert re.search(r"Backs off; due again at \S+ \S+ \(1 min\)$", steps(job_id))
    [entry] = entries_of(Job.objects.get(pk=job_id).errors)
    assert entry.run_seconds == 3.0
    assert entry.begun_at is not None
    Job.objects.filter(pk=job_id).update(status="queued", run_at=timezone.now())
    fails(queue, job_id, fate=Fate.DIED, reason=DeathReason.DISCARDED)
    assert events(job_id) == ["enqueued", "failed", "failed", "died"]
    assert "Died (discarded), " in steps(job_id)


def test_timeline_tells_what_staff_did_in_between(queue):
    job_id = app.fail.enqueue().id
    fails(queue, job_id, fate=Fate.DIED, reason=DeathReason.DISCARDED)
    retry([job_id], by="ann")
    assert events(job_id) == ["enqueued", "failed", "note"]
    assert kinds(job_id)[-1] == "wait"
    assert "died (discarded), retried by ann" in steps(job_id)
    assert re.search(r"Waits for its turn \([\d.]+ m?s\)$", steps(job_id))


@pytest.mark.parametrize("fate", [Fate.RETRIED, Fate.DIED])
def test_timeline_tells_for_how_long_a_job_was_dead(queue, fate, monkeypatch):
    monkeypatch.setattr("django_pgqueue.insights.history.SHORTEST", 0.0)
    job_id = app.fail.using(max_attempts=9).enqueue().id
    fails(queue, job_id, fate=fate, **({"reason": DeathReason.DISCARDED} if fate is Fate.DIED else {}))
    if fate is Fate.RETRIED:
        kill([job_id], by="eve")
    retry([job_id], by="ann")
    before = steps(job_id).split(", retried by ann")[0].splitlines()
    assert "Was dead (" in before[-2]
    assert sum("Backed off" in line for line in before) == (fate is Fate.RETRIED)


def test_timeline_tells_after_the_death_what_was_done_to_the_dead():
    job_id = app.noop.using(unique_key="k").enqueue().id
    kill([job_id], by="eve")
    holder = app.noop.using(unique_key="k").enqueue().id
    retry([job_id], by="ann")
    assert events(job_id) == ["enqueued", "died", "note"]
    assert f"not retried by ann: job {holder} has its unique key" in steps(job_id).splitlines()[-1]


def test_timeline_of_a_lost_worker_and_of_attempts_that_are_not_kept():
    at = "2026-01-02T03:0{}:00+00:00"
    errors = [
        {"kind": "lost", "worker": "web-7 7", "attempt": 1, "worker_id": 1, "at": at.format(1)},
        {"kind": "failed", "error": "ValueError", "attempt": 14, "at": at.format(5), "started_at": at.format(2)},
    ]
    enqueued = dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)
    times = {"enqueued_at": enqueued, "first_started_at": enqueued + MINUTE / 2}
    job_id = Job.objects.create(task="x", errors=errors, attempts=14, max_attempts=20, **times).pk
    assert kinds(job_id)[:5] == ["enqueued", "wait", "lost", "gap", "failed"]
    assert "Attempt 1: its worker died (30 s)" in steps(job_id)
    assert "Attempts 2 to 13 are not kept in the history" in steps(job_id)
    assert "Attempt 14 failed with ValueError (3 min)" in steps(job_id)


def test_timeline_of_a_finished_job_splits_the_delay_from_the_wait(sql):
    at = dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)
    now = timezone.now()
    values = {"attempts": 1, "priority": 0, "lost": 0, "backend": "", "args": [], "kwargs": {}, "metadata": {}}
    job_id = SucceededJob.objects.create(
        id=4711, task="x", queue="q", enqueued_at=at, run_at=at + HOUR, first_started_at=at + HOUR + MINUTE,
        started_at=at + HOUR + MINUTE, succeeded_at=now, worker_id=1, run_seconds=0.25, errors=[], **values,
    ).pk  # fmt: skip
    assert kinds(job_id) == ["enqueued", "wait", "wait", "succeeded", "ended"]
    assert "Put off until it was due (1 h)" in steps(job_id)
    assert "Waited for its turn (1 min)" in steps(job_id)
    assert "Attempt 1 succeeded (250 ms)" in steps(job_id)
    assert "Attempt 1 succeeded after 250 ms." in told(job_id)


def test_timeline_of_a_running_job_goes_on(queue, worker):
    job_id = app.noop.enqueue().id
    claim(queue, "default", limit=1, worker_id=worker().pk)
    assert events(job_id) == ["enqueued", "running"]
    assert timeline(find(job_id, "default"))[-1].is_now


def test_timeline_of_a_job_that_snoozes(queue):
    job_id = app.snooze.enqueue(3600).id
    run_claimed(queue)
    assert kinds(job_id)[-2:] == ["note", "wait"]
    assert "Snoozed 1 time" in steps(job_id)
    assert re.search(r"Snoozes; due again at \S+ \S+ \(1 h\)", steps(job_id))


def test_timeline_of_a_job_that_has_snoozed_tells_how_often(queue, sql):
    job_id = app.snooze.enqueue(0).id
    run_claimed(queue)
    promote(queue)
    claim(queue, "default", limit=1, worker_id=1)
    sql("UPDATE pgqueue_jobs SET snoozes = 4, first_started_at = first_started_at - interval '1 hour'")
    sql("UPDATE pgqueue_jobs SET enqueued_at = first_started_at - interval '1 hour'")
    assert events(job_id) == ["enqueued", "note", "note", "running"]
    assert "Run for the first time" in steps(job_id)
    assert "Snoozed 4 times" in steps(job_id)


def test_timeline_of_a_job_that_is_due_later():
    job_id = app.noop.using(delay=HOUR).enqueue().id
    assert kinds(job_id) == ["enqueued", "wait"]
    assert re.search(r"Due later, at \S+ \S+ \(1 h\)", steps(job_id))
