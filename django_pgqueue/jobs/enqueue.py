"""Insert jobs in the caller's transaction, then wake workers and send signals."""

import contextlib
import functools
import inspect
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_pgqueue import registry
from django_pgqueue.conf import conf
from django_pgqueue.db.connections import CallerConnection, Database, postgresql
from django_pgqueue.db.notify import notify_keys, notify_queues, wake_up
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import InvalidArguments, InvalidOption
from django_pgqueue.flow.backlog import check_backlog, max_backlog
from django_pgqueue.jobs import unique
from django_pgqueue.jobs.context import find_current
from django_pgqueue.jobs.redaction import in_errors
from django_pgqueue.jobs.routing import route, shard_key_of
from django_pgqueue.jobs.serialization import Arguments, check_signature, encode, encode_many, numbered
from django_pgqueue.jobs.unique import InsertResult
from django_pgqueue.middleware import UNSEEN, Unseen, around_insert, surrounding
from django_pgqueue.outbox.writing import outbox_for, put
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.signals import announce, job_enqueued


class BoundCall(Protocol):
    """A task with arguments that fit its signature: ``tasks.Call``."""

    @property
    def task(self) -> TaskDefinition: ...
    @property
    def args(self) -> tuple[Any, ...]: ...
    @property
    def kwargs(self) -> Mapping[str, Any]: ...


class CheckedCall(NamedTuple):
    """A call whose arguments fit the signature."""

    task: TaskDefinition
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def insert_one(
    task: TaskDefinition, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, schedule_id: int | None = None
) -> InsertResult:
    """Insert one job in the caller's transaction and wake workers once that has committed; see ``enqueue``."""
    check_signature(task, args, kwargs)
    if conf.outboxes and (outbox := _outbox_of(task)):
        return _put(outbox, [CheckedCall(task, args, kwargs)], schedule_id)
    caller, options = _caller(task), task.options
    if schedule_id is None and max_backlog(options.queue):
        check_backlog(caller, {options.queue: 1})
    if options.run_at is None and not options.delay and not task.needs_control:
        caller.follow_up = wake_up(options.queue)
    inserted = insert(caller, task, args, kwargs, schedule_id=schedule_id)
    if caller.follow_up and caller.follow_up.is_done:
        inserted.ready.clear()  # woken already
    _notify(task, inserted)
    return inserted


def routed(calls: Iterable[BoundCall]) -> Sequence[BoundCall]:
    """Return calls with the databases that their jobs are put on; those without a key go together, where they may.

    Raises:
        ShardUnavailable, InvalidArguments, InvalidOption: as ``route``.
    """
    chosen: dict[str, str] = {}
    return [CheckedCall(route(one.task, one.args, one.kwargs, chosen), one.args, one.kwargs) for one in calls]


def insert_on_each(calls: Sequence[BoundCall], insert: Callable[[Sequence[BoundCall]], InsertResult]) -> InsertResult:
    """Insert the calls of each database in a transaction there, which are committed once all of them are in.

    A crash between two commits leaves the jobs of some databases, which the caller has not got the handles of; so does
    a commit that fails.

    Args:
        calls: as ``routed`` returns them.
        insert: inserts those of one database.
    """
    places: dict[str, list[int]] = {}
    for place, call in enumerate(calls):
        places.setdefault(call.task.database, []).append(place)
    if len(places) < 2:  # noqa: PLR2004 - several
        return insert(calls)
    ids, created = [0] * len(calls), [True] * len(calls)
    instants: dict[int, Sequence[Any]] = {}
    in_order = sorted(places, key=conf.number_of)  # so that no two callers wait for each other
    direct = [alias for alias in in_order if conf.immediate or not outbox_for(alias)]
    for alias in direct:  # before any of these transactions is open, which would be taken for the caller's
        _warn_of_other_transactions(postgresql(alias))
    with contextlib.ExitStack() as transactions:
        for alias in direct:
            transactions.enter_context(transaction.atomic(using=alias))
        for alias in in_order:
            inserted = insert([calls[place] for place in places[alias]])
            for place, job_id, is_new in zip(places[alias], inserted.ids, inserted.created, strict=True):
                ids[place], created[place] = job_id, is_new
            instants |= inserted.instants
    return InsertResult(ids, created, instants=instants)


