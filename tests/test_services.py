"""Passes of services in a thread: their order, the size of a slice, the end, pauses after failures."""

import contextlib
from types import SimpleNamespace

import psycopg
import pytest
from django.db import OperationalError

from django_pgqueue.services import LOOK_SHARE, AdaptiveBatch, Service, ServiceRunner, Services
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

    services = Services(Service("one", one), Service("two", two))
    loop = ServiceRunner("service", services.pass_once, stop=services.stop)
    loop.start()
    loop.join(PATIENCE_SECONDS)
    assert done == ["one"]


@pytest.fixture
def clock(monkeypatch):
    """The monotonic clock as services see it: it stands still unless it is moved."""
    made = [1000.0]
    monkeypatch.setattr("django_pgqueue.services.time", SimpleNamespace(monotonic=lambda: made[0]))
    return made


def test_age_of_a_service_begins_with_it_and_not_with_its_pass(clock):
    ages = []

    def long():
        clock[0] += 50

    def longer():
        ages.append(services.doing_seconds())
        clock[0] += 60
        ages.append(services.doing_seconds())
        raise ValueError

    services = Services(Service("long", long), Service("longer", longer))
    services.pass_once()
    clock[0] += 100
    assert (ages, services.doing, services.doing_seconds()) == ([0, 60], "longer", 0)


class Recorded:
    """A service that notes when it is run, and returns or raises what it is told to."""

    def __init__(self, clock: list[float]) -> None:
        self.times: list[float] = []
        self.answer: float | Exception | None = None
        self.takes = 0.0
        self._clock = clock

    def __call__(self) -> float | None:
        self.times.append(self._clock[0] - 1000.0)
        self._clock[0] += self.takes
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def times_until(self, services: Services, seconds: float) -> list[float]:
        """Run passes as their thread would, from the start of the clock on; return when this one was run."""
        while self._clock[0] <= 1000.0 + seconds:
            pause = services.pass_once()
            self._clock[0] += pause or 0.125  # a pass takes some time
        return self.times


@pytest.fixture
def recorded(clock):
    return Recorded(clock)


def test_service_is_run_at_the_start_and_then_at_its_interval(recorded):
    assert recorded.times_until(Services(Service("one", recorded, every=3.0)), 9) == [0, 3, 6, 9]


def test_services_that_are_due_about_the_same_time_share_a_pass(clock):
    first, second, passes = Recorded(clock), Recorded(clock), Recorded(clock)
    services = Services(
        Service("one", first, every=1.0), Service("two", second, every=5.0), Service("each pass", passes)
    )
    services.pass_once()
    clock[0] += 0.0625
    services.reschedule("two", 5.0)  # which puts them out of step
    passes.times_until(services, 11)
    assert (first.times[-1], second.times) == (11, [0, 5, 10])
    assert passes.times == [0, 0.0625, *range(1, 12)], "none was made for the second service alone"


def test_short_pause_is_kept_in_passes_that_others_ask_for(recorded):
    """As that of a service whose due rows are locked, while another one has more to do than fits into a pass."""
    services = Services(Service("one", recorded, every=10.0), Service("two", lambda: 0.0625))
    recorded.answer = 0.25
    assert recorded.times_until(services, 1) == [0, 0.25, 0.5, 0.75, 1]


def test_service_without_an_interval_is_run_in_each_pass_and_may_ask_for_one_soon(recorded):
    services = Services(Service("one", recorded))
    assert recorded.times_until(services, 3) == [0, 1, 2, 3]
    recorded.answer = 0.5
    assert recorded.times_until(services, 5)[4:] == [4, 4.5, 5]
    services = Services(Service("one", recorded), Service("two", lambda: 0.25))
    assert recorded.times_until(services, 5.75)[7:] == [5.5, 5.75], "a pass that another one has asked for"


def test_number_that_a_service_returns_takes_the_place_of_its_interval_once(recorded):
    services = Services(Service("one", recorded, every=3.0))
    recorded.answer = 0.5
    assert recorded.times_until(services, 1) == [0, 0.5, 1]
    recorded.answer = 5.0
    assert recorded.times_until(services, 2)[3:] == [1.5]
    recorded.answer = None
    assert recorded.times_until(services, 10)[4:] == [6.5, 9.5]


