"""The backend: translates between the framework's tasks and jobs, and decides nothing."""

import contextlib
import datetime as dt
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from django.core.checks import CheckMessage

from django_pgqueue import registry
from django_pgqueue.backend.checks import problems_of
from django_pgqueue.backend.execution import FrameworkTaskAdapter, adapter_of, normalized
from django_pgqueue.backend.native_tasks import (
    BACKEND_OPTIONS,
    PgQueueTask,
    hints_on_keys,
    in_words_of_the_framework,
    native_of,
)
from django_pgqueue.backend.results import PgQueueTaskResult, gone, restored, run_after, seek, task_of, task_result_of
from django_pgqueue.backport import of_both
from django_pgqueue.conf import conf
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.exceptions import JobDoesNotExist
from django_pgqueue.framework import (
    AnyTask,
    BaseTaskBackend,
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultStatus,
    has_receiver,
    send,
    task_backends,
    task_enqueued,
)
from django_pgqueue.jobs.enqueue import (
    BoundCall,
    CheckedCall,
    arguments_of,
    insert_many,
    insert_on_each,
    insert_one,
    routed,
)
from django_pgqueue.jobs.lookup import JobState, find
from django_pgqueue.jobs.redaction import in_errors
from django_pgqueue.jobs.routing import route
from django_pgqueue.jobs.serialization import Arguments, check_keys, encode
from django_pgqueue.jobs.unique import InsertResult
from django_pgqueue.middleware import run_if_immediate

ID = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


