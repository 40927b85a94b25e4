"""Tasks of the framework take the options of jobs, and are tasks of this package too."""

import datetime as dt
import importlib
import inspect
import pickle
import re
import sys
import types

import django
import pytest
from django.core.checks import run_checks

import tests.app.contract as app
import tests.app.tasks as app_tasks
from django_pgqueue import PREVIOUS, Limit, Unique, chain, enqueue_many, periodic, registry, tasks, workflow
from django_pgqueue.backend import PgQueueTask, job_options
from django_pgqueue.exceptions import ConfigurationError, InvalidArguments, InvalidWorkflow
from django_pgqueue.framework import InvalidTask, task_backends
from django_pgqueue.models import DeadJob, SucceededJob
from django_pgqueue.options import OF_TASKS, Options
from django_pgqueue.schedules.periodic import declared, left_out
from django_pgqueue.testing import assert_enqueued, run_jobs
from django_pgqueue.workflows import NewWorkflow
from tests.app.contract import task
from tests.app.models import Mark
from tests.support.backends import MODULE, problems
from tests.support.contract import work
from tests.support.needs import DJANGO_61, NOT_DJANGO_60


def function() -> None:
    """Stand for any function at the top level of a module."""


# Options


def test_task_knows_all_options_of_jobs_and_tasks():
    of_framework = {"func", "priority", "backend", "queue_name", "run_after", "takes_context"}
    renamed = {"queue", "priority", "run_at", "delay", "database"}
    of_native = {*inspect.signature(Options).parameters} - renamed | OF_TASKS
    assert set(inspect.signature(PgQueueTask).parameters) - of_framework == of_native


def test_options_above_task_are_those_of_the_native_task(own_registry):
    made = job_options(
        max_attempts=4,
        backoff=9,
        max_snoozes=4,
        atomic=True,
        aliases=["old.name"],
        sensitive_parameters=["card"],
        timeout=60,
        lease=dt.timedelta(minutes=5),
        unique=lambda: "key",
        keep_result=False,
    )(task(function))
    native = registry.get("old.name")
    assert native is made.native is registry.get(f"{__name__}.function")
    assert (native.options.max_attempts, native.options.timeout_seconds, native.options.lease_seconds) == (4, 60, 300)
    assert (
        native.backoff.function(1, None),
        native.max_snoozes,
        native.atomic,
        native.sensitive_parameters,
        native.options.keep_result,
    ) == (9, 4, True, {"card"}, False)
    assert native.keys_of((), {}).unique == "old.name:key"


@pytest.mark.skipif(django.VERSION[:2] == (6, 0), reason=NOT_DJANGO_60)
def test_task_takes_options_itself(own_registry):
    made = task(max_attempts=4, queue_name="mail")(function)
    assert (made.max_attempts, made.native.options.max_attempts, made.native.options.queue) == (4, 4, "mail")
    with pytest.raises(TypeError, match="max_attempt"):
        task(max_attempt=4)(function)


def test_options_of_the_alias_are_for_tasks_that_say_nothing(own_registry, settings):
    patient = settings.TASKS["patient"]
    settings.TASKS = settings.TASKS | {
        "patient": patient | {"OPTIONS": {"max_attempts": 5, "timeout": 60, "backoff": 3, "keep_result": False}}
    }
    native = job_options(timeout=90)(task(backend="patient")(function)).native
    assert (native.options.max_attempts, native.options.timeout, native.backoff.function(1, None)) == (5, 90, 3)
    assert native.options.keep_result is False


FUNCTION = f"{__name__}.of_an_order"


def of_an_order(order: int) -> None: ...


def test_settings_have_options_for_a_single_task(own_registry, alias_with):
    alias_with(max_attempts=5, timeout=60, tasks={FUNCTION: {"max_attempts": 7, "timeout": 9, "unique": ["order"]}})
    native = job_options(timeout=90)(task(backend="patient")(of_an_order)).native
    assert (native.options.max_attempts, native.options.timeout) == (7, 90)
    assert native.keys_of((3,), {}).unique == f"{FUNCTION}:order=3"


def test_settings_and_the_task_say_what_is_unique_limited_and_fair(own_registry, alias_with):
    alias_with(limit=Limit(running=3, group="patient"), fair="order", tasks={FUNCTION: {"unique": {"until": "start"}}})
    made = job_options(unique=Unique("order", hold=60))(task(backend="patient")(of_an_order))
    assert made.native.keys_of((3,), {}) == (f"{FUNCTION}:order=3", "patient", "order=3")
    assert (made.native.options.unique_rule.hold_seconds, made.native.options.limit_rule.running) == (60, 3)
    otherwise = made.using(unique=False, limit=False, fair=False, limit_key="mine").native
    assert otherwise.keys_of((3,), {}) == (None, "mine", None)
    assert made.using(unique=Unique((), until="start")).native.keys_of((3,), {}).unique == FUNCTION


