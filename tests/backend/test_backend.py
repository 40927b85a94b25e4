"""The backend enqueues tasks of the framework and finds results; the contract itself is in tests/conformance/."""

import datetime as dt
import sys
import types

import pytest
from django.db import transaction

import tests.app.contract as app
import tests.app.tasks
from django_pgqueue import enqueue, registry
from django_pgqueue.exceptions import InvalidArguments
from django_pgqueue.framework import InvalidTask, TaskResultDoesNotExist, TaskResultStatus, task_backends, task_enqueued
from django_pgqueue.models import Job
from django_pgqueue.records import Fate
from tests.support.backends import MODULE
from tests.support.contract import work


def test_job_carries_what_the_task_says(db):
    result = app.echo.using(max_attempts=4, timeout=60, metadata={"tenant": 5}).enqueue({"a": (1, 2)})
    job = Job.objects.get()
    assert (job.id, job.task, job.queue, job.priority) == (int(result.id), "tests.app.contract.echo", "mail", 5)
    assert (job.backend, job.args, job.max_attempts) == ("default", [{"a": [1, 2]}], 4)
    assert (job.timeout_seconds, job.metadata) == (60, {"tenant": 5})
    assert (result.enqueued_at, result.args, result.status) == (job.enqueued_at, [{"a": [1, 2]}], "READY")


def test_task_runs_once_unless_it_or_its_alias_says_otherwise(db):
    app.echo.enqueue()
    app.echo.using(backend="patient").enqueue()
    app.fail_until.using(backend="patient", max_attempts=7).enqueue(1)
    assert list(Job.objects.order_by("id").values_list("max_attempts", flat=True)) == [1, 3, 7]


@pytest.mark.parametrize(
    "options",
    [
        {"priority": 3, "max_attempts": 2},
        {"run_after": dt.timedelta(hours=1)},
        {"run_after": dt.timedelta(0)},
        {"run_after": dt.datetime(2030, 1, 1, tzinfo=dt.UTC)},
        {"run_after": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)},
        {"head_start": 60},
        {"unique_key": "k"},
        {"limit_key": "k"},
        {"expires": 60},
    ],
    ids=str,
)
def test_result_read_back_is_equal(db, backend, django_assert_num_queries, options):
    with django_assert_num_queries(1):
        result = app.add.using(**options).enqueue(1, two=2)
    with django_assert_num_queries(1):
        assert backend.get_result(result.id) == result


def test_task_of_a_result_has_its_options(queue, backend, heard):
    result = app.fail_until.enqueue(1)
    backend.get_result(result.id).task.enqueue(1)
    assert set(Job.objects.values_list("max_attempts", flat=True)) == {3}
    Job.objects.last().delete()
    work(queue)
    assert [told.task.max_attempts for name, _, told in heard if name == "started"] == [3]


def test_delay_counts_from_now_by_the_clock_of_the_database(db, sql):
    [(before,)] = sql("SELECT clock_timestamp()")
    result = app.add.using(run_after=dt.timedelta(hours=1)).enqueue()
    assert Job.objects.get().status == "scheduled"
    assert before + dt.timedelta(hours=1) < result.task.run_after
    assert result.task.run_after == result.enqueued_at + dt.timedelta(hours=1)


@pytest.mark.parametrize("run_after", ["tomorrow", 5], ids=str)
def test_what_is_no_time_is_refused(run_after):
    with pytest.raises(InvalidTask, match="run_after is a datetime or a timedelta, not"):
        app.add.using(run_after=run_after)


def test_time_before_now_is_no_delay():
    with pytest.raises(InvalidTask, match="run_after is a time from now, not one before it: datetime"):
        app.add.using(run_after=dt.timedelta(seconds=-1))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1}, r"args\[0\] is the set"),
        (float("nan"), r"args\[0\] is nan"),
        ("\0", r"args\[0\] contains a NUL character"),
        ("\ud800", r"args\[0\] contains the lone surrogate"),
        ({"a": [{1: 2}]}, r"the key 1 of args\[0\]\['a'\]\[0\] is of the type int, and would come back as '1'"),
        (b"\xff", r"args\[0\] is the bytes"),
    ],
    ids=repr,
)
def test_argument_that_cannot_be_stored_is_named(db, value, message):
    with pytest.raises(InvalidArguments, match=message), transaction.atomic():
        app.echo.enqueue(value)
    with pytest.raises(TypeError, match=message.replace("args", r"calls\[1\]")), transaction.atomic():
        app.echo.enqueue_many([(1,), (value,)])
    assert not Job.objects.exists()


