"""A run of a task, atomic or not, comes to an outcome."""

import asyncio
import contextlib
import datetime as dt
import functools
import sys

import pytest
from django.db import connection, transaction
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import current_job
from django_pgqueue.exceptions import JobKilled
from django_pgqueue.jobs import ack
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.context import CurrentJob
from django_pgqueue.jobs.executor import CHARGED_CONFLICTS, ConflictCounts, arun, run
from django_pgqueue.jobs.interrupts import LaneInterrupts, ThreadInterrupts
from django_pgqueue.models import Job, SucceededJob
from django_pgqueue.records import Fate
from django_pgqueue.signals import attempt_ended, attempt_started
from django_pgqueue.states import DeathReason
from django_pgqueue.testing import override_pgqueue
from tests.app.models import Mark
from tests.support.claimed import claim_one, job, outcome_of, raising
from tests.support.waiting import eventually

run_module = sys.modules[run.__module__]


def test_return_value_becomes_the_result():
    outcome = outcome_of(lambda a, b: {"sum": a + b}, job("[1]", '{"b": 2}'))
    assert (outcome.fate, outcome.result) == (Fate.SUCCEEDED, '{"sum":3}')
    assert outcome.run_seconds > 0


def test_coroutine_is_awaited():
    async def add(a, b):
        await asyncio.sleep(0)
        return a + b

    assert outcome_of(add, job("[1, 2]")).result == "3"


def test_context_goes_before_the_arguments():
    async def coroutine(context, a, b):
        return [context.attempt, context.job.id, a, b]

    for func in (lambda context, a, b: [context.attempt, context.job.id, a, b], coroutine):
        assert outcome_of(func, job("[3]", '{"b": 4}', attempt=2), takes_context=True).result == "[2,1,3,4]"


# Around each run


@contextlib.contextmanager
def noting(seen, name, current):
    seen.append(f"{name} of {current.id} begins")
    try:
        yield
    except ValueError as error:
        seen.append(f"{name} sees {error}")
        raise
    finally:
        seen.append(f"{name} ends")


@contextlib.asynccontextmanager
async def anoting(seen, name, current):
    await asyncio.sleep(0)
    with noting(seen, name, current):
        yield
    await asyncio.sleep(0)


def around(*made):
    return override_pgqueue(MIDDLEWARE=[functools.partial(*one) for one in made])


def test_runs_take_place_inside_of_the_context_managers_of_the_settings():
    seen = []
    with around((noting, seen, "outer"), (noting, seen, "inner")):
        assert outcome_of(lambda a: seen.append(a), job("[1]")).fate is Fate.SUCCEEDED
    assert seen == ["outer of 1 begins", "inner of 1 begins", 1, "inner ends", "outer ends"]


def test_async_runs_take_place_inside_of_sync_and_async_ones():
    seen = []

    async def coroutine(a):
        seen.append(a)

    with around((anoting, seen, "outer"), (noting, seen, "inner")):
        assert outcome_of(coroutine, job("[1]")).fate is Fate.SUCCEEDED
    assert seen == ["outer of 1 begins", "inner of 1 begins", 1, "inner ends", "outer ends"]


def test_context_managers_see_what_the_task_raises():
    seen = []

    async def coroutine():
        raise ValueError("no luck")

    with around((noting, seen, "it")):
        for func in (raising(ValueError("no luck")), coroutine):
            assert outcome_of(func).error["message"] == "no luck"
    assert seen == ["it of 1 begins", "it sees no luck", "it ends"] * 2


@pytest.mark.parametrize("is_entered", [False, True])
def test_error_of_a_context_manager_is_that_of_the_run(is_entered):
    ran = []

    @contextlib.contextmanager
    def failing(_):
        if not is_entered:
            raise LookupError("no such tenant")
        yield
        raise LookupError("no such tenant")

    async def coroutine():
        ran.append(2)

    with override_pgqueue(MIDDLEWARE=[failing]):
        for func in (lambda: ran.append(1), coroutine):
            outcome = outcome_of(func)
            assert (outcome.fate, outcome.error["message"]) == (Fate.RETRIED, "no such tenant")
    assert ran == ([1, 2] if is_entered else [])


