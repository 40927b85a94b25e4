"""A run that fails is tried again, is put back, or is the last of its job."""

import asyncio
import datetime as dt
import json
import sys

import pytest

import tests.app.tasks as app
from django_pgqueue import Discard, Retry, Snooze, current_job, exponential
from django_pgqueue.exceptions import JobTimeout
from django_pgqueue.jobs.context import CurrentJob
from django_pgqueue.jobs.failure import error_entry, unknown_task
from django_pgqueue.records import Fate
from django_pgqueue.states import DeathReason
from tests.support.claimed import job, outcome_of, raising


def test_failure_is_retried_after_the_backoff_with_jitter():
    outcome = outcome_of(raising(ValueError("no")), job(attempt=2), backoff=lambda attempt: attempt * 100.0)
    assert outcome.fate is Fate.RETRIED
    assert 180 <= outcome.delay_seconds <= 220
    assert (outcome.error["error"], outcome.error["message"]) == ("ValueError", "no")
    assert "raise error\nValueError: no\n" in outcome.error["traceback"]


@pytest.mark.parametrize(("attempt", "fate"), [(2, Fate.RETRIED), (3, Fate.DIED), (4, Fate.DIED)])
def test_last_attempt_buries(attempt, fate):
    outcome = outcome_of(raising(ValueError()), job(attempt=attempt))
    assert outcome.fate is fate
    assert outcome.reason is (DeathReason.EXHAUSTED if fate is Fate.DIED else None)


def test_discard_buries_at_once():
    outcome = outcome_of(raising(Discard("no such order")))
    assert (outcome.fate, outcome.reason, outcome.error["message"]) == (
        Fate.DIED,
        DeathReason.DISCARDED,
        "no such order",
    )


@pytest.mark.parametrize(
    ("given", "error", "reason"),
    [
        (LookupError, KeyError("x"), DeathReason.DISCARDED),
        ((ZeroDivisionError, LookupError), KeyError("x"), DeathReason.DISCARDED),
        (["django.core.exceptions.ObjectDoesNotExist"], app.Mark.DoesNotExist("gone"), DeathReason.DISCARDED),
        ("tests.app.models.Mark.DoesNotExist", app.Mark.DoesNotExist("gone"), DeathReason.DISCARDED),
        (LookupError, ValueError("x"), None),
        ((), ValueError("x"), None),
    ],
    ids=repr,
)
@pytest.mark.parametrize("is_async", [False, True])
def test_exception_of_a_class_that_the_task_names_is_not_tried_again(given, error, reason, is_async):
    async def func():
        raise error

    outcome = outcome_of(func if is_async else raising(error), discard_on=given)
    assert (outcome.fate, outcome.reason or None) == (Fate.DIED if reason else Fate.RETRIED, reason)
    assert outcome.error["error"].endswith(type(error).__name__)


class Exits(type):
    def __instancecheck__(cls, instance):
        sys.exit()


class Strange(Exception, metaclass=Exits):
    pass


@pytest.fixture
def module_that_exits(tmp_path, monkeypatch):
    (tmp_path / "leaves_at_once.py").write_text("import sys; sys.exit()")
    monkeypatch.syspath_prepend(tmp_path)
    return "leaves_at_once.Error"


def test_classes_to_discard_that_exit_do_not_lose_the_job(caplog, module_that_exits):
    for given in (module_that_exits, Strange):
        outcome = outcome_of(raising(ValueError("x")), discard_on=given)
        assert outcome.fate is Fate.RETRIED
    assert caplog.text.count("The discard_on of t cannot be read for job 1") == 2


def test_time_limit_is_no_exception_that_a_task_discards_on():
    current = CurrentJob(job(timeout_seconds=1))
    current.is_timed_out = True
    assert outcome_of(raising(ValueError("late")), current=current, discard_on=Exception).fate is Fate.RETRIED


def test_decision_of_the_task_is_no_exception_that_it_discards_on():
    assert outcome_of(raising(Retry()), discard_on=Exception).fate is Fate.RETRIED
    assert outcome_of(raising(Snooze(1)), discard_on=Exception).fate is Fate.SNOOZED


