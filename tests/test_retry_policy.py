"""Failed attempts wait longer and longer, and exceptions that are named end the job."""

import datetime as dt
import functools
import re

import pytest
from django.core.exceptions import ObjectDoesNotExist

from django_pgqueue.exceptions import InvalidOption, Retry, Snooze
from django_pgqueue.retry_policy import (
    DEFAULT_BACKOFF,
    BackoffRule,
    Discards,
    exponential,
    reconnect_delay,
    retry_after,
    with_jitter,
)
from django_pgqueue.states import LONGEST_DELAY
from tests.app.models import Mark


def test_delay_doubles_up_to_an_hour():
    found = [DEFAULT_BACKOFF(attempt) for attempt in (1, 2, 3, 11, 12, 13, 32767)]
    assert found == [2, 4, 8, 2048, 3600, 3600, 3600]
    assert exponential() == DEFAULT_BACKOFF


def test_delay_grows_as_it_is_told_to():
    tripling = exponential(base=3, longest=dt.timedelta(minutes=1))
    assert [tripling(attempt) for attempt in (1, 2, 3, 4, 32767)] == [3, 9, 27, 60, 60]
    assert [exponential(base=1)(attempt) for attempt in (1, 9)] == [1, 1]
    assert exponential(base=1.5)(2) == 2.25


@pytest.mark.parametrize(("jitter", "least", "most"), [(0, 100, 100), (0.5, 50, 150), (1, 0, 200)])
def test_jitter_of_a_growing_delay_is_its_own(jitter, least, most):
    rule = BackoffRule.of(exponential(base=100, jitter=jitter))
    found = [rule.seconds(1, ValueError()) for _ in range(1000)]
    assert least <= min(found)
    assert max(found) <= most
    assert jitter == 0 or max(found) - min(found) > 0.8 * (most - least)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"base": 0.9}, "base of exponential() is a number from 1 to 1000, not 0.9"),
        ({"base": float("nan")}, "base of exponential() is a number from 1 to 1000"),
        ({"base": "2"}, "base of exponential() is a number from 1 to 1000"),
        (
            {"longest": 0},
            "longest of exponential() is a number of seconds above 0, or a timedelta, of ten years at most",
        ),
        ({"longest": dt.timedelta(days=3651)}, "longest of exponential() is a number of seconds above 0"),
        ({"longest": True}, "longest of exponential() is a number of seconds above 0"),
        ({"jitter": 1.1}, "jitter of exponential() is a number from 0 to 1, not 1.1"),
        ({"jitter": -0.1}, "jitter of exponential() is a number from 0 to 1, not -0.1"),
    ],
    ids=str,
)
def test_growing_delay_that_cannot_be_is_refused_where_it_is_named(given, message):
    with pytest.raises(InvalidOption, match=re.escape(message)):
        exponential(**given)


class OfAttempt:
    def __call__(self, attempt):
        return 5


class OfBoth:
    def of(self, attempt, error):
        return error


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (5, 5),
        (0, 0),
        (dt.timedelta(minutes=1), 60),
        (lambda attempt: attempt, 3),
        (lambda attempt, base=7: attempt * base, 21),
        (lambda attempt, error: error, 11),
        (lambda attempt, error=None: error, 11),
        (lambda attempt, e, factor=2: e * factor, 22),
        (lambda *args: len(args), 1),
        (lambda attempt, /, error: error, 11),
        (functools.partial(lambda base, attempt: base * attempt, 2), 6),
        (functools.partial(lambda base, attempt, error: base * error, 2), 22),
        (OfAttempt(), 5),
        (OfBoth().of, 11),
        (abs, 3),
        (max, 3),
        (exponential(base=2), 8),
    ],
    ids=str,
)
def test_backoff_is_a_time_or_a_function_of_the_attempt_and_perhaps_the_error(given, seconds, monkeypatch):
    monkeypatch.setattr("django_pgqueue.retry_policy.with_jitter", lambda seconds, jitter: seconds)
    rule = BackoffRule.of(given)
    if given is max:  # one without a signature is called with the attempt alone
        with pytest.raises(TypeError, match="not iterable"):
            rule.seconds(3, 11)
        return
    assert rule.seconds(3, 11) == seconds
    assert BackoffRule.of(rule) is rule