def insert_many(task: TaskDefinition, calls: Sequence[Arguments]) -> InsertResult:
    """Insert a job of a task for each of one call or more, as ``insert_one``; all or none."""
    for args, kwargs in calls:
        check_signature(task, args, kwargs)
    if conf.outboxes and (outbox := _outbox_of(task)):
        return _put(outbox, [CheckedCall(task, *call) for call in calls])
    caller = _caller(task)
    check_backlog(caller, {task.options.queue: len(calls)})
    if task.needs_control:
        inserted = _insert_keyed(caller, task, calls, None)
    else:
        with in_errors((task, *call) for call in calls):
            texts = {
                "number": len(calls),
                "args": encode_many([args for args, _ in calls], what="calls"),
                "kwargs": encode_many([kwargs for _, kwargs in calls], what="calls"),
            }
        inserted = _insert(caller, "enqueue_many", task, calls, texts)
    _notify(task, inserted)
    return inserted


def insert_calls(calls: Sequence[BoundCall]) -> InsertResult:
    """Insert a job for each of one call or more, of any tasks and options, as ``insert_one``; all or none.

    Raises:
        InvalidOption: their tasks put jobs on several databases.
    """
    tasks = _by_task(calls)
    if conf.outboxes and (outbox := _outbox_of(*tasks)):
        return _put(outbox, calls)
    caller = _caller(*tasks)
    if any(max_backlog(task.options.queue) for task in tasks):
        check_backlog(caller, Counter(call.task.options.queue for call in calls))
    seen = {task: around_insert(task, of_task) for task, of_task in tasks.items()}
    with in_errors((call.task, call.args, call.kwargs) for call in calls), surrounding(seen.values()):
        insert = _insert_keyed_calls if any(task.needs_control for task in tasks) else _insert_calls
        inserted = insert(caller, calls, seen)
        is_told = job_enqueued.receivers or any(hook is not UNSEEN for hook in seen.values())
        of_each = _of_each_task(calls, inserted) if is_told else {}
        for task, result in of_each.items():
            seen[task].inserted(result.new_ids)
    _wake(caller.alias, inserted)
    for task, result in of_each.items():
        send_enqueued(task, result)
    return inserted


def _by_task(calls: Iterable[BoundCall]) -> dict[TaskDefinition, list[Arguments]]:
    """Return the arguments by task, in one pass: a task that using() has made is another, so there may be many."""
    found: dict[TaskDefinition, list[Arguments]] = {}
    for call in calls:
        found.setdefault(call.task, []).append((call.args, call.kwargs))
    return found


class Member(NamedTuple):
    """A call that makes a member of a stage."""

    call: BoundCall
    stage_id: int
    is_blocked: bool  # the stage is not open yet


def insert_members(members: Sequence[Member]) -> InsertResult:
    """Insert a job for each of one member or more, as ``insert_calls``; those of open stages may run at once."""
    calls = [member.call for member in members]
    tasks = _by_task(calls)
    caller = _caller(*tasks)
    if any(max_backlog(task.options.queue) for task in tasks):
        check_backlog(caller, Counter(one.call.task.options.queue for one in members if not one.is_blocked))
    seen = {task: around_insert(task, of_task) for task, of_task in tasks.items()}
    with in_errors((call.task, call.args, call.kwargs) for call in calls), surrounding(seen.values()):
        inserted = _insert_members(caller, members, seen)
        of_each = _of_each_task(calls, inserted)
        for task, result in of_each.items():
            seen[task].inserted(result.new_ids)
    _wake(caller.alias, inserted)
    for task, result in of_each.items():
        send_enqueued(task, result)
    return inserted


