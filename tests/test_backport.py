"""Packages that import the backport ``django-tasks`` where Django has its Tasks framework itself."""

import importlib
import logging
import pickle
import sys
import sysconfig
import types

import django
import pytest
from asgiref.sync import async_to_sync
from django.core.checks import run_checks

import tests.app.contract as app
from django_pgqueue.framework import TaskResultDoesNotExist, task_backends
from tests.support import needs
from tests.support.contract import work

pytestmark = pytest.mark.skipif(django.VERSION < (6, 0), reason=needs.DJANGO_60)


@pytest.fixture
def backport():
    """The backport, as some package has imported it; of this module it is no global, which the check would find."""
    importlib.import_module("django_tasks.signals")
    return importlib.import_module("django_tasks")


@pytest.fixture
def backport_not_imported(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "django_tasks"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def heard(backport):
    """The backport's signals sent from here on: name, sender, id and status."""
    calls, receivers = [], []
    for name in ("task_enqueued", "task_started", "task_finished"):

        def receiver(sender, task_result, name=name, **_):
            calls.append((name, sender, task_result.id, str(task_result.status)))

        receivers.append((getattr(backport.signals, name), receiver))
        receivers[-1][0].connect(receiver)
    yield calls
    for signal, receiver in receivers:
        signal.disconnect(receiver)


# Errors

RAISED = {
    "no such result": ("TaskResultDoesNotExist", lambda: task_backends["default"].get_result("999999")),
    "no id": ("TaskResultDoesNotExist", lambda: task_backends["default"].get_result("x")),
    "result of another task": ("TaskResultMismatch", lambda: app.echo.get_result(app.add.enqueue(1).id)),
    "the framework's rule": ("InvalidTaskError", lambda: app.echo.using(queue_name="nope")),
    "the queue's rule": ("InvalidTaskError", lambda: app.echo.using(max_attempts=0)),
    "no time": ("InvalidTaskError", lambda: app.echo.using(run_after="soon")),
    "no such backend": ("InvalidTaskBackendError", lambda: app.echo.using(backend="nope")),
}


@pytest.mark.parametrize("case", RAISED)
def test_error_is_of_both_frameworks(db, backport, case):
    name, call = RAISED[case]
    with pytest.raises(getattr(backport.exceptions, name)) as caught:
        call()
    of_django = getattr(importlib.import_module("django.tasks.exceptions"), name.removesuffix("Error"))
    assert isinstance(caught.value, of_django)
    assert type(caught.value).__name__ == of_django.__name__


@pytest.mark.parametrize("name", ["TaskResultMismatch", "TaskResultDoesNotExist"])
def test_error_of_async_code_is_of_both_frameworks(db, backport, name):
    task = app.echo if name == "TaskResultMismatch" else app.add
    known = app.add.enqueue(1).id if name == "TaskResultMismatch" else "x"
    with pytest.raises(getattr(backport.exceptions, name)):
        async_to_sync(_result_of)(task, known)


async def _result_of(task, result_id):
    return await task.aget_result(result_id)


def test_error_of_both_is_pickled_as_that_of_django(db, backport):
    with pytest.raises(TaskResultDoesNotExist) as caught:
        task_backends["default"].get_result("x")
    assert type(caught.value) is not TaskResultDoesNotExist
    read = pickle.loads(pickle.dumps(caught.value))
    assert (type(read), read.args) == (TaskResultDoesNotExist, ("x",))


def test_error_is_that_of_django_where_the_backport_is_not_imported(db, backport_not_imported):
    with pytest.raises(TaskResultDoesNotExist) as caught:
        task_backends["default"].get_result("x")
    assert type(caught.value) is TaskResultDoesNotExist
    assert "django_tasks" not in sys.modules


# Signals


def test_signals_of_both_frameworks_are_sent(queue, heard):
    result = app.add.enqueue(1)
    work(queue)
    failing = app.fail.enqueue()
    work(queue)
    sender = type(task_backends["default"])
    assert heard == [
        ("task_enqueued", sender, result.id, "READY"),
        ("task_started", sender, result.id, "RUNNING"),
        ("task_finished", sender, result.id, "SUCCESSFUL"),
        ("task_enqueued", sender, failing.id, "READY"),
        ("task_started", sender, failing.id, "RUNNING"),
        ("task_finished", sender, failing.id, "FAILED"),
    ]


def test_signals_of_both_frameworks_are_sent_for_many(db, heard):
    results = app.add.enqueue_many([(1,), (2,)])
    assert [(name, id_) for name, _, id_, _ in heard] == [("task_enqueued", result.id) for result in results]


def test_async_tasks_and_callers_tell_both_frameworks(queue, heard):
    async_to_sync(_enqueue)()
    work(queue)
    app.afail.enqueue()
    work(queue)
    assert [(name, status) for name, _, _, status in heard] == [
        ("task_enqueued", "READY"),
        ("task_started", "RUNNING"),
        ("task_finished", "SUCCESSFUL"),
        ("task_enqueued", "READY"),
        ("task_started", "RUNNING"),
        ("task_finished", "FAILED"),
    ]


async def _enqueue():
    await app.aadd.aenqueue(1)


@pytest.fixture
def former(backport, monkeypatch):
    """As the backport was before 0.9: without some of the names."""
    for name in ("task_enqueued", "task_started", "task_finished"):
        monkeypatch.delattr(backport.signals, f"log_{name}", raising=False)
    for name in ("TaskResultDoesNotExist", "TaskResultMismatch"):
        monkeypatch.delattr(backport.exceptions, name)


def test_backport_that_lacks_names_is_served_as_far_as_it_has_them(queue, former, heard):
    result = app.add.enqueue(1)
    work(queue)
    assert [name for name, *_ in heard] == ["task_enqueued", "task_started", "task_finished"]
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result("x")
    assert result.id


# The log


@pytest.fixture
def log(backport):
    logger = logging.getLogger("django_tasks")
    before = logger.level, logger.handlers[:]
    yield logger
    logger.setLevel(before[0])
    logger.handlers[:] = before[1]


def test_log_of_the_backport_is_silent_unless_it_is_configured(queue, log, caplog):
    caplog.set_level(logging.DEBUG)
    app.fail.enqueue()
    work(queue)
    assert {one.name for one in caplog.records if "tasks" in one.name} == {"django.tasks"}
    caplog.clear()
    log.setLevel(logging.INFO)
    app.fail.enqueue()
    work(queue)
    told = [(one.levelname, bool(one.exc_info)) for one in caplog.records if one.name == "django_tasks"]
    assert told == [("INFO", False), ("ERROR", True)]


# The check


def told_of_the_backport():
    return [one for one in run_checks(tags=["pgqueue"]) if one.id == "pgqueue.W010"]


def test_check_names_the_packages_that_import_the_backport(backport, monkeypatch):
    assert told_of_the_backport() == []
    for name, value in (
        ("gallery.jobs", backport.task),
        ("gallery.views", backport.default_task_backend),
        ("shop", backport.signals.task_finished),
        ("mailer.errors", backport.exceptions),
        ("mailer", None),
    ):
        module = types.ModuleType(name)
        module.whatever = value
        monkeypatch.setitem(sys.modules, name, module)
    [told] = told_of_the_backport()
    assert told.msg.startswith("gallery, mailer, shop import django_tasks, ")
    assert "from django.tasks" in told.hint


@pytest.mark.parametrize("place", ["purelib", "platlib"])
def test_check_names_no_package_that_is_installed(backport, monkeypatch, place):
    """A project could only silence the check: its tasks run."""
    for name, file in (("wagtail", f"{sysconfig.get_path(place)}/wagtail/__init__.py"), ("shop", "/srv/shop/tasks.py")):
        module = types.ModuleType(name)
        module.task, module.__file__ = backport.task, file
        monkeypatch.setitem(sys.modules, name, module)
    [told] = told_of_the_backport()
    assert told.msg.startswith("shop imports django_tasks, ")
    monkeypatch.delitem(sys.modules, "shop")
    assert told_of_the_backport() == []


def test_check_asks_no_module_that_loads_itself(backport, monkeypatch):
    class Lazy(types.ModuleType):
        def __getattribute__(self, name):
            raise AssertionError(name)

    monkeypatch.setitem(sys.modules, "gallery", Lazy("gallery"))
    assert told_of_the_backport() == []


def test_check_does_not_ask_to_import_the_backport(backport_not_imported):
    assert told_of_the_backport() == []
    assert "django_tasks" not in sys.modules


def test_check_is_silent_where_no_alias_is_ours(backport, monkeypatch, settings):
    module = types.ModuleType("gallery")
    module.task = backport.task
    monkeypatch.setitem(sys.modules, "gallery", module)
    assert len(told_of_the_backport()) == 1
    settings.TASKS = {"default": {"BACKEND": "django.tasks.backends.immediate.ImmediateBackend"}}
    assert told_of_the_backport() == []
