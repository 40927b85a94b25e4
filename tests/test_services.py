"""Passes of services in a thread: their order, the size of a slice, the end, pauses after failures."""

import contextlib
from types import SimpleNamespace

import psycopg
import pytest
from django.db import OperationalError

from django_pgqueue.services import AdaptiveBatch, ServiceRunner, Services
from tests.support.pauses import fail, pauses
from tests.support.waiting import PATIENCE_SECONDS


def test_slice_is_halved_by_what_is_too_much_and_by_nothing_else():
    one = AdaptiveBatch()
    for _ in range(12):
        with contextlib.suppress(OperationalError), one.taken():
            raise OperationalError from psycopg.errors.QueryCanceled()
    assert one.size == 1
    with pytest.raises(OperationalError), one.taken() as size:
        raise OperationalError from psycopg.errors.AdminShutdown()
    assert size == one.size == 1
    for _ in range(12):
        with one.taken():
            pass
    assert one.size == 1000


def test_pauses_grow_up_to_two_seconds_or_so():
    waits = pauses(ServiceRunner("service", fail))
    assert waits[0] < 0.2
    assert 1.7 < waits[-1] < 2.3  # 2.2 at most, as the docs say


def test_trouble_that_lasts_takes_few_lines(caplog):
    """The first failure, every tenth, every other reason, and the end."""
    reasons = iter(["away"] * 12 + ["full"] * 8 + [None])

    def fail_for_a_reason() -> float:
        if reason := next(reasons):
            raise OperationalError(reason)
        return 0.0

    loop = ServiceRunner("service", fail_for_a_reason)
    for _ in range(21):
        loop._guarded_pass()
    assert [record.message.removeprefix("The service ") for record in caplog.records] == [
        "failed and is tried again (failure 1): away",
        "failed and is tried again (failure 11): away",
        "failed and is tried again (failure 13): full",
        "works again after 20 failures",
    ]


def test_pass_that_is_told_to_stop_ends_before_the_next_service():
    done = []

    def one():
        done.append("one")
        loop.stop()

    def two():
        done.append("two")

    services = Services(one, two)
    loop = ServiceRunner("service", services.pass_once, stop=services.stop)
    loop.start()
    loop.join(PATIENCE_SECONDS)
    assert done == ["one"]


def test_age_of_a_service_begins_with_it_and_not_with_its_pass(monkeypatch):
    clock, ages = [1000.0], []
    monkeypatch.setattr("django_pgqueue.services.time", SimpleNamespace(monotonic=lambda: clock[0]))

    def long():
        clock[0] += 50

    def longer():
        ages.append(services.doing_seconds())
        clock[0] += 60
        ages.append(services.doing_seconds())
        raise ValueError

    services = Services(long, longer)
    services.pass_once()
    clock[0] += 100
    assert (ages, services.doing, services.doing_seconds()) == ([0, 60], "longer", 0)
