"""Tasks of Django's Tasks framework as jobs: what its contract says nothing of. The rest is in tests/conformance/."""

import copy
import datetime as dt
import logging

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.utils import timezone

import tests.app.contract as app
import tests.app.tasks
from django_pgqueue import enqueue, kill, retry
from django_pgqueue.backend import PgQueueTaskResult, execution
from django_pgqueue.exceptions import (
    InvalidArguments,
    JobExpired,
    JobFailed,
    JobKilled,
    JobLost,
    JobNotCommitted,
    UnknownTask,
)
from django_pgqueue.framework import (
    OWN_RECEIVERS,
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultStatus,
    logger,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from django_pgqueue.jobs import ack
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.dead_letter import expired_entry
from django_pgqueue.maintenance.reaper import settle
from django_pgqueue.models import DeadJob, FinishedJob, Job
from django_pgqueue.records import Fate, Lease, Outcome
from django_pgqueue.results import waiter
from django_pgqueue.states import Reason
from tests.support.contract import WORKER, work
from tests.support.waiting import PATIENCE_SECONDS, eventually


@pytest.fixture
def backend():
    return task_backends["default"]


@pytest.fixture
def heard():
    """The signals sent from here on, each with a copy of its result."""
    calls = []
    names = {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}
    receivers = {}
    for name, signal in names.items():

        def receiver(sender, task_result, name=name, **_):
            calls.append((name, sender, copy.deepcopy(task_result)))

        receivers[name] = receiver
        signal.connect(receiver)
    yield calls
    for name, signal in names.items():
        signal.disconnect(receivers[name])


def lease_of(job_id) -> Lease:
    job = Job.objects.get(pk=job_id)
    return Lease(
        job.id,
        job.lease_token,
        job.worker_id,
        job.queue,
        job.attempts,
        job.max_attempts,
        job.lost,
        False,
        "web1 pid 4711",
        job.task,
        0,
    )


# Enqueueing


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
        {"run_after": dt.timedelta(hours=-1)},
        {"run_after": dt.datetime(2030, 1, 1, tzinfo=dt.UTC)},
        {"run_after": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)},
        {"unique_key": "k"},
        {"concurrency_key": "k"},
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
    settings.PGQUEUE = settings.PGQUEUE | {"ENCODER": "django.core.serializers.json.DjangoJSONEncoder"}
    result = app.echo.enqueue(dt.date(2026, 5, 1))
    assert (result.args, Job.objects.get().args) == (["2026-05-01"], ["2026-05-01"])


def test_key_that_is_no_text_is_refused_beside_what_needs_the_encoder(db, settings):
    settings.PGQUEUE = settings.PGQUEUE | {"ENCODER": "django.core.serializers.json.DjangoJSONEncoder"}
    with pytest.raises(InvalidArguments, match=r"the key 1 of args\[0\] is of the type int"):
        app.echo.enqueue({1: dt.date(2026, 5, 1)})


def test_sensitive_arguments_are_kept_for_the_program_and_out_of_errors(db):
    assert app.log_in.enqueue("ann", password="open-sesame").kwargs == {"password": "open-sesame"}
    with pytest.raises(InvalidArguments) as caught:
        app.log_in.enqueue("ann", password="open-sesame\0")
    assert "open-sesame" not in str(caught.value)


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
    with pytest.raises(TaskResultDoesNotExist):
        backend.get_result(str(handle.id))


# Runs


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


def test_row_that_is_nested_too_deeply_has_a_result_to_look_at(sql):
    """Later Pythons read more levels than the framework's own functions can walk."""
    deep = "[" * 3000 + "]" * 3000
    [(job_id,)] = sql("INSERT INTO pgqueue_jobs (task, args) VALUES ('tests.app.contract.add', %s) RETURNING id", deep)
    assert "nested too deeply" in str(task_backends["default"].get_result(str(job_id)).args)


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
    for signal, own in OWN_RECEIVERS.items():
        monkeypatch.setattr(signal, "receivers", [])
        signal.connect(own)
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


# Results


@pytest.fixture
def no_caller_waits_in_the_end(transactional_db):
    yield
    waiter.stop_all()


def test_result_can_be_waited_for(start_worker, no_caller_waits_in_the_end):
    start_worker("--processes", "1")
    good, bad, slow = app.add.enqueue(1, 2), app.fail.enqueue(), app.asleep.enqueue(60)
    assert (good.wait(PATIENCE_SECONDS), good.return_value, good.status) == (3, 3, TaskResultStatus.SUCCESSFUL)
    with pytest.raises(JobFailed, match="ValueError: no luck"):
        bad.wait(dt.timedelta(seconds=PATIENCE_SECONDS))
    assert [error.exception_class for error in bad.errors] == [ValueError]
    with pytest.raises(TimeoutError):
        slow.wait(0.01)
    assert async_to_sync(app.add.enqueue(5).await_)(PATIENCE_SECONDS) == 5


def test_result_in_the_transaction_that_enqueued_is_not_waited_for(no_caller_waits_in_the_end):
    with transaction.atomic():
        result = app.add.enqueue(1)
        with pytest.raises(JobNotCommitted):
            result.wait(PATIENCE_SECONDS)


def test_result_has_the_handle_of_its_job(db):
    result = app.add.using(metadata={"tenant": 5}).enqueue(1)
    assert result.job.state().metadata == {"tenant": 5}


