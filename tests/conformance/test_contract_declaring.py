"""@task and using(): what a task is, and which ones the backend refuses."""

import dataclasses
import datetime as dt
import functools
import pickle
from dataclasses import dataclass

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone

from tests.conformance import needs, tasks
from tests.conformance.compat import (
    InvalidTask,
    InvalidTaskBackend,
    Task,
    TaskError,
    default_task_backend,
    task,
    task_backends,
)

TOMORROW = timezone.now() + dt.timedelta(days=1)


@pytest.mark.parametrize("declare", [task, task()], ids=["bare", "called"])
def test_decorator_makes_a_task_of_the_backends_class(declare):
    made = declare(tasks.plain)
    assert isinstance(made, Task)
    assert isinstance(made, default_task_backend.task_class)
    assert made.func is tasks.plain


def test_task_has_defaults():
    assert (tasks.add.priority, tasks.add.queue_name, tasks.add.backend) == (0, "default", "default")
    assert tasks.add.run_after is None
    assert tasks.add.takes_context is False


def test_task_knows_its_name_and_where_it_is():
    assert tasks.add.name == "add"
    assert tasks.add.module_path == "tests.conformance.tasks.add"


def test_task_knows_its_backend():
    assert tasks.add.get_backend() is task_backends["default"]
    assert tasks.second.get_backend() is task_backends["second"]


def test_options_of_the_decorator_are_in_the_task():
    made = task(backend="second", queue_name="second", takes_context=True)(tasks.plain_with_context)
    assert (made.backend, made.queue_name, made.takes_context) == ("second", "second", True)


def test_task_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        tasks.add.priority = 1


def test_equal_declarations_are_equal():
    assert task(tasks.plain) == task(tasks.plain)
    assert task(tasks.plain) != task(tasks.plain_without_parameters)


@pytest.mark.parametrize("option", [{"colour": "red"}, {"run_after": TOMORROW}], ids=["unknown", "run_after"])
def test_decorator_refuses_what_it_does_not_know(option):
    with pytest.raises(TypeError):
        task(**option)(tasks.plain)


# using()


def test_using_makes_another_task():
    changed = tasks.add.using(queue_name="mail")
    assert changed is not tasks.add
    assert (changed.queue_name, tasks.add.queue_name) == ("mail", "default")
    assert changed.func is tasks.add.func


def test_using_can_be_chained():
    changed = tasks.add.using(queue_name="mail").using(backend="open")
    assert (changed.queue_name, changed.backend) == ("mail", "open")
    assert changed.get_backend() is task_backends["open"]


def test_using_nothing_changes_nothing():
    assert tasks.elsewhere.using() == tasks.elsewhere


def test_using_refuses_what_it_does_not_know():
    with pytest.raises(TypeError):
        tasks.add.using(colour="red")


@needs.priority
def test_using_changes_the_priority():
    assert tasks.add.using(priority=7).priority == 7


@needs.defer
def test_using_changes_the_time():
    assert tasks.add.using(run_after=TOMORROW).run_after == TOMORROW


@needs.defer
def test_using_takes_a_timedelta_as_documented():
    """Django's documentation of ``run_after`` offers one; its own Task fails to look at it."""
    before = timezone.now()
    changed = tasks.add.using(run_after=dt.timedelta(hours=1))
    after = timezone.now()
    backend = changed.get_backend()
    backend.validate_task(changed)
    if isinstance(changed.run_after, dt.datetime):
        assert before <= changed.run_after - dt.timedelta(hours=1) <= after
    else:
        assert changed.run_after == dt.timedelta(hours=1)


# What is refused


@needs.priority
@pytest.mark.parametrize("priority", [-100, -1, 0, 1, 100, 5.0, True])
def test_whole_numbers_in_range_are_priorities(priority):
    assert tasks.add.using(priority=priority).priority == priority


