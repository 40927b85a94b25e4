"""The start of a process loads the modules that TASKS names, and looks for what is installed."""

import pytest

from django_pgqueue import registry
from django_pgqueue.apps import is_installed
from tests.support.backends import MODULE
from tests.support.contract import work


def test_worker_knows_the_tasks_of_modules_that_the_setting_names(fresh, task_modules, queue, sql):
    task_modules([MODULE])
    sql("INSERT INTO pgqueue_jobs (task, args, backend) VALUES (%s, '[5]', 'default')", f"{MODULE}.found")
    assert work(queue).result == "5"
    assert f"{MODULE}.found" in registry.known()


def test_module_of_the_setting_that_is_not_there_is_said_at_the_start(task_modules):
    with pytest.raises(ModuleNotFoundError, match=r"tests\.app\.no_such_module"):
        task_modules(["tests.app.no_such_module"])


@pytest.mark.parametrize(
    ("module", "is_there"),
    [("json.decoder", True), ("json.no_such_module", False), ("no_such_package.no_such_module", False)],
)
def test_module_is_looked_for_without_its_package_being_there(module, is_there):
    assert is_installed(module) is is_there
