"""Tasks: a callable, its name and its options; and the registry in which workers look names up.

Only registered tasks can run. A name that comes out of the database is looked up here and never imported.
"""

import dataclasses
import datetime as dt
import difflib
import inspect
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, Protocol, TypeVar, Unpack, overload

from django.apps import apps

from django_pgqueue.base import keys
from django_pgqueue.base.backoff import Backoff, exponential
from django_pgqueue.base.conf import conf
from django_pgqueue.base.discards import DiscardOn, Discards
from django_pgqueue.base.exceptions import ConfigurationError, InvalidJob, UnknownTask
from django_pgqueue.base.keys import KeyBy, Keys, KeysBy
from django_pgqueue.base.options import Options, TaskOptions
from django_pgqueue.base.states import LONGEST_NAME

if TYPE_CHECKING:
    from django_pgqueue.base.records import ClaimedJob, Outcome
    from django_pgqueue.lifecycle.handle import JobHandle

logger = logging.getLogger("django_pgqueue")

P = ParamSpec("P")
R = TypeVar("R")

WHERE_TASKS_ARE = (
    "Workers load the tasks.py of the apps in INSTALLED_APPS, what these, or an AppConfig.ready(), import, and the "
    "task_modules of a backend in TASKS."
)

OF_TASKS = ("aliases", "atomic", "backoff", "concurrency_by", "discard_on", "fair_by", "name", "sensitive", "unique_by")
"""What ``@task`` takes besides the options of a job."""

HABITS = frozenset({"apply_async", "defer", "delay", "delay_on_commit", "send", "send_with_options"})
"""Methods by which other task queues enqueue."""

TO_START_LATER = "use run_at, a datetime or a timedelta from now"
MEANT = {
    "bind": "use current_job() in the task",
    "countdown": TO_START_LATER,
    "default_retry_delay": "use backoff",
    "delay": TO_START_LATER,
    "eta": TO_START_LATER,
    "ignore_result": "use keep",
    "job_timeout": "use timeout",
    "max_retries": "use max_attempts, which counts the first attempt too",
    "queue_name": "use queue",
    "queueing_lock": "use unique_key",
    "retries": "use max_attempts, which counts the first attempt too",
    "retry_backoff": "use backoff",
    "run_after": TO_START_LATER,
    "schedule_at": TO_START_LATER,
    "soft_time_limit": "use timeout",
    "time_limit": "use timeout",
    "ttl": "use expires",
}
"""Options of other task queues, and what is their like here."""

OF_JOBS = frozenset(field.name for field in dataclasses.fields(Options))

_registry: "dict[str, Task[..., Any]]" = {}
_aliases: "dict[str, Task[..., Any]]" = {}
_late: set[str] = set()  # names of tasks that Django's setup has not imported, of which nothing was said yet


class Contract(Protocol):
    """What Django's Tasks framework wants of a task of its own besides; made by ``backend``.

    Attributes:
        signature: of the function, without the context that the framework gives it.
    """

    signature: inspect.Signature

    def begin(self, job: "ClaimedJob") -> "ContractRun":
        """Return what goes with one run of a job."""
        ...


class ContractRun(Protocol):
    """What the framework wants of one run. Nothing is raised but by ``result``."""

    def arguments(self, args: list[Any]) -> list[Any]:
        """Return the positional arguments with the context before them, if the task takes it."""
        ...

    def result(self, value: Any) -> str:
        """Return what the task returned as JSON.

        Raises:
            ResultRefused: it cannot be stored.
        """
        ...

    def tell_started(self) -> None:
        """Send the framework's signal before the run."""
        ...

    def tell_ended(self, outcome: "Outcome") -> None:
        """Send the framework's signal after the last run, inside the ``except`` of what that has raised."""
        ...

    async def atell_started(self) -> None: ...

    async def atell_ended(self, outcome: "Outcome") -> None: ...


