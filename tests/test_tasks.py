"""Functions become tasks, and mistakes in declaring them are named."""

import dataclasses
import datetime as dt

import pytest
from asgiref.sync import async_to_sync
from django.template import Context, Template
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import Task, enqueue, task, tasks
from django_pgqueue.exceptions import ConfigurationError, InvalidArguments, InvalidOption, NoCurrentJob
from django_pgqueue.jobs.serialization import MOST_SHAPES
from django_pgqueue.models import Job
from django_pgqueue.testing import as_job
from tests.app import helped
from tests.support.keyed import keyed


def test_task_is_named_by_its_path_and_can_be_called():
    assert isinstance(app.noop, Task)
    assert app.noop.name == "tests.app.tasks.noop"
    assert app.noop() is None


def test_new_time_replaces_the_one_before():
    at = timezone.now()
    later, then = app.noop.using(delay=60), app.noop.using(run_at=at)
    assert (later.options.delay_seconds, later.options.due_at) == (60, None)
    assert (later.using(run_at=at).options.delay, later.using(run_at=at).options.due_at) == (None, at)
    assert (then.using(delay=90).options.delay_seconds, then.using(delay=90).options.run_at) == (90, None)
    assert later.using(priority=1).options.delay == 60
    assert (later.using(delay=None).options.delay_seconds, later.using(run_at=None).options.delay) == (0, 60)


async def fetch(number: int) -> int:
    return number + 1


def double(number: int) -> int:
    return number * 2


def test_task_is_called_from_plain_and_from_async_code_as_those_of_django():
    plain, coroutine = keyed(double), keyed(fetch)
    assert (plain.call(2), coroutine.call(2)) == (4, 3)
    assert (async_to_sync(plain.acall)(2), async_to_sync(coroutine.acall)(2)) == (4, 3)


def test_using_makes_another_task_and_leaves_the_first():
    changed = app.noop.using(queue="mail", priority=5)
    assert (changed.options.queue, changed.options.priority) == ("mail", 5)
    assert (app.noop.options.queue, app.noop.options.priority) == ("default", 0)
    assert changed.name == app.noop.name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retries": 3}, "no option retries: use max_attempts, which counts the first attempt too"),
        ({"max_retries": 3}, "no option max_retries: use max_attempts, which counts the first attempt too"),
        ({"retry_backoff": 3}, "no option retry_backoff: use backoff"),
        ({"bind": True}, r"no option bind: use takes_context=True, or current_job\(\)"),
        ({"queue_name": "x"}, "no option queue_name: use queue"),
    ],
    ids=str,
)
def test_decorator_names_all_its_options_and_the_one_that_is_meant(options, message):
    with pytest.raises(InvalidOption, match=message) as caught:
        task(**options)(at_the_top)
    for name in (*tasks.OF_TASKS, "name", "queue"):
        assert f" {name}," in str(caught.value) or f" {name}." in str(caught.value)


@pytest.mark.parametrize("options", [{"run_at": dt.timedelta(1)}, {"database": "other"}, {"unique_key": "k"}], ids=str)
def test_decorator_refuses_what_only_calls_can_mean(options):
    [name] = options
    with pytest.raises(InvalidOption, match=rf"no option {name}: it belongs to calls, using\({name}=…\)"):
        task(**options)(at_the_top)


def test_decorator_with_options_may_be_kept_and_given_others(registry_of):
    mail_task = task(queue="mails", max_attempts=8)
    plain, slow = mail_task(at_the_top), mail_task(timeout=900, max_attempts=2)(beside_it)
    assert (plain.options.queue, plain.options.max_attempts, plain.options.timeout) == ("mails", 8, None)
    assert (slow.options.queue, slow.options.max_attempts, slow.options.timeout) == ("mails", 2, 900)
    assert repr(mail_task) == "task(queue='mails', max_attempts=8)"


def beside_it(): ...


def test_name_in_the_place_of_the_function_is_answered_in_words():
    with pytest.raises(ConfigurationError, match=r"@task is given the text 'emails'.* as in @task\(name='emails'\)"):
        task("emails")


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


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("s", r"noop\.bind\(…\)"),
        ("si", r"noop\.bind\(…\)"),
        ("apply", r"noop\(…\); .* run_job\(noop\.bind\(…\)\)"),
        ("retry", r"raise Retry\(delay=…\)"),
        ("request", r"current_job\(\)"),
    ],
)
def test_other_habits_lead_to_what_does_it_here(name, instead):
    with pytest.raises(AttributeError, match=rf"'Task' object has no attribute '{name}'\. .*{instead}"):
        getattr(app.noop, name)


def test_bound_call_knows_its_task_options_and_arguments():
    mail = app.record.using(queue="mail")
    call = mail.bind(label="x")
    assert (call.task, call.args, call.kwargs) == (mail, (), {"label": "x"})
    assert call == mail.bind(label="x") != mail.bind(label="y")
    with pytest.raises(dataclasses.FrozenInstanceError):
        call.args = (1,)