@pytest.mark.parametrize("wrong", [None, [], "x", {FUNCTION: None}, {FUNCTION: "x"}], ids=repr)
def test_settings_of_single_tasks_that_are_of_no_use_are_left_to_the_check(own_registry, alias_with, wrong):
    """Their task is declared, so that the check can be reached."""
    alias_with(tasks=wrong)
    assert task(backend="patient")(of_an_order).native.options.max_attempts == 1
    assert "Make it a dict of dicts" in problems(OPTIONS={"tasks": wrong})["pgqueue.E007"]


def test_settings_name_exceptions_after_which_tasks_of_others_are_not_tried_again(own_registry, alias_with):
    alias_with(discard_on=["django.core.exceptions.ObjectDoesNotExist"])
    native = task(backend="patient")(of_an_order).native
    assert native.discard_on.has(Mark.DoesNotExist())
    assert not native.discard_on.has(ValueError())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"unique": ["no_argument"]}, "unique is a function, or names of arguments, of which there are order"),
        ({"max_attempt": 5}, "There is no option max_attempt"),
        ({"max_attempts": 0}, "max_attempts is a whole number"),
    ],
    ids=str,
)
def test_wrong_option_of_a_single_task_is_named_with_its_place(own_registry, alias_with, wrong, message):
    alias_with(tasks={FUNCTION: wrong})
    with pytest.raises(InvalidTask) as caught:
        task(backend="patient")(of_an_order)
    assert str(caught.value).startswith(f"TASKS['patient']['OPTIONS']['tasks']['{FUNCTION}']: {message}")


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": 0},
        {"max_attempts": "3"},
        {"timeout": -1},
        {"metadata": 5},
        {"on_conflict": "x"},
        {"backoff": "soon"},
        {"discard_on": "ValueError"},
        {"discard_on": [KeyboardInterrupt]},
        {"discard_on": 5},
        {"sensitive_parameters": "card"},
        {"unique": ["no_argument"]},
        {"keep_result": "no"},
    ],
    ids=str,
)
def test_value_that_cannot_be_is_an_invalid_task(own_registry, wrong):
    with pytest.raises(InvalidTask, match=next(iter(wrong))):
        job_options(**wrong)(task(function))


def test_async_task_cannot_be_atomic(own_registry):
    with pytest.raises(InvalidTask, match="has no async transactions"):
        job_options(atomic=True)(task(app.aadd.func))


def test_unknown_option_is_named():
    with pytest.raises(
        TypeError, match=r"There is no option max_attempt: did you mean max_attempts\? Options are: aliases, atomic, "
    ):
        job_options(max_attempt=3)
    with pytest.raises(TypeError, match=r"using\(\) takes no option max_attempt: did you mean max_attempts\?"):
        app.add.using(max_attempt=3)
    with pytest.raises(TypeError, match="Others belong to the task: declare them with it"):
        app.add.using(backoff=3)


@pytest.mark.parametrize(
    ("name", "on_task", "in_using"),
    [
        ("max_retries", "use max_attempts, which", "use max_attempts, which"),
        ("queue", "use queue_name, of @task(queue_name=…).", "use queue_name."),
        ("queue_name", "it belongs to @task(queue_name=…).", None),
        ("priority", "it belongs to @task(priority=…).", None),
        ("run_after", "it belongs to calls, using(run_after=…).", None),
        ("delay", "use run_after, a timedelta, in using().", "use run_after, a timedelta."),
        ("countdown", "use run_after, a timedelta, in using().", "use run_after, a timedelta."),
        ("run_at", "use run_after, a datetime, in using().", "use run_after, a datetime."),
        ("eta", "use run_after, a datetime, in using().", "use run_after, a datetime."),
        ("backoff", None, "it belongs to the task, @job_options(backoff=…)."),
        ("unique_keys", "did you mean unique_key?", "did you mean unique_key?"),
    ],
)
def test_option_in_other_words_is_told_in_those_of_the_framework(own_registry, alias_with, name, on_task, in_using):
    if in_using:
        with pytest.raises(TypeError, match=re.escape(f"using() takes no option {name}: {in_using}")):
            app.add.using(**{name: 1})
    if on_task:
        with pytest.raises(TypeError, match=re.escape(f"There is no option {name}: {on_task}")):
            job_options(**{name: 1})
        if name != "unique_keys":
            assert f"{name}: {on_task}" in problems(OPTIONS={name: 1})["pgqueue.E007"]
            alias_with(**{name: 1})
            with pytest.raises(InvalidTask, match=re.escape(f"has no key '{name}'. {name}: {on_task}")):
                task(backend="patient")(function)