class PgQueueBackend(BaseTaskBackend):
    """Runs the framework's tasks as jobs of django-pgqueue, in addition to its own.

    ``OPTIONS`` may hold any option of ``PgQueueTask`` but ``aliases`` and those of calls, for all tasks that do not say
    otherwise; ``tasks``, a dict of dicts of options by the dotted path of a task, which goes before them; ``database``,
    the alias that holds the queue's tables, by default ``PGQUEUE["DATABASE"]``; and ``task_modules``, the modules with
    tasks that are imported at the start in addition to the ``tasks.py`` of installed apps.
    """

    task_class: type[PgQueueTask] = PgQueueTask
    supports_defer = True
    supports_async_task = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._parameters = params

    @property
    def supports_get_result(self) -> bool:  # type: ignore[override]
        return conf.retention_days > 0

    # Tasks

    def validate_task(self, task: AnyTask) -> None:
        """Raise InvalidTask where the framework or the queue cannot take a task as it is."""
        if unknown := sorted(set(self.options) - BACKEND_OPTIONS):
            raise of_both(
                InvalidTask(
                    f"TASKS[{self.alias!r}]['OPTIONS'] has no key {', '.join(map(repr, unknown))}. "
                    f"{hints_on_keys(unknown)}Keys are: {', '.join(sorted(BACKEND_OPTIONS))}."
                )
            )
        run_after: dt.datetime | dt.timedelta | None = task.run_after
        if not isinstance(run_after, dt.datetime | dt.timedelta | None):
            raise of_both(InvalidTask(f"run_after is a datetime or a timedelta, not {run_after!r}."))
        is_delay = isinstance(run_after, dt.timedelta)
        if isinstance(run_after, dt.timedelta) and run_after < dt.timedelta():
            raise of_both(InvalidTask(f"run_after is a time from now, not one before it: {run_after!r}."))
        try:
            super().validate_task(restored(task, run_after=None) if is_delay else task)  # it knows no delays
        except InvalidTask as error:
            raise of_both(error) from None
        self.native(task)

    def native(self, task: AnyTask) -> "registry.TaskDefinition":
        return native_of(task, self.alias, self.options)

    def declare(self, task: AnyTask, *, anew: bool = False) -> "registry.TaskDefinition":
        """Register a task, so that workers find it; one made of it by ``using()`` changes nothing, unless ``anew``."""
        native, known = self.native(task), registry.find(task.module_path)
        if known is not None and known.func is task.func and not anew:
            return known
        adapter_of(task).task = task  # that of its results too
        with in_words_of_the_framework():
            return registry.register(native)

    def find_task(self, name: str) -> "registry.TaskDefinition | None":
        """Return the task of this name; one that is not registered too, if its module is loaded. Imports nothing."""
        if registry.find(name) is None and (found := seek(name)):
            self.declare(found)
            return registry.find(found.module_path)
        return registry.find(name)

    # Enqueueing

    def enqueue(self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> PgQueueTaskResult:  # type: ignore[override]
        """Insert one job in the caller's transaction: it exists if and only if that commits.

        Raises:
            InvalidTask: settings have changed so that the task is not valid any more.
            InvalidArguments: a TypeError. They do not fit the function, or are not JSON. Nothing was inserted.
            django.db.Error: as any other statement of the caller's transaction.
        """
        self.validate_task(task)
        native = self.native(task)
        with in_errors([(native, args, kwargs)]):
            call = _as_json(args, kwargs)
        native = route(native, *call)
        [result] = self._results(task, [call], insert_one(native, *call))
        send(task_enqueued, type(self), result, level=logging.DEBUG)
        self._run_if_immediate([result])
        return result

    def enqueue_many(
        self, task: AnyTask, calls: Iterable[tuple[Any, ...] | Mapping[str, Any]]
    ) -> list[PgQueueTaskResult]:
        """Enqueue many jobs of one task with one statement, in the caller's transaction; all or none.

        Args:
            calls: for each job a tuple of positional arguments or a mapping of keyword arguments.

        Returns:
            Their results, in the order of ``calls``.

        Raises:
            As ``enqueue``; the message of InvalidArguments names the position of the call.
        """
        self.validate_task(task)
        native, given = self.native(task), arguments_of(calls)
        with in_errors((native, *call) for call in given):
            wanted = [
                _as_json(args, kwargs, what=f"calls[{position}]") for position, (args, kwargs) in enumerate(given)
            ]
        if not wanted:
            return []
        inserted = self._insert_many(native, wanted)
        results = self._results(task, wanted, inserted)
        if has_receiver(task_enqueued, logging.DEBUG):
            for result in results:
                send(task_enqueued, type(self), result, level=logging.DEBUG)
        self._run_if_immediate(results)
        return results

    def _insert_many(self, native: "registry.TaskDefinition", calls: Sequence[Arguments]) -> InsertResult:
        if not conf.is_on_several(native.options.queue):
            return insert_many(native, calls)
        on_each = routed(CheckedCall(native, *call) for call in calls)
        return insert_on_each(on_each, _insert_of_one_task)

    def _run_if_immediate(self, results: Sequence[PgQueueTaskResult]) -> None:
        """Run jobs once they are committed, where the setting says so; those that were run at once have a result."""
        if conf.immediate:
            for alias, ids in groupby((int(result.id) for result in results), self._database_of):
                run_if_immediate(alias, list(ids))
            for result in results:
                with contextlib.suppress(TaskResultDoesNotExist):
                    result.refresh()

    def _results(self, task: AnyTask, calls: Sequence[Arguments], inserted: InsertResult) -> list[PgQueueTaskResult]:
        return [
            self._first_result(task, call, job_id, inserted.instants[job_id])
            if is_new
            else self._result_of_conflict(task, call, job_id)
            for call, job_id, is_new in zip(calls, inserted.ids, inserted.created, strict=True)
        ]

    def _result_of_conflict(self, task: AnyTask, call: Arguments, job_id: int) -> PgQueueTaskResult:
        """Return the result of the job that has the unique key; it may be gone by now, and leave nothing."""
        try:
            return self._result_of(find(CallerConnection(self._database_of(job_id)), job_id))
        except JobDoesNotExist:
            return self._first_result(task, call, job_id, (None, None))

    def _first_result(self, task: AnyTask, call: Arguments, job_id: int, instants: Sequence[Any]) -> PgQueueTaskResult:
        args, kwargs = call
        enqueued_at, run_at = instants
        is_moved = task.run_after is None and run_at != enqueued_at  # by a head start, or a turn
        if task.backend != self.alias or isinstance(task.run_after, dt.timedelta) or is_moved:
            task = restored(task, backend=self.alias, run_after=run_after(run_at, enqueued_at))
        return PgQueueTaskResult(
            task=task,
            id=str(job_id),
            status=TaskResultStatus.READY,
            enqueued_at=enqueued_at,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )

    # Results

    def get_result(self, result_id: str) -> PgQueueTaskResult:
        """Return the result of a job of the framework, of any alias, by one query.

        Raises:
            TaskResultDoesNotExist: there is no such job, or nothing is kept of it any more; the id is not valid; the
                task is not one of the framework.
        """
        if not ID.fullmatch(str(result_id)):
            raise of_both(TaskResultDoesNotExist(result_id))
        try:
            state = find(CallerConnection(self._database_of(int(result_id))), int(result_id))
        except JobDoesNotExist as error:
            raise of_both(TaskResultDoesNotExist(result_id)) from error
        if not state.backend and self._declared(state.task) is None:
            told = f"Job {result_id} is one of the native task {state.task}: its handle is jobs.get({result_id})."
            raise of_both(TaskResultDoesNotExist(told))
        return self._result_of(state)

    def _result_of(self, state: JobState) -> PgQueueTaskResult:
        alias = state.backend if state.backend in task_backends.settings else self.alias
        task = self._declared(state.task) or gone(state.task)
        task = task_of(state, task, backend=alias, run_at=state.run_at, enqueued_at=state.enqueued_at)
        return task_result_of(state, task, backend=alias)

    def _declared(self, name: str) -> AnyTask | None:
        native = self.find_task(name)
        return native.adapter.task if native and isinstance(native.adapter, FrameworkTaskAdapter) else None

    def _database_of(self, job_id: int) -> str:
        return conf.database_of(job_id, self.options.get("database"))

    # Checks

    def check(self, **_: Any) -> list[CheckMessage]:
        return [*super().check(), *problems_of(self.alias, self._parameters)]


def _insert_of_one_task(calls: Sequence[BoundCall]) -> InsertResult:
    return insert_many(calls[0].task, [(call.args, call.kwargs) for call in calls])


def _as_json(args: Sequence[Any], kwargs: Mapping[str, Any], *, what: str = "") -> Arguments:
    """Return arguments as the task will get them; raise InvalidArguments with the path. ``what``: one call of many."""
    try:
        call = tuple(normalized(list(args))), normalized(dict(kwargs))
    except (TypeError, ValueError, RecursionError):
        encode(args, what=what or "args")
        encode(kwargs, what=what or "kwargs")
        raise
    checked = (
        [call] if conf.json_encoder is None else [(args, kwargs), call]
    )  # an encoder has made texts of keys by now
    for positional, named in checked:
        check_keys(positional, what=what or "args")
        check_keys(named, what=what or "kwargs")
    return call
