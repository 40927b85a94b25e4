"""Options of a job are checked when they are set."""

import datetime as dt
import inspect
import re
from typing import get_type_hints

import pytest

import tests.app.tasks as app
from django_pgqueue import CallOptions, TaskOptions, task, tasks
from django_pgqueue.exceptions import ConfigurationError, InvalidOption
from django_pgqueue.models import Job
from django_pgqueue.options import (
    OF_CALLS,
    OF_JOBS,
    OF_TASKS,
    Options,
    OwnOptions,
    OwnOptionsOrNone,
    RetryRules,
    TaskRules,
)


def test_options_for_type_checkers_are_those_there_are():
    assert get_type_hints(CallOptions) == get_type_hints(Options)


def test_options_of_a_task_itself_are_the_same_for_both_kinds_of_tasks():
    declared = get_type_hints(OwnOptions)
    assert get_type_hints(OwnOptionsOrNone) == {name: kind | None for name, kind in declared.items()}
    assert get_type_hints(TaskRules).keys() == declared.keys()


def test_type_checkers_know_each_option_of_task():
    """But those that say something of single jobs."""
    assert get_type_hints(TaskOptions).keys() == OF_JOBS - OF_CALLS | OF_TASKS


def test_docstring_of_task_explains_each_option_of_the_task_itself():
    arguments, _, _ = inspect.getdoc(task).partition("Raises:")  # Python 3.13 takes the indentation out of __doc__
    explained = re.findall(r"^ {4}(\w+): ", arguments, re.MULTILINE)
    assert set(explained) == OF_TASKS | {"name", "takes_context", "options"}


LAST = dt.datetime(9998, 12, 31, 23, tzinfo=dt.UTC)

AFTER_LAST = LAST.replace(tzinfo=dt.timezone(dt.timedelta(hours=-2)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"priority": 101}, "priority is a whole number from -100 to 100, not 101"),
        ({"priority": -101}, "priority is a whole number from -100 to 100, not -101"),
        ({"priority": True}, "priority is a whole number"),
        ({"priority": 1.5}, "priority is a whole number from -100 to 100, not 1.5"),
        ({"queue": ""}, "queue is a name of 1 to 128 characters, not ''"),
        ({"queue": "x" * 129}, "queue is a name of 1 to 128"),
        ({"queue": None}, "queue is a name of 1 to 128 characters, not None"),
        ({"max_attempts": 0}, "max_attempts is a whole number from 1 to 32767, not 0"),
        ({"timeout": 0}, "timeout is a number of seconds above 0, or a timedelta, of a year at most, not 0"),
        ({"timeout": "soon"}, "timeout is a number of seconds above 0, or a timedelta, of a year at most, not 'soon'"),
        ({"timeout": 2**31}, "of a year at most, not 2147483648"),
        ({"delay": dt.timedelta.max}, "delay is 0 or more seconds or a timedelta, 36500 days at most, not "),
        ({"delay": -1}, "delay is 0 or more seconds or a timedelta, 36500 days at most, not -1"),
        ({"delay": dt.timedelta(seconds=-1)}, "delay is 0 or more seconds or a timedelta"),
        ({"delay": True}, "delay is 0 or more seconds or a timedelta"),
        ({"delay": float("nan")}, "delay is 0 or more seconds or a timedelta"),
        ({"delay": 5, "run_at": LAST}, "give one of them"),
        ({"run_at": 30}, "run_at is a datetime, not 30. From now it is delay=…"),
        ({"run_at": dt.timedelta(1)}, "run_at is a datetime, not .* From now it is delay=…"),
        ({"run_at": dt.datetime(1969, 1, 1, tzinfo=dt.UTC)}, "run_at is between the years 1970 and 9999"),
        ({"run_at": dt.datetime.max.replace(tzinfo=dt.UTC)}, "run_at is between the years 1970 and 9999"),
        ({"lease": -1}, "lease is a number of seconds above 0"),
        ({"keep_result": 60}, "keep_result is True or False, not 60"),
        ({"keep_for": 0}, "keep_for is a number of seconds above 0, or a timedelta, of a year at most, not 0"),
        ({"keep_for": True}, "keep_for is a number of seconds above 0, .* not True"),
        ({"keep_for": "1h"}, "keep_for is a number of seconds .* not '1h'"),
        ({"keep_for": dt.timedelta(days=366)}, "keep_for is .* of a year at most, not datetime.timedelta"),
        ({"tags": "import"}, r"tags are a tuple of 20 texts at most, as in tags=\('import',\), not 'import'"),
        ({"tags": [str(number) for number in range(21)]}, "tags are a tuple of 20 texts at most"),
        ({"tags": ("x" * 101,)}, "Each of tags is a name of 1 to 100 characters"),
        ({"tags": ("",)}, "Each of tags is a name of 1 to 100 characters"),
        ({"head_start": -1}, "head_start is a number of seconds above 0"),
        ({"metadata": [1]}, r"metadata is a JSON object, not \[1\]"),
        ({"run_at": LAST, "expires": 3600}, "after run_at, which is later than the year 9998"),
        ({"expires": AFTER_LAST}, "expires is between the years 1970 and 9999"),
        ({"run_at": "tomorrow"}, "run_at is a datetime, not 'tomorrow'"),
        ({"run_at": dt.datetime(2030, 1, 1)}, r"run_at is naive .* USE_TZ is on. Use django.utils.timezone"),
        ({"colour": 1}, r"There is no option colour\. Options are: database, "),
        ({"ttl": 5}, r"There is no option ttl: use expires\. Options are: "),
        ({"countdown": 5}, "no option countdown: use delay, seconds or a timedelta"),
        ({"run_after": 5}, "no option run_after: use run_at, a datetime"),
        ({"eta": 1}, "no option eta: use run_at, a datetime"),
        ({"queue_name": "x"}, "no option queue_name: use queue"),
        ({"result_ttl": 500}, "no option result_ttl: use keep_for"),
        ({"lock": "x"}, r"no option lock: use limit=Limit\(…\)"),
        ({"rate_limit": "10/m"}, r"no option rate_limit: use queues\.limit\(…\), or pgqueue_queues limit\. Options"),
        (
            {"autoretry_for": ()},
            "no option autoretry_for: leave it out: any exception is retried, except those of disc",
        ),
        ({"retry_on": ()}, "no option retry_on: leave it out: any exception is retried, except those of discard_on"),
        ({"acks_late": True}, "no option acks_late: leave it out: a job whose worker dies is always run again"),
        ({"concurrency": 1}, r"no option concurrency: use limit=Limit\(…\), or queues\.limit\(…\) for a queue"),
        ({"priorty": 1}, r"no option priorty: did you mean priority\? Options are: "),
        ({"max_snoozes": 1}, r"no option max_snoozes: it belongs to the task, @task\(max_snoozes=…\)"),
        ({"backoff": 1}, r"no option backoff: it belongs to the task, @task\(backoff=…\)"),
    ],
    ids=str,
)
def test_wrong_option_is_named_with_its_bounds(options, message):
    with pytest.raises(InvalidOption, match=message):
        app.noop.using(**options)


