"""Tasks are found by their names, of which no two may be alike."""

import pytest

import tests.app.tasks as app
from django_pgqueue import registry, task
from django_pgqueue.exceptions import ConfigurationError, TaskDoesNotExist


def test_tasks_of_installed_apps_are_found():
    assert registry.find("tests.app.tasks.record") is app.record


def test_former_names_find_the_task():
    assert registry.get("tests.app.tasks.old_name") is app.renamed


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(
        TaskDoesNotExist, match=r"'tests\.app\.tasks\.recrod'.*Did you mean 'tests\.app\.tasks\.record'"
    ):
        registry.get("tests.app.tasks.recrod")


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