class Task(Generic[P, R]):
    """A function that can be enqueued. Calling it calls the function, here and now. Made by ``@task``.

    Attributes:
        name: what stands in the table: dotted path of the function, or what ``@task(name=…)`` says.
        func: the function.
        options: ``Options`` of every job.
        backoff: seconds to wait after a failed attempt, by its number.
        discards: exceptions after which a job is not tried again.
        is_atomic: the handler's database writes and the removal of its job are one transaction.
        aliases: former names, which jobs enqueued before a rename still carry.
        sensitive: names of arguments, or of keys in them, that nobody is to see; True: all arguments.
        keys_by: how keys are computed from the arguments of a job.
        needs_control: whether its jobs take more than a place in their queue.
        backend: the alias in ``TASKS``, and ``contract`` the rest, of a task of Django's Tasks framework.
    """

    do_not_call_in_templates = True  # where a template names it, Django would run it

    def __init__(
        self,
        func: Callable[P, R],
        *,
        name: str,
        options: Options,
        backoff: Backoff = exponential,
        discards: Discards = Discards(),  # noqa: B008 - it cannot change
        atomic: bool = False,
        aliases: tuple[str, ...] = (),
        sensitive: frozenset[str] | bool = False,
        keys_by: KeysBy = keys.NONE,
        signature: inspect.Signature | None = None,
        backend: str = "",
        contract: Contract | None = None,
    ) -> None:
        self.func = func
        self.name = name
        self.options = options
        self.backoff = backoff
        self.discards = discards
        self.is_atomic = atomic
        self.aliases = aliases
        self.sensitive = sensitive
        self.keys_by = keys_by
        self.needs_control: bool = options.needs_control or keys_by != keys.NONE
        self.is_async: bool = inspect.iscoroutinefunction(func)
        self.signature: inspect.Signature = signature or inspect.signature(func)
        self.backend = backend
        self.contract = contract
        self.__doc__ = func.__doc__
        self.__module__ = func.__module__
        self.__name__: str = getattr(func, "__name__", name)
        self.__wrapped__ = func

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.func(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    if not TYPE_CHECKING:  # for type checkers there is no other attribute

        def __getattr__(self, name: str) -> NoReturn:
            problem = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in HABITS:
                me = self.__name__
                problem += f". A job is made by {me}.enqueue(…); with options by {me}.using(…).enqueue(…)"
            raise AttributeError(problem, name=name, obj=self)

    def using(self, **options: Unpack[TaskOptions]) -> "Task[P, R]":
        """Return the same task with other options for the jobs enqueued through the result.

        Args:
            options: any field of ``Options``.

        Raises:
            InvalidJob: an option is unknown, out of range or of the wrong type.
        """
        _check_known(options, OF_JOBS)
        return Task(
            self.func,
            name=self.name,
            options=dataclasses.replace(self.options, **options),
            backoff=self.backoff,
            discards=self.discards,
            atomic=self.is_atomic,
            aliases=self.aliases,
            sensitive=self.sensitive,
            keys_by=self.keys_by,
            signature=self.signature,
            backend=self.backend,
            contract=self.contract,
        )

    def keys(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Keys:
        """Return the keys of a job with these arguments: those of the options, else those the task computes.

        Raises:
            InvalidJob: a computed key is not a text of 1 to 500 characters.
        """
        options, by = self.options, self.keys_by
        return Keys(
            unique=options.unique_key or by.unique(*args, **kwargs),
            concurrency=options.concurrency_key or by.concurrency(*args, **kwargs),
            fair=options.fair_key or by.fair(*args, **kwargs),
        )

    def with_keys(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> "Task[P, R]":
        """Return the task for a job with these arguments, its keys computed: nothing of the project is called for them.

        Raises:
            Exception: whatever a function that computes a key raises; InvalidJob as ``keys``.
        """
        if self.keys_by == keys.NONE:
            return self
        task = self.using()
        task.keys_by = KeysBy.known(self.keys(args, kwargs))
        return task

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> "JobHandle":
        """Insert one job in the caller's transaction: it exists if and only if that commits.

        See ``django_pgqueue.enqueue`` for errors and for what happens without a transaction.
        """
        from django_pgqueue.lifecycle.enqueue import enqueue_one  # noqa: PLC0415 - enqueue stands above tasks

        return enqueue_one(self, args, kwargs)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> "JobHandle":
        """Do what ``enqueue`` does from async code, on the connection that sync code of this context uses."""
        from asgiref.sync import sync_to_async  # noqa: PLC0415 - only async callers need it

        return await sync_to_async(self.enqueue, thread_sensitive=True)(*args, **kwargs)


@overload
def task(func: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(
    func: None = None,
    /,
    *,
    name: str | None = None,
    queue: str = "default",
    priority: int = 0,
    max_attempts: int | None = None,
    backoff: Backoff | float = exponential,
    discard_on: DiscardOn = (),
    timeout: float | dt.timedelta | None = None,
    lease: float | dt.timedelta | None = None,
    keep: bool | float | dt.timedelta = True,
    atomic: bool = False,
    aliases: Iterable[str] = (),
    sensitive: Iterable[str] | bool = (),
    expires: float | dt.timedelta | None = None,
    unique_by: KeyBy = None,
    unique_scope: str = "live",
    unique_for: float | dt.timedelta | None = None,
    on_conflict: str = "existing",
    concurrency_key: str | None = None,
    concurrency_by: KeyBy = None,
    concurrency_limit: int = 1,
    concurrency_strict: bool = False,
    fair_by: KeyBy = None,
) -> Callable[[Callable[P, R]], Task[P, R]]: ...
def task(
    func: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    backoff: Backoff | float = exponential,
    discard_on: DiscardOn = (),
    atomic: bool = False,
    aliases: Iterable[str] = (),
    sensitive: Iterable[str] | bool = (),
    unique_by: KeyBy = None,
    concurrency_by: KeyBy = None,
    fair_by: KeyBy = None,
    **options: Any,
) -> Any:
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
            history, besides those that ``PGQUEUE["SENSITIVE"]`` matches. True: all arguments.
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
        _check_known(options, OF_JOBS, OF_TASKS)
        _check_function(func)
        return register(
            make(
                func,
                name=name or f"{func.__module__}.{func.__qualname__}",
                options=Options(**options),
                backoff=backoff,
                discard_on=discard_on,
                atomic=atomic,
                aliases=aliases,
                sensitive=sensitive,
                unique_by=unique_by,
                concurrency_by=concurrency_by,
                fair_by=fair_by,
            )
        )

    return declare if func is None else declare(func)


def make(
    func: Callable[P, R],
    *,
    name: str,
    options: Options,
    backoff: Backoff | float = exponential,
    discard_on: DiscardOn = (),
    atomic: bool = False,
    aliases: Iterable[str] = (),
    sensitive: Iterable[str] | bool = (),
    unique_by: KeyBy = None,
    concurrency_by: KeyBy = None,
    fair_by: KeyBy = None,
    backend: str = "",
    contract: Contract | None = None,
) -> Task[P, R]:
    """Make a task of what it was declared with, which is checked; see ``@task``. It is not registered yet."""
    signature = contract.signature if contract else inspect.signature(func)
    return Task(
        func,
        name=name,
        options=options,
        backoff=backoff if callable(backoff) else _constant(backoff),
        discards=Discards.of(discard_on),
        atomic=atomic,
        aliases=tuple(aliases),
        sensitive=_sensitive(sensitive),
        keys_by=KeysBy.of(signature, name, unique=unique_by, concurrency=concurrency_by, fair=fair_by),
        signature=signature,
        backend=backend,
        contract=contract,
    )


def register(task: Task[P, R]) -> Task[P, R]:
    """Add a task to the registry; called by ``@task``. A module loaded again replaces its own tasks."""
    qualname = getattr(task.func, "__qualname__", "")
    if "<" in qualname:
        raise ConfigurationError(
            f"The task {task.name!r} is defined inside a function. Define it at the top level of a module, "
            "where a worker finds it."
        )
    if task.is_atomic and task.is_async:
        raise ConfigurationError(
            f"The task {task.name!r} is async and atomic=True, but Django has no async transactions. "
            "Make it a plain function, or leave atomic out."
        )
    for name in (task.name, *task.aliases):
        if not 1 <= len(name) <= LONGEST_NAME:
            raise ConfigurationError(
                f"The name of a task has 1 to {LONGEST_NAME} characters, not {len(name)}: {name!r}."
            )
        other = find(name)
        if other is not None and (other.func.__module__, other.func.__qualname__) != (task.func.__module__, qualname):
            raise ConfigurationError(
                f"Two tasks are called {name!r}: {other.func.__module__}.{other.func.__qualname__} and "
                f"{task.func.__module__}.{qualname}. Give one of them another name= or alias."
            )
    if apps.ready and task.name not in _registry and not task.backend:
        _late.add(task.name)
    _registry[task.name] = task
    _aliases.update(dict.fromkeys(task.aliases, task))
    return task


def find(name: str) -> Task[..., Any] | None:
    """Return the task of this name or former name, or None."""
    return _registry.get(name) or _aliases.get(name)


def get(name: str) -> Task[..., Any]:
    """Return the task of this name or former name.

    Raises:
        UnknownTask: no task has it; the message suggests the nearest names.
    """
    found = find(name)
    if found is None:
        near = difflib.get_close_matches(name, _registry, n=3)
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise UnknownTask(f"No task is called {name!r}.{hint} {WHERE_TASKS_ARE}")
    return found


def warn_of_late(task: Task[..., Any]) -> None:
    """Say once of a task that workers, which only set Django up, do not know it."""
    if task.name in _late and not conf.immediate:
        _late.discard(task.name)
        logger.warning(
            "The task %s was declared after Django was set up, so workers do not know it. Move it to the tasks.py of "
            "an installed app, or import %s there or in an AppConfig.ready().",
            task.name,
            task.__module__,
        )


def native(task: Any) -> Any:
    """Return the task that a task of Django's Tasks framework is here as well; any other as it is."""
    return getattr(task, "native", task)


def known() -> tuple[str, ...]:
    """Return the names of all registered tasks, sorted."""
    return tuple(sorted(_registry))


def answering() -> list[str]:
    """Return every name that a task answers to, former ones included."""
    return [*_registry, *_aliases]


def _check_known(given: Iterable[str], of_jobs: Collection[str], of_tasks: Collection[str] = ()) -> None:
    """Raise InvalidJob where an option is unknown; say which one may be meant."""
    allowed = {*of_jobs, *of_tasks}
    if unknown := sorted({*given} - allowed):
        meant = "; ".join(f"{name}{_meant(name, allowed)}" for name in unknown)
        raise InvalidJob(f"There is no option {meant}. Options are: {', '.join(sorted(allowed))}.")


def _meant(name: str, allowed: Collection[str]) -> str:
    if name in MEANT:
        return f": {MEANT[name]}"
    if name in OF_TASKS:
        return f": it belongs to the task, @task({name}=…)"
    near = difflib.get_close_matches(name, allowed, n=1)
    return f": did you mean {near[0]}?" if near else ""


def _check_function(func: Any) -> None:
    """Raise ConfigurationError for a method, which needs an object, or a class, that no worker has."""
    first = next(iter(inspect.signature(func).parameters), "") if callable(func) else "cls"
    is_inside = "." in getattr(func, "__qualname__", "").rpartition("<locals>.")[2]
    if inspect.ismethod(func) or not callable(func) or (is_inside and first in {"self", "cls"}):
        raise ConfigurationError(
            f"{getattr(func, '__qualname__', func)} is a method: a worker has no object, or class, to call it with. "
            "Define the task as a function at the top level of a module, and pass it the primary key of the object."
        )


def _constant(seconds: float) -> Backoff:
    if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise InvalidJob(f"backoff is a function or 0 or more seconds, not {seconds!r}.")
    return lambda _attempt: float(seconds)


def _sensitive(names: Any) -> frozenset[str] | bool:
    if isinstance(names, bool):
        return names
    if isinstance(names, str) or not all(isinstance(name, str) and name for name in names):
        raise InvalidJob(f"sensitive is True or a tuple of names of arguments, as in ('card',), not {names!r}.")
    return frozenset(names)