@pytest.mark.parametrize(
    "given",
    [
        lambda: 5,
        lambda attempt, error, job: 5,
        lambda attempt, *, error: 5,
        lambda **options: 5,
    ],
    ids=["nothing", "three", "keyword", "options"],
)
def test_function_that_cannot_be_called_with_an_attempt_is_no_backoff(given):
    with pytest.raises(
        InvalidOption, match=r"backoff is a function of \(attempt\) or of \(attempt, error\), not <function"
    ):
        BackoffRule.of(given)


@pytest.mark.parametrize("given", [-1, float("inf"), float("nan"), "5", True, None, dt.timedelta(seconds=-1)], ids=str)
def test_what_is_no_time_is_no_backoff(given):
    with pytest.raises(InvalidOption, match="backoff is a function, 0 or more seconds, or a timedelta, not "):
        BackoffRule.of(given)


def test_no_wait_is_longer_than_ten_years_or_negative():
    assert BackoffRule.of(1e300).seconds(1, ValueError()) <= 1.1 * 10 * 365 * 24 * 3600
    assert BackoffRule.of(lambda attempt: -5).seconds(1, ValueError()) == 0


def test_jitter_spreads_by_a_tenth_either_way():
    delays = [with_jitter(100.0) for _ in range(1000)]
    assert min(delays) >= 90
    assert max(delays) <= 110
    assert min(delays) < 95
    assert max(delays) > 105
    assert with_jitter(0.0) == 0


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 0.1), (2, 0.2), (5, 1.6), (6, 2.0), (7, 2.0), (100_000, 2.0)], ids=str
)
def test_database_is_tried_again_after_two_seconds_at_most(failures, seconds):
    assert 0.9 * seconds <= reconnect_delay(failures) <= 1.1 * seconds


@pytest.mark.parametrize(
    "given",
    [
        ObjectDoesNotExist,
        "django.core.exceptions.ObjectDoesNotExist",
        ["tests.app.models.Mark.DoesNotExist", KeyError],
        (kind for kind in (ObjectDoesNotExist, "builtins.KeyError")),
    ],
    ids=["class", "path", "several", "any iterable"],
)
def test_exceptions_are_named_by_class_or_path_and_their_subclasses_are_meant_too(given):
    discards = Discards.of(given)
    assert discards.has(Mark.DoesNotExist())
    assert not discards.has(ValueError())


def test_nothing_is_discarded_where_nothing_is_named():
    assert not Discards().has(ValueError())
    assert not Discards.of(()).has(ValueError())


@pytest.mark.parametrize(
    "given", ["ValueError", ValueError("x"), 5, None, [KeyboardInterrupt], int, ["builtins.KeyError", 5]], ids=str
)
def test_what_is_no_class_of_exceptions_is_refused_where_it_is_named(given):
    with pytest.raises(InvalidOption, match="discard_on is a class of exceptions, its dotted path, or a tuple of them"):
        Discards.of(given)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("shop.no_such_module.Error", "which cannot be imported"),
        ("builtins.NoSuchError", "which cannot be imported"),
        ("builtins.len", "which is no class of exceptions"),
        ("builtins.SystemExit", "which is no class of exceptions"),
    ],
)
def test_path_is_followed_when_an_exception_is_compared(path, message):
    discards = Discards.of(path)
    with pytest.raises(InvalidOption, match=message):
        discards.has(ValueError())


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120),
        (" 1.5 ", 1.5),
        ("-3", 0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
        ("9" * 30, LONGEST_DELAY.total_seconds()),
        *((value, None) for value in (None, "", "soon", "nan", "inf", "Sun, 99 Nov 1994")),
    ],
)
def test_header_says_after_how_many_seconds(value, seconds):
    assert retry_after(value) == seconds
    assert retry_after(value, 60) == (60 if seconds is None else seconds)
    Retry(retry_after(value))
    Snooze(retry_after(value, 60))


@pytest.mark.parametrize("zone", ["GMT", "-0000"])
def test_header_may_have_a_date(zone):
    due = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    assert retry_after(f"{due:%a, %d %b %Y %H:%M:%S} {zone}") == pytest.approx(3600, abs=60)