def test_service_with_more_to_do_is_run_again_at_once_after_all_others():
    done, answers = [], iter([0.0, 0.0, None])

    def much() -> float | None:
        done.append("much")
        return next(answers)

    services = Services(Service("much", much, every=60.0), Service("little", lambda: done.append("little")))
    assert [services.pass_once() for _ in range(3)] == [0.0, 0.0, 1.0]
    services.pass_once()
    assert done == ["much", "little"] * 3 + ["little"]


def test_service_that_has_nothing_to_do_is_not_run_and_stays_due(clock, recorded):
    has_work = False
    services = Services(Service("one", recorded, when=lambda: has_work, every=60.0))
    assert services.pass_once() == 1.0
    assert (recorded.times, services.done_at) == ([], {"one": 1000.0}), "that counts as run"
    has_work = True
    services.pass_once()
    clock[0] += 59
    assert services.pass_once() == 1.0
    assert recorded.times == [0]
    has_work = False
    clock[0] += 60
    services.pass_once()
    has_work = True
    services.pass_once()
    assert recorded.times == [0, 119]


@pytest.mark.parametrize("cause", [None, psycopg.errors.QueryCanceled, psycopg.errors.OutOfMemory])
def test_service_that_fails_is_tried_again_after_a_second_and_holds_up_no_other(clock, recorded, caplog, cause):
    error = OperationalError("too much") if cause else ValueError("odd")
    error.__cause__ = cause and cause()
    others = []
    services = Services(Service("one", recorded, every=60.0), Service("two", lambda: others.append(clock[0] - 1000.0)))
    recorded.answer = error
    assert recorded.times_until(services, 2) == others == [0, 1, 2]
    assert "one" not in services.done_at
    assert len(caplog.records) == 1, "repeats are not logged"
    recorded.answer = None
    assert recorded.times_until(services, 4)[3:] == [3]
    assert services.done_at["one"] == 1004.0


def test_service_that_takes_long_to_fail_waits_long_but_within_its_interval(clock, recorded, caplog):
    services = Services(Service("one", recorded, every=60.0))
    recorded.answer, recorded.takes = ValueError("odd"), 2.0
    assert recorded.times_until(services, 50) == [0, 42]
    recorded.takes = 30.0
    assert recorded.times_until(services, 250)[2:] == [84, 174], "no longer than its interval"
    assert "one" not in services.done_at, "it is late, though it is not due in most passes"
    assert len(caplog.records) == 1, "repeats are not logged, though it is not due in most passes"


def test_service_that_does_not_exist_cannot_be_rescheduled():
    services = Services(Service("one", lambda: None, every=60.0), Service("each pass", lambda: None))
    for name in ("another", "each pass"):
        with pytest.raises(KeyError, match=name):
            services.reschedule(name, 0.0)


def test_service_that_meets_a_server_that_is_away_ends_the_pass_and_stays_due(clock, recorded):
    services = Services(Service("one", recorded, every=60.0), Service("two", lambda: None))
    recorded.answer = OperationalError("away")
    recorded.answer.__cause__ = psycopg.errors.AdminShutdown()
    with pytest.raises(OperationalError):
        services.pass_once()
    assert services.done_at == {}
    recorded.answer = None
    services.pass_once()
    assert len(recorded.times) == 2


def test_service_that_takes_long_is_run_for_its_share_of_the_time_at_most(recorded):
    services = Services(Service("one", recorded, every=3.0, share=LOOK_SHARE))
    recorded.takes = 0.5
    assert recorded.times_until(services, 11) == [0, 10.5]
    recorded.takes = 0.125
    assert recorded.times_until(services, 25)[2:] == [21, 24.125], "its interval is the longer one"
    recorded.takes, recorded.answer = 2.0, 0.0
    assert recorded.times_until(services, 30)[4:] == [27.25, 29.375], "more to do is done at once"


def test_service_can_be_rescheduled_from_another_thread_while_it_runs(clock):
    runs = []

    def one() -> None:
        runs.append(clock[0] - 1000.0)
        if len(runs) == 1:
            services.reschedule("one", 0.0)

    services = Services(Service("one", one, every=60.0))
    assert services.pass_once() == 0.0, "what it has seen may be older than the call"
    services.pass_once()
    services.pass_once()
    services.reschedule("one", 5.0)
    clock[0] += 4.25
    services.pass_once()
    clock[0] += 0.75
    services.pass_once()
    assert runs == [0, 0, 5]
