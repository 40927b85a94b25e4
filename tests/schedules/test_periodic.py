"""Schedules are declared above their task; what cannot work is refused there."""

import datetime as dt
from zoneinfo import ZoneInfo

import pytest

import tests.app.tasks as app
from django_pgqueue import Limit, Unique, periodic, task
from django_pgqueue.exceptions import ConfigurationError, InvalidArguments, InvalidOption, InvalidSchedule
from django_pgqueue.schedules.periodic import stored_options
from tests.support.schedules import HOUR, RECORD

pytestmark = pytest.mark.usefixtures("code")


def test_schedules_are_declared_above_the_task(code):
    every, cron = periodic(every=HOUR), periodic("@daily", name="nightly", timezone="Asia/Tokyo")
    assert cron(every(app.record)) is app.record
    assert [(name, one.task, one.rhythm.cron, one.rhythm.timezone) for name, one in code.items()] == [
        (RECORD, app.record, "", "Europe/Berlin"),
        ("nightly", app.record, "@daily", "Asia/Tokyo"),
    ]


def test_durations_among_the_options_become_seconds(code):
    call = app.noop.using(timeout=dt.timedelta(minutes=2), priority=5).bind()
    periodic(every=HOUR, jitter=dt.timedelta(minutes=1))(call)
    [declared] = code.values()
    assert declared.options == {"timeout": 120.0, "priority": 5}
    assert declared.jitter_seconds == 60.0


def test_rules_of_keys_are_stored_and_read_back(code):
    given = {"unique": Unique("label", hold=HOUR), "limit": [Limit(running=2)], "fair": ["label"]}
    stored = stored_options(app.record, given)
    assert stored == {"unique": {"by": ["label"], "hold": 3600.0}, "limit": [{"running": 2}], "fair": ["label"]}
    read, written = app.record.using(**stored), app.record.using(**given)
    assert read.keys_of(("a",), {}) == written.keys_of(("a",), {}) == (f'{RECORD}:label="a"', RECORD, 'label="a"')
    assert (read.options.unique_rule.hold_seconds, read.options.limit_rule) == (3600, Limit(running=2))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "either a cron entry"),
        ({"cron": "@daily", "every": HOUR}, "either a cron entry"),
        ({"cron": "0 25 * * *"}, "cron is '0 25"),
        ({"every": dt.timedelta(0)}, "every is seconds or a timedelta, of 1 second"),
        ({"every": HOUR, "timezone": "Mars"}, "timezone is 'Mars'"),
        ({"every": HOUR, "name": ""}, "name is a text of 1 to 200 characters, not ''"),
        ({"every": HOUR, "name": "x" * 201}, "name is a text"),
        ({"every": HOUR, "jitter": -1}, "jitter is 0 or more seconds, or a timedelta, of a day at most, not -1"),
        ({"every": HOUR, "jitter": 86_401}, "jitter is"),
        ({"every": HOUR, "catch_up": "some"}, "catch_up is one of 'last', 'none', 'all', not 'some'"),
        ({"every": HOUR, "catch_up_limit": 0}, "catch_up_limit is a whole number from 1 to 10000, not 0"),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_declared(values, message, code):
    cron = values.pop("cron", "")
    with pytest.raises(InvalidSchedule, match=message):
        periodic(cron, **values)(app.record)
    assert not code


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"run_at": dt.datetime(2031, 1, 1, tzinfo=dt.UTC)}, "delay, run_at cannot be given to a schedule"),
        ({"delay": 5}, "delay, run_at cannot be given to a schedule"),
        ({"database": "other"}, "database cannot be given to a schedule"),
        ({"metadata": {"x": object()}}, "cannot be stored as JSON"),
        ({"unique": lambda label: label}, "cannot be stored as JSON"),
        ({"limit": Limit(lambda label: label)}, "cannot be stored as JSON"),
    ],
)
def test_options_that_a_schedule_cannot_have_are_refused(options, message, code):
    with pytest.raises(InvalidSchedule, match=message):
        periodic(every=HOUR)(app.record.using(**options).bind())
    assert not code


def test_task_that_takes_arguments_is_scheduled_by_a_call(code):
    with pytest.raises(InvalidSchedule, match=r"fail_until takes .*do not fit: missing a required argument"):
        periodic(every=HOUR)(app.fail_until)
    assert not code


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cron": "@daily"}, r"no option cron: the entry comes first, without a name\. Its options are: catch_up, "),
        ({"args": ("x",)}, r"no option args: give it a call, as in periodic\(…\)\(report\.bind\(…\)\)"),
        ({"queue": "slow"}, r"no option queue: it belongs to the jobs, .*using\(queue=…\)\.bind\(\)\)\. Its options"),
        ({"timezon": "UTC"}, r"no option timezon: did you mean timezone\? Its options are: .*, every, jitter, name, "),
        ({"colour": 1}, r"no option colour\. Its options are: "),
    ],
)
def test_arguments_and_options_of_jobs_are_not_its_own(given, message):
    with pytest.raises(InvalidOption, match=message):
        periodic(**given)


def test_argument_that_a_call_cannot_have_is_named():
    with pytest.raises(InvalidArguments, match="unexpected keyword argument 'colour'"):
        periodic("@daily")(app.record.bind("x", colour=1))


@pytest.mark.parametrize("given", [app.record.func, app.record.using(queue="x"), None])
def test_periodic_stands_above_a_task(given):
    with pytest.raises(ConfigurationError, match=r"Write @periodic\(…\) above @task, or give it a call"):
        periodic(every=HOUR)(given)


def test_two_schedules_have_two_names(code):
    periodic(every=HOUR, name="x")(app.record)
    for other in (app.record, app.noop):
        with pytest.raises(ConfigurationError, match=r"Two schedules are called 'x'.*another name="):
            periodic(every=HOUR, name="x")(other)


@pytest.mark.usefixtures("registry_of")
def test_module_that_is_loaded_again_replaces_its_schedules(code):
    def load():
        def tick() -> None: ...

        tick.__qualname__ = "tick"
        return periodic("@daily")(task(tick))

    first, second = load(), load()
    assert first is not second
    assert [one.task for one in code.values()] == [second]


def test_entry_comes_first_and_durations_may_be_seconds(code):
    periodic("@daily", timezone=ZoneInfo("Asia/Tokyo"))(app.noop)
    periodic(every=600, name="often")(app.noop)
    daily, often = code[app.noop.name].rhythm, code["often"].rhythm
    assert (daily.cron, daily.timezone) == ("@daily", "Asia/Tokyo")
    assert often.every == dt.timedelta(minutes=10)


def test_call_brings_its_arguments_and_options(code):
    call = app.record.using(priority=-10, timeout=dt.timedelta(minutes=1)).bind("week")
    assert periodic("@weekly", name="weekly")(call) is call
    schedule = code["weekly"]
    assert (schedule.task, schedule.args, schedule.kwargs) == (app.record, ("week",), {})
    assert schedule.options == {"priority": -10, "timeout": 60.0}


def test_bare_decorator_is_answered_in_words():
    with pytest.raises(ConfigurationError, match=r"@periodic says when, as in @periodic\('@daily'\)"):
        periodic(app.noop)
