"""Runs of tasks of the framework end as its contract says, and its signals tell of them."""

import logging

import pytest
from django.utils import timezone

import tests.app.contract as app
import tests.app.tasks
from django_pgqueue.backend import PgQueueTaskResult, execution
from django_pgqueue.framework import NAMES, TaskResultStatus, logger, signals, task_backends, task_finished
from django_pgqueue.models import DeadJob, Job
from django_pgqueue.records import Fate
from tests.support.contract import work
from tests.support.waiting import eventually


@pytest.mark.parametrize("task", [app.refuse, app.arefuse], ids=["plain", "async"])
@pytest.mark.parametrize("kind", [None, RuntimeError, SystemExit], ids=str)
def test_sensitive_arguments_are_kept_out_of_the_log_of_the_framework(queue, caplog, task, kind):
    def receiver(**_):
        if kind:
            raise kind("broken receiver")

    task_finished.connect(receiver)
    try:
        result = task.enqueue("open-sesame")
        work(queue)
    finally:
        task_finished.disconnect(receiver)
    assert caplog.text.count("ValueError: [redacted] is not the password") >= 1
    assert "open-sesame" not in caplog.text
    result.refresh()
    assert result.errors[0].exception_class is ValueError


def ended(result):
    eventually(lambda: result.refresh() or result.is_finished)
    return result


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
            "snooze": (),
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
    assert (values["fail_until"], values["snooze"]) == (2, 1)
    for name in ("tell", "atell"):
        assert (values[name]["attempt"], values[name]["status"], values[name]["args"]) == (1, "RUNNING", [5])
        assert values[name]["worker_ids"] == results[name].worker_ids
    assert [len(results[name].worker_ids) for name in ("add", "fail", "fail_until", "snooze")] == [1, 1, 2, 1]
    kinds = {name: [error.exception_class for error in results[name].errors] for name in (*failed, "fail_until")}
    assert kinds["fail"] == kinds["afail"] == kinds["fail_until"] == [ValueError]
    assert (kinds["give_back_a_set"], kinds["discard"][0].__name__) == ([TypeError], "Discard")


def test_signals_tell_of_the_first_and_the_last_of_it_and_not_of_retries(queue, backend, heard):
    result = app.fail_until.enqueue(2)
    for _ in range(2):
        eventually(lambda: Job.objects.filter(status="queued").exists() or promoted(queue))
        work(queue)
    told = [(name, str(told.status), told.attempts, len(told.errors)) for name, _, told in heard]
    assert told == [
        ("enqueued", "READY", 0, 0),
        ("started", "RUNNING", 1, 0),
        ("started", "RUNNING", 2, 1),
        ("finished", "SUCCESSFUL", 2, 1),
    ]
    assert {sender for _, sender, _ in heard} == {type(backend)}
    result.refresh()
    assert heard[-1][2].return_value == result.return_value == 2
    assert heard[1][2].started_at == heard[-1][2].started_at == result.started_at


def promoted(queue):
    from django_pgqueue.maintenance.promoter import promote

    promote(queue, limit=10)


def test_result_that_cannot_be_stored_is_a_failure_without_another_attempt(queue, heard):
    result = app.give_back_a_set.using(max_attempts=5).enqueue()
    outcome = work(queue)
    assert (outcome.fate, DeadJob.objects.get().reason) == (Fate.DIED, "discarded")
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 1)
    assert heard[-1][2].errors == result.errors
    assert "Unsupported type: <class 'set'>" in result.errors[0].traceback


def test_result_that_is_too_large_is_a_failure_and_the_atomic_task_has_done_nothing(queue, settings):
    settings.PGQUEUE = settings.PGQUEUE | {"MAX_PAYLOAD_BYTES": 100}
    result = app.record_atomic_at_length.enqueue(200)
    work(queue)
    result.refresh()
    assert issubclass(result.errors[0].exception_class, TypeError)
    assert "more than PGQUEUE['MAX_PAYLOAD_BYTES'] = 100" in result.errors[0].traceback
    assert not tests.app.tasks.Mark.objects.exists()


def test_nothing_is_made_without_receivers(queue, monkeypatch, caplog):
    for signal, name in NAMES.items():
        monkeypatch.setattr(signal, "receivers", [])
        signal.connect(getattr(signals, f"log_{name}"))
    caplog.set_level(logging.WARNING, logger=logger.name)
    made = []
    monkeypatch.setattr(
        execution, "PgQueueTaskResult", lambda **fields: made.append(fields) or PgQueueTaskResult(**fields)
    )
    app.add.enqueue(1)
    assert work(queue).result == "1"
    assert not made
    caplog.set_level(logging.INFO, logger=logger.name)
    app.add.enqueue(1)
    work(queue)
    assert len(made) == 1


def test_signal_has_the_result_that_is_read_back(queue, heard):
    result = app.give_back_numbered.enqueue()
    work(queue)
    result.refresh()
    assert heard[-1][2].return_value == result.return_value == {"1": "one"}


def test_job_of_an_alias_that_is_gone_runs_under_that_of_its_task(queue, backend, settings, heard):
    result = app.tell.using(backend="patient").enqueue()
    settings.TASKS = {alias: given for alias, given in settings.TASKS.items() if alias != "patient"}
    assert work(queue).fate is Fate.SUCCEEDED
    assert {(name, sender) for name, sender, _ in heard} == {
        ("enqueued", type(backend)),
        ("started", type(backend)),
        ("finished", type(backend)),
    }
    found = task_backends["default"].get_result(result.id)
    assert (found.backend, found.task.backend, found.return_value["attempt"]) == ("default", "default", 1)


def test_times_are_naive_where_time_zones_are_not_used(queue, settings, heard):
    settings.USE_TZ = False
    result = app.tell.enqueue()
    work(queue)
    assert {timezone.is_naive(told.enqueued_at) for _, _, told in heard} == {True}
    assert timezone.is_naive(heard[-1][2].started_at)
    assert timezone.is_naive(heard[-1][2].finished_at)
    assert result.enqueued_at == heard[-1][2].enqueued_at
