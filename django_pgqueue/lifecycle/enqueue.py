"""Put a job into the table, in the caller's transaction, and wake a worker once that has committed."""

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, overload

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_pgqueue import tasks
from django_pgqueue.base.conf import conf
from django_pgqueue.base.exceptions import InvalidJob
from django_pgqueue.base.hooks import Insertion, around_insert
from django_pgqueue.base.signals import announce, job_enqueued
from django_pgqueue.db import CallerConnection, Database, postgresql
from django_pgqueue.lifecycle import keyed
from django_pgqueue.lifecycle.context import current_job
from django_pgqueue.lifecycle.handle import JobHandle
from django_pgqueue.lifecycle.immediate import run_if_immediate
from django_pgqueue.lifecycle.payload import Call, check_signature, check_signatures, encode, encode_many
from django_pgqueue.lifecycle.redact import in_errors
from django_pgqueue.lifecycle.sql import statement
from django_pgqueue.lifecycle.wake import ADMIT, of_queue, wake, wake_to_admit

P = ParamSpec("P")

AnyTask = tasks.Task[..., Any] | str


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


def enqueue_one(
    task: tasks.Task[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    schedule_id: int | None = None,
) -> JobHandle:
    """Check the arguments and insert the job; ``Task.enqueue`` and ``enqueue`` end here."""
    check_signature(task, args, kwargs)
    inserted = _insert_one(task, args, kwargs, _of_caller(task, schedule_id=schedule_id))
    run_if_immediate(_database(task), inserted.ids)
    return JobHandle(inserted.ids[0], task.name, task.options.queue, _database(task), inserted.created[0])


def enqueue_tick(
    database: Database,
    task: tasks.Task[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    schedule_id: int,
    payloads: set[str],
    announcements: list[Callable[[], None]],
) -> int:
    """Insert the job of a schedule's tick in the transaction that is open on ``database``; return its id.

    Args:
        payloads: gets those of the wake-ups that are to be sent after the commit.
        announcements: gets what sends the signals, to be called likewise.
    """
    check_signature(task, args, kwargs)
    way = _Way(
        database,
        lambda queue: payloads.add(of_queue(queue)),
        lambda keys: payloads.update(ADMIT + key for key in keys),
        announcements.append,
        schedule_id,
    )
    return _insert_one(task, args, kwargs, way).ids[0]


def enqueue_many(task: AnyTask, calls: Iterable[tuple[Any, ...] | Mapping[str, Any]], /) -> list[int]:
    """Enqueue many jobs of one task with one statement, in the caller's transaction; all or none.

    Args:
        calls: for each job a tuple of positional arguments or a mapping of keyword arguments. Tens of thousands are
            fine; each is checked before anything is inserted.

    Returns:
        The ids, in the order of ``calls``. Of a call that met its twin, the id of that one.

    Raises:
        As ``enqueue``; the message of InvalidArguments names the position of the call.
    """
    task = _task(task)
    checked = arguments_of(calls)
    ids = insert_many(task, checked).ids if checked else []
    run_if_immediate(_database(task), ids)
    return ids


def insert_one(task: tasks.Task[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> keyed.Inserted:
    """Do what ``enqueue`` does, and say all that it came to."""
    check_signature(task, args, kwargs)
    return _insert_one(task, args, kwargs, _of_caller(task))


def insert_many(task: tasks.Task[..., Any], calls: Sequence[Call]) -> keyed.Inserted:
    """Do what ``enqueue_many`` does, for one call or more, and say all that it came to."""
    check_signatures(task, calls)
    way = _of_caller(task)
    if task.needs_control:
        return _insert_keyed(task, calls, way)
    with in_errors(task, calls):
        texts = {
            "number": len(calls),
            "args": encode_many([args for args, _ in calls], what="calls"),
            "kwargs": encode_many([kwargs for _, kwargs in calls], what="calls"),
        }
    return _insert("enqueue_many", task, texts, way)


def enqueue_on_commit(
    task: AnyTask,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    database: str,
) -> None:
    """Enqueue once the transaction open on another database has committed.

    For projects whose data and whose queue are in different databases. A crash between the two commits loses the job.
    So does an earlier ``on_commit`` function that raises and is not ``robust``: Django drops those behind it.

    Arguments are checked now; without an open transaction on ``database`` the job is enqueued at once.

    Args:
        database: the alias whose commit is waited for.

    Raises:
        As ``enqueue``, for what can be known now.
    """
    task, kwargs = _task(task), dict(kwargs or {})
    check_signature(task, args, kwargs)
    with in_errors(task, [(args, kwargs)]):
        encode(args, what="args")
        encode(kwargs, what="kwargs")
    transaction.on_commit(lambda: enqueue_one(task, args, kwargs), using=database)


def _insert_one(
    task: tasks.Task[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], way: "_Way"
) -> keyed.Inserted:
    if task.needs_control:
        return _insert_keyed(task, [(args, kwargs)], way)
    with in_errors(task, [(args, kwargs)]):
        texts = {
            "args": encode(args, what="args") if args else "[]",
            "kwargs": encode(kwargs, what="kwargs") if kwargs else "{}",
        }
    return _insert("enqueue", task, texts, way)


@dataclass(frozen=True, slots=True)
class _Way:
    """How jobs come into the table: by whose connection, on account of what, whom that wakes, and who is told when."""

    database: Database
    wake: Callable[[str], None]  # takes a queue
    wake_to_admit: Callable[[set[str]], None]  # takes concurrency keys
    tell: Callable[[Callable[[], None]], None]  # takes what sends the signal
    schedule_id: int | None = None


def _of_caller(task: tasks.Task[..., Any], *, schedule_id: int | None = None) -> _Way:
    alias = _database(task)
    tasks.warn_of_late(task)
    _warn_of_other_transactions(postgresql(alias))
    return _Way(
        CallerConnection(alias),
        functools.partial(wake, alias),
        functools.partial(wake_to_admit, alias),
        lambda announcement: announcement(),
        schedule_id,
    )


def _insert(name: str, task: tasks.Task[..., Any], texts: Mapping[str, Any], way: _Way) -> keyed.Inserted:
    with around_insert(task, texts.get("number", 1)) as seen:
        rows = sorted(way.database.rows(statement(name), {**texts, **_parameters(task, way, seen)}))
        ids = [job_id for job_id, *_ in rows]
        seen.inserted(ids)
    if rows[0][1]:
        way.wake(task.options.queue)
    _announce(task, ids, way)
    instants: dict[int, Sequence[Any]] = {job_id: times for job_id, _, *times in rows} if task.backend else {}
    return keyed.Inserted(ids, [True] * len(ids), instants=instants)


def _insert_keyed(task: tasks.Task[..., Any], calls: Sequence[Call], way: _Way) -> keyed.Inserted:
    with in_errors(task, calls):
        keyed_calls = [keyed.Keyed(args, kwargs, task.keys(args, kwargs)) for args, kwargs in calls]
        with around_insert(task, len(calls)) as seen:
            parameters = _parameters(task, way, seen) | _parameters_of_keys(task)
            parameters["in_transaction"] = way.database.in_transaction  # asked before a bulk opens one of its own
            if len(keyed_calls) == 1:
                inserted = keyed.insert(way.database, keyed_calls, parameters)
            else:
                inserted = keyed.insert_many(_database(task), keyed_calls, parameters)
            new = [job_id for job_id, is_new in zip(inserted.ids, inserted.created, strict=True) if is_new]
            seen.inserted(new)
    for queue in sorted(inserted.ready):
        way.wake(queue)
    if inserted.waiting:
        way.wake_to_admit(inserted.waiting)
    _announce(task, new, way)
    return inserted


def _parameters_of_keys(task: tasks.Task[..., Any]) -> dict[str, Any]:
    options = task.options
    return {
        "expires_at": options.expires_at,
        "expires_seconds": options.expires_seconds,
        "unique_scope": options.unique_scope,
        "unique_for_seconds": options.unique_for_seconds,
        "on_conflict": options.on_conflict,
        "tasks": [task.name, *task.aliases],
        "concurrency_limit": options.concurrency_limit,
        "concurrency_strict": options.concurrency_strict,
    }


def _parameters(task: tasks.Task[..., Any], way: _Way, seen: Insertion) -> dict[str, Any]:
    """Return what every statement that inserts jobs needs to know of the task."""
    options, parent = task.options, current_job()
    metadata = {**seen.metadata, **options.metadata}
    return {
        "task": task.name,
        "queue": options.queue,
        "priority": options.priority,
        "run_at": options.due_at,
        "delay_seconds": options.delay_seconds,
        "max_attempts": options.attempts_allowed,
        "lease_seconds": options.lease_seconds,
        "timeout_seconds": options.timeout_seconds,
        "keep": options.is_kept,
        "keep_seconds": options.keep_seconds,
        "parent_id": parent.id if parent else None,
        "schedule_id": way.schedule_id,
        "backend": task.backend,
        "metadata": encode(metadata, what="metadata") if metadata else "{}",
    }


def _announce(task: tasks.Task[..., Any], ids: list[int], way: _Way) -> None:
    if ids and job_enqueued.receivers:
        named = {"ids": ids, "task": task.name, "queue": task.options.queue, "database": _database(task)}
        way.tell(functools.partial(announce, job_enqueued, task.name, **named))


def _task(task: AnyTask) -> tasks.Task[..., Any]:
    found: tasks.Task[..., Any] = tasks.get(task) if isinstance(task, str) else tasks.native(task)
    return found


def _database(task: tasks.Task[..., Any]) -> str:
    return task.options.database or conf.database


def arguments_of(calls: Iterable[Any]) -> list[Call]:
    """Return calls as positional and keyword arguments.

    Raises:
        InvalidJob: one is neither a tuple nor a mapping; the message names its position.
    """
    return [_arguments(call, position) for position, call in enumerate(calls)]


def _arguments(call: Any, position: int) -> Call:
    if isinstance(call, tuple | list):
        return tuple(call), {}
    if isinstance(call, Mapping):
        return (), dict(call)
    raise InvalidJob(
        f"calls[{position}] is of the type {type(call).__name__}. Each call is a tuple of positional arguments, as in "
        "[(1,), (2,)], or a mapping of keyword arguments."
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