def test_context_manager_may_swallow_what_the_task_raises():
    async def coroutine():
        raise LookupError

    with override_pgqueue(MIDDLEWARE=[lambda _: contextlib.suppress(LookupError)]):
        for func in (raising(LookupError()), coroutine):
            outcome = outcome_of(func)
            assert (outcome.fate, outcome.result) == (Fate.SUCCEEDED, "null")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (lambda _: None, "which returns None: it is no context manager"),
        (functools.partial(anoting, [], "a"), "Plain tasks"),
    ],
)
def test_what_a_run_cannot_enter_is_its_error(given, text):
    with override_pgqueue(MIDDLEWARE=[given]):
        outcome = outcome_of(lambda: None)
    assert (outcome.fate, outcome.error["error"]) == (
        Fate.RETRIED,
        "django_pgqueue.exceptions.ConfigurationError",
    )
    assert text in outcome.error["message"]


def test_path_that_cannot_be_imported_is_the_error_of_the_run():
    with override_pgqueue(MIDDLEWARE=["no.such.path"]):
        assert outcome_of(lambda: None).error["error"] == "ModuleNotFoundError"


@pytest.mark.django_db(transaction=True)
def test_context_managers_are_inside_the_transaction_of_an_atomic_task(queue):
    @contextlib.contextmanager
    def failing(_):
        Mark.objects.create(job_id=1)
        yield
        raise LookupError

    app.record_atomic.enqueue("x")
    claimed = claim_one(queue)
    with override_pgqueue(MIDDLEWARE=[failing]):
        outcome = run(app.record_atomic, claimed, CurrentJob(claimed), ThreadInterrupts())
    assert outcome.fate is Fate.RETRIED
    assert not Mark.objects.exists()


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_nothing_a_task_raises_passes_the_interrupts(error):
    assert outcome_of(raising(error)).fate is Fate.RETRIED


def test_job_that_finishes_although_it_was_to_stop_has_succeeded():
    assert outcome_of(lambda: setattr(current_job(), "is_kill_requested", True)).fate is Fate.SUCCEEDED


def test_job_that_was_killed_before_it_began_never_runs():
    ran = []

    async def coroutine():
        ran.append("coroutine")

    for func in (coroutine, lambda: ran.append("function")):
        given = job()
        current = CurrentJob(given)
        current.is_kill_requested = True
        outcome = outcome_of(func, given, current)
        assert (outcome.reason, outcome.error["error"]) == (DeathReason.KILLED, f"{JobKilled.__module__}.JobKilled")
    assert ran == []


def test_result_that_is_not_json_is_not_kept_and_the_work_not_repeated(caplog):
    outcome = outcome_of(lambda: {1, 2})
    assert (outcome.fate, outcome.result) == (Fate.SUCCEEDED, None)
    assert "succeeded, but its result is not kept: Cannot be stored as JSON: result is the set {1, 2}" in caplog.text
    caplog.clear()
    assert outcome_of(lambda: {1, 2}, job(flags=0)).fate is Fate.SUCCEEDED
    assert caplog.text == ""


def test_arguments_that_are_no_array_are_a_failure():
    outcome = outcome_of(lambda: None, job('{"a": 1}'))
    assert "args must be a JSON array and kwargs a JSON object, not dict and dict" in outcome.error["message"]


def test_signals_surround_the_run_and_a_broken_receiver_harms_nothing(caplog):
    heard = []

    def started(**kwargs):
        heard.append("started")
        raise RuntimeError

    def finished(event, **kwargs):
        heard.append(event.outcome)

    attempt_started.connect(started)
    attempt_ended.connect(finished)
    try:
        outcome_of(lambda: heard.append("ran"))
    finally:
        attempt_started.disconnect(started)
        attempt_ended.disconnect(finished)
    assert heard == ["started", "ran", "succeeded"]


def test_coroutines_announce_themselves_to_async_receivers_too():
    heard = []

    async def started(**kwargs):
        heard.append("started")

    async def finished(event, **kwargs):
        heard.append(event.outcome)

    async def work():
        heard.append("ran")

    attempt_started.connect(started)
    attempt_ended.connect(finished)
    try:
        assert outcome_of(work).fate is Fate.SUCCEEDED
        assert outcome_of(lambda: heard.append("ran")).fate is Fate.SUCCEEDED
    finally:
        attempt_started.disconnect(started)
        attempt_ended.disconnect(finished)
    assert heard == ["started", "ran", "succeeded"] * 2


def test_job_enqueued_by_a_job_knows_its_parent(db):
    from django_pgqueue.models import Job

    given = job(id=77)
    assert run(app.parent, given, CurrentJob(given), ThreadInterrupts()).fate is Fate.SUCCEEDED
    assert Job.objects.get().parent_id == 77


