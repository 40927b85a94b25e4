"""Failed attempts wait longer and longer, and exceptions that are named end the job."""

import pytest
from django.core.exceptions import ObjectDoesNotExist

from django_pgqueue.exceptions import InvalidJob
from django_pgqueue.retry_policy import Discards, exponential, reconnect_delay, with_jitter
from tests.app.models import Mark


def test_delay_doubles_up_to_an_hour():
    assert [exponential(attempt) for attempt in (1, 2, 3, 11, 12, 13, 32767)] == [2, 4, 8, 2048, 3600, 3600, 3600]


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
    with pytest.raises(InvalidJob, match="discard_on is a class of exceptions, its dotted path, or a tuple of them"):
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
    with pytest.raises(InvalidJob, match=message):
        discards.has(ValueError())