def test_arguments_are_checked_when_they_are_bound():
    for _ in range(2):
        with pytest.raises(InvalidArguments, match=r"record takes \(label.*do not fit"):
            app.record.bind("a", "b", "c")


def test_context_is_not_among_the_arguments_of_a_task():
    assert str(helped.note_context.signature) == "(label: str, *, times: int = 1) -> tuple[int, str]"
    assert helped.note_context.bind("x").args == ("x",)
    with pytest.raises(InvalidArguments, match=r"takes \(label: str, \*, times: int = 1\)"):
        helped.note_context.bind("x", "y")
    with pytest.raises(InvalidArguments, match="do not fit"):
        helped.note_context.bind("x", context=1)


def test_task_that_is_called_gets_the_context_of_the_current_job():
    declared = tasks.make(
        lambda context, label: (context.attempt, context.job.task, label), name="t", takes_context=True
    )
    with as_job(app.noop, attempt=2):
        assert declared("x") == (2, "tests.app.tasks.noop", "x")
        assert declared.using(queue="mail")("x")[0] == 2
    with pytest.raises(NoCurrentJob):
        declared("x")


@pytest.mark.parametrize(
    "func", [lambda: None, lambda label, context: None, lambda *context: None, lambda *, context: None]
)
def test_context_is_the_first_parameter(func):
    with pytest.raises(ConfigurationError, match="its first parameter is not context"):
        tasks.make(func, name="t", takes_context=True)


def test_shapes_of_calls_that_are_remembered_have_a_bound():
    declared = keyed(anything)
    for number in range(MOST_SHAPES + 1):
        declared.bind(**{f"n{number}": 1})
    assert len(declared.shapes) == MOST_SHAPES


def test_call_shows_its_arguments_without_what_is_sensitive():
    assert repr(app.record.bind(label="x")) == "<Call tests.app.tasks.record(label='x')>"
    assert "hunter2" not in repr(app.log_in.bind("ann", "hunter2"))
    assert "hunter2" not in repr(keyed(sensitive_parameters=True).bind("hunter2"))


@pytest.mark.parametrize("given", ["shop.tasks.old", ("", "x"), 5, [1]], ids=repr)
def test_aliases_are_names_in_a_tuple(given):
    with pytest.raises(InvalidOption, match=r"aliases is a tuple of former names, as in \('shop\.tasks\.old',\), not "):
        keyed(aliases=given)


def test_names_that_a_generator_yields_are_all_taken():
    declared = keyed(aliases=(name for name in ["old", "older"]), sensitive_parameters=(name for name in ["label"]))
    assert (declared.aliases, declared.sensitive_parameters) == (("old", "older"), {"label"})


def test_only_tasks_are_enqueued():
    with pytest.raises(
        TypeError, match=r"task is a task or the name of one, not <function anything.*Write @task above"
    ):
        enqueue(anything)


def anything(**names): ...


@pytest.mark.django_db
def test_bound_call_is_enqueued_with_the_options_of_its_task():
    handle = app.record.using(queue="mail").bind("x").enqueue()
    assert Job.objects.values_list("queue", "args").get(pk=handle.id) == ("mail", ["x"])


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


def test_backoff_may_be_a_number_or_a_function():
    assert app.fail.retry_rules.backoff.function(1, None) == 0
    assert [app.noop.retry_rules.backoff.function(attempt, None) for attempt in (1, 2, 3, 40)] == [2, 4, 8, 3600]
    with pytest.raises(InvalidOption, match="backoff is a function, 0 or more seconds, or a timedelta, not -1"):
        task(backoff=-1)(app.noop.func)


@pytest.mark.parametrize("given", [0, 32768, 1.5, True, "3"], ids=str)
def test_bound_on_snoozes_is_a_whole_number(given):
    with pytest.raises(InvalidOption, match="max_snoozes is a whole number from 1 to 32767, not "):
        task(max_snoozes=given)(app.noop.func)


def test_task_is_not_run_by_a_template_that_names_it():
    assert Template("{{ task }}").render(Context({"task": app.discard})) == "&lt;Task tests.app.tasks.discard&gt;"


@pytest.mark.django_db
def test_call_finds_the_job_that_has_its_unique_key():
    once_each = app.record.using(unique="label")
    handle = once_each.enqueue("a")
    assert once_each.bind("a").find() == handle
    assert once_each.bind("b").find() is None
    assert app.record.using(unique_key="k").bind("a").find() is None
    with pytest.raises(InvalidOption, match=r"tests\.app\.tasks\.record has no unique key"):
        app.record.bind("a").find()


@pytest.mark.django_db(transaction=True)
def test_call_finds_its_job_from_async_code():
    once_each = app.record.using(unique="label")
    handle = once_each.enqueue("a")
    assert async_to_sync(once_each.bind("a").afind)() == handle