def test_lost_attempts_count_and_are_told(queue, backend):
    result = app.echo.using(max_attempts=2, queue_name="default").enqueue(5)
    claim(queue, "default", limit=1, worker_id=11)
    settle(queue, [lease_of(result.id)])
    result.refresh()
    assert (result.status, result.worker_ids) == (TaskResultStatus.READY, ["11"])
    assert [error.exception_class for error in result.errors] == [JobLost]
    assert "web1 pid 4711" in result.errors[0].traceback
    work(queue, worker_id=12)
    result.refresh()
    assert (result.status, result.worker_ids, result.return_value) == (TaskResultStatus.SUCCESSFUL, ["11", "12"], 5)
    assert result.started_at < result.last_attempted_at


def test_workers_of_attempts_that_history_has_dropped_are_unknown(queue, backend):
    result = app.echo.using(max_attempts=40, queue_name="default").enqueue(5)
    errors = [
        {"kind": "failed", "error": "ValueError", "attempt": number, "worker_id": 100 + number} for number in (1, 2, 9)
    ]
    Job.objects.update(attempts=9, errors=errors)
    work(queue)
    result.refresh()
    assert result.worker_ids == ["101", "102", *["unknown"] * 6, "109", str(WORKER)]


def test_retried_job_begins_to_count_again(queue, backend):
    result = app.fail.enqueue()
    work(queue)
    retry([int(result.id)], by="ann")
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == (TaskResultStatus.READY, 0, 1)
    work(queue, worker_id=8)
    result.refresh()
    assert (result.status, result.worker_ids, len(result.errors)) == (TaskResultStatus.FAILED, ["8"], 2)


def test_worker_that_finds_a_retry_expired_has_made_no_attempt(queue, backend):
    result = app.fail_until.using(expires=3600).enqueue(9)
    work(queue, worker_id=7)
    Job.objects.update(status="queued", run_at=timezone.now(), expires_at=timezone.now() - dt.timedelta(seconds=1))
    [job] = claim(queue, "default", limit=1, worker_id=8)
    ack.write(queue, [Outcome(job, Fate.DIED, reason=Reason.EXPIRED, error=expired_entry())])
    result.refresh()
    assert (result.worker_ids, result.errors[-1].exception_class) == (["7"], JobExpired)


def test_signal_has_the_result_that_is_read_back(queue, heard):
    result = app.give_back_numbered.enqueue()
    work(queue)
    result.refresh()
    assert heard[-1][2].return_value == result.return_value == {"1": "one"}


def test_killed_and_expired_jobs_have_failed(queue, backend):
    killed, expired = app.add.enqueue(), app.add.using(expires=60).enqueue()
    kill([int(killed.id)], by="eve")
    Job.objects.update(expires_at=timezone.now() - dt.timedelta(hours=1))
    claimed = claim(queue, "default", limit=1, worker_id=9)
    from django_pgqueue.jobs import ack
    from django_pgqueue.records import Outcome
    from django_pgqueue.states import Reason

    ack.write(queue, [Outcome(claimed[0], Fate.DIED, reason=Reason.EXPIRED, error=expired_entry())])
    for result, kind in ((killed, JobKilled), (expired, JobExpired)):
        result.refresh()
        assert (result.status, result.worker_ids) == (TaskResultStatus.FAILED, [])
        assert [error.exception_class for error in result.errors] == [kind]


def test_reserved_without_history_is_a_success(queue, backend):
    result = app.once.using(unique_for=600, keep=False).enqueue("a")
    work(queue)
    assert (Job.objects.get().status, FinishedJob.objects.count()) == ("reserved", 0)
    result.refresh()
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, None)


def test_result_of_a_function_that_is_gone_has_its_name(queue, backend, heard):
    result = app.add.enqueue(1)
    Job.objects.update(task="tests.app.contract.gone_since")
    found = backend.get_result(result.id)
    assert (found.task.name, found.task.module_path) == ("gone_since", "tests.app.contract.gone_since")
    assert found == backend.get_result(result.id)
    with pytest.raises(UnknownTask, match=r"'tests\.app\.contract\.gone_since' is no task any more"):
        found.task.call(1)
    assert work(queue).fate is Fate.RELEASED
    assert [name for name, _, _ in heard] == ["enqueued"]


def test_result_of_a_queue_that_is_gone_is_still_there(db, backend, settings):
    result = app.echo.enqueue(1)
    settings.TASKS = settings.TASKS | {"default": settings.TASKS["default"] | {"QUEUES": ["default"]}}
    found = task_backends["default"].get_result(result.id)
    assert (found.task.queue_name, found) == ("mail", result)
    with pytest.raises(InvalidTask, match="Queue 'mail' is not valid for backend"):
        app.echo.enqueue(1)


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


def test_result_of_any_alias_is_found_by_each(db, backend):
    result = app.echo.using(backend="patient").enqueue()
    assert backend.get_result(result.id) == result
    assert backend.get_result(result.id).backend == "patient"


def test_times_are_naive_where_time_zones_are_not_used(queue, settings, heard):
    settings.USE_TZ = False
    task_backends["default"]._connection  # noqa: B018
    result = app.tell.enqueue()
    work(queue)
    assert {timezone.is_naive(told.enqueued_at) for _, _, told in heard} == {True}
    assert timezone.is_naive(heard[-1][2].started_at)
    assert timezone.is_naive(heard[-1][2].finished_at)
    assert result.enqueued_at == heard[-1][2].enqueued_at


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