def test_native_task_takes_its_options_itself(own_registry):
    with pytest.raises(ConfigurationError, match=r"is one of django_pgqueue: give it its options by @task\(…\)"):
        job_options(max_attempts=3)(tasks.task(function))


def test_options_stand_above_a_task():
    with pytest.raises(ConfigurationError, match="right above @task"):
        job_options(max_attempts=3)(function)


def test_task_of_another_backend_is_left_as_it_is():
    assert job_options(max_attempts=3)(app.lent) is app.lent


def test_using_keeps_what_was_said_and_adds_to_it():
    made = app.echo.using(max_attempts=3).using(priority=7, unique_key="k")
    assert (made.max_attempts, made.priority, made.queue_name, made.unique_key) == (3, 7, "mail", "k")
    assert (app.echo.max_attempts, app.echo.priority) == (None, 5)


def test_options_make_no_difference_between_tasks():
    assert app.echo.using(max_attempts=3, metadata={"a": 1}) == app.echo
    assert hash(app.echo.using(metadata={"a": 1})) == hash(app.echo)


@pytest.mark.skipif(django.VERSION < (6, 1), reason=DJANGO_61)
def test_pickled_task_keeps_its_options():
    made = pickle.loads(pickle.dumps(app.echo.using(max_attempts=3, queue_name="default")))
    assert (made, made.max_attempts) == (app.echo.using(queue_name="default"), 3)


# Registration


def test_task_is_registered_once_with_what_it_was_declared_with():
    native = registry.get("tests.app.contract.fail_until")
    assert (native.options.max_attempts, native.backoff.function(1, None)) == (3, 0.0)
    app.fail_until.using(max_attempts=9, queue_name="mail")
    assert registry.get("tests.app.contract.fail_until") is native


def test_module_loaded_again_replaces_its_tasks(fresh):
    first = importlib.import_module(MODULE).found
    again = importlib.reload(sys.modules[MODULE]).found
    assert first.func is not again.func
    assert registry.get(f"{MODULE}.found").func is again.func
    assert task_backends["default"]._declared(f"{MODULE}.found").func is again.func


def test_native_task_of_another_function_keeps_its_name(own_registry):
    other = tasks.task(name=f"{__name__}.function")(app.add.func)
    with pytest.raises(InvalidTask, match="Two tasks are called"):
        task(function)
    assert registry.get(f"{__name__}.function") is other


def test_task_of_the_framework_may_have_a_schedule(own_registry, monkeypatch):
    monkeypatch.setattr("django_pgqueue.schedules.periodic._declared", {})
    assert periodic("0 3 * * *")(app.echo) is app.echo
    periodic("0 3 * * *")(app.add.using(queue_name="mail").bind(1))
    of_task, of_call = declared().values()
    assert (of_task.task, of_task.name) == (app.echo.native, "tests.app.contract.echo")
    assert (of_call.task, of_call.args, of_call.options) == (app.add.native, (1,), {"queue": "mail"})


def test_call_of_a_task_of_the_framework_is_that_of_its_native_one(db):
    handles = enqueue_many([app.echo.using(max_attempts=3).bind(1), app.tell.bind("x"), app_tasks.noop.bind()])
    assert [(one.task, one.queue) for one in handles[:2]] == [
        ("tests.app.contract.echo", "mail"),
        ("tests.app.contract.tell", "default"),
    ]
    assert assert_enqueued(app.echo.bind(value=1), priority=5).max_attempts == 3
    run_jobs(task=[app.echo, app.tell])
    assert (app.echo.get_result(str(handles[0].id)).return_value, handles[0].result()) == (1, 1)
    assert handles[1].result()["args"] == ["x"]
    with pytest.raises(InvalidArguments, match="too many positional arguments"):
        app.echo.bind(1, 2)