@needs.priority
@pytest.mark.parametrize("priority", [-101, 101, 1.5, 10**6])
def test_other_numbers_are_no_priorities(priority):
    with pytest.raises(InvalidTask, match="whole number between -100 and 100"):
        tasks.add.using(priority=priority)
    with pytest.raises(InvalidTask, match="whole number between -100 and 100"):
        task(priority=priority)(tasks.plain)


@needs.priority
def test_text_is_no_priority():
    with pytest.raises(TypeError):
        tasks.add.using(priority="1")


@needs.no_priority
def test_backend_without_priorities_refuses_them():
    with pytest.raises(InvalidTask, match="does not support setting priority"):
        tasks.add.using(priority=1)


@needs.no_defer
def test_backend_without_run_after_refuses_it():
    with pytest.raises(InvalidTask, match="does not support run_after"):
        tasks.add.using(run_after=TOMORROW)


@needs.no_async_tasks
def test_backend_without_coroutines_refuses_them():
    with pytest.raises(InvalidTask, match="does not support async"):
        task(tasks.plain_async)


@needs.async_tasks
def test_backend_with_coroutines_takes_them():
    assert task(tasks.plain_async).func is tasks.plain_async


@pytest.mark.parametrize("name", ["supports_async_task", "supports_priority", "supports_defer"])
def test_flags_decide_what_is_refused(name, monkeypatch):
    """Where a subclass takes a promise back, or a setting does, its tasks are held to that."""
    monkeypatch.setattr(type(task_backends["default"]), name, False)
    with pytest.raises(InvalidTask):
        match name:
            case "supports_async_task":
                task(tasks.plain_async)
            case "supports_priority":
                tasks.add.using(priority=1)
            case "supports_defer":
                tasks.add.using(run_after=TOMORROW)


@needs.defer
def test_naive_time_is_refused_while_time_zones_are_used(settings):
    settings.USE_TZ = True
    with pytest.raises(InvalidTask, match="aware"):
        tasks.add.using(run_after=dt.datetime(2100, 1, 1))


@needs.defer
def test_naive_time_is_taken_while_time_zones_are_not_used(settings):
    settings.USE_TZ = False
    assert tasks.add.using(run_after=dt.datetime(2100, 1, 1)).run_after == dt.datetime(2100, 1, 1)


def test_queue_that_is_not_in_the_settings_is_refused():
    with pytest.raises(InvalidTask, match="Queue 'elsewhere' is not valid for backend"):
        tasks.add.using(queue_name="elsewhere")
    with pytest.raises(InvalidTask, match="Queue 'elsewhere' is not valid for backend"):
        task(queue_name="elsewhere")(tasks.plain)


def test_queues_belong_to_an_alias():
    with pytest.raises(InvalidTask, match="Queue 'mail'"):
        tasks.add.using(queue_name="mail", backend="second")


def test_empty_list_of_queues_takes_any():
    assert tasks.add.using(queue_name="whatever", backend="open").queue_name == "whatever"


def test_alias_that_is_not_in_the_settings_is_refused():
    with pytest.raises(InvalidTaskBackend, match="The connection 'unknown' doesn't exist"):
        task(backend="unknown")(tasks.plain)
    with pytest.raises(InvalidTaskBackend, match="The connection 'unknown' doesn't exist"):
        tasks.add.using(backend="unknown")


def test_backend_that_cannot_be_imported_is_refused(alias):
    alias("wrong", BACKEND="tests.conformance.nowhere.Backend")
    with pytest.raises(InvalidTaskBackend, match=r"Could not find backend 'tests\.conformance\.nowhere\.Backend'"):
        tasks.add.using(backend="wrong")


def test_without_tasks_in_the_settings_nothing_can_be_declared(settings):
    settings.TASKS = {}
    with pytest.raises(InvalidTaskBackend, match="The connection 'default' doesn't exist"):
        task(tasks.plain)