def test_path_that_leads_to_no_exception_is_logged_and_the_job_tried_again(caplog):
    outcome = outcome_of(raising(ValueError("x")), discard_on="tests.nowhere.Error")
    assert outcome.fate is Fate.RETRIED
    assert "The discard_on of t cannot be read for job 1" in caplog.text
    assert "'tests.nowhere.Error', which cannot be imported" in caplog.text


@pytest.mark.parametrize("delay", [5, dt.timedelta(seconds=5)])
def test_snooze_is_no_attempt_even_on_the_last_one(delay):
    outcome = outcome_of(raising(Snooze(delay)), job(attempt=3))
    assert (outcome.fate, outcome.delay_seconds) == (Fate.SNOOZED, 5)


@pytest.mark.parametrize(("before", "fate"), [(0, Fate.SNOOZED), (2, Fate.SNOOZED), (3, Fate.DIED), (40, Fate.DIED)])
def test_job_dies_that_snoozes_more_often_than_it_may(before, fate):
    claimed = job(rest=json.dumps({"metadata": {}, "snoozes": before}))
    outcome = outcome_of(raising(Snooze(5, "the shop is closed")), claimed, max_snoozes=3)
    assert outcome.fate is fate
    if fate is Fate.DIED:
        told = f"It has snoozed {before} times, and max_snoozes is 3: the shop is closed"
        assert (outcome.reason, outcome.error["message"]) == (DeathReason.EXHAUSTED, told)
        assert outcome.error["error"] == "django_pgqueue.exceptions.Snooze"


def test_snooze_without_a_bound_does_not_ask_how_often():
    assert outcome_of(raising(Snooze(5)), job(rest='{"snoozes": 32767}')).fate is Fate.SNOOZED


@pytest.mark.parametrize("delay", [5, dt.timedelta(seconds=5)])
def test_retry_counts_and_comes_back_after_its_own_delay_exactly(delay):
    outcome = outcome_of(raising(Retry(delay, "busy")), job(attempt=2), backoff=1000, discard_on=Exception)
    assert (outcome.fate, outcome.delay_seconds) == (Fate.RETRIED, 5)
    assert (outcome.error["error"], outcome.error["message"]) == ("django_pgqueue.exceptions.Retry", "busy")


def test_retry_on_the_last_attempt_buries():
    outcome = outcome_of(raising(Retry(5)), job(attempt=3))
    assert (outcome.fate, outcome.reason) == (Fate.DIED, DeathReason.EXHAUSTED)


def test_retry_without_a_delay_takes_the_backoff_of_the_task():
    assert 90 <= outcome_of(raising(Retry()), backoff=100).delay_seconds <= 110


@pytest.mark.parametrize(("message", "name"), [("", "ZeroDivisionError"), ("busy", "django_pgqueue.exceptions.Retry")])
def test_history_has_what_a_retry_without_a_message_was_raised_from(message, name):
    def func():
        raise Retry(5, message) from ZeroDivisionError("no luck")

    for attempt in (1, 3):
        assert outcome_of(func, job(attempt=attempt)).error["error"] == name


def test_backoff_may_look_at_the_error():
    def after(attempt, error):
        return float(str(error)) + attempt

    outcome = outcome_of(raising(ValueError("100")), job(attempt=2), backoff=after)
    assert 102 * 0.9 <= outcome.delay_seconds <= 102 * 1.1
    assert outcome_of(raising(ValueError("x")), backoff=exponential(base=7, jitter=0)).delay_seconds == 7


def test_backoff_is_told_what_was_interrupted_for_its_time():
    heard = []
    current = CurrentJob(job(timeout_seconds=1))
    current.is_timed_out = True
    outcome_of(raising(ValueError("late")), current=current, backoff=lambda attempt, error: heard.append(error) or 1)
    assert [type(error) for error in heard] == [JobTimeout]


def test_retry_that_is_no_time_is_refused_where_it_is_raised():
    def func():
        raise Retry(-1)

    outcome = outcome_of(func, backoff=100)
    assert outcome.error["error"] == "django_pgqueue.exceptions.InvalidOption"
    assert 90 <= outcome.delay_seconds <= 110


@pytest.mark.parametrize("error", [ValueError("stopped"), Snooze(5), Retry(5), asyncio.CancelledError()], ids=repr)
def test_whatever_a_job_raises_after_it_was_to_stop_it_was_killed(error):
    def func():
        current_job().is_kill_requested = True
        raise error

    outcome = outcome_of(func)
    assert (outcome.fate, outcome.reason) == (Fate.DIED, DeathReason.KILLED)
    name = "django_pgqueue.exceptions.JobKilled" if isinstance(error, asyncio.CancelledError) else None
    assert outcome.error["error"] == name or isinstance(error, Exception)