def test_calls_of_tasks_of_the_framework_are_members_of_workflows(db):
    """Beside native ones, plain and async, with a context, of any alias; PREVIOUS is the result of the one before."""
    with workflow("mixed") as flow:
        first = flow.add(app.aadd.bind(1, 2), name="first")
        second = flow.add(app.add.using(backend="patient", queue_name="mail").bind(PREVIOUS, more=4), after=first)
        third = flow.add_many([app.echo.bind("a"), app_tasks.add.bind(5)], after=second, name="third", collect=True)
        flow.add(app.tell.bind("end"), after=third, name="last")
    run_jobs()
    assert flow.handle.status() == "succeeded"
    assert list(flow.handle.results("third")) == ["a", 5]
    done = {job.task.rpartition(".")[2]: job for job in SucceededJob.objects.exclude(task=app_tasks.add.name)}
    assert {name: job.result for name, job in done.items() if name != "tell"} == {"aadd": 3, "add": 7, "echo": "a"}
    assert done["tell"].result["args"] == ["end"]
    result = app.add.using(backend="patient").get_result(str(done["add"].pk))
    assert (result.return_value, result.backend, result.task.queue_name) == (7, "patient", "mail")


def test_dead_member_that_is_a_task_of_the_framework_lets_its_workflow_go_on_when_it_is_retried(db):
    handle = chain(app.fail.bind("no luck"), app.echo.bind("after")).enqueue()
    run_jobs(errors="collect")
    assert handle.state().is_stuck
    DeadJob.objects.update(task=app.echo.module_path)  # as by a repaired function
    assert handle.retry() == 1
    run_jobs()
    assert handle.status() == "succeeded"


@pytest.mark.parametrize(
    ("add", "error"),
    [
        (lambda flow: flow.add(app.echo), r"add\(\) takes a call: it is the task tests.app.contract.echo without "),
        (lambda flow: flow.add_many([app.echo]), r"calls\[0\] of add_many\(\) is no call: .* Write echo.bind\("),
        (
            lambda flow: flow.add(app.lent),
            "the task tests.app.contract.lent of the alias 'dummy' in TASKS, .*PgQueueBackend",
        ),
        (lambda flow: flow.add_many([app.lent]), "alias 'dummy' in TASKS"),
        (lambda _: chain(app.lent), "takes an iterable of calls: .* alias 'dummy' in TASKS"),
        (lambda flow: flow.add(3), "it is of the type int. A member is a call made by bind"),
    ],
)
def test_what_is_no_call_of_a_task_of_this_queue_is_refused_with_the_remedy(add, error):
    with pytest.raises(InvalidWorkflow, match=error):
        add(NewWorkflow("w"))


def test_schedule_of_a_task_of_another_backend_is_reported(monkeypatch):
    monkeypatch.setattr("django_pgqueue.schedules.periodic._left_out", {})
    assert periodic("@daily", name="nightly")(app.lent) is app.lent
    assert set(left_out()) == {"nightly"}
    assert "pgqueue.W005" in {message.id for message in run_checks(tags=["pgqueue"])}


def test_options_of_the_alias_that_are_not_of_tasks_leave_tasks_alone(task_modules):
    task_modules([])
    assert task_backends["patient"].native(app.add.using(backend="patient")).options.max_attempts == 3


def test_worker_outlives_a_task_that_cannot_be_declared(queue, sql, caplog, monkeypatch, own_registry):
    tasks.task(name="tests.app.contract.add_up")(function)
    other = types.FunctionType(function.__code__, globals(), "add_up")
    other.__module__, other.__qualname__ = "tests.app.contract", "add_up"
    monkeypatch.setattr(app, "add_up", other, raising=False)
    monkeypatch.setattr(app, "lent_too", task(backend="dummy")(other), raising=False)
    sql("INSERT INTO pgqueue_jobs (task, backend) VALUES ('tests.app.contract.lent_too', 'default')")
    assert work(queue).fate.name == "RELEASED"
    assert "Two tasks are called 'tests.app.contract.add_up'" in caplog.text


def test_options_of_a_task_count_for_jobs_that_another_alias_is_used_for(own_registry, alias_with):
    """So its path is no mistake in the settings of that one."""
    alias_with(tasks={FUNCTION: {"max_attempts": 7}})
    made = task(backend="default")(of_an_order)
    assert made.native.options.max_attempts != 7
    assert made.using(backend="patient").native.options.max_attempts == 7


def test_unknown_option_of_the_alias_stops_its_tasks(settings):
    settings.TASKS = settings.TASKS | {"default": settings.TASKS["default"] | {"OPTIONS": {"retries": 3}}}
    with pytest.raises(InvalidTask, match=r"TASKS\['default'\]\['OPTIONS'\] has no key 'retries'"):
        app.add.using(priority=1)
