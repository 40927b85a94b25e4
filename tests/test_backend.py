"""Tasks of Django's Tasks framework as jobs, as far as its contract says nothing; that is tests/conformance/."""

import pytest

import tests.app.contract as app
from django_pgqueue import tasks
from django_pgqueue.backend import PgQueueBackend
from django_pgqueue.base.framework import InvalidTask, TaskResultDoesNotExist, TaskResultStatus, task_backends
from django_pgqueue.models import Job
from tests.workers import eventually


def ended(result):
    eventually(lambda: result.refresh() or result.is_finished)
    return result


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


def test_result_read_back_is_equal(db, django_assert_num_queries):
    with django_assert_num_queries(1):
        result = app.add.using(priority=3, max_attempts=2).enqueue(1, two=2)
    with django_assert_num_queries(1):
        assert task_backends["default"].get_result(result.id) == result


def test_all_kinds_of_runs_end_as_the_contract_says(start_worker):
    enqueued = {
        name: getattr(app, name).enqueue(*args)
        for name, args in {
            "add": (1, 2),
            "aadd": (1, 2),
            "tell": (5,),
            "atell": (5,),
            "fail": (),
            "afail": (),
            "fail_until": (2,),
            "discard": (),
            "retry_later": (),
            "record_atomic": (7,),
            "give_back_a_set": (),
        }.items()
    }
    start_worker("--processes", "1")
    results = {name: ended(result) for name, result in enqueued.items()}
    failed = {"fail", "afail", "discard", "give_back_a_set"}
    assert {name for name, result in results.items() if result.status == TaskResultStatus.FAILED} == failed
    values = {name: result.return_value for name, result in results.items() if name not in failed}
    assert (values["add"], values["aadd"], values["record_atomic"]) == (3, 3, 7)
    assert (values["fail_until"], values["retry_later"]) == (2, 1)
    for name in ("tell", "atell"):
        assert (values[name]["attempt"], values[name]["status"], values[name]["args"]) == (1, "RUNNING", [5])
        assert values[name]["worker_ids"] == results[name].worker_ids
    assert [len(results[name].worker_ids) for name in ("add", "fail", "fail_until", "retry_later")] == [1, 1, 2, 1]
    kinds = {name: [error.exception_class for error in results[name].errors] for name in (*failed, "fail_until")}
    assert kinds["fail"] == kinds["afail"] == kinds["fail_until"] == [ValueError]
    assert (kinds["give_back_a_set"], kinds["discard"][0].__name__) == ([TypeError], "Discard")


def test_task_is_registered_once_with_what_it_was_declared_with():
    native = tasks.get("tests.app.contract.fail_until")
    assert (native.options.max_attempts, native.backoff(1)) == (3, 0.0)
    app.fail_until.using(max_attempts=9, queue_name="mail")
    assert tasks.get("tests.app.contract.fail_until") is native


@pytest.mark.parametrize("result_id", ["", "x", "0", "-1", "1.5", " 1", "\u0661", "9" * 19, "1" * 30, None, "1_0"])
def test_what_is_no_id_of_a_job_does_not_exist(db, result_id):
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(result_id)


@pytest.mark.parametrize(
    "options", [{"max_attempts": 0}, {"timeout": -1}, {"metadata": 5}, {"on_conflict": "x"}], ids=str
)
def test_value_that_cannot_be_is_an_invalid_task(options):
    with pytest.raises(InvalidTask, match=next(iter(options))):
        app.echo.using(**options)


def test_flags_say_what_is_so(settings):
    backend = task_backends["default"]
    assert isinstance(backend, PgQueueBackend)
    assert backend.supports_defer
    assert backend.supports_async_task
    assert backend.supports_priority
    assert backend.supports_get_result
    settings.PGQUEUE = {**settings.PGQUEUE, "RETENTION_DAYS": 0}
    assert not backend.supports_get_result
