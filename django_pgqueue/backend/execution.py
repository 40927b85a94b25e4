"""Requirements of the framework on a run: the context, its signals, and its rules for what a task returns."""

import datetime as dt
import functools
import inspect
import json
import logging
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.utils import timezone

from django_pgqueue.backend.results import PgQueueTaskResult, error_of, errors_of, task_of, worker_ids
from django_pgqueue.conf import conf
from django_pgqueue.exceptions import ResultRefused
from django_pgqueue.framework import (
    AnyTask,
    TaskContext,
    TaskResultStatus,
    asend,
    has_receiver,
    has_receivers,
    normalize_json,
    send,
    task_backends,
    task_finished,
    task_started,
)
from django_pgqueue.jobs.serialization import encode
from django_pgqueue.records import ClaimedJob, Fate, Outcome
from django_pgqueue.stored_values import read, read_object

_adapters: "dict[str, FrameworkTaskAdapter]" = {}


class FrameworkTaskAdapter:
    """The framework's part of a function that is one of its tasks."""

    def __init__(self, task: AnyTask) -> None:
        self.task = task  # as it was declared
        signature = inspect.signature(task.func)
        parameters = list(signature.parameters.values())
        self.signature = signature.replace(parameters=parameters[1:]) if task.takes_context else signature

    def begin(self, job: ClaimedJob) -> "FrameworkRun":
        return FrameworkRun(self.task, job)


def adapter_of(task: AnyTask) -> FrameworkTaskAdapter:
    """Return the adapter of a task; a module loaded again has new functions."""
    known = _adapters.get(task.module_path)
    if known is None or known.task.func is not task.func:
        known = _adapters[task.module_path] = FrameworkTaskAdapter(task)
    return known


class FrameworkRun:
    """One run of a job. A ``TaskResult`` is made where one is needed: by the task, or by a receiver."""

    def __init__(self, task: AnyTask, job: ClaimedJob) -> None:
        self._task = task
        self._job = job

    def arguments(self, args: list[Any]) -> list[Any]:
        return [TaskContext(task_result=self.task_result), *args] if self._task.takes_context else args

    def result(self, value: Any) -> str:
        try:
            return encode(normalized(value), what="result")
        except Exception as error:  # of an encoder or a value of the project, which may raise anything
            raise ResultRefused("Its return value cannot be stored") from error

    def tell_started(self) -> None:
        if has_receiver(task_started, logging.INFO):
            send(task_started, self._sender, self.task_result, level=logging.INFO)

    def tell_ended(self, outcome: Outcome) -> None:
        if self._is_told_of(outcome):
            send(task_finished, self._sender, self._ended(outcome), level=_level(outcome))

    async def atell_started(self) -> None:
        if has_receivers(task_started):
            await asend(task_started, self._sender, self.task_result, level=logging.INFO)
        else:
            self.tell_started()  # it only logs, and asend would take another thread for that

    async def atell_ended(self, outcome: Outcome) -> None:
        if not has_receivers(task_finished):
            self.tell_ended(outcome)
        elif outcome.fate is Fate.DIED:  # asend lets plain receivers see the exception from Django 6.1 on only
            await sync_to_async(self.tell_ended)(outcome)
        elif self._is_told_of(outcome):
            await asend(task_finished, self._sender, self._ended(outcome), level=_level(outcome))

    @functools.cached_property
    def task_result(self) -> PgQueueTaskResult:
        job, rest = self._job, self._rest
        history = rest.get("errors", [])
        enqueued_at = _instant(rest.get("enqueued_at"))
        started_at = _instant(rest.get("started_at")) or timezone.now()
        alias, run_at = self._alias, _instant(job.run_at)
        return PgQueueTaskResult(
            task=task_of(job, self._task, backend=alias, run_at=run_at, enqueued_at=enqueued_at),
            id=str(job.id),
            status=TaskResultStatus.RUNNING,
            enqueued_at=enqueued_at,
            started_at=_instant(rest.get("first_started_at")) or started_at,
            finished_at=None,
            last_attempted_at=started_at,
            args=read(job.args),
            kwargs=read(job.kwargs),
            backend=alias,
            errors=errors_of(history),
            worker_ids=worker_ids(history, job.attempt, current=rest.get("worker_id")),
        )

    @functools.cached_property
    def _rest(self) -> dict[str, Any]:
        return read_object(self._job.rest)

    @property
    def _alias(self) -> str:
        """That of the job; of its task, where the job has none, or ``TASKS`` has it no more."""
        alias: str = self._rest.get("backend", "")
        return alias if alias in task_backends.settings else self._task.backend

    @property
    def _sender(self) -> type:
        return type(task_backends[self._alias])

    def _is_told_of(self, outcome: Outcome) -> bool:
        if outcome.fate in (Fate.RETRIED, Fate.SNOOZED, Fate.RELEASED):
            return False
        return has_receiver(task_finished, _level(outcome))

    def _ended(self, outcome: Outcome) -> PgQueueTaskResult:
        result = self.task_result
        changes: dict[str, Any] = {"finished_at": timezone.now()}
        if outcome.fate is Fate.DIED:
            changes["status"] = TaskResultStatus.FAILED
            result.errors.append(error_of(outcome.error or {}))
        else:
            changes |= {"status": TaskResultStatus.SUCCESSFUL, "_return_value": json.loads(outcome.result or "null")}
        for name, value in changes.items():
            object.__setattr__(result, name, value)
        return result


def normalized(value: Any) -> Any:
    """Return a value in the types of JSON only, by ``JSON_ENCODER`` if need be; raise TypeError or ValueError."""
    try:
        return normalize_json(value)
    except (TypeError, ValueError):
        if conf.json_encoder is None:
            raise
        return json.loads(encode(value, what="value"))


def _level(outcome: Outcome) -> int:
    return logging.ERROR if outcome.fate is Fate.DIED else logging.INFO  # as the framework logs the end of a task


def _instant(value: str | float | None) -> dt.datetime | None:
    """Return an instant from JSON, or from seconds since 1970, as the database returns it otherwise."""
    if value is None:
        return None
    instant = dt.datetime.fromisoformat(value) if isinstance(value, str) else dt.datetime.fromtimestamp(value, dt.UTC)
    return instant if settings.USE_TZ else timezone.make_naive(instant)
