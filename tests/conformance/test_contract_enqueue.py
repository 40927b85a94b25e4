"""Enqueueing: what comes back, what is refused, what is said, and the caller's transaction."""

import asyncio
import contextlib
import datetime as dt
import decimal
import json
import logging
import threading
import uuid

import pytest
from asgiref.sync import async_to_sync
from django.db import connections, transaction
from django.utils import timezone

from tests.conformance import DRIVER, needs, tasks
from tests.conformance.compat import (
    FRAMEWORK,
    InvalidTask,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
)
from tests.support.waiting import PATIENCE_SECONDS, beside

pytestmark = pytest.mark.django_db
HOUR = dt.timedelta(hours=1)

both_ways = pytest.mark.parametrize(
    "enqueue",
    [
        lambda task, *args, **kwargs: task.enqueue(*args, **kwargs),
        lambda task, *a, **k: async_to_sync(task.aenqueue)(*a, **k),
    ],
    ids=["enqueue", "aenqueue"],
)


def get(result):
    return task_backends[result.backend].get_result(result.id)


# The result


@both_ways
@needs.later
def test_result_is_ready_and_has_seen_nothing_yet(enqueue):
    before = timezone.now() - dt.timedelta(minutes=1)  # the server's clock may be another one
    result = enqueue(tasks.add, 1, b=2)
    assert isinstance(result, TaskResult)
    assert result.status is TaskResultStatus.READY
    assert result.is_finished is False
    assert before < result.enqueued_at < timezone.now() + dt.timedelta(minutes=1)
    assert result.started_at is result.last_attempted_at is result.finished_at is None
    assert (result.attempts, result.worker_ids, result.errors) == (0, [], [])
    with pytest.raises(ValueError, match="Task has not finished yet"):
        _ = result.return_value


@both_ways
def test_result_says_what_was_enqueued(enqueue):
    result = enqueue(tasks.add, 1, b=2)
    assert (result.task, result.args, result.kwargs, result.backend) == (tasks.add, [1], {"b": 2}, "default")


@both_ways
def test_ids_are_texts_of_their_own(enqueue):
    ids = [enqueue(tasks.nothing).id for _ in range(5)]
    assert len(set(ids)) == 5
    assert all(isinstance(id_, str) and 0 < len(id_) < 64 for id_ in ids)


def test_coroutines_enqueue_side_by_side():
    async def enqueue():
        return await asyncio.gather(*(tasks.nothing.aenqueue(number) for number in range(10)))

    results = async_to_sync(enqueue)()
    assert [result.args for result in results] == [[number] for number in range(10)]
    assert len({result.id for result in results}) == 10


def test_backend_takes_the_names_that_the_framework_passes():
    backend = task_backends["default"]
    assert backend.enqueue(task=tasks.add, args=(1,), kwargs={"b": 2}).args == [1]
    assert async_to_sync(backend.aenqueue)(task=tasks.add, args=(1,), kwargs={"b": 2}).kwargs == {"b": 2}


def test_result_has_the_task_as_it_was_changed():
    changed = tasks.add.using(queue_name="mail")
    assert changed.enqueue(1).task == changed


@needs.priority
@both_ways
@pytest.mark.parametrize("priority", [-100, 100])
def test_priority_is_in_the_result(enqueue, priority):
    assert enqueue(tasks.add.using(priority=priority), 1).task.priority == priority


@needs.defer
@both_ways
def test_time_is_in_the_result(enqueue):
    later = timezone.now() + HOUR
    assert enqueue(tasks.add.using(run_after=later), 1).task.run_after == later


@needs.defer
@both_ways
def test_time_may_be_naive_while_time_zones_are_not_used(enqueue, settings):
    settings.USE_TZ = False
    later = dt.datetime(2100, 1, 1, 12)
    result = enqueue(tasks.add.using(run_after=later), 1)
    assert result.task.run_after == later
    if task_backends["default"].supports_get_result:
        assert get(result).task.run_after == later
        assert timezone.is_naive(get(result).enqueued_at)


@needs.defer
@both_ways
def test_time_may_be_a_timedelta_as_documented(enqueue):
    result = enqueue(tasks.add.using(run_after=HOUR), 1)
    assert abs(result.task.run_after - timezone.now() - HOUR) < dt.timedelta(minutes=5)
    if task_backends["default"].supports_get_result:
        assert get(result).task.run_after == result.task.run_after


@needs.async_tasks
@both_ways
def test_coroutine_functions_are_enqueued(enqueue):
    from tests.conformance import async_tasks

    assert enqueue(async_tasks.add, 1, b=2).task == async_tasks.add


def test_every_alias_says_its_name():
    assert tasks.second.enqueue().backend == "second"
    assert tasks.add.using(backend="open", queue_name="whatever").enqueue(1).backend == "open"