@pytest.mark.parametrize("kind", ["nested", "lambda", "builtin", "partial", "object", "class"])
def test_what_is_not_a_function_of_a_module_is_refused(kind):
    def nested():
        pass

    targets = {
        "nested": nested,
        "lambda": lambda: None,
        "builtin": len,
        "partial": functools.partial(tasks.plain),
        "object": tasks.Tool(),
        "class": tasks.Tool,
    }
    with pytest.raises(InvalidTask, match="must be defined at a module level"):
        task(targets[kind])


@pytest.mark.parametrize("function", [tasks.plain, tasks.plain_without_parameters, tasks.add.func])
def test_context_needs_a_first_parameter_of_that_name(function):
    with pytest.raises(InvalidTask, match="does not have a first argument of 'context'"):
        task(takes_context=True)(function)


# Calling


@pytest.mark.parametrize("module", ["tasks", pytest.param("async_tasks", marks=needs.async_tasks)])
def test_calling_runs_the_function_here(module):
    if module == "async_tasks":
        from tests.conformance import async_tasks as home
    else:
        from tests.conformance import tasks as home
    assert home.add.call(1, b=2) == 3
    assert async_to_sync(home.add.acall)(1, b=2) == 3
    with pytest.raises(ValueError, match="no luck"):
        home.fail.call()


# Errors of results


def test_error_finds_the_class_of_its_exception():
    error = TaskError(exception_class_path="tests.conformance.tasks.Refused", traceback="")
    assert error.exception_class is tasks.Refused


@pytest.mark.parametrize(
    ("path", "raised"),
    [
        ("tests.conformance.tasks.Tool", ValueError),
        ("tests.conformance.tasks.plain", ValueError),
        ("no.such.Error", ImportError),
    ],
)
def test_error_with_the_path_of_something_else_says_so_when_asked(path, raised):
    error = TaskError(exception_class_path=path, traceback="")
    with pytest.raises(raised):
        _ = error.exception_class


# Options of a task class


@needs.forwarding
class TestTaskClass:
    """A backend may bring a Task of its own, which gets what else is given to the decorator."""

    @pytest.fixture(autouse=True)
    def _coloured(self, monkeypatch):
        backend_class = type(task_backends["default"])

        @dataclass(frozen=True, slots=True, kw_only=True)
        class Coloured(backend_class.task_class):
            colour: str = "red"
            size: int = 1

        monkeypatch.setattr(backend_class, "task_class", Coloured)
        self.task_class = Coloured

    def test_fields_have_their_defaults(self):
        made = task(tasks.plain)
        assert isinstance(made, self.task_class)
        assert (made.colour, made.size) == ("red", 1)

    def test_fields_are_set_by_the_decorator(self):
        made = task(colour="blue", queue_name="mail")(tasks.plain)
        assert (made.colour, made.size, made.queue_name) == ("blue", 1, "mail")

    def test_fields_survive_using(self):
        assert task(colour="blue")(tasks.plain).using(queue_name="mail").colour == "blue"

    def test_unknown_field_is_refused(self):
        with pytest.raises(TypeError, match="weight"):
            task(weight=1)(tasks.plain)


# Pickling


@needs.pickling
class TestPickling:
    def test_task_comes_back(self):
        changed = tasks.add.using(queue_name="mail")
        assert pickle.loads(pickle.dumps(tasks.add)) == tasks.add
        assert pickle.loads(pickle.dumps(changed)) == changed

    @pytest.mark.django_db
    def test_result_comes_back(self):
        result = tasks.add.enqueue(1, b=2)
        copied = pickle.loads(pickle.dumps(result))
        assert copied == result
        assert (copied.task, copied.id, copied.args, copied.kwargs) == (tasks.add, result.id, [1], {"b": 2})

    @pytest.mark.parametrize("path", ["tests.conformance.tasks.plain", "tests.conformance.tasks.nothing_here"])
    def test_path_of_something_else_is_refused(self, path, monkeypatch):
        made = task(tasks.plain)
        monkeypatch.setattr(made.func, "__qualname__", path.rpartition(".")[2])
        pickled = pickle.dumps(made)
        with pytest.raises(ValueError, match=f"Expected '{path}' to point to a Task instance"):
            pickle.loads(pickled)