def _insert_members(
    caller: CallerConnection, members: Sequence[Member], seen: Mapping[TaskDefinition, Unseen]
) -> InsertResult:
    is_keyed = any(task.needs_control for task in seen)
    parameters_of = functools.partial(_parameters_with_keys, caller) if is_keyed else _parameters
    of_tasks = {task: parameters_of(task, hook, None) for task, hook in seen.items()}
    options = {
        (task, stage_id, is_blocked): {**of_tasks[task], "stage_id": stage_id, "is_blocked": is_blocked}
        for task, stage_id, is_blocked in dict.fromkeys((one.call.task, *one[1:]) for one in members)
    }
    chosen = [options[one.call.task, one.stage_id, one.is_blocked] for one in members]
    calls = [member.call for member in members]
    if is_keyed:
        keyed_calls = [
            unique.KeyedCall(call.args, call.kwargs, call.task.keys_of(call.args, call.kwargs), given)
            for call, given in zip(calls, chosen, strict=True)
        ]
        return unique.insert_many(caller.alias, keyed_calls)
    return _insert_each(caller, "enqueue_members", calls, chosen)


def _of_each_task(calls: Sequence[BoundCall], inserted: InsertResult) -> dict[TaskDefinition, InsertResult]:
    found: dict[TaskDefinition, InsertResult] = {}
    for call, job_id, is_new in zip(calls, inserted.ids, inserted.created, strict=True):
        of_task = found.setdefault(call.task, InsertResult([], []))
        of_task.ids.append(job_id)
        of_task.created.append(is_new)
    return found


def insert(
    database: Database,
    task: TaskDefinition,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    schedule_id: int | None = None,
) -> InsertResult:
    """Insert one job in the transaction that is open on ``database``, or in one of its own. Sends no notification.

    The arguments must fit the signature: see ``check_signature``.
    """
    if task.needs_control:
        return _insert_keyed(database, task, [(args, kwargs)], schedule_id)
    texts = encode_arguments(task, args, kwargs)
    return _insert(database, "enqueue", task, [(args, kwargs)], texts, schedule_id=schedule_id)


def send_enqueued(task: TaskDefinition, inserted: InsertResult) -> None:
    if job_enqueued.receivers and (ids := inserted.new_ids):
        named = {"ids": ids, "task": task.name, "queue": task.options.queue, "database": task.database}
        announce(job_enqueued, task.name, **named)