def again(when, fails=False):
    def func(label):
        current_job().repeat(delay=dt.timedelta(hours=1))
        current_job().repeat(**when)  # the last call counts
        if fails:
            raise ValueError(label)

    return func


@pytest.mark.parametrize(
    ("when", "delay"), [({}, 0), ({"delay": 90}, 90), ({"delay": 1.5}, 1.5), ({"delay": dt.timedelta(minutes=2)}, 120)]
)
def test_task_asks_for_the_next_job(queue, monkeypatch, when, delay):
    app.record.enqueue("x")
    job = claim_one(queue)
    monkeypatch.setattr(app.record, "func", again(when))
    outcome = run(app.record, job, CurrentJob(job), ThreadInterrupts())
    assert (outcome.fate, outcome.delay_seconds, outcome.next_at) == (Fate.REPEATED, delay, None)


def test_coroutine_asks_for_the_next_job_at_a_time(queue, monkeypatch):
    app.arecord.enqueue("x")
    job, at = claim_one(queue), timezone.now() + dt.timedelta(hours=1)

    async def func(label):
        current_job().repeat(at=at)

    async def awaited():
        border = LaneInterrupts(asyncio.get_running_loop())
        return await arun(app.arecord, job, CurrentJob(job), border)

    monkeypatch.setattr(app.arecord, "func", func)
    outcome = asyncio.run(awaited())
    assert (outcome.fate, outcome.next_at) == (Fate.REPEATED, at)


def test_failure_has_no_next_job(queue, monkeypatch):
    app.record.enqueue("x")
    job = claim_one(queue)
    monkeypatch.setattr(app.record, "func", again((), fails=True))
    assert run(app.record, job, CurrentJob(job), ThreadInterrupts()).fate is Fate.RETRIED


def test_run_that_was_asked_to_stop_and_succeeds_has_no_next_job(queue, monkeypatch):
    app.record.enqueue("x")
    job = claim_one(queue)

    def func(label):
        current_job().repeat()
        current_job().is_kill_requested = True

    monkeypatch.setattr(app.record, "func", func)
    assert run(app.record, job, CurrentJob(job), ThreadInterrupts()).fate is Fate.SUCCEEDED


def test_atomic_task_writes_its_effects_and_the_next_job_together(queue, monkeypatch):
    app.record_atomic.enqueue("x")
    job = claim_one(queue)
    monkeypatch.setattr(app.record_atomic, "func", lambda label: (app.mark(label), current_job().repeat(delay=60)))
    assert run(app.record_atomic, job, CurrentJob(job), ThreadInterrupts()).fate is Fate.RECORDED
    assert (Mark.objects.count(), Job.objects.get().parent_id, SucceededJob.objects.get().id) == (1, job.id, job.id)


def test_atomic_task_that_lost_its_lease_leaves_no_next_job(queue, monkeypatch, sql):
    app.record_atomic.enqueue("x")
    job = claim_one(queue)
    sql("UPDATE pgqueue_jobs SET status = 'queued', lease_token = 0, worker_id = 0")
    monkeypatch.setattr(app.record_atomic, "func", lambda label: (app.mark(label), current_job().repeat(delay=60)))
    assert run(app.record_atomic, job, CurrentJob(job), ThreadInterrupts()).fate is Fate.RETRIED
    assert (Mark.objects.count(), Job.objects.get().id) == (0, job.id)


def test_job_goes_on_by_itself_in_a_real_worker(start_worker):
    """Five runs that succeed; the second fails once before, and has no job for that."""
    first = app.go_on.enqueue(6).id
    start_worker()
    eventually(lambda: SucceededJob.objects.count() == 5 and not Job.objects.exists())
    jobs = SucceededJob.objects.order_by("id")
    assert [job.parent_id for job in jobs] == [None, *[job.id for job in jobs][:-1]]
    assert jobs[0].id == first
    assert sum(job.attempts for job in jobs) == Mark.objects.count() == 6


@pytest.fixture
def claimed(queue):
    app.record_atomic.enqueue("x")
    [job] = claim(queue, "default", limit=1, worker_id=1)
    return job


def test_effects_and_removal_are_one_transaction(claimed):
    outcome = run(app.record_atomic, claimed, CurrentJob(claimed), ThreadInterrupts())
    assert outcome.fate is Fate.RECORDED
    assert (Mark.objects.count(), Job.objects.count(), SucceededJob.objects.count()) == (1, 0, 1)
    assert SucceededJob.objects.get().run_seconds > 0


