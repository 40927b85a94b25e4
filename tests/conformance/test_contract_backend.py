"""The backend as an object: made from settings, cheap, and never shared between threads."""

import subprocess
import sys
import threading

import pytest
from asgiref.sync import async_to_sync
from django.core.checks import run_checks
from django.db import connections

from tests.conformance import DRIVER, needs, tasks
from tests.conformance.compat import (
    FRAMEWORK,
    BaseTaskBackend,
    InvalidTask,
    InvalidTaskBackend,
    default_task_backend,
    task,
    task_backends,
)
from tests.support.waiting import PATIENCE_SECONDS, beside

FLAGS = ["supports_defer", "supports_async_task", "supports_get_result", "supports_priority"]


def test_aliases_are_backends_of_the_class_in_the_settings():
    for alias in DRIVER.tasks():
        backend = task_backends[alias]
        assert isinstance(backend, BaseTaskBackend)
        assert f"{type(backend).__module__}.{type(backend).__qualname__}".endswith(DRIVER.backend.rpartition(".")[2])
        assert backend.alias == alias


def test_unknown_alias_is_refused():
    with pytest.raises(InvalidTaskBackend, match="The connection 'unknown' doesn't exist"):
        task_backends["unknown"]


def test_default_backend_is_that_of_the_alias_default():
    assert default_task_backend.alias == "default"
    assert default_task_backend.queues == task_backends["default"].queues


def test_backend_has_its_settings(alias):
    alias("default", QUEUES=["a", "b"], OPTIONS=DRIVER.options)
    assert task_backends["default"].queues == {"a", "b"}
    assert task_backends["default"].options == DRIVER.options


def test_without_queues_in_the_settings_there_is_one(alias):
    alias("bare")
    bare = {"BACKEND": DRIVER.backend}
    backend = type(task_backends["default"])(alias="bare", params=bare)
    assert (backend.queues, backend.options) == ({"default"}, {})


def test_flags_are_true_or_false():
    for name in FLAGS:
        assert getattr(task_backends["default"], name) in {True, False}


def test_changed_settings_make_a_new_backend(alias):
    before = task_backends["default"]
    alias("default", QUEUES=["only"])
    assert task_backends["default"] is not before
    assert task_backends["default"].queues == {"only"}
    with pytest.raises(InvalidTask, match="Queue 'default'"):
        task(tasks.plain)


def test_making_a_backend_asks_the_database_nothing(django_assert_num_queries, transactional_db, alias):
    with django_assert_num_queries(0):
        alias("default", QUEUES=["default"])
        task(tasks.plain)


def test_backend_that_cannot_enqueue_cannot_be_made():
    class Unfinished(BaseTaskBackend):
        pass

    with pytest.raises(TypeError, match="enqueue"):
        Unfinished(alias="default", params={})


def test_every_thread_has_a_backend_of_its_own():
    seen = []
    with beside(lambda: seen.append(task_backends["default"])):
        pass
    assert type(seen[0]) is type(task_backends["default"])
    assert seen[0] is not task_backends["default"]


def test_threads_enqueue_and_read_what_others_have_enqueued(transactional_db):
    count = 4
    together = threading.Barrier(count, timeout=PATIENCE_SECONDS)
    results = []

    def enqueue():
        together.wait()
        try:
            results.append(tasks.add.enqueue(1, b=2))
        finally:
            connections.close_all()

    with beside(enqueue), beside(enqueue), beside(enqueue), beside(enqueue):
        pass
    assert len({result.id for result in results}) == count
    if task_backends["default"].supports_get_result:
        assert [task_backends["default"].get_result(result.id).id for result in results] == [
            result.id for result in results
        ]


def test_async_code_uses_the_settings_of_sync_code(alias):
    alias("default", QUEUES=["only"])

    async def queues():
        return task_backends["default"].queues

    assert async_to_sync(queues)() == {"only"}


BEFORE_APPS = f"""
from os.path import join
from django.apps import apps
from django.conf import settings

settings.configure(
    TASKS={{"default": {{"BACKEND": {DRIVER.backend!r}, "OPTIONS": {DRIVER.options!r}}}}},
    DATABASES={{"default": {{"ENGINE": "django.db.backends.postgresql", "HOST": "127.0.0.1", "PORT": "1"}}}},
)
from {FRAMEWORK} import task

declared = task(join)
assert not apps.ready
print(declared.using(queue_name="default").module_path)
"""


def test_task_can_be_declared_before_apps_are_ready_and_without_a_database():
    """As modules are that settings or other apps import: the backend is made while nothing else is there."""
    done = subprocess.run(
        [sys.executable, "-c", BEFORE_APPS], check=False, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "posixpath.join\n"


@pytest.mark.django_db(databases=["default", "other", "lite"])
def test_checks_find_nothing_to_complain_about():
    for alias in DRIVER.tasks():
        assert list(task_backends[alias].check()) == []
    assert [str(message) for message in run_checks() if "TASKS" in str(message)] == []


@needs.own_app
def test_check_says_that_its_app_is_missing(settings):
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != DRIVER.apps[-1]]
    [message, *_] = task_backends["default"].check()
    assert message.is_serious()
    assert DRIVER.apps[-1] in f"{message.msg} {message.hint}"
