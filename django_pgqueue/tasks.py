"""Tasks: ``@task`` makes them of functions, ``bind`` makes calls of them, ``enqueue`` and its like make jobs."""

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, NoReturn, ParamSpec, TypeVar, Unpack, overload

from django.db import transaction

from django_pgqueue import registry
from django_pgqueue.conf import conf
from django_pgqueue.exceptions import ConfigurationError, InvalidOption
from django_pgqueue.jobs.context import JobContext, current_job
from django_pgqueue.jobs.enqueue import (
    arguments_of,
    check_call,
    insert_calls,
    insert_many,
    insert_on_each,
    insert_one,
    routed,
)
from django_pgqueue.jobs.handle import JobHandle, JobHandles, holder_of
from django_pgqueue.jobs.redaction import in_errors, shown
from django_pgqueue.jobs.routing import route
from django_pgqueue.jobs.serialization import check_signature
from django_pgqueue.middleware import run_if_immediate
from django_pgqueue.options import OF_RULES, OF_TASKS, TaskOptions, check_known
from django_pgqueue.registry import TaskAdapter, TaskDefinition

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)  # of a plain function; what a coroutine returns is T
T = TypeVar("T")

AnyArguments = tuple[Any, ...] | Mapping[str, Any]  # of one job: positional ones, or those by name

ENQUEUE = "A job is made by {me}.enqueue(…); with options by {me}.using(…).enqueue(…)"
BIND = "A call with its arguments is {me}.bind(…)"
HABITS = {  # attributes of tasks of other queues
    **dict.fromkeys(("apply_async", "defer", "delay", "delay_on_commit", "send", "send_with_options"), ENQUEUE),
    **dict.fromkeys(("s", "si", "signature"), BIND),
    "apply": "The function is called by {me}(…); in a test, as that of a job, by run_job({me}.bind(…))",
    "retry": "The next attempt is asked for by raise Retry(delay=…)",
    "request": "The job that is running is current_job()",
}


