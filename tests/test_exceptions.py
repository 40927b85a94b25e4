"""Errors are of the kinds that their module draws, and say what is needed."""

import copy
import datetime as dt
import pickle
import re

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_pgqueue import exceptions
from django_pgqueue.exceptions import (
    ConfigurationError,
    Discard,
    InvalidOption,
    JobControl,
    JobFailed,
    JobInterrupted,
    JobNotFinished,
    PgQueueError,
    Retry,
    Snooze,
)
from django_pgqueue.states import LONGEST_DELAY

OWN = {
    name: kind
    for name, kind in vars(exceptions).items()
    if isinstance(kind, type) and kind.__module__ == exceptions.__name__
}


def drawn() -> dict[str, tuple[str | None, list[str]]]:
    """Return what the tree in the docstring says of each class: the one above it, and those of Python or Django."""
    found: dict[str, tuple[str | None, list[str]]] = {}
    above: dict[int, str] = {}
    for line in exceptions.__doc__.splitlines():
        match = re.match(r"    (?P<branch>[│├└─ ]*)(?P<name>[A-Z]\w+)(?: +\((?P<others>[\w., ]+)\))?", line)
        if match:
            depth = len(match["branch"]) // 4
            found[match["name"]] = (above[depth - 1] if depth else None, (match["others"] or "").split(", "))
            above[depth] = match["name"]
    return found


def test_tree_has_every_class():
    assert set(drawn()) == set(OWN)


@pytest.mark.parametrize("name", sorted(OWN))
def test_class_is_of_the_kinds_that_the_tree_says(name):
    above, others = drawn()[name]
    bases = [base.__name__ for base in OWN[name].__bases__]
    told = [base.rpartition(".")[2] for base in (above, *others) if base]
    assert bases == (told or ["Exception"])
    assert issubclass(OWN[name], PgQueueError | JobControl | JobInterrupted)


def test_error_of_the_configuration_is_one_of_django():
    assert issubclass(ConfigurationError, ImproperlyConfigured)


def test_interruption_passes_by_what_catches_exceptions():
    kinds = {name for name, kind in OWN.items() if not issubclass(kind, Exception)}
    assert kinds == {"JobInterrupted", "JobTimeout", "JobKilled"}


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [(0, 0), (2.5, 2.5), (dt.timedelta(minutes=2), 120), (LONGEST_DELAY, LONGEST_DELAY.total_seconds())],
    ids=str,
)
@pytest.mark.parametrize("kind", [Retry, Snooze])
def test_job_may_run_later_after_seconds_or_a_timedelta(kind, delay, seconds):
    error = kind(delay)
    assert (error.seconds, str(error)) == (seconds, "")
    assert str(kind(delay=delay, message="the shop is closed")) == "the shop is closed"


def test_retry_may_leave_the_delay_to_the_task():
    assert (Retry().seconds, Retry(None, "busy").seconds, str(Retry(message="busy"))) == (None, None, "busy")


@pytest.mark.parametrize(
    "delay",
    [-1, dt.timedelta(seconds=-1), LONGEST_DELAY + dt.timedelta(seconds=1), float("inf"), float("nan"), "5", True],
    ids=str,
)
@pytest.mark.parametrize("kind", [Retry, Snooze])
def test_job_may_not_run_before_now_or_never(kind, delay):
    bound = "is 0 or more seconds or a timedelta, 36500 days at most, not "
    with pytest.raises(InvalidOption, match=f"The delay of {kind.__name__} {bound}"):
        kind(delay)


@pytest.mark.parametrize(
    "error",
    [
        JobFailed("it is dead", "exhausted", {"error": "ValueError"}),
        JobNotFinished("it is running", "running"),
        Discard("no such order"),
        Snooze(5, "the shop is closed"),
        Retry(5, "busy"),
        Retry(),
        ConfigurationError("no such alias"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize(
    "through", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"]
)
def test_error_keeps_what_it_says_on_its_way_to_another_process(error, through):
    other = through(error)
    assert (type(other), str(other), vars(other)) == (type(error), str(error), vars(error))


def test_failure_has_a_history_even_where_nothing_is_known():
    assert (JobFailed("it is dead").reason, JobFailed("it is dead").error) == ("", {})