def test_cancelled_coroutine_was_killed_only_if_that_was_asked():
    async def cancelled(was_asked):
        current_job().is_kill_requested = was_asked
        raise asyncio.CancelledError

    assert outcome_of(cancelled, job("[false]")).fate is Fate.RETRIED
    assert outcome_of(cancelled, job("[true]")).reason is DeathReason.KILLED


@pytest.mark.parametrize("error", [JobTimeout(), asyncio.CancelledError(), ValueError("no")], ids=repr)
def test_failure_after_the_time_limit_names_it_and_what_the_task_made_of_it(error):
    def func():
        current_job().is_timed_out = True
        raise error

    outcome = outcome_of(func, job(timeout_seconds=7))
    assert (outcome.fate, outcome.error["error"]) == (
        Fate.RETRIED,
        "django_pgqueue.exceptions.JobTimeout",
    )
    assert outcome.error["message"] == "It was interrupted after its time limit of 7 s."
    assert type(error).__name__ in outcome.error["traceback"]
    assert outcome_of(func, job(timeout_seconds=7, attempt=3)).reason is DeathReason.EXHAUSTED


@pytest.mark.parametrize(
    ("error", "fate"), [(Snooze(5), Fate.SNOOZED), (Retry(5), Fate.RETRIED)], ids=["snooze", "retry"]
)
def test_job_may_still_decide_for_itself_after_its_time_limit(error, fate):
    def func():
        current_job().is_timed_out = True
        raise error

    outcome = outcome_of(func)
    assert (outcome.fate, outcome.delay_seconds) == (fate, 5)


@pytest.mark.parametrize("backoff", [lambda attempt: 1 / 0, lambda attempt: sys.exit()], ids=["error", "exit"])
def test_broken_backoff_does_not_lose_the_job(caplog, backoff):
    outcome = outcome_of(raising(ValueError()), backoff=backoff)
    assert outcome.fate is Fate.RETRIED
    assert 54 <= outcome.delay_seconds <= 66
    assert "The backoff of t failed" in caplog.text


def test_exception_that_cannot_be_printed_or_stored_is_described():
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError

    assert error_entry(Odd())["message"] == "(its text cannot be read)"
    described = error_entry(ValueError("nul \0 and surrogate \ud800 " + "x" * 100_000))
    assert "\0" not in str(described)
    assert len(str(described).encode()) < 9000


@pytest.mark.parametrize("seconds", [float("nan"), float("inf")])
def test_backoff_that_is_no_time_is_a_minute(seconds):
    assert 54 <= outcome_of(raising(ValueError()), backoff=lambda attempt: seconds).delay_seconds <= 66


def test_control_exception_without_its_init_is_survived():
    class Mine(Snooze):
        def __init__(self):
            pass

    assert outcome_of(raising(Mine())).fate is Fate.SNOOZED


def test_unknown_task_that_was_killed_dies():
    outcome = unknown_task(job(task="gone", timeout_seconds=-1))
    assert (outcome.fate, outcome.reason) == (Fate.DIED, DeathReason.KILLED)


def test_unknown_task_that_has_run_before_waits_for_its_code():
    assert unknown_task(job(task="gone", attempt=2, is_old=True)).fate is Fate.RELEASED


def test_unknown_task_that_has_only_snoozed_so_far_waits_for_its_code_too():
    assert unknown_task(job(task="gone", is_old=True, rest='{"snoozes": 1}')).fate is Fate.RELEASED


def test_unknown_task_is_put_back_and_buried_after_a_day(caplog):
    outcome = unknown_task(job(task="gone"))
    assert (outcome.fate, outcome.delay_seconds) == (Fate.RELEASED, 30)
    assert "Unknown task gone: job 1 will be retried in 30 s. Does this worker run the same code" in caplog.text
    assert "Workers load the tasks.py of the apps in INSTALLED_APPS" in caplog.text
    late = unknown_task(job(task="gone", is_old=True))
    assert (late.fate, late.reason) == (Fate.DIED, DeathReason.UNKNOWN_TASK)
