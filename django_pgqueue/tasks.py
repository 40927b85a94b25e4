"""Tasks: ``@task`` makes them of functions, ``enqueue`` and its like put their jobs into the queue."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeVar, Unpack, overload

from django.db import transaction

from django_pgqueue import registry
from django_pgqueue.exceptions import ConfigurationError
from django_pgqueue.instrumentation import run_if_immediate
from django_pgqueue.jobs.enqueue import arguments_of, check_arguments, insert_many, insert_one
from django_pgqueue.jobs.handle import JobHandle
from django_pgqueue.keys import KeyBy, KeysBy
from django_pgqueue.options import OF_RULES, OF_TASKS, Options, TaskDeclaration, check_known
from django_pgqueue.registry import TaskAdapter, TaskDefinition

P = ParamSpec("P")
R = TypeVar("R")

HABITS = frozenset({"apply_async", "defer", "delay", "delay_on_commit", "send", "send_with_options"})  # of other queues


class Task(TaskDefinition, Generic[P, R]):
    """A function that can be enqueued. Calling it calls the function, here and now. Made by ``@task``."""

    do_not_call_in_templates = True  # where a template names it, Django would run it

    if TYPE_CHECKING:
        func: Callable[P, R]

    def __init__(self, func: Callable[P, R], **definition: Any) -> None:
        super().__init__(func, **definition)
        self.__doc__ = func.__doc__
        self.__module__ = func.__module__
        self.__name__: str = getattr(func, "__name__", self.name)
        self.__wrapped__ = func

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.func(*args, **kwargs)

    if not TYPE_CHECKING:  # for type checkers there is no other attribute

        def __getattr__(self, name: str) -> NoReturn:
            problem = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in HABITS:
                me = self.__name__
                problem += f". A job is made by {me}.enqueue(…); with options by {me}.using(…).enqueue(…)"
            raise AttributeError(problem, name=name, obj=self)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle:
        """Insert one job in the caller's transaction: it exists if and only if that commits.

        See ``django_pgqueue.enqueue`` for errors and for what happens without a transaction.
        """
        return enqueue_one(self, args, kwargs)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle:
        """Do what ``enqueue`` does from async code, on the connection that sync code of this context uses."""
        from asgiref.sync import sync_to_async  # noqa: PLC0415 - only async callers need it

        return await sync_to_async(self.enqueue, thread_sensitive=True)(*args, **kwargs)


@overload
def task(func: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(
    func: None = None, /, *, name: str | None = None, **options: Unpack[TaskDeclaration]
) -> Callable[[Callable[P, R]], Task[P, R]]: ...
def task(func: Callable[P, R] | None = None, /, *, name: str | None = None, **options: Unpack[TaskDeclaration]) -> Any:
    """Declare a module-level function, plain or ``async def``, as a task.

    Args:
        name: what stands in the table. Default: the function's dotted path.
        backoff: a function from the number of the failed attempt (from 1) to seconds, or a number of seconds.
            Default: 2, 4, 8 … up to an hour. Up to 10 % of jitter is added either way.
        discard_on: a class of exceptions, its dotted path, or several: one of them is raised as ``Discard`` is, the job
            goes to ``dead_jobs`` without another attempt.
        atomic: run the function in a transaction on the queue's database that also removes the job, so that both take
            effect exactly once. Not for ``async def``: Django has no async transactions.
        aliases: former names of the task.
        sensitive: names of arguments, or of keys in them, whose values are left out of the admin, the log and the
            history, besides those that ``PGQUEUE["SENSITIVE_PARAMETERS"]`` matches. True: all arguments.
        unique_by: computes the unique key of a job: a function of its arguments, which returns the key or None for
            none; or names of arguments, whose values make the key together with the task's name.
        concurrency_by: computes the concurrency key in the same way; made of names, it is shared by all tasks that
            compute it of the same names.
        fair_by: computes the fair key, likewise.
        options: see ``Options``: ``queue``, ``priority``, ``max_attempts``, ``timeout``, ``lease``, ``keep`` and more.

    Raises:
        ConfigurationError: the function is nested, a lambda or a method, the name is taken, or the options contradict.
        InvalidJob: an option is unknown, out of range or of the wrong type.
    """

    def declare(func: Callable[P, R]) -> Task[P, R]:
        check_known(options, of_tasks={*OF_TASKS, "name"})
        _check_function(func)
        return registry.register(make(func, name=name or f"{func.__module__}.{func.__qualname__}", **options))

    return declare if func is None else declare(func)


def make(
    func: Callable[P, R],
    *,
    name: str,
    unique_by: KeyBy = None,
    concurrency_by: KeyBy = None,
    fair_by: KeyBy = None,
    backend: str = "",
    adapter: TaskAdapter | None = None,
    **options: Any,
) -> Task[P, R]:
    """Make a task of what it was declared with, which is checked; see ``@task``. It is not registered yet."""
    signature = adapter.signature if adapter else inspect.signature(func)
    rules = {option: options.pop(option) for option in OF_RULES & options.keys()}
    return Task(
        func,
        name=name,
        options=Options(**options),
        keys_by=KeysBy.of(signature, name, unique=unique_by, concurrency=concurrency_by, fair=fair_by),
        signature=signature,
        backend=backend,
        adapter=adapter,
        **rules,
    )


AnyTask = TaskDefinition | str


@overload
def enqueue(task: Task[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle: ...
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
    task: TaskDefinition, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, schedule_id: int | None = None
) -> JobHandle:
    """Check the arguments and insert the job; ``Task.enqueue`` and ``enqueue`` end here."""
    inserted = insert_one(task, args, kwargs, schedule_id=schedule_id)
    run_if_immediate(task.database, inserted.ids)
    return JobHandle(inserted.ids[0], task.name, task.options.queue, task.database, inserted.created[0])


def enqueue_many(task: AnyTask, calls: Iterable[tuple[Any, ...] | Mapping[str, Any]], /) -> list[int]:
    """Enqueue many jobs of one task with one statement, in the caller's transaction; all or none.

    Args:
        calls: for each job a tuple of positional arguments or a mapping of keyword arguments. Tens of thousands are
            fine; each is checked before anything is inserted.

    Returns:
        The ids, in the order of ``calls``. Of a call that met its conflicting job, the id of that one.

    Raises:
        As ``enqueue``; the message of InvalidArguments names the position of the call.
    """
    task = _task(task)
    checked = arguments_of(calls)
    ids = insert_many(task, checked).ids if checked else []
    run_if_immediate(task.database, ids)
    return ids


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
    check_arguments(task, args, kwargs)
    transaction.on_commit(lambda: enqueue_one(task, args, kwargs), using=database)


def _task(task: AnyTask) -> TaskDefinition:
    found: TaskDefinition = registry.get(task) if isinstance(task, str) else registry.native(task)
    return found


def _check_function(func: Any) -> None:
    first = next(iter(inspect.signature(func).parameters), "") if callable(func) else "cls"
    is_inside = "." in getattr(func, "__qualname__", "").rpartition("<locals>.")[2]
    if inspect.ismethod(func) or not callable(func) or (is_inside and first in {"self", "cls"}):
        raise ConfigurationError(
            f"{getattr(func, '__qualname__', func)} is a method: a worker has no object, or class, to call it with. "
            "Define the task as a function at the top level of a module, and pass it the primary key of the object."
        )