def check_call(task: TaskDefinition, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise what enqueueing would of arguments, keys and metadata."""
    check_signature(task, args, kwargs)
    encode_arguments(task, args, kwargs)
    encode(task.options.metadata, what="metadata")
    with in_errors([(task, args, kwargs)]):
        task.keys_of(args, kwargs)
    if conf.is_on_several(task.options.queue) and task.options.database is None:
        shard_key_of(task, args, kwargs)


def check_calls(calls: Sequence[BoundCall]) -> None:
    """Raise InvalidArguments unless jobs can be made of these calls."""
    for call in calls:
        check_signature(call.task, call.args, call.kwargs)
    with in_errors((call.task, call.args, call.kwargs) for call in calls):
        encode_many([call.args for call in calls], what="args")
        encode_many([call.kwargs for call in calls], what="kwargs")


def encode_arguments(task: TaskDefinition, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, str]:
    """Return the parameters ``args`` and ``kwargs``; raise InvalidArguments without sensitive values."""
    with in_errors([(task, args, kwargs)]):
        return {
            "args": encode(args, what="args") if args else "[]",
            "kwargs": encode(kwargs, what="kwargs") if kwargs else "{}",
        }


def arguments_of(calls: Iterable[Any]) -> list[Arguments]:
    """Return calls, tuples or mappings, as positional and keyword arguments; raise InvalidArguments at any other."""
    found: list[Arguments] = []
    for position, call in enumerate(calls):
        if isinstance(call, tuple | list):
            found.append((tuple(call), {}))
        elif isinstance(call, Mapping):
            found.append(((), dict(call)))
        else:
            raise InvalidArguments(
                f"calls[{position}] is of the type {type(call).__name__}. Each call is a tuple of positional "
                "arguments, as in [(1,), (2,)], or a mapping of keyword arguments."
            )
    return found


def _put(outbox: str, calls: Sequence[BoundCall], schedule_id: int | None = None) -> InsertResult:
    """Put calls into the outbox on the database with this alias, in the transaction that is open there."""
    seen = {task: around_insert(task, of_task) for task, of_task in _by_task(calls).items()}
    with in_errors((call.task, call.args, call.kwargs) for call in calls), surrounding(seen.values()):
        options = {
            task: json.dumps(_parameters(task, hook, schedule_id) | _parameters_of_keys(task), default=str)
            for task, hook in seen.items()
        }
        placed = put(outbox, calls[0].task.database, [_text_of(call, options[call.task]) for call in calls])
        inserted = InsertResult([job_id for job_id, _ in placed], [True] * len(placed))
        for call, (job_id, enqueued_at) in zip(calls, placed, strict=True):
            inserted.instants[job_id] = enqueued_at, call.task.options.due_from(enqueued_at)
        of_each = _of_each_task(calls, inserted)
        for task, of_task in of_each.items():
            seen[task].inserted(of_task.ids)
    for task, of_task in of_each.items():
        send_enqueued(task, of_task)
    return inserted


def _text_of(call: BoundCall, options: str) -> str:
    texts = encode_arguments(call.task, call.args, call.kwargs)
    keys = json.dumps(call.task.keys_of(call.args, call.kwargs))
    return f'{{"args": {texts["args"]}, "kwargs": {texts["kwargs"]}, "keys": {keys}, "options": {options}}}'


def _outbox_of(*tasks: TaskDefinition) -> str | None:
    return None if conf.immediate else outbox_for(_alias_of(*tasks))


def _caller(*tasks: TaskDefinition) -> CallerConnection:
    alias = _alias_of(*tasks)
    _warn_of_other_transactions(postgresql(alias))
    return CallerConnection(alias)


def _alias_of(*tasks: TaskDefinition) -> str:
    alias = tasks[0].database
    for task in tasks:
        registry.warn_of_late(task)
        if task.database != alias:
            raise InvalidOption(
                f"One statement inserts on one database, and {tasks[0].name} is enqueued on {alias!r}, {task.name} on "
                f"{task.database!r}. Enqueue the calls of each database by themselves."
            )
    return alias


def _notify(task: TaskDefinition, inserted: InsertResult) -> None:
    _wake(task.database, inserted)
    send_enqueued(task, inserted)


def _wake(alias: str, inserted: InsertResult) -> None:
    notify_queues(alias, inserted.ready)
    if inserted.limited:
        notify_keys(alias, inserted.limited)


def _insert(
    database: Database,
    name: str,
    task: TaskDefinition,
    calls: Sequence[Arguments],
    texts: Mapping[str, Any],
    *,
    schedule_id: int | None = None,
) -> InsertResult:
    with around_insert(task, calls) as seen:
        rows = sorted(database.rows(statement(name), {**texts, **_parameters(task, seen, schedule_id)}))
        ids = [job_id for job_id, *_ in rows]
        seen.inserted(ids)
    ready = {task.options.queue} if rows[0][1] else set()
    instants: dict[int, Sequence[Any]] = {job_id: times for job_id, _, *times in rows} if task.backend else {}
    return InsertResult(ids, [True] * len(ids), ready, instants=instants)


def _insert_calls(
    database: CallerConnection, calls: Sequence[BoundCall], seen: Mapping[TaskDefinition, Unseen]
) -> InsertResult:
    options = {task: _parameters(task, hook, None) for task, hook in seen.items()}
    return _insert_each(database, "enqueue_calls", calls, [options[call.task] for call in calls])


def _insert_each(
    database: CallerConnection, name: str, calls: Sequence[BoundCall], options: Sequence[Mapping[str, Any]]
) -> InsertResult:
    parameters = {
        "number": len(calls),
        "args": encode_many([call.args for call in calls], what="calls"),
        "kwargs": encode_many([call.kwargs for call in calls], what="calls"),
        **numbered(options),
    }
    rows = sorted(database.rows(statement(name), parameters))
    ready = {call.task for call, (_, is_ready) in zip(calls, rows, strict=True) if is_ready}
    return InsertResult([job_id for job_id, _ in rows], [True] * len(rows), {task.options.queue for task in ready})


def _insert_keyed_calls(
    database: CallerConnection, calls: Sequence[BoundCall], seen: Mapping[TaskDefinition, Unseen]
) -> InsertResult:
    options = {task: _parameters_with_keys(database, task, hook, None) for task, hook in seen.items()}
    keyed_calls = [
        unique.KeyedCall(call.args, call.kwargs, call.task.keys_of(call.args, call.kwargs), options[call.task])
        for call in calls
    ]
    return unique.insert_many(database.alias, keyed_calls)


def _insert_keyed(
    database: Database, task: TaskDefinition, calls: Sequence[Arguments], schedule_id: int | None
) -> InsertResult:
    with in_errors((task, *call) for call in calls), around_insert(task, calls) as seen:
        options = _parameters_with_keys(database, task, seen, schedule_id)
        keyed_calls = [unique.KeyedCall(args, kwargs, task.keys_of(args, kwargs), options) for args, kwargs in calls]
        if len(keyed_calls) == 1:
            inserted = unique.insert(database, keyed_calls)
        else:
            inserted = unique.insert_many(task.database, keyed_calls)
        seen.inserted(inserted.new_ids)
    return inserted


def _parameters_with_keys(
    database: Database, task: TaskDefinition, seen: Unseen, schedule_id: int | None
) -> dict[str, Any]:
    parameters = _parameters(task, seen, schedule_id) | _parameters_of_keys(task)
    parameters["in_transaction"] = database.in_transaction  # asked before a bulk opens one of its own
    return parameters


def _parameters_of_keys(task: TaskDefinition) -> dict[str, Any]:
    options, unique, limit = task.options, task.options.unique_rule, task.options.limit_rule
    return {
        "expires_at": options.expires_at,
        "expires_seconds": options.expires_seconds,
        "unique_until": unique.until,
        "unique_hold_seconds": unique.hold_seconds,
        "on_conflict": options.conflict,
        "tasks": [task.name, *task.aliases],
        "concurrency_limit": limit.running,
        "concurrency_strict": limit.strict,
    }


def _parameters(task: TaskDefinition, seen: Unseen, schedule_id: int | None) -> dict[str, Any]:
    options, parent = task.options, find_current()
    metadata = options.metadata if seen.metadata is None else seen.metadata
    return {
        **options.columns,
        "task": task.name,
        "run_at": options.due_at,
        "lease_seconds": options.lease_seconds,
        "parent_id": (parent.id or None) if parent else None,
        "schedule_id": schedule_id,
        "backend": task.backend,
        "metadata": encode(metadata, what="metadata") if metadata else "{}",
    }


def _warn_of_other_transactions(queue: BaseDatabaseWrapper) -> None:
    if queue.in_atomic_block or not queue.get_autocommit():
        return
    for connection in connections.all(initialized_only=True):
        if connection.alias != queue.alias and connection.in_atomic_block:
            warnings.warn(
                f"A job is enqueued on {queue.alias!r} inside atomic() on {connection.alias!r}: it stays even if that "
                f"rolls back. Use bind(…).enqueue_on_commit(using={connection.alias!r}), or PGQUEUE['OUTBOXES'].",
                stacklevel=_level_of_caller(),
            )


def _level_of_caller() -> int:
    level, frame = 0, inspect.currentframe()
    while frame and frame.f_globals.get("__name__", "").startswith("django_pgqueue."):
        level, frame = level + 1, frame.f_back
    return level
