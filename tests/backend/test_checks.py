"""Mistakes in TASKS are named, each with what to do."""

import pytest

import tests.app.contract as app
from django_pgqueue.backend import job_options
from tests.app.contract import task
from tests.support.backends import problems


@pytest.mark.parametrize("wrong", ["tests.app.broken", [5], {"tests.app.broken": 1}])
def test_setting_of_modules_that_is_no_list_of_paths_is_a_problem(wrong, task_modules):
    task_modules(wrong)
    [told] = problems(OPTIONS={"task_modules": wrong}).values()
    assert f"TASKS['mail']['OPTIONS']['task_modules'] is {wrong!r}, and none of it is imported." in told


def test_settings_as_they_should_be_are_no_problem():
    given = dict.fromkeys(("timeout", "lease")) | {"max_attempts": 5, "backoff": 3, "database": "default"}
    given |= {
        "discard_on": ["tests.app.models.Mark.DoesNotExist"],
        "tasks": {"tests.app.contract.add": {"keep_result": False}},
    }
    assert problems(OPTIONS=given, QUEUES=["default"]) == {}
    assert problems() == problems(QUEUES=[]) == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"OPTIONS": {"max_attempt": 5}},
            "['OPTIONS'] has no key 'max_attempt'. max_attempt: did you mean max_attempts? Keys are: atomic, backoff",
        ),
        ({"OPTIONS": {"max_attempts": 0}}, "['max_attempts'] is 0. max_attempts is a whole number from 1 to 32767"),
        ({"OPTIONS": {"backoff": "x"}}, "['backoff'] is 'x'. backoff is a function, 0 or more seconds, or a timedelta"),
        ({"OPTIONS": {"unique_key": "x"}}, "has no key 'unique_key'"),
        ({"OPTIONS": {"discard_on": ["tests.Nothing"]}}, "discard_on names 'tests.Nothing', which cannot be imported"),
        ({"OPTIONS": {"discard_on": ["tests.app.models.Mark"]}}, "Mark', which is no class of exceptions"),
        ({"OPTIONS": {"tasks": ["tests.app.contract.add"]}}, "Make it a dict of dicts"),
        ({"OPTIONS": {"tasks": {"tests.app.contract.add": None}}}, "Make it a dict of dicts"),
        (
            {"OPTIONS": {"tasks": {"tests.app.contract.nothing": {}}}},
            "['tasks'] has 'tests.app.contract.nothing', which",
        ),
        ({"OPTIONS": {"tasks": {"tests.app.contract": {}}}}, "has 'tests.app.contract', which is no task"),
        (
            {"OPTIONS": {"tasks": {"tests.app.contract.add": {"retries": 3}}}},
            "['tasks']['tests.app.contract.add'] is {'retries': 3}. There is no option retries",
        ),
        ({"QUEUES": "default"}, "is the text 'default', of which each character would be a queue"),
        ({"QUEUES": ["ok", ""]}, "TASKS['mail']['QUEUES'] has ''. A queue is a name of 1 to 128 characters"),
        (
            {"OPTIONS": {"database": "lite"}},
            "no database that can hold its jobs. The database 'lite' is sqlite",
        ),
        ({"OPTIONS": {"database": "nowhere"}}, "'nowhere' is not in DATABASES"),
    ],
    ids=str,
)
def test_problem_of_settings_is_named_with_what_to_do(changes, message):
    [told] = problems(**changes).values()
    assert message in told


def test_results_that_are_not_kept_are_a_warning(settings):
    settings.PGQUEUE = settings.PGQUEUE | {"RETENTION_DAYS": 0}
    assert set(problems()) == {"pgqueue.W004"}


def test_missing_app_is_an_error_and_so_is_its_database(settings):
    settings.INSTALLED_APPS = [name for name in settings.INSTALLED_APPS if name != "django_pgqueue"]
    settings.PGQUEUE = settings.PGQUEUE | {"DATABASE": "lite"}
    assert set(problems()) == {"pgqueue.E006", "pgqueue.E009"}


def function() -> None:
    """Stand for any function at the top level of a module."""


def test_path_whose_options_would_not_be_asked_for_is_named_with_the_right_one(own_registry, monkeypatch):
    def told(path):
        return problems(OPTIONS={"tasks": {path: {"keep_result": False}}})["pgqueue.E007"]

    assert "'tests.app.tasks.noop', which is a @task of django_pgqueue" in told("tests.app.tasks.noop")
    assert "Give them to its own @task" in told("tests.app.tasks.noop")
    made = job_options(aliases=["old.name"])(task(backend="patient")(function))
    assert made.native.name == f"{__name__}.function"
    assert f"Write '{__name__}.function'" in told("old.name")
    monkeypatch.setattr(app, "also_add", app.add, raising=False)
    assert "Write 'tests.app.contract.add'" in told("tests.app.contract.also_add")
