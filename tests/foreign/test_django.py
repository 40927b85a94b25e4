"""Django's own tests of its Tasks framework, from its source."""

import shutil
from pathlib import Path

import pytest

from tests.foreign.environment import check, failed, source

REQUIREMENTS = "django"

IN_ASYNC_CODE = "it calls get_result() or refresh() in async code, where Django lets no code ask a database"
RESULTS = "it reads or changes DummyBackend.results, which are rows here"
OTHER_TEXT = "a TypeError as there, but with a text that names the argument"

OF_DUMMY = "tasks.test_dummy_backend.DummyBackendTestCase"
OF_TASKS = "tasks.test_tasks.TaskTestCase"
IN_PLACE_OF_DUMMY = {
    f"{OF_DUMMY}.test_enqueue_task_async": RESULTS,
    f"{OF_DUMMY}.test_get_missing_result": IN_ASYNC_CODE,
    f"{OF_DUMMY}.test_refresh_result": RESULTS,
    f"{OF_DUMMY}.test_refresh_result_async": RESULTS,
    f"{OF_TASKS}.test_aenqueue_with_invalid_argument": OTHER_TEXT,
    f"{OF_TASKS}.test_enqueue_task_async": RESULTS,
    f"{OF_TASKS}.test_enqueue_with_invalid_argument": OTHER_TEXT,
    f"{OF_TASKS}.test_get_missing_result": IN_ASYNC_CODE,
    f"{OF_TASKS}.test_refresh_result": IN_ASYNC_CODE,
}

OF_IMMEDIATE = "tasks.test_immediate_backend.ImmediateBackend"
IN_PLACE_OF_IMMEDIATE = {
    f"{OF_IMMEDIATE}TestCase.test_cannot_get_result": "ours has results",
    f"{OF_IMMEDIATE}TestCase.test_cannot_pass_run_after": "ours runs tasks later",
    f"{OF_IMMEDIATE}TestCase.test_cannot_refresh_result": "ours has results",
    f"{OF_IMMEDIATE}TransactionTestCase.test_doesnt_wait_until_transaction_commit_by_default": "ours waits for it",
}


@pytest.fixture(scope="module")
def suite(foreign):
    return source("django", "tests/tasks/", into=foreign.folder) / "tests" / "tasks"


def run(foreign, folder: Path, *modules: str, name: str, settings: str = "django_settings") -> dict[str, str]:
    foreign.path.insert(0, str(folder.parent))
    try:
        return foreign.suite(*[f"tasks.{module}" for module in modules], name=name, settings=settings)
    finally:
        del foreign.path[0]


def with_ours(suite: Path, folder: Path, *, stand_in: str, modules: tuple[str, ...]) -> Path:
    """Make a copy of some modules with our backend in place of one of Django's, and a database for all tests."""
    shutil.copytree(suite, folder / "tasks")
    instead_of, kind = f"django.tasks.backends.{stand_in.lower()}", f"{stand_in}Backend"
    for module in modules:
        file = folder / "tasks" / f"{module}.py"
        text = file.read_text()
        for old, new in (
            (f"{instead_of}.{kind}", f"stand_ins.{stand_in}"),
            (f"from {instead_of} import {kind}", f"from stand_ins import {stand_in} as {kind}"),
            ("(SimpleTestCase)", "(TransactionTestCase)"),
            ("import SimpleTestCase, override_settings", "import TransactionTestCase, override_settings"),
        ):
            text = text.replace(old, new)
        file.write_text(text)
    return folder / "tasks"


MODULES = ("test_custom_backend", "test_dummy_backend", "test_immediate_backend", "test_tasks")


def test_nothing_changes_for_its_own_backends(suite, foreign):
    outcomes = run(foreign, suite, *MODULES, name="unchanged")
    check(failed(outcomes), {})
    assert len(outcomes) == 85


def test_in_place_of_dummy(suite, foreign, tmp_path):
    modules = ("test_dummy_backend", "test_tasks")
    folder = with_ours(suite, tmp_path, stand_in="Dummy", modules=modules)
    check(failed(run(foreign, folder, *modules, name="dummy")), IN_PLACE_OF_DUMMY)


def test_in_place_of_immediate(suite, foreign, tmp_path):
    modules = ("test_immediate_backend",)
    folder = with_ours(suite, tmp_path, stand_in="Immediate", modules=modules)
    outcomes = run(foreign, folder, *modules, name="immediate", settings="django_settings_immediate")
    check(failed(outcomes), IN_PLACE_OF_IMMEDIATE)
