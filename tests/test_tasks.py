import datetime as dt
from typing import get_type_hints

import pytest
from django.template import Context, Template

import tests.app.tasks as app
from django_pgqueue import Task, TaskOptions, registry, task, tasks
from django_pgqueue.exceptions import ConfigurationError, InvalidJob, UnknownTask
from django_pgqueue.options import Options


def test_task_is_named_by_its_path_and_can_be_called():
    assert isinstance(app.noop, Task)
    assert app.noop.name == "tests.app.tasks.noop"
    assert app.noop() is None


def test_tasks_of_installed_apps_are_found():
    assert registry.find("tests.app.tasks.record") is app.record


def test_former_names_find_the_task():
    assert registry.get("tests.app.tasks.old_name") is app.renamed


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(UnknownTask, match=r"'tests\.app\.tasks\.recrod'.*Did you mean 'tests\.app\.tasks\.record'"):
        registry.get("tests.app.tasks.recrod")


def test_options_for_type_checkers_are_those_there_are():
    assert get_type_hints(TaskOptions) == get_type_hints(Options)


def test_using_makes_another_task_and_leaves_the_first():
    changed = app.noop.using(queue="mail", priority=5)
    assert (changed.options.queue, changed.options.priority) == ("mail", 5)
    assert (app.noop.options.queue, app.noop.options.priority) == ("default", 0)
    assert changed.name == app.noop.name


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
        ({"run_at": dt.timedelta.max}, "run_at is at most 36500 days from now"),
        ({"run_at": dt.timedelta.min}, "run_at is at most 36500 days from now"),
        ({"run_at": dt.datetime(1969, 1, 1, tzinfo=dt.UTC)}, "run_at is between the years 1970 and 9999"),
        ({"run_at": dt.datetime.max.replace(tzinfo=dt.UTC)}, "run_at is between the years 1970 and 9999"),
        ({"lease": -1}, "lease is a number of seconds above 0"),
        (
            {"keep": 0},
            "keep, where it is not True or False, is a number of seconds above 0, or a timedelta, of a year at",
        ),
        ({"keep": "1h"}, "keep, where it is not True or False, is a number of seconds .* not '1h'"),
        ({"keep": dt.timedelta(days=366)}, "keep, where .* of a year at most, not datetime.timedelta"),
        ({"concurrency_strict": 1}, "concurrency_strict is True or False, not 1"),
        ({"metadata": [1]}, r"metadata is a JSON object, not \[1\]"),
        ({"run_at": LAST, "expires": 3600}, "after run_at, which is later than the year 9998"),
        ({"expires": AFTER_LAST}, "expires is between the years 1970 and 9999"),
        ({"run_at": "tomorrow"}, "run_at is a datetime or a timedelta, not 'tomorrow'"),
        ({"run_at": dt.datetime(2030, 1, 1)}, r"run_at is naive .* USE_TZ is on. Use django.utils.timezone"),
        ({"colour": 1}, r"There is no option colour\. Options are: concurrency_key, "),
        ({"delay": 5}, r"There is no option delay: use run_at, a datetime or a timedelta from now\. Options are: "),
        ({"countdown": 5}, "no option countdown: use run_at, a datetime or a timedelta from now"),
        ({"run_after": 5}, "no option run_after: use run_at, a datetime or a timedelta from now"),
        ({"eta": 1}, "no option eta: use run_at, a datetime or a timedelta from now"),
        ({"queue_name": "x"}, "no option queue_name: use queue"),
        ({"priorty": 1}, "no option priorty: did you mean priority?"),
        ({"backoff": 1}, r"no option backoff: it belongs to the task, @task\(backoff=…\)"),
    ],
    ids=str,
)
def test_wrong_option_is_named_with_its_bounds(options, message):
    with pytest.raises(InvalidJob, match=message):
        app.noop.using(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retries": 3}, "no option retries: use max_attempts, which counts the first attempt too"),
        ({"max_retries": 3}, "no option max_retries: use max_attempts, which counts the first attempt too"),
        ({"retry_backoff": 3}, "no option retry_backoff: use backoff"),
        ({"bind": True}, r"no option bind: use current_job\(\) in the task"),
        ({"queue_name": "x"}, "no option queue_name: use queue"),
    ],
    ids=str,
)
def test_decorator_names_all_its_options_and_the_one_that_is_meant(options, message):
    with pytest.raises(InvalidJob, match=message) as caught:
        task(**options)(at_the_top)
    for name in (*tasks.OF_TASKS, "queue"):
        assert f" {name}," in str(caught.value) or f" {name}." in str(caught.value)


def at_the_top(): ...


@pytest.mark.parametrize("name", ["delay", "apply_async", "delay_on_commit", "send", "defer"])
def test_habits_of_other_queues_lead_to_enqueue(name):
    with pytest.raises(
        AttributeError,
        match=rf"'Task' object has no attribute '{name}'\. A job is made by noop\.enqueue\(…\); with options by "
        r"noop\.using\(…\)\.enqueue\(…\)",
    ):
        getattr(app.noop, name)
    assert not hasattr(app.noop, "colour")


class Shop:
    def method(self, number): ...

    @classmethod
    def of_class(cls): ...

    @staticmethod
    def static(): ...


@pytest.mark.parametrize("func", [Shop.method, vars(Shop)["of_class"], Shop.of_class])
def test_method_is_refused_as_a_task(func):
    with pytest.raises(ConfigurationError, match=r"is a method: a worker has no object.* at the top level of a module"):
        task(func)


def test_function_in_a_class_that_takes_no_object_may_be_a_task(registry_of):
    assert task(Shop.static).name == "tests.test_tasks.Shop.static"


@pytest.mark.parametrize("priority", [-100, 0, 100])
def test_priorities_within_bounds_are_accepted(priority):
    assert app.noop.using(priority=priority).options.priority == priority


def test_nested_function_is_refused():
    with pytest.raises(ConfigurationError, match=r"defined inside a function\. Define it at the top level"):

        @task
        def nested():
            pass


def test_two_functions_of_one_name_are_refused():
    def clash():
        pass

    clash.__qualname__ = "clash"
    with pytest.raises(ConfigurationError, match=r"Two tasks are called 'tests\.app\.tasks\.noop'"):
        task(name="tests.app.tasks.noop")(clash)
    assert registry.get("tests.app.tasks.noop") is app.noop


def test_atomic_coroutine_is_refused():
    async def work():
        pass

    work.__qualname__ = "work"
    with pytest.raises(ConfigurationError, match="Django has no async transactions"):
        task(atomic=True)(work)


def test_backoff_may_be_a_number_or_a_function():
    assert app.fail.backoff(1) == 0
    assert [app.noop.backoff(attempt) for attempt in (1, 2, 3, 40)] == [2, 4, 8, 3600]
    with pytest.raises(InvalidJob, match="backoff is a function or 0 or more seconds, not -1"):
        task(backoff=-1)(app.noop.func)


def test_lease_and_attempts_come_from_the_settings_when_not_given(settings):
    settings.PGQUEUE = {"MAX_ATTEMPTS": 3, "LEASE_SECONDS": 60}
    assert app.noop.options.attempts_allowed == 3
    assert app.noop.options.lease_seconds == 60
    assert app.noop.using(lease=dt.timedelta(minutes=5)).options.lease_seconds == 300


def test_task_is_not_run_by_a_template_that_names_it():
    assert Template("{{ task }}").render(Context({"task": app.discard})) == "&lt;Task tests.app.tasks.discard&gt;"