def test_effects_roll_back_when_the_lease_was_lost(claimed, sql):
    sql("UPDATE pgqueue_jobs SET status = 'queued', lease_token = 0, worker_id = 0")
    outcome = run(app.record_atomic, claimed, CurrentJob(claimed), ThreadInterrupts())
    assert (outcome.fate, outcome.error["error"]) == (Fate.RETRIED, "django_pgqueue.exceptions.LeaseLost")
    assert (Mark.objects.count(), Job.objects.count()) == (0, 1)


def test_effects_roll_back_when_the_task_fails(claimed, monkeypatch):
    monkeypatch.setattr(app.record_atomic, "func", lambda label: (app.mark(label), 1 / 0))
    outcome = run(app.record_atomic, claimed, CurrentJob(claimed), ThreadInterrupts())
    assert outcome.fate is Fate.RETRIED
    assert (Mark.objects.count(), Job.objects.filter(status="running").count()) == (0, 1)


def test_failure_after_a_commit_in_doubt_is_stale_because_the_row_is_gone(queue, claimed):
    assert run(app.record_atomic, claimed, CurrentJob(claimed), ThreadInterrupts()).fate is Fate.RECORDED
    from django_pgqueue.records import Outcome

    receipt = ack.write(queue, [Outcome(claimed, Fate.RETRIED, error={"error": "OperationalError"})])
    assert receipt.stale == {claimed.id}
    assert SucceededJob.objects.count() == 1


def test_row_locked_by_another_session_is_waited_for_briefly_then_given_up(queue, claimed, other_queue):
    with other_queue.transaction():
        other_queue.rows("SELECT id FROM pgqueue_jobs FOR UPDATE", {})
        from django_pgqueue.db.connections import CallerConnection
        from django_pgqueue.records import Outcome

        with transaction.atomic():
            outcome = Outcome(claimed, Fate.SUCCEEDED)
            assert not ack.finish_alone(CallerConnection(), outcome, patience_seconds=0.1)
    with transaction.atomic():
        assert ack.finish_alone(CallerConnection(), outcome)


def test_hook_that_raises_after_the_commit_makes_no_failure_of_a_success(queue, claimed, monkeypatch, caplog):
    ended = []

    def receiver(event, **_):
        ended.append(event.outcome)

    def function(label):
        app.mark(label)
        transaction.on_commit(lambda: 1 / 0)

    monkeypatch.setattr(app.record_atomic, "func", function)
    attempt_ended.connect(receiver)
    try:
        outcome = run(app.record_atomic, claimed, CurrentJob(claimed), ThreadInterrupts())
    finally:
        attempt_ended.disconnect(receiver)
    assert (outcome.fate, ended) == (Fate.RECORDED, ["succeeded"])
    assert (Mark.objects.count(), SucceededJob.objects.count()) == (1, 1)
    assert "has succeeded, but an on_commit hook of it failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    assert ack.write(queue, [outcome]).stale == frozenset()


@pytest.fixture
def conflict(sql, monkeypatch):
    """Let the transaction that removes a job fail, at its commit or before, with an SQLSTATE."""
    monkeypatch.setattr(run_module, "conflicts", ConflictCounts())

    def plan(state, *, is_late):
        sql(
            "CREATE FUNCTION pgqueue_fail() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION 'as planned' USING ERRCODE = '{state}'; END $$"
        )
        kind, when = ("CONSTRAINT TRIGGER", "DEFERRABLE INITIALLY DEFERRED") if is_late else ("TRIGGER", "")
        sql(f"CREATE {kind} fail AFTER DELETE ON pgqueue_jobs {when} FOR EACH ROW EXECUTE FUNCTION pgqueue_fail()")

    yield plan
    sql("DROP FUNCTION IF EXISTS pgqueue_fail CASCADE")


@pytest.mark.parametrize("when", [("40001", False), ("40P01", False), ("40001", True), ("40P01", True)], ids=repr)
def test_conflict_after_the_function_has_returned_is_no_attempt(queue, claimed, conflict, caplog, when):
    state, is_late = when
    conflict(state, is_late=is_late)
    outcome = run(app.record_atomic, claimed, CurrentJob(claimed), ThreadInterrupts())
    assert (outcome.fate, outcome.delay_seconds) == (Fate.RELEASED, 0.0)
    assert "goes back, and its attempt does not count" in caplog.text
    ack.write(queue, [outcome])
    assert list(Job.objects.values_list("status", "attempts", "errors")) == [("queued", 0, [])]
    assert Mark.objects.count() == 0


