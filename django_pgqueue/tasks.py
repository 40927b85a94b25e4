"""Tasks: a callable, its name and its options; and the registry in which workers look names up.

Only registered tasks can run. A name that comes out of the database is looked up here and never imported.
"""

import dataclasses
import datetime as dt
import difflib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from django.conf import settings
from django.utils import timezone

from django_pgqueue.base.backoff import Backoff, exponential
from django_pgqueue.base.conf import conf
from django_pgqueue.base.exceptions import ConfigurationError, InvalidJob, UnknownTask
from django_pgqueue.base.states import HIGHEST_PRIORITY, LATEST, LOWEST_PRIORITY, NEVER

if TYPE_CHECKING:
    from django_pgqueue.lifecycle.enqueue import JobHandle

P = ParamSpec("P")
R = TypeVar("R")

LONGEST_TIMEOUT_SECONDS = 365 * 24 * 3600
LONGEST_DELAY, EARLIEST_DELAY = dt.timedelta(days=36500), dt.timedelta(days=-365)

_registry: "dict[str, Task[..., Any]]" = {}
_aliases: "dict[str, Task[..., Any]]" = {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How a job is to be run. Set by ``@task`` for every job of a task, by ``using()`` for some.

    Args:
        queue: the named lane, 1 to 128 characters. Default: ``"default"``.
        priority: -100 to 100; larger runs sooner. Default: 0.
        max_attempts: 1 to 32767; the bound on attempts. None: ``PGQUEUE["MAX_ATTEMPTS"]``.
        timeout: seconds above 0, or a timedelta, of a year at most, that one attempt may take; interrupts ``async def``
            tasks only. None: no limit.
        lease: seconds above 0, or a timedelta, of a year at most, for which a silent worker keeps the job. None:
            ``PGQUEUE["LEASE_SECONDS"]``.
        keep: whether the finished job is kept in ``finished_jobs``. Default: True.
        run_at: earliest start: an aware datetime, or a timedelta of at most 100 years from
            now, by the database's clock. None: now.
        metadata: a JSON object that travels with the job. Never interpreted by the queue.
        database: alias to enqueue on. None: ``PGQUEUE["DATABASE"]``.

    Raises:
        InvalidJob: a value is out of range or of the wrong type.
    """

    queue: str = "default"
    priority: int = 0
    max_attempts: int | None = None
    timeout: float | dt.timedelta | None = None
    lease: float | dt.timedelta | None = None
    keep: bool = True
    run_at: dt.datetime | dt.timedelta | None = None
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    database: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.queue, str) or not 1 <= len(self.queue) <= 128 or "\0" in self.queue:  # noqa: PLR2004
            raise InvalidJob(f"queue is a name of 1 to 128 characters, not {self.queue!r}.")
        _check_whole("priority", self.priority, LOWEST_PRIORITY, HIGHEST_PRIORITY)
        if self.max_attempts is not None:
            _check_whole("max_attempts", self.max_attempts, 1, 32767)
        if self.timeout is not None:
            _check_seconds("timeout", self.timeout)
        if self.lease is not None:
            _check_seconds("lease", self.lease)
        if not isinstance(self.keep, bool):
            raise InvalidJob(f"keep is True or False, not {self.keep!r}.")
        if not isinstance(self.metadata, Mapping):
            raise InvalidJob(f"metadata is a JSON object, not {self.metadata!r}.")
        _check_run_at(self.run_at)

    @property
    def attempts_allowed(self) -> int:
        return self.max_attempts or conf.max_attempts

    @property
    def timeout_seconds(self) -> int:
        return math.ceil(_seconds(self.timeout)) if self.timeout is not None else 0

    @property
    def lease_seconds(self) -> int:
        return math.ceil(_seconds(self.lease)) if self.lease is not None else conf.lease_seconds

    @property
    def due_at(self) -> dt.datetime | None:
        """The instant of ``run_at``, aware; None where it is a delay or now."""
        if not isinstance(self.run_at, dt.datetime):
            return None
        return self.run_at if timezone.is_aware(self.run_at) else timezone.make_aware(self.run_at)

    @property
    def delay_seconds(self) -> float:
        return self.run_at.total_seconds() if isinstance(self.run_at, dt.timedelta) else 0.0


class Task(Generic[P, R]):
    """A function that can be enqueued. Calling it calls the function, here and now. Made by ``@task``.

    Attributes:
        name: what stands in the table: dotted path of the function, or what ``@task(name=…)`` says.
        func: the function.
        options: ``Options`` of every job.
        backoff: seconds to wait after a failed attempt, by its number.
        is_atomic: the handler's database writes and the removal of its job are one transaction.
        aliases: former names, which jobs enqueued before a rename still carry.
    """

    def __init__(
        self,
        func: Callable[P, R],
        *,
        name: str,
        options: Options,
        backoff: Backoff = exponential,
        atomic: bool = False,
        aliases: tuple[str, ...] = (),
    ) -> None:
        self.func = func
        self.name = name
        self.options = options
        self.backoff = backoff
        self.is_atomic = atomic
        self.aliases = aliases
        self.is_async = inspect.iscoroutinefunction(func)
        self.signature = inspect.signature(func)
        self.__doc__ = func.__doc__
        self.__module__ = func.__module__
        self.__name__ = getattr(func, "__name__", name)
        self.__wrapped__ = func

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.func(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def using(self, **options: Any) -> "Task[P, R]":
        """Return the same task with other options for the jobs enqueued through the result.

        Args:
            options: any field of ``Options``.

        Raises:
            InvalidJob: an option is unknown, out of range or of the wrong type.
        """
        return Task(
            self.func,
            name=self.name,
            options=_replace(self.options, options),
            backoff=self.backoff,
            atomic=self.is_atomic,
            aliases=self.aliases,
        )

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
    timeout: float | dt.timedelta | None = None,
    lease: float | dt.timedelta | None = None,
    keep: bool = True,
    atomic: bool = False,
    aliases: Iterable[str] = (),
) -> Callable[[Callable[P, R]], Task[P, R]]: ...
def task(
    func: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    backoff: Backoff | float = exponential,
    atomic: bool = False,
    aliases: Iterable[str] = (),
    **options: Any,
) -> Any:
    """Declare a module-level function, plain or ``async def``, as a task.

    Args:
        name: what stands in the table. Default: the function's dotted path.
        backoff: a function from the number of the failed attempt (from 1) to seconds, or a number of seconds.
            Default: 2, 4, 8 … up to an hour. Up to 10 % of jitter is added either way.
        atomic: run the function in a transaction on the queue's database that also removes the job, so that both take
            effect exactly once. Not for ``async def``: Django has no async transactions.
        aliases: former names of the task.
        options: see ``Options``: ``queue``, ``priority``, ``max_attempts``, ``timeout``, ``lease``, ``keep``.

    Raises:
        ConfigurationError: the function is nested or a lambda, the name is taken, or the options contradict.
        InvalidJob: an option is unknown, out of range or of the wrong type.
    """

    def declare(func: Callable[P, R]) -> Task[P, R]:
        return register(
            Task(
                func,
                name=name or f"{func.__module__}.{func.__qualname__}",
                options=_replace(Options(), options),
                backoff=backoff if callable(backoff) else _constant(backoff),
                atomic=atomic,
                aliases=tuple(aliases),
            )
        )

    return declare if func is None else declare(func)


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
        other = find(name)
        if other is not None and (other.func.__module__, other.func.__qualname__) != (task.func.__module__, qualname):
            raise ConfigurationError(
                f"Two tasks are called {name!r}: {other.func.__module__}.{other.func.__qualname__} and "
                f"{task.func.__module__}.{qualname}. Give one of them another name= or alias."
            )
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
        raise UnknownTask(
            f"No task is called {name!r}.{hint} Tasks are found in the tasks.py of the apps in INSTALLED_APPS."
        )
    return found


def known() -> tuple[str, ...]:
    """Return the names of all registered tasks, sorted."""
    return tuple(sorted(_registry))


def _replace(options: Options, changes: Mapping[str, Any]) -> Options:
    allowed = {field.name for field in dataclasses.fields(Options)}
    if unknown := sorted(set(changes) - allowed):
        raise InvalidJob(f"There is no option {', '.join(unknown)}. Options are: {', '.join(sorted(allowed))}.")
    return dataclasses.replace(options, **changes)


def _constant(seconds: float) -> Backoff:
    if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise InvalidJob(f"backoff is a function or 0 or more seconds, not {seconds!r}.")
    return lambda _attempt: float(seconds)


def _check_whole(option: str, value: Any, lowest: int, highest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise InvalidJob(f"{option} is a whole number from {lowest} to {highest}, not {value!r}.")


def _check_seconds(option: str, value: Any) -> None:
    seconds = _seconds(value)
    if isinstance(value, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= LONGEST_TIMEOUT_SECONDS:
        raise InvalidJob(f"{option} is a number of seconds above 0, or a timedelta, of a year at most, not {value!r}.")


def _check_run_at(value: Any) -> None:
    if isinstance(value, dt.timedelta) and not EARLIEST_DELAY <= value <= LONGEST_DELAY:
        raise InvalidJob(f"run_at is at most {LONGEST_DELAY.days} days from now, and one year ago, not {value!r}.")
    if value is None or isinstance(value, dt.timedelta):
        return
    if not isinstance(value, dt.datetime):
        raise InvalidJob(f"run_at is a datetime or a timedelta, not {value!r}.")
    if not NEVER.year <= value.year < LATEST.year:
        raise InvalidJob(f"run_at is between the years {NEVER.year} and {LATEST.year}, not {value!r}.")
    if settings.configured and settings.USE_TZ and timezone.is_naive(value):
        raise InvalidJob(
            f"run_at is naive ({value!r}) while USE_TZ is on. Use django.utils.timezone.now() or make_aware()."
        )


def _seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, dt.timedelta) else value