def test_arguments_that_do_not_fit_are_refused_and_the_context_is_not_counted(db):
    app.tell.enqueue(1, 2)
    with pytest.raises(InvalidArguments, match=r"contract.once takes \(key: str\) -> str"):
        app.once.enqueue("a", "b")


def test_declared_encoder_is_used_where_json_has_no_word(db, settings):
    settings.PGQUEUE = settings.PGQUEUE | {"JSON_ENCODER": "django.core.serializers.json.DjangoJSONEncoder"}
    result = app.echo.enqueue(dt.date(2026, 5, 1))
    assert (result.args, Job.objects.get().args) == (["2026-05-01"], ["2026-05-01"])


def test_key_that_is_no_text_is_refused_beside_what_needs_the_encoder(db, settings):
    settings.PGQUEUE = settings.PGQUEUE | {"JSON_ENCODER": "django.core.serializers.json.DjangoJSONEncoder"}
    with pytest.raises(InvalidArguments, match=r"the key 1 of args\[0\] is of the type int"):
        app.echo.enqueue({1: dt.date(2026, 5, 1)})


def test_sensitive_arguments_are_kept_for_the_program_and_out_of_errors(db):
    assert app.log_in.enqueue("ann", password="open-sesame").kwargs == {"password": "open-sesame"}
    with pytest.raises(InvalidArguments) as caught:
        app.log_in.enqueue("ann", password="open-sesame\0")
    assert "open-sesame" not in str(caught.value)


def test_call_that_meets_its_conflict_has_its_result(db, heard):
    first, other = app.once.enqueue("a"), app.once.enqueue("b")
    conflict = app.once.enqueue("a")
    assert (conflict.id, conflict == first, other.id == first.id) == (first.id, True, False)
    assert [result.id for _, _, result in heard] == [first.id, other.id, first.id]


def test_native_job_may_have_the_unique_key(db):
    held = tests.app.tasks.record.using(unique_key='tests.app.contract.once:key="a"').enqueue("native")
    conflict = app.once.enqueue("a")
    assert (conflict.id, conflict.args, conflict.status) == (str(held.id), ["native"], TaskResultStatus.READY)
    assert conflict.task.module_path == "tests.app.tasks.record"


def test_many_are_enqueued_by_one_statement_in_order(db, django_assert_num_queries, heard):
    with django_assert_num_queries(1):
        results = app.add.using(priority=2).enqueue_many([(number,) for number in range(20)] + [{"more": 5}])
    assert [result.args for result in results] == [[number] for number in range(20)] + [[]]
    assert results[-1].kwargs == {"more": 5}
    assert list(map(int, (result.id for result in results))) == sorted(Job.objects.values_list("pk", flat=True))
    assert [result for _, _, result in heard] == results
    assert task_backends["default"].get_result(results[3].id) == results[3]
    assert app.add.enqueue_many([]) == []


def test_many_with_keys_meet_conflicts(db):
    held = app.once.enqueue("b")
    results = app.once.enqueue_many([("a",), ("b",), ("c",)])
    assert results[1] == held
    assert [result.args for result in results] == [["a"], ["b"], ["c"]]


def test_receiver_that_raises_harms_no_job(db, caplog):
    def receiver(**_):
        raise RuntimeError("broken receiver")

    task_enqueued.connect(receiver)
    try:
        result = app.add.enqueue(1)
    finally:
        task_enqueued.disconnect(receiver)
    assert Job.objects.get().pk == int(result.id)
    assert "broken receiver" in caplog.text


@pytest.mark.usefixtures("registry_of")
def test_task_of_another_backend_may_be_lent(transactional_db, queue, backend):
    result = app.lent.using(backend="default", queue_name="mail").enqueue(5)
    assert backend.get_result(result.id) == result
    assert (Job.objects.get().backend, Job.objects.get().max_attempts) == ("default", 1)
    work(queue, "mail")
    result.refresh()
    assert result.return_value == 5


# Native ways to the same task


def test_native_enqueue_takes_tasks_of_the_framework(db, backend):
    by_name = enqueue("tests.app.contract.add", 1)
    by_task = enqueue(app.add, 2)
    assert [backend.get_result(str(handle.id)).args for handle in (by_name, by_task)] == [[1], [2]]


def test_job_enqueued_by_sql_is_one_of_the_framework(db, queue, sql, backend):
    [(job_id,)] = sql("SELECT pgqueue_enqueue('tests.app.contract.tell', '[5]')")
    assert work(queue).fate is Fate.SUCCEEDED
    result = backend.get_result(str(job_id))
    assert (result.return_value["status"], result.return_value["attempt"], result.backend) == ("RUNNING", 1, "default")