@needs.bulk
def test_many_are_enqueued_at_once(heard):
    results = DRIVER.enqueue_many(tasks.add, [(1,), (2,), (3,)])
    assert [result.args for result in results] == [[1], [2], [3]]
    assert [get(result) for result in results] == results
    assert [result for name, _, result in heard if name == "task_enqueued"] == results


@needs.bulk
@needs.database
def test_many_are_enqueued_in_one_query(django_assert_num_queries):
    with django_assert_num_queries(1):
        DRIVER.enqueue_many(tasks.add, [(number,) for number in range(50)])


# Arguments


@both_ways
def test_arguments_become_what_json_has(enqueue):
    result = enqueue(tasks.nothing, (1, [b"bytes"]), {"key": (2.5, None, True)}, key=("a", {"b": ()}))
    assert result.args == [[1, ["bytes"]], {"key": [2.5, None, True]}]
    assert result.kwargs == {"key": ["a", {"b": []}]}


@pytest.mark.parametrize("text", ["", "ünïcödé", "💥", "\u2028", "%s %(x)s", "'; --", "\\u0000", "\x01"])
def test_any_text_is_an_argument(text):
    result = tasks.nothing.enqueue(text, **{text or "empty": text})
    assert result.args == [text]
    if task_backends["default"].supports_get_result:
        assert get(result).args == [text]
        assert get(result).kwargs == {text or "empty": text}


@pytest.mark.parametrize("number", [0, -1, 2**53 + 1, 2**64, 10**30, 0.1, 1e22, True])
def test_any_number_is_an_argument(number):
    result = tasks.nothing.enqueue(number)
    assert result.args == [number]
    if task_backends["default"].supports_get_result:
        assert get(result).args == [number]


FOREIGN = {
    "object": object(),
    "set": {1, 2},
    "datetime": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    "date": dt.date(2026, 1, 1),
    "Decimal": decimal.Decimal("1.5"),
    "UUID": uuid.UUID(int=1),
    "function": len,
}


@both_ways
@pytest.mark.parametrize("kind", FOREIGN)
def test_what_json_has_no_word_for_is_refused(enqueue, kind, heard):
    for args, kwargs in (((FOREIGN[kind],), {}), ((), {"key": FOREIGN[kind]}), (([{"a": FOREIGN[kind]}],), {})):
        with pytest.raises(TypeError):
            enqueue(tasks.nothing, *args, **kwargs)
    assert heard == []


@both_ways
def test_bytes_that_are_no_text_are_refused(enqueue):
    with pytest.raises(ValueError):
        enqueue(tasks.nothing, b"\xff")


AWKWARD = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "NUL": "a\0b",
    "NUL in a key": {"a\0b": 1},
    "surrogate": "a\ud800b",
    "surrogate in a key": {"\ud800": 1},
}


@pytest.mark.parametrize("kind", AWKWARD)
def test_what_storage_may_not_have_is_refused_with_a_word_or_kept(kind, heard):
    """PostgreSQL's JSON has no NaN and no NUL. An error of the database would spoil the caller's transaction."""
    value = AWKWARD[kind]
    try:
        with transaction.atomic():
            result = tasks.nothing.enqueue([value])
    except (TypeError, ValueError):
        assert heard == []
        return
    assert repr(result.args) == repr([[value]])
    if task_backends["default"].supports_get_result:
        assert repr(get(result).args) == repr([[value]])


@pytest.mark.parametrize("kind", AWKWARD)
def test_refused_arguments_leave_the_transaction_as_it_was(kind):
    with transaction.atomic():
        with contextlib.suppress(Exception):
            tasks.nothing.enqueue([AWKWARD[kind]])
        result = tasks.nothing.enqueue("again")
        if task_backends["default"].supports_get_result:
            assert get(result) == result


@pytest.mark.parametrize("value", [{1: "a"}, {None: 1}, {True: 1}, {1.5: 1}, [{"deep": {1: 2}}]], ids=str)
def test_keys_that_are_not_text_are_the_same_for_all_or_refused(value):
    """In memory they can be numbers; in JSON they are text. The caller and the task must not see different ones."""
    try:
        result = tasks.nothing.enqueue(value)
    except (TypeError, ValueError):
        return
    if task_backends["default"].supports_get_result:
        assert get(result).args == result.args
        assert json.loads(json.dumps(result.args)) == result.args


# Validation, again


@both_ways
def test_task_is_validated_again_when_it_is_enqueued(enqueue, alias, heard, caplog):
    """Settings may have changed since it was declared."""
    changed = tasks.add.using(queue_name="mail")
    alias("default", QUEUES=["default"])
    with caplog.at_level(logging.DEBUG, logger=FRAMEWORK), pytest.raises(InvalidTask, match="Queue 'mail'"):
        enqueue(changed, 1)
    assert heard == []
    assert [record.message for record in caplog.records if record.name == FRAMEWORK] == []