def test_tenth_conflict_in_a_row_after_the_function_has_returned_is_an_attempt(claimed, conflict):
    """As with a trigger that raises it each time; the pauses before that grow."""
    conflict("40001", is_late=True)
    outcomes = [run(app.record_atomic, claimed, CurrentJob(claimed), ThreadInterrupts()) for _ in range(11)]
    assert [outcome.fate for outcome in outcomes] == [Fate.RELEASED] * 9 + [Fate.RETRIED] * 2
    pauses = [outcome.delay_seconds for outcome in outcomes[:9]]
    assert pauses == pytest.approx([0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0], rel=0.11)
    assert "as planned" in outcomes[-1].error["message"]
    last = claimed._replace(attempt=claimed.max_attempts)
    assert run(app.record_atomic, last, CurrentJob(last), ThreadInterrupts()).fate is Fate.DIED
    assert not run_module.conflicts._numbers, "if it is sent back, it begins anew"


@pytest.mark.parametrize("end", ["success", "failure"])
def test_conflicts_are_counted_anew_after_a_run_that_has_ended_in_another_way(claimed, conflict, monkeypatch, sql, end):
    conflict("40001", is_late=True)
    for _ in range(CHARGED_CONFLICTS - 1):
        run(app.record_atomic, claimed, CurrentJob(claimed), ThreadInterrupts())
    with monkeypatch.context() as patch:
        if end == "failure":
            patch.setattr(app.record_atomic, "func", lambda _: 1 / 0)
        else:
            sql("DROP TRIGGER fail ON pgqueue_jobs")
        outcome = run(app.record_atomic, claimed, CurrentJob(claimed), ThreadInterrupts())
    assert outcome.fate is (Fate.RETRIED if end == "failure" else Fate.RECORDED)
    assert not run_module.conflicts._numbers


def test_conflicts_are_counted_of_a_limited_number_of_jobs(claimed, monkeypatch):
    monkeypatch.setattr(run_module, "REMEMBERED_CONFLICTS", 2)
    conflicts = ConflictCounts()
    numbers = [conflicts.add(claimed._replace(id=job_id)) for job_id in (1, 2, 1, 3, 1, 2)]
    assert numbers == [1, 1, 2, 1, 3, 1], "of the second job none was known any more"


@pytest.mark.parametrize("case", ["another error", "told its progress", "may start once"])
def test_other_failures_at_the_end_of_an_atomic_run_are_attempts(claimed, conflict, case):
    conflict("P0001" if case == "another error" else "40001", is_late=True)
    current = CurrentJob(claimed)
    current.has_told = case == "told its progress"
    job = claimed._replace(max_attempts=1) if case == "may start once" else claimed
    outcome = run(app.record_atomic, job, current, ThreadInterrupts())
    assert outcome.fate is (Fate.DIED if case == "may start once" else Fate.RETRIED)
    assert "as planned" in outcome.error["message"]


def test_conflict_inside_of_the_function_is_an_attempt(claimed, monkeypatch, sql):
    def function(label):
        app.mark(label)
        with connection.cursor() as cursor:
            cursor.execute("DO $$ BEGIN RAISE EXCEPTION 'as planned' USING ERRCODE = '40001'; END $$")

    monkeypatch.setattr(app.record_atomic, "func", function)
    assert run(app.record_atomic, claimed, CurrentJob(claimed), ThreadInterrupts()).fate is Fate.RETRIED


def test_run_whose_transaction_cannot_begin_is_no_attempt(queue, claimed, monkeypatch, caplog):
    """No line of the task has run; so this holds for a task that may start only once too."""
    connection.close()
    with monkeypatch.context() as patch:
        patch.setitem(connection.settings_dict, "HOST", "/nowhere")
        job = claimed._replace(max_attempts=1)
        outcome = run(app.record_atomic, job, CurrentJob(job), ThreadInterrupts())
    assert outcome.fate is Fate.RELEASED
    assert outcome.delay_seconds > 0, "it must not come back at once, again and again"
    assert "its transaction cannot begin" in caplog.text
    ack.write(queue, [outcome])
    assert list(Job.objects.values_list("status", "attempts", "errors")) == [("scheduled", 0, [])]
