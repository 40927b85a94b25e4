"""Put a job into the table, in the caller's transaction, and wake a worker once that has committed."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, overload

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_pgqueue import tasks
from django_pgqueue.base.conf import conf
from django_pgqueue.base.exceptions import InvalidJob
from django_pgqueue.base.signals import job_enqueued
from django_pgqueue.db import CallerConnection, postgresql
from django_pgqueue.lifecycle.context import current_job
from django_pgqueue.lifecycle.payload import Call, check_signature, check_signatures, encode, encode_many
from django_pgqueue.lifecycle.sql import statement
from django_pgqueue.lifecycle.wake import wake

P = ParamSpec("P")

AnyTask = tasks.Task[..., Any] | str


@dataclass(frozen=True, slots=True)
class JobHandle:
    """A job that was enqueued.

    Attributes:
        id: its id for life, whichever table it is in.
        task: the task's name.
        queue: the queue it was put on.
        database: the alias it was put on.
    """

    id: int
    task: str
    queue: str
    database: str


@overload
def enqueue(task: tasks.Task[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle: ...
@overload
def enqueue(task: str, /, *args: Any, **kwargs: Any) -> JobHandle: ...
def enqueue(task: AnyTask, /, *args: Any, **kwargs: Any) -> JobHandle:
    """Enqueue one job of a task, or of the task with this name.

    The job is inserted by one statement in the caller's transaction on the queue's database: it exists if and only if
    that commits, and no worker sees it before. Idle workers are woken after the commit. Without a transaction the job
    is there when the call returns.

    Returns:
        The handle with the job's id.

    Raises:
        UnknownTask: no task has this name.
        InvalidArguments: the arguments do not fit the signature or are not JSON. Nothing was inserted.
        ConfigurationError: the queue's database is missing or not PostgreSQL.
        django.db.Error: as any other statement of the caller's transaction.
    """
    return enqueue_one(_task(task), args, kwargs)


def enqueue_one(task: tasks.Task[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> JobHandle:
    """Check the arguments and insert the job; ``Task.enqueue`` and ``enqueue`` end here."""
    check_signature(task, args, kwargs)
    texts = {
        "args": encode(args, what="args") if args else "[]",
        "kwargs": encode(kwargs, what="kwargs") if kwargs else "{}",
    }
    [job_id] = _insert("enqueue", task, texts)
    return JobHandle(job_id, task.name, task.options.queue, _database(task))


def enqueue_many(task: AnyTask, calls: Iterable[tuple[Any, ...] | Mapping[str, Any]], /) -> list[int]:
    """Enqueue many jobs of one task with one statement, in the caller's transaction; all or none.

    Args:
        calls: for each job a tuple of positional arguments or a mapping of keyword arguments. Tens of thousands are
            fine; each is checked before anything is inserted.

    Returns:
        The ids, in the order of ``calls``.

    Raises:
        As ``enqueue``; the message of InvalidArguments names the position of the call.
    """
    task = _task(task)
    checked = [_arguments(call, position) for position, call in enumerate(calls)]
    check_signatures(task, checked)
    if not checked:
        return []
    texts = {
        "number": len(checked),
        "args": encode_many([args for args, _ in checked], what="calls"),
        "kwargs": encode_many([kwargs for _, kwargs in checked], what="calls"),
    }
    return sorted(_insert("enqueue_many", task, texts))


def enqueue_on_commit(
    task: AnyTask,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    database: str,
) -> None:
    """Enqueue once the transaction open on another database has committed.

    For projects whose data and whose queue are in different databases: a crash between the two commits loses the job.
    Arguments are checked now; without an open transaction on ``database`` the job is enqueued at once.

    Args:
        database: the alias whose commit is waited for.

    Raises:
        As ``enqueue``, for what can be known now.
    """
    task, kwargs = _task(task), dict(kwargs or {})
    check_signature(task, args, kwargs)
    encode(args, what="args")
    encode(kwargs, what="kwargs")
    transaction.on_commit(lambda: enqueue_one(task, args, kwargs), using=database)


def _insert(name: str, task: tasks.Task[..., Any], texts: Mapping[str, Any]) -> list[int]:
    options, alias, parent = task.options, _database(task), current_job()
    connection = postgresql(alias)
    _warn_of_other_transactions(connection)
    parameters = {
        **texts,
        "task": task.name,
        "queue": options.queue,
        "priority": options.priority,
        "run_at": options.due_at,
        "delay_seconds": options.delay_seconds,
        "max_attempts": options.attempts_allowed,
        "lease_seconds": options.lease_seconds,
        "timeout_seconds": options.timeout_seconds,
        "keep": options.keep,
        "parent_id": parent.id if parent else None,
        "metadata": encode(dict(options.metadata), what="metadata") if options.metadata else "{}",
    }
    rows = CallerConnection(alias).rows(statement(name), parameters)
    ids = [job_id for job_id, _ in rows]
    if rows[0][1]:
        wake(alias, options.queue)
    if job_enqueued.receivers:
        job_enqueued.send_robust(task.name, ids=ids, task=task.name, queue=options.queue, database=alias)
    return ids


def _task(task: AnyTask) -> tasks.Task[..., Any]:
    return tasks.get(task) if isinstance(task, str) else task


def _database(task: tasks.Task[..., Any]) -> str:
    return task.options.database or conf.database


def _arguments(call: Any, position: int) -> Call:
    if isinstance(call, tuple | list):
        return tuple(call), {}
    if isinstance(call, Mapping):
        return (), dict(call)
    raise InvalidJob(
        f"calls[{position}] is {call!r}. Each call is a tuple of positional arguments, as in [(1,), (2,)], or a "
        "mapping of keyword arguments."
    )


def _warn_of_other_transactions(queue: BaseDatabaseWrapper) -> None:
    if queue.in_atomic_block or not queue.get_autocommit():
        return
    for connection in connections.all(initialized_only=True):
        if connection.alias != queue.alias and connection.in_atomic_block:
            warnings.warn(
                f"A job is enqueued on {queue.alias!r} inside atomic() on {connection.alias!r}: it stays even if that "
                f"rolls back. Use enqueue_on_commit(…, database={connection.alias!r}).",
                stacklevel=5,
            )