class Task(TaskDefinition, Generic[P, R_co]):
    """A function that can be enqueued. Calling it calls the function, here and now. Made by ``@task``.

    Attributes:
        name: the name in the table: the dotted path of the function, or the ``name`` of ``@task``.
        func: the function itself.
        signature: the ``inspect.Signature`` of the arguments, without the context.
        is_async: whether the function is an ``async def``.
        takes_context: as given to ``@task``.
        atomic: as given.
        aliases: as given, a tuple.
        sensitive_parameters: as given, a frozenset, with the names of Django's ``@sensitive_variables``. True: all.
        backend: alias in ``TASKS`` of the backend that enqueues it; "": none.

    Only attributes that are listed here, and the properties and methods below, are public.
    """

    do_not_call_in_templates = True  # where a template names it, Django would run it

    if TYPE_CHECKING:
        func: Callable[P, R_co]

    def __init__(self, func: Callable[P, R_co], **definition: Any) -> None:
        super().__init__(func, **definition)
        self.__doc__ = func.__doc__
        self.__module__ = func.__module__
        self.__name__: str = getattr(func, "__name__", self.name)
        self.__wrapped__ = func

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        func: Callable[..., R_co] = self.func
        return func(JobContext(current_job()), *args, **kwargs) if self.takes_context else func(*args, **kwargs)

    @overload
    def call(self: "Task[P, Coroutine[Any, Any, T]]", *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def call(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    def call(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function, here and now, from plain code, as ``call`` of Django's tasks: also an ``async def``."""
        from asgiref.sync import async_to_sync  # noqa: PLC0415 - only callers of coroutines need it

        return async_to_sync(self.acall)(*args, **kwargs) if self.is_async else self(*args, **kwargs)

    @overload
    async def acall(self: "Task[P, Coroutine[Any, Any, T]]", *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def acall(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    async def acall(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function, here and now, from async code: a plain one in the thread of sync code."""
        called: Any = self(*args, **kwargs) if self.is_async else _in_sync(self.__call__, *args, **kwargs)
        return await called

    if not TYPE_CHECKING:  # for type checkers there is no other attribute

        def __getattr__(self, name: str) -> NoReturn:
            problem = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in HABITS:
                problem += f". {HABITS[name].format(me=self.__name__)}"
            raise AttributeError(problem, name=name, obj=self)

    @overload
    def enqueue(self: "Task[P, Coroutine[Any, Any, T]]", *args: P.args, **kwargs: P.kwargs) -> JobHandle[T]: ...
    @overload
    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R_co]: ...
    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[Any]:
        """Insert one job in the caller's transaction: it exists if and only if that commits.

        See ``django_pgqueue.enqueue`` for errors and for what happens without a transaction.
        """
        return enqueue_one(self, args, kwargs)

    @overload
    async def aenqueue(self: "Task[P, Coroutine[Any, Any, T]]", *args: P.args, **kwargs: P.kwargs) -> JobHandle[T]: ...
    @overload
    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R_co]: ...
    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[Any]:
        """Do what ``enqueue`` does from async code, on the connection that sync code of this context uses."""
        return await _in_sync(enqueue_one, self, args, kwargs)

    @overload
    def enqueue_many(
        self: "Task[P, Coroutine[Any, Any, T]]", calls: Iterable[AnyArguments], /
    ) -> Sequence[JobHandle[T]]: ...
    @overload
    def enqueue_many(self, calls: Iterable[AnyArguments], /) -> Sequence[JobHandle[R_co]]: ...
    def enqueue_many(self, calls: Iterable[AnyArguments], /) -> Sequence[JobHandle[Any]]:
        """Enqueue many jobs with one statement, in the caller's transaction; all or none.

        Args:
            calls: for each job a tuple of positional arguments or a mapping of keyword arguments. Tens of thousands
                are fine; each is checked before anything is inserted.

        Returns:
            Their handles, in the order of ``calls``. Of a call that met its conflicting job, the handle of that one.

        Raises:
            InvalidArguments: those of a call do not fit; the message names its position. The others as ``enqueue``.
        """
        wanted = arguments_of(calls)
        if not wanted:
            return []
        if conf.is_on_several(self.options.queue):
            return _enqueue_on_each([Call(self, args, kwargs) for args, kwargs in wanted])
        inserted = insert_many(self, wanted)
        run_if_immediate(self.database, inserted.ids)
        return JobHandles(inserted, [self] * len(wanted))

    @overload
    async def aenqueue_many(
        self: "Task[P, Coroutine[Any, Any, T]]", calls: Iterable[AnyArguments], /
    ) -> Sequence[JobHandle[T]]: ...
    @overload
    async def aenqueue_many(self, calls: Iterable[AnyArguments], /) -> Sequence[JobHandle[R_co]]: ...
    async def aenqueue_many(self, calls: Iterable[AnyArguments], /) -> Sequence[JobHandle[Any]]:
        """Do what ``enqueue_many`` does from async code."""
        return await _in_sync(self.enqueue_many, calls)

    @overload
    def bind(self: "Task[P, Coroutine[Any, Any, T]]", *args: P.args, **kwargs: P.kwargs) -> "Call[T]": ...
    @overload
    def bind(self, *args: P.args, **kwargs: P.kwargs) -> "Call[R_co]": ...
    def bind(self, *args: P.args, **kwargs: P.kwargs) -> "Call[Any]":
        """Return the call of this task with these arguments as a value. Nothing is enqueued by it.

        Raises:
            InvalidArguments: the arguments do not fit the signature.
        """
        check_signature(self, args, kwargs)
        return Call(self, args, kwargs)


@dataclass(frozen=True, slots=True, repr=False)
class Call(Generic[R_co]):
    """A task with the arguments of one job, made by ``Task.bind``: for ``enqueue_many``, schedules and assertions.

    Attributes:
        task: the task, with the options given by ``using``.
        args: positional arguments. Do not change mutable ones before the call is enqueued.
        kwargs: keyword arguments; the same holds.
    """

    task: Task[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def __init__(self, task: Task[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        _set_task(self, task)
        _set_args(self, args)
        _set_kwargs(self, kwargs)

    def __repr__(self) -> str:
        args, kwargs = shown(self.task, self.args, self.kwargs)
        positional = [*map(repr, args)] if isinstance(args, list) else [f"*{args}"]
        named = [f"{key}={value!r}" for key, value in kwargs.items()] if isinstance(kwargs, dict) else [f"**{kwargs}"]
        return f"<Call {self.task.name}({', '.join([*positional, *named])})>"

    def enqueue(self) -> JobHandle[R_co]:
        """Insert the job in the caller's transaction, as ``Task.enqueue``."""
        return enqueue_one(self.task, self.args, self.kwargs)

    async def aenqueue(self) -> JobHandle[R_co]:
        """Do what ``enqueue`` does from async code."""
        return await _in_sync(self.enqueue)

    def find(self) -> JobHandle[R_co] | None:
        """Return the live job that holds the unique key of this call, by one query; None: there is none.

        That is the job which enqueueing the call would have returned.

        Raises:
            InvalidOption: the call has no unique key.
            InvalidArguments: the arguments do not fit the signature.
        """
        check_signature(self.task, self.args, self.kwargs)
        with in_errors([(self.task, self.args, self.kwargs)]):
            key = self.task.keys_of(self.args, self.kwargs).unique
        if key is None:
            raise InvalidOption(f"This call of {self.task.name} has no unique key to be found by: see unique.")
        return holder_of(key, route(self.task, self.args, self.kwargs).database)

    async def afind(self) -> JobHandle[R_co] | None:
        """Do what ``find`` does from async code."""
        return await _in_sync(self.find)

    def enqueue_on_commit(self, using: str) -> None:
        """Enqueue once the transaction open on another database has committed.

        For projects whose data and whose queue are in different databases. A crash between the two commits loses the
        job. So does an earlier ``on_commit`` function that raises and is not ``robust``: Django drops those behind it.

        Arguments, keys and metadata are checked now. Without an open transaction on ``using`` the job is enqueued at
        once.

        Args:
            using: the alias whose commit is waited for.

        Raises:
            InvalidArguments: they do not fit the signature or are not JSON.
            InvalidOption: a key that the task computes cannot be one. The others as ``enqueue``.
        """
        check_call(self.task, self.args, self.kwargs)
        transaction.on_commit(lambda: enqueue_one(self.task, self.args, self.kwargs), using=using)


# Calls are made by the thousand, and this way takes half as long as the one of frozen dataclasses.
_set_task, _set_args, _set_kwargs = (getattr(Call, name).__set__ for name in Call.__dataclass_fields__)


async def _in_sync(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    from asgiref.sync import sync_to_async  # noqa: PLC0415 - only async callers need it

    return await sync_to_async(function, thread_sensitive=True)(*args, **kwargs)


class TaskDecorator:
    """Declares a module-level function, plain or ``async def``, as a task: ``@task``, or ``@task(queue="mails")``.

    With options it is such a decorator again, to be kept and to be given others: ``mail_task = task(queue="mails")``,
    then ``@mail_task`` or ``@mail_task(timeout=120)``. Of an option given twice the later value holds.

    Args:
        name: the name in the table. Default: the function's dotted path.
        takes_context: whether the function gets a ``JobContext`` as its first argument, which is called ``context``. It
            is not among the arguments with which the task is enqueued or called.
        backoff: the wait after a failed attempt: seconds or a timedelta, or a function of the number of that attempt
            (from 1), or of the number and the exception, that returns seconds. Default: ``exponential()``, 2, 4, 8
            … up to an hour. The wait is made up to 10 % shorter or longer at random.
        max_snoozes: 1 to 32767; how often a job may raise ``Snooze``. With the next one it dies as exhausted. None:
            that of ``PGQUEUE["TASK_DEFAULTS"]``, else as often as it likes.
        discard_on: a class of exceptions, its dotted path, or several: one of them is raised as ``Discard`` is, the job
            goes to ``dead_jobs`` without another attempt.
        atomic: run the function in a transaction on the queue's database that also removes the job, so that both take
            effect exactly once. Not for ``async def``: Django has no async transactions.
        aliases: former names of the task, the oldest first: with that begin the keys that it computes.
        sensitive_parameters: names of arguments, or of keys in them, whose values are left out of the admin, the log
            and the history, in addition to those of Django's ``@sensitive_variables`` below ``@task`` and those that
            ``PGQUEUE["SENSITIVE_PARAMETERS"]`` matches. True: all arguments.
        capture_logs: store the log lines of a run with its job, from this level on: ``"INFO"``, ``"WARNING"`` and so
            on. False: none. None: that of ``PGQUEUE["TASK_DEFAULTS"]``, else none.
        options: see ``Options``: ``queue``, ``priority``, ``max_attempts``, ``timeout``, ``lease``, ``keep_result``,
            ``unique``, ``limit``, ``fair`` and more.

    Raises:
        ConfigurationError: the function is nested, a lambda or a method, the name is taken, or the options contradict.
        InvalidOption: an option is unknown, out of range or of the wrong type.
    """

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self._options = dict(options or {})

    def __repr__(self) -> str:
        return f"task({', '.join(f'{name}={value!r}' for name, value in self._options.items())})"

    @overload
    def __call__(self, func: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def __call__(
        self, /, *, takes_context: Literal[True], name: str | None = None, **options: Unpack[TaskOptions]
    ) -> "ContextTaskDecorator": ...
    @overload
    def __call__(
        self, /, *, takes_context: Literal[False] = False, name: str | None = None, **options: Unpack[TaskOptions]
    ) -> "TaskDecorator": ...
    def __call__(self, func: Any = None, /, **options: Any) -> Any:
        return _declared(self._options, func, options)


class ContextTaskDecorator(TaskDecorator):
    """``task(takes_context=True)``: declares a function whose first argument is a ``JobContext``."""

    @overload  # type: ignore[override]
    def __call__(self, func: Callable[Concatenate[JobContext, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(
        self, /, *, takes_context: Literal[True] = True, name: str | None = None, **options: Unpack[TaskOptions]
    ) -> "ContextTaskDecorator": ...
    def __call__(self, func: Any = None, /, **options: Any) -> Any:
        return _declared(self._options, func, options)


task: TaskDecorator = TaskDecorator()


def _declared(options: Mapping[str, Any], func: Any, more: Mapping[str, Any]) -> Any:
    """Return the task of a function, or the decorator with more options, which are checked when it is applied."""
    options = {**options, **more}
    if func is None:
        return (ContextTaskDecorator if options.get("takes_context") else TaskDecorator)(options)
    if isinstance(func, str):
        raise ConfigurationError(f"@task is given the text {func!r}. Options have names, as in @task(name={func!r}).")
    check_known(options, of_tasks={*OF_TASKS, "name", "takes_context"})
    _check_function(func)
    name = options.pop("name", None) or f"{func.__module__}.{func.__qualname__}"
    return registry.register(make(func, name=name, **options))


def make(
    func: Callable[P, R],
    *,
    name: str,
    backend: str = "",
    adapter: TaskAdapter | None = None,
    takes_context: bool = False,
    **options: Any,
) -> Task[P, R]:
    """Make a task of a function and its options, which are checked; see ``@task``. It is not registered yet."""
    signature = adapter.signature if adapter else _signature(func, takes_context=takes_context)
    rules = {option: options.pop(option) for option in OF_RULES & options.keys()}
    return Task(
        func,
        name=name,
        given=options,
        signature=signature,
        backend=backend,
        adapter=adapter,
        takes_context=takes_context,
        **rules,
    )


def _signature(func: Callable[..., Any], *, takes_context: bool) -> inspect.Signature:
    """Return that of a task's arguments, without the context."""
    signature = inspect.signature(func)
    if not takes_context:
        return signature
    parameters = list(signature.parameters.values())
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not parameters or parameters[0].name != "context" or parameters[0].kind not in by_position:
        raise ConfigurationError(
            f"{func.__qualname__} takes a context, by takes_context=True, but its first parameter is not context: "
            f"it takes {signature}."
        )
    return signature.replace(parameters=parameters[1:])


AnyTask = TaskDefinition | str


@overload
def enqueue(task: Task[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[T]: ...
@overload
def enqueue(task: Task[P, R], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]: ...
@overload
def enqueue(task: str, /, *args: Any, **kwargs: Any) -> JobHandle[Any]: ...
def enqueue(task: AnyTask, /, *args: Any, **kwargs: Any) -> JobHandle[Any]:
    """Enqueue one job of a task, or of the task with this name.

    The job is inserted by one statement in the caller's transaction on the queue's database: it exists if and only if
    that commits, and no worker sees it before. Idle workers are woken after the commit. Without a transaction the job
    is there when the call returns.

    Returns:
        The handle with the job's id.

    Raises:
        TaskDoesNotExist: no task has this name.
        InvalidArguments: the arguments do not fit the signature or are not JSON. Nothing was inserted.
        QueueFull: ``PGQUEUE["QUEUES"]`` gives the queue a ``max_backlog``, and as many jobs are queued.
        ConfigurationError: the queue's database is missing or not PostgreSQL.
        django.db.Error: as any other statement of the caller's transaction.
    """
    return enqueue_one(_task(task), args, kwargs)


def enqueue_one(
    task: TaskDefinition, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, schedule_id: int | None = None
) -> JobHandle[Any]:
    """Check the arguments and insert the job; ``Task.enqueue`` and ``enqueue`` end here."""
    if schedule_id is None:
        task = route(task, args, kwargs)
    inserted = insert_one(task, args, kwargs, schedule_id=schedule_id)
    run_if_immediate(task.database, inserted.ids)
    return JobHandle(inserted.ids[0], task.name, task.options.queue, task.database, inserted.created[0])


def enqueue_many(calls: Iterable[Call[R]], /) -> Sequence[JobHandle[R]]:
    """Enqueue many jobs, of any tasks, with one statement in the caller's transaction; all or none.

    Jobs with keys, of queues that are on several databases, are inserted by one statement on each of these. All are
    committed once all are in: only a crash between two commits, or one that fails, leaves some.

    Several calls with one unique key have the same effect as one after the other: the first makes the job, or meets
    the one that is there; the others replace its arguments or move it as their ``on_conflict`` says.

    Args:
        calls: made by ``Task.bind``. Tens of thousands are fine; each is checked before anything is inserted.

    Returns:
        Their handles, in the order of ``calls``. Of a call that met its conflicting job, the handle of that one.

    Raises:
        InvalidOption: one is no call, or their tasks put jobs on several databases.
        InvalidArguments: those of a call do not fit; the message names its position. The others as ``enqueue``.
    """
    chosen = list(calls)
    for position, call in enumerate(chosen):
        if not isinstance(call, Call):
            raise InvalidOption(
                f"calls[{position}] is of the type {type(call).__name__}. Each call is made by bind(), as in "
                "[send.bind(1), send.bind(2)]; many of one task are enqueued by send.enqueue_many([(1,), (2,)])."
            )
    if not chosen:
        return []
    if conf.queue_databases and any(conf.is_on_several(call.task.options.queue) for call in chosen):
        return _enqueue_on_each(chosen)
    inserted = insert_calls(chosen)
    run_if_immediate(chosen[0].task.database, inserted.ids)
    return JobHandles(inserted, [call.task for call in chosen])


def _enqueue_on_each(calls: Sequence[Call[R]]) -> Sequence[JobHandle[R]]:
    """Enqueue calls where some are on queues of several databases."""
    on_each = routed(calls)
    inserted = insert_on_each(on_each, insert_calls)
    handles: JobHandles[R] = JobHandles(inserted, [call.task for call in on_each])
    if conf.immediate:
        for handle in handles:
            run_if_immediate(handle.database, [handle.id])
    return handles


async def aenqueue_many(calls: Iterable[Call[R]], /) -> Sequence[JobHandle[R]]:
    """Do what ``enqueue_many`` does from async code, on the connection that sync code of this context uses."""
    return await _in_sync(enqueue_many, calls)


def _task(task: AnyTask) -> TaskDefinition:
    return registry.definition_of(task)


def _check_function(func: Any) -> None:
    first = next(iter(inspect.signature(func).parameters), "") if callable(func) else "cls"
    is_inside = "." in getattr(func, "__qualname__", "").rpartition("<locals>.")[2]
    if inspect.ismethod(func) or not callable(func) or (is_inside and first in {"self", "cls"}):
        raise ConfigurationError(
            f"{getattr(func, '__qualname__', func)} is a method: a worker has no object, or class, to call it with. "
            "Define the task as a function at the top level of a module, and pass it the primary key of the object."
        )