def test_metadata_stay_as_they_were_given():
    given = {"a": 1}
    options = Options(metadata=given)
    given["b"] = 2
    assert options.metadata == {"a": 1}


@pytest.mark.parametrize("priority", [-100, 0, 100])
def test_priorities_within_bounds_are_accepted(priority):
    assert app.noop.using(priority=priority).options.priority == priority


def test_lease_and_attempts_come_from_the_settings_when_not_given(settings):
    settings.PGQUEUE = {"TASK_DEFAULTS": {"max_attempts": 3}, "LEASE_SECONDS": 60}
    assert app.noop.options.attempts_allowed == 3
    assert app.noop.using(max_attempts=None).options.attempts_allowed == 3
    assert app.noop.options.lease_seconds == 60
    assert app.noop.using(lease=dt.timedelta(minutes=5)).options.lease_seconds == 300


@pytest.mark.django_db
def test_defaults_of_all_tasks_are_read_when_a_job_is_enqueued(settings):
    mail = app.record.using(queue="mail", timeout=None)
    settings.PGQUEUE = {"TASK_DEFAULTS": {"queue": "all", "timeout": 300, "expires": 60, "priority": 5}}
    handles = [app.record.enqueue("a"), mail.enqueue("b"), app.record.using(priority=7).enqueue("c")]
    handles += app.record.enqueue_many([("d",)])
    rows = [Job.objects.get(pk=handle.id) for handle in handles]
    assert [(row.queue, row.timeout_seconds, row.priority) for row in rows] == [
        ("all", 300, 5),
        ("mail", 0, 5),
        ("all", 300, 7),
        ("all", 300, 5),
    ]
    assert [handle.queue for handle in handles] == [row.queue for row in rows]
    assert all(row.expires_at - row.run_at == dt.timedelta(seconds=60) for row in rows)
    settings.PGQUEUE = {}
    row = Job.objects.get(pk=app.record.enqueue("e").id)
    assert (row.queue, row.timeout_seconds, row.expires_at) == ("default", 0, None)


def test_defaults_of_all_tasks_say_how_runs_that_raised_go_on(settings):
    own = tasks.make(app.noop.func, name="own", backoff=7, max_snoozes=2, discard_on=())
    defaults = {"backoff": lambda attempt: 10.0 * attempt, "max_snoozes": 5, "discard_on": KeyError, "timeout": 300}
    settings.PGQUEUE = {"TASK_DEFAULTS": defaults}
    for declared, wait, snoozes, is_discarded in ((app.noop, 20, 5, True), (own, 7, 2, False)):
        rules = declared.using(priority=1).retry_rules
        assert rules.backoff.function(2, KeyError()) == wait
        assert (rules.max_snoozes, rules.discard_on.has(KeyError())) == (snoozes, is_discarded)
    settings.PGQUEUE = {}
    assert app.noop.retry_rules == RetryRules()


def test_what_cannot_be_the_default_of_all_tasks_is_refused(settings):
    settings.PGQUEUE = {"TASK_DEFAULTS": {"unique": True}}
    with pytest.raises(ConfigurationError, match=r"TASK_DEFAULTS'\] cannot have unique. Options in it are: backoff, "):
        app.noop.using(priority=1)
    settings.PGQUEUE = {"TASK_DEFAULTS": {"timeout": -1}}
    with pytest.raises(InvalidOption, match="timeout"):
        _ = app.noop.options


@pytest.mark.parametrize("key", ["", "x" * 501, 7, "a\0b", "\ud800"])
@pytest.mark.parametrize("option", ["unique_key", "limit_key", "fair_key"])
def test_keys_that_cannot_be_stored_are_refused(option, key):
    with pytest.raises(InvalidOption, match=option):
        app.noop.using(**{option: key})


@pytest.mark.parametrize(
    "options",
    [
        {"on_conflict": "fail"},
        {"expires": -1},
        {"expires": dt.datetime(1900, 1, 1, tzinfo=dt.UTC)},
    ],
)
def test_options_out_of_range_are_refused(options):
    with pytest.raises(InvalidOption, match=next(iter(options))):
        app.noop.using(**options)