def test_native_job_is_no_result(db, backend):
    handle = tests.app.tasks.noop.enqueue()
    with pytest.raises(
        TaskResultDoesNotExist, match=rf"native task tests\.app\.tasks\.noop: .* jobs\.get\({handle.id}\)"
    ):
        backend.get_result(str(handle.id))


# Results


def test_result_of_a_queue_that_is_gone_is_still_there(db, backend, settings):
    result = app.echo.enqueue(1)
    settings.TASKS = settings.TASKS | {"default": settings.TASKS["default"] | {"QUEUES": ["default"]}}
    found = task_backends["default"].get_result(result.id)
    assert (found.task.queue_name, found) == ("mail", result)
    with pytest.raises(InvalidTask, match="Queue 'mail' is not valid for backend"):
        app.echo.enqueue(1)


def test_result_of_any_alias_is_found_by_each(db, backend):
    result = app.echo.using(backend="patient").enqueue()
    assert backend.get_result(result.id) == result
    assert backend.get_result(result.id).backend == "patient"


@pytest.mark.parametrize(
    "result_id", ["", "x", "0", "-1", "1.5", " 1", "\u0661", "9" * 19, "1" * 30, None, "1_0", "1\n"]
)
def test_what_is_no_id_of_a_job_does_not_exist(db, backend, result_id):
    with pytest.raises(TaskResultDoesNotExist):
        backend.get_result(result_id)


def test_flags_say_what_is_so(backend, settings):
    assert backend.supports_defer
    assert backend.supports_async_task
    assert backend.supports_priority
    assert backend.supports_get_result
    settings.PGQUEUE = settings.PGQUEUE | {"RETENTION_DAYS": 0}
    assert not backend.supports_get_result


# Finding tasks


def test_row_has_no_module_imported(fresh, queue, sql, caplog):
    """Not even of an installed app: it may be a script, a migration, or what takes a minute to import."""
    for name in (f"{MODULE}.found", "tests.app.broken.found", "tests.foreign.jobs.found"):
        for alias in ("default", "no such alias", "dummy"):
            sql("INSERT INTO pgqueue_jobs (task, backend) VALUES (%s, %s)", name, alias)
            before = set(sys.modules)
            assert work(queue).fate.name == "RELEASED"
            assert not {MODULE, "tests.app.broken", "tests.foreign.jobs"} & (set(sys.modules) - before)
    assert not Job.objects.exclude(status="scheduled").exists()
    assert "and the task_modules of a backend in TASKS." in caplog.text


def test_task_of_another_backend_is_found_for_the_alias_of_the_job(fresh, task_modules):
    task_modules([MODULE])
    found = task_backends["patient"].find_task(f"{MODULE}.lent")
    assert (found.backend, found.options.max_attempts, found.adapter.task.backend) == ("patient", 3, "dummy")


def test_task_is_found_by_the_name_under_which_another_module_has_it(fresh, task_modules):
    task_modules([MODULE])
    assert task_backends["default"].find_task(f"{MODULE}.add") is registry.get("tests.app.contract.add")


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "subprocess.Popen",
        "tests.foreign.jobs.found",
        f"{MODULE}.plain",
        f"{MODULE}.task",
        f"{MODULE}.no_such_thing",
        "tests.app.contract.NO_TASK",
        "tests.app.no_such_module.found",
        "tests.app.__main__.found",
        "tests.application.found",
        "found",
        ".found",
        "tests.app..found",
        "tests.app.contract.",
        "",
    ],
)
def test_nothing_else_is_found(fresh, task_modules, name):
    task_modules([MODULE])
    before = set(sys.modules)
    assert task_backends["default"].find_task(name) is None
    assert set(sys.modules) == before


def test_module_is_not_asked_for_what_it_makes_when_it_is_asked(monkeypatch):
    def lazy(name):
        raise AssertionError(f"asked for {name}")

    module = types.ModuleType("lazy_library")
    module.__getattr__ = lazy
    monkeypatch.setitem(sys.modules, "lazy_library", module)
    monkeypatch.setitem(sys.modules, "no_module", types.SimpleNamespace(report=app.add))
    assert task_backends["default"].find_task("lazy_library.report") is None
    assert task_backends["default"].find_task("no_module.report") is None


def test_sensitive_values_are_in_no_error_about_arguments(db, settings):
    settings.PGQUEUE = settings.PGQUEUE | {"SENSITIVE_PARAMETERS": ["value"]}

    class Card:
        def __repr__(self):
            return "Card('hunter2')"

    for call in (lambda: app.echo.enqueue(Card()), lambda: app.echo.get_backend().enqueue_many(app.echo, [(Card(),)])):
        with pytest.raises(InvalidArguments) as caught:
            call()
        assert "hunter2" not in str(caught.value)
        assert "Card" in str(caught.value)
