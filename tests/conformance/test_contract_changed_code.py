"""Code that has changed between enqueueing and running, as with every deploy."""

import dataclasses
import importlib
import itertools
import sys
from typing import Any

import pytest

from django_pgqueue import registry
from tests.conformance import needs, tasks
from tests.conformance.compat import FRAMEWORK, TaskResultStatus, task_backends
from tests.conformance.drivers import MORE_APPS, MORE_MODULES, WITHOUT_QUEUES

pytestmark = [needs.worker, needs.results, pytest.mark.django_db]

BEFORE = f"""
from {FRAMEWORK} import task
from tests.conformance.trace import note

@task
def stays(label):
    note(what="task", label=label)
    return "old"

@task
def goes(label):
    note(what="task", label=label)

@task
def becomes_async(label):
    return "old"

@task
def becomes_plain(label):
    note(what="task", label=label)

@task
def takes_less(label):
    note(what="task", label=label)

@task
def wants_context(label):
    return label
"""

AFTER = f"""
from {FRAMEWORK} import task
from tests.conformance.trace import note

@task
def stays(label):
    note(what="task", label=label)
    return "new"

{{becomes_async}}

def becomes_plain(label):
    note(what="task", label=label)

@task
def takes_less():
    note(what="task", label="takes_less")

@task(takes_context=True)
def wants_context(context, label):
    return [context.attempt, label]
"""

ASYNC = """
@task
async def becomes_async(label):
    return "new"
"""

NAMES = ["stays", "goes", "becomes_async", "becomes_plain", "takes_less", "wants_context"]
numbers = itertools.count()


@dataclasses.dataclass(repr=False)
class Deployed:
    results: dict[str, Any]  # or what get_result() raised
    labels: list[str]
    dead: list[str]

    def result(self, name: str) -> Any:
        if isinstance(self.results[name], Exception):
            raise self.results[name]
        return self.results[name]


@pytest.fixture(scope="module")
def deployed(batch, tmp_path_factory) -> Deployed:
    """Enqueue with the old code, run with the new, and ask for the results with the new."""
    workers, trace = batch
    app = f"shop_{next(numbers)}"
    changing, vanishing = f"{app}.changing", f"{app}.vanishing"
    folder = tmp_path_factory.mktemp("code")
    (folder / app).mkdir()
    (folder / app / "__init__.py").touch()
    files = {module: folder / app / f"{module.rpartition('.')[2]}.py" for module in (changing, vanishing)}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("PYTHONPATH", str(folder), prepend=":")
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        patch.setattr(registry, "_registry", dict(registry._registry))  # of ours; others register nothing there
        patch.setattr(sys, "dont_write_bytecode", True)  # the new code may be as long as the old, and as young
        ids = {"queue goes": tasks.add.using(queue_name="leaving").enqueue(1, b=2).id}
        for module, file in files.items():
            file.write_text(BEFORE)
            code = importlib.import_module(module)
            wanted = {name: name for name in NAMES} if module == changing else {"module goes": "stays"}
            ids |= {key: getattr(code, name).enqueue(name).id for key, name in wanted.items()}
            del sys.modules[module]
        files[vanishing].unlink()
        supports_async = task_backends["default"].supports_async_task
        files[changing].write_text(AFTER.format(becomes_async=ASYNC if supports_async else ""))
        importlib.invalidate_caches()
        dead = workers.until_idle(**{MORE_APPS: app, MORE_MODULES: changing, WITHOUT_QUEUES: "leaving"})
        results = {}
        for name, id_ in ids.items():
            try:
                results[name] = task_backends["default"].get_result(id_)
            except Exception as error:
                results[name] = error
        for module in (changing, vanishing, app):
            sys.modules.pop(module, None)
    return Deployed(results, trace.labels(), dead)


def test_changed_function_runs_as_it_is_now(deployed):
    """Though its module has another name than ``tasks``."""
    assert deployed.result("stays").status is TaskResultStatus.SUCCESSFUL
    assert deployed.result("stays").return_value == "new"


@needs.async_tasks
def test_function_that_became_a_coroutine_function_runs(deployed):
    assert deployed.result("becomes_async").status is TaskResultStatus.SUCCESSFUL
    assert deployed.result("becomes_async").return_value == "new"


def test_function_that_wants_the_context_now_gets_it(deployed):
    assert deployed.result("wants_context").status is TaskResultStatus.SUCCESSFUL
    assert deployed.result("wants_context").return_value == [1, "wants_context"]


def test_function_that_takes_less_fails(deployed):
    result = deployed.result("takes_less")
    assert result.status is TaskResultStatus.FAILED
    assert [error.exception_class for error in result.errors] == [TypeError]


MISSING = ["goes", "becomes_plain", "module goes"]


@pytest.mark.parametrize("name", MISSING)
def test_result_of_a_task_that_is_gone_can_be_asked_for(deployed, name):
    """It has failed, or it waits for a worker that knows the task."""
    result = deployed.result(name)
    assert result.status in {TaskResultStatus.FAILED, TaskResultStatus.READY}
    assert result.task.module_path.rpartition(".")[2] == name.replace("module goes", "stays")
    assert result.args == [name.replace("module goes", "stays")]


def test_task_whose_queue_was_taken_out_of_the_settings_is_not_stuck(deployed):
    """It runs, since it was enqueued in good order; or it fails, or waits. But no worker ends by it."""
    assert deployed.result("queue goes").status is not TaskResultStatus.RUNNING


def test_what_is_not_a_task_is_never_called(deployed):
    assert "becomes_plain" not in deployed.labels
    assert deployed.labels == ["stays"]


def test_worker_survives_what_it_does_not_know(deployed):
    assert deployed.dead == []