@both_ways
@pytest.mark.parametrize(
    ("flag", "declare"),
    [
        pytest.param("supports_priority", lambda: tasks.add.using(priority=1), marks=needs.priority),
        pytest.param("supports_defer", lambda: tasks.add.using(run_after=timezone.now() + HOUR), marks=needs.defer),
    ],
)
def test_flags_count_again_when_it_is_enqueued(enqueue, flag, declare, monkeypatch):
    changed = declare()
    monkeypatch.setattr(type(task_backends["default"]), flag, False)
    with pytest.raises(InvalidTask):
        enqueue(changed, 1)


# What is said


@both_ways
def test_signal_has_the_class_as_sender_and_the_result(enqueue, heard):
    result = enqueue(tasks.nothing)
    name, sender, said = heard[0]
    assert (name, sender) == ("task_enqueued", type(task_backends["default"]))
    assert (said.id, said.status, said.task) == (result.id, TaskResultStatus.READY, tasks.nothing)
    assert said.enqueued_at == result.enqueued_at is not None
    assert [name for name, _, _ in heard].count("task_enqueued") == 1


@both_ways
def test_receivers_of_both_kinds_are_told(enqueue, trace):
    result = enqueue(tasks.nothing)
    for what in ("signal", "async signal"):
        [said] = trace.read(what=what, signal="task_enqueued")
        assert (said["id"], said["raised"]) == (result.id, None)


@both_ways
def test_one_line_is_logged(enqueue, caplog):
    with caplog.at_level(logging.DEBUG, logger=FRAMEWORK):
        result = enqueue(tasks.nothing)
    record, *others = [record for record in caplog.records if record.name == FRAMEWORK]
    expected = f"Task id={result.id} path=tests.conformance.tasks.nothing enqueued backend=default"
    assert (record.levelname, record.getMessage()) == ("DEBUG", expected)
    assert not any("enqueued" in other.getMessage() for other in others)


@needs.results
@needs.later
def test_receiver_that_raises_leaves_all_or_nothing(trace):
    """The error reaches the caller, whose transaction is then rolled back; or it does not, and there is a task."""
    results = []
    try:
        with transaction.atomic():
            results.append(tasks.nothing.enqueue(receiver_raises_at="task_enqueued"))
    except RuntimeError:
        [said] = trace.read(what="signal", signal="task_enqueued")
        with pytest.raises(TaskResultDoesNotExist):
            task_backends["default"].get_result(said["id"])
    else:
        assert get(results[0]) == results[0]
    assert tasks.nothing.enqueue().id


# The caller's transaction


@needs.database
@needs.results
class TestTransaction:
    @both_ways
    def test_rolled_back_task_was_never_there(self, enqueue, transactional_db):
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            result = enqueue(tasks.nothing)
            assert get(result).id == result.id
            raise ZeroDivisionError
        with pytest.raises(TaskResultDoesNotExist):
            get(result)

    def test_rolled_back_savepoint_takes_its_task_alone(self, transactional_db):
        with transaction.atomic():
            before = tasks.nothing.enqueue()
            with pytest.raises(ZeroDivisionError), transaction.atomic():
                inside = tasks.nothing.enqueue()
                raise ZeroDivisionError
            after = tasks.nothing.enqueue()
        assert [get(before).id, get(after).id] == [before.id, after.id]
        with pytest.raises(TaskResultDoesNotExist):
            get(inside)

    def test_enqueueing_waits_for_no_commit(self, transactional_db, heard):
        with transaction.atomic():
            result = tasks.nothing.enqueue()
            assert [name for name, _, _ in heard] == ["task_enqueued"]
            assert get(result) == result

    def test_others_see_it_when_it_is_committed(self, transactional_db):
        enqueued, seen, looked = threading.Event(), [], threading.Event()
        results = []

        def look():
            try:
                enqueued.wait(PATIENCE_SECONDS)
                try:
                    seen.append(get(results[0]).id)
                except TaskResultDoesNotExist:
                    seen.append(None)
                looked.set()
            finally:
                connections.close_all()

        with beside(look), transaction.atomic():
            results.append(tasks.nothing.enqueue())
            enqueued.set()
            assert looked.wait(PATIENCE_SECONDS)
        enqueued.set()
        looked.clear()
        with beside(look):
            pass
        assert seen == [None, results[0].id]


@needs.database
def test_enqueueing_is_one_query(django_assert_num_queries):
    tasks.add.enqueue(1)  # whatever is asked once
    with django_assert_num_queries(1):
        tasks.add.enqueue(1, b=2)
    with django_assert_num_queries(1):
        async_to_sync(tasks.add.aenqueue)(1, b=2)
