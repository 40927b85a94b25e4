"""Registry of tasks by name, with their options. Workers look tasks up here.

Only registered tasks can run. A name that comes out of the database is looked up here and never imported.
"""

import difflib
import inspect
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, Unpack

from django.apps import apps

from django_pgqueue import keys
from django_pgqueue.conf import NO_DEFAULTS, LogLevel, conf
from django_pgqueue.exceptions import ConfigurationError, TaskDoesNotExist
from django_pgqueue.keys import Compute, Keys, KeysBy, Limit, Unique, shard_function
from django_pgqueue.options import CallOptions, Options, RetryRules, TaskRules, changed, check_known, options_of
from django_pgqueue.states import LONGEST_NAME
from django_pgqueue.validation import is_text

if TYPE_CHECKING:
    from django_pgqueue.records import ClaimedJob, Outcome

logger = logging.getLogger("django_pgqueue")

WHERE_TASKS_ARE = (
    "Workers load the tasks.py of the apps in INSTALLED_APPS, what these, or an AppConfig.ready(), import, and the "
    "task_modules of a backend in TASKS."
)

D = TypeVar("D", bound="TaskDefinition")

_registry: "dict[str, TaskDefinition]" = {}
_aliases: "dict[str, TaskDefinition]" = {}
_late: set[str] = set()  # names of tasks declared after Django's setup that have not been logged yet


class TaskAdapter(Protocol):
    """The part of a task that belongs to Django's Tasks framework; made by ``backend``."""

    signature: inspect.Signature  # of the function, without the context that the framework gives it

    def begin(self, job: "ClaimedJob") -> "RunAdapter": ...


class RunAdapter(Protocol):
    """The framework's part of one run. Only ``result`` raises."""

    def arguments(self, args: list[Any]) -> list[Any]:
        """Return the positional arguments with the context before them, if the task takes it."""
        ...

    def result(self, value: Any) -> str:
        """Return what the task returned as JSON; raise ResultRefused where it cannot be stored."""
        ...

    def tell_started(self) -> None: ...

    def tell_ended(self, outcome: "Outcome") -> None:
        """Send the framework's signal after the last run, inside the ``except`` of what that has raised."""
        ...

    async def atell_started(self) -> None: ...

    async def atell_ended(self, outcome: "Outcome") -> None: ...


@dataclass(eq=False, repr=False, kw_only=True)
class TaskDefinition(TaskRules):
    """A task as workers and statements need it. What callers enqueue is ``tasks.Task``."""

    func: Callable[..., Any] = field(kw_only=False)
    name: str  # stored with each job: dotted path of the function, or ``name`` of ``@task``
    given: Mapping[str, Any]  # of the options of its jobs, by @task and using(); the rest is as by default
    signature: inspect.Signature  # of its arguments, without the context
    backend: str  # the alias in ``TASKS`` of a task of Django's Tasks framework
    adapter: TaskAdapter | None  # the rest of such a task
    takes_context: bool = False  # whether the function gets a JobContext before its arguments
    keys_by: KeysBy = field(init=False)  # how keys are computed from the arguments of a job
    shard_by: Compute = field(init=False)  # the same for the key by which it is put on one of several databases
    is_async: bool = field(init=False)
    shapes: set[Any] = field(init=False, default_factory=set)  # of calls that fit the signature

    def __post_init__(self) -> None:
        super().__post_init__()
        self.is_async = inspect.iscoroutinefunction(self.func)
        self.sensitive_parameters: frozenset[str] | bool = _together(
            self.sensitive_parameters, sensitive_variables(self.func)
        )
        self._defaults: Mapping[str, Any] = NO_DEFAULTS
        self._options = Options(**self.given)
        self._retry_rules = NO_DEFAULTS, RetryRules.of(self, NO_DEFAULTS)
        self.keys_by = self._keys_by(self._options)
        self.shard_by = self._shard_by(self._options)
        self._elsewhere: dict[str, Self] = {}  # by database

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    @property
    def options(self) -> Options:
        """The options of its jobs. Those not given are as in ``PGQUEUE["TASK_DEFAULTS"]`` at the moment."""
        defaults = conf.task_defaults
        if defaults is not self._defaults:
            self._options = options_of(self.given, defaults)
            self._defaults = defaults
        return self._options

    @property
    def retry_rules(self) -> RetryRules:
        """The options that say how a run that raised goes on; those not given as in ``options``."""
        defaults = conf.task_defaults
        if defaults is not self._retry_rules[0]:
            self._retry_rules = defaults, RetryRules.of(self, defaults)
        return self._retry_rules[1]

    @property
    def capture_logs_from(self) -> LogLevel:
        """The level from which on log lines of its jobs are stored. None, False: none is."""
        return conf.task_defaults.get("capture_logs") if self.capture_logs is None else self.capture_logs

    @property
    def needs_control(self) -> bool:
        """Whether its jobs take more than a place in their queue."""
        return self.keys_by != keys.NONE or self.options.needs_control

    @property
    def database(self) -> str:
        """The alias of the database that its jobs are put on by the calling code."""
        options = self.options
        return options.database or conf.database_for(options.queue)

    def using(self, **options: Unpack[CallOptions]) -> Self:
        """Return the same task with other options for the jobs enqueued through the result.

        Args:
            options: any field of ``Options``.

        Raises:
            InvalidOption: an option is unknown, out of range or of the wrong type.
        """
        check_known(options)
        made = self._with(given=changed(self.given, options))
        if {"unique", "limit", "fair"} & options.keys():
            made.keys_by = self._keys_by(made.options)
        if "shard_by" in options:
            made.shard_by = self._shard_by(made.options)
        return made

    def on(self, alias: str) -> Self:
        """Return the same task with its jobs on the database with this alias; the same one each time."""
        found = self._elsewhere.get(alias)
        if found is None:
            found = self._elsewhere[alias] = self._with(given={**self.given, "database": alias})
        return found

    def keys_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Keys:
        """Return the keys of a job: those of the options, or computed ones; raise InvalidOption as ``KeysBy`` does."""
        options, by = self.options, self.keys_by
        return Keys(
            unique=options.unique_key or by.unique(*args, **kwargs),
            concurrency=options.limit_key or by.concurrency(*args, **kwargs),
            fair=options.fair_key or by.fair(*args, **kwargs),
        )

    def with_keys(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Self:
        """Return the task for a job with these arguments, its keys computed; raise what computing them raises."""
        if self.keys_by == keys.NONE:
            return self
        unique, concurrency, fair = self.keys_of(args, kwargs)
        known = {**self.given, "unique_key": unique, "limit_key": concurrency, "fair_key": fair}
        return self._with(given=known, keys_by=keys.NONE)

    def _keys_by(self, options: Options) -> KeysBy:
        """Return what computes the keys; those of the task alone keep its first name, so that a rename changes none."""
        return KeysBy.of(
            self.signature,
            self.aliases[0] if self.aliases else self.name,
            unique=options.unique if isinstance(options.unique, Unique) else None,
            limit=options.limit if isinstance(options.limit, Limit) else None,
            fair=options.fair or None,
            sensitive_parameters=self.sensitive_parameters,
        )

    def _shard_by(self, options: Options) -> Compute:
        return shard_function(self.signature, options.shard_by or None, sensitive_parameters=self.sensitive_parameters)

    def _with(self, given: Mapping[str, Any], **changes: Any) -> Self:
        made = object.__new__(type(self))
        defaults = conf.task_defaults
        changes |= {"given": given, "_options": options_of(given, defaults), "_defaults": defaults}
        changes["_elsewhere"] = {}
        made.__dict__.update(self.__dict__ | changes)
        return made


DEBUG_DECORATORS = "django.views.decorators.debug"


def sensitive_variables(func: Any) -> frozenset[str] | bool:
    """Return the names that Django's ``@sensitive_variables`` was given on a function; True: all of its variables.

    Django notes them with a plain function when that is called, and keeps those of a coroutine function by its place.
    """
    module = sys.modules.get(DEBUG_DECORATORS)  # not imported: no function is decorated
    found: frozenset[str] | bool = frozenset()
    while module and func is not None:
        code, inner = getattr(func, "__code__", None), getattr(func, "__wrapped__", None)
        if code is not None and func.__globals__ is vars(module) and code.co_name == "sensitive_variables_wrapper":
            cells = dict(zip(code.co_freevars, func.__closure__ or (), strict=False))
            found = _together(found, _names(cells["variables"].cell_contents if "variables" in cells else ()))
        elif code is not None and inner is None and inspect.iscoroutinefunction(func):
            place = hash(f"{inspect.getfile(func)}:{code.co_firstlineno}")
            by_place: dict[int, Any] = vars(module).get("coroutine_functions_to_sensitive_variables", {})
            found = _together(found, _names(by_place[place]) if place in by_place else frozenset())
        func = inner
    return found


def _names(variables: Any) -> frozenset[str] | bool:
    return frozenset(variables) if isinstance(variables, tuple) and variables else True


def _together(*given: frozenset[str] | bool) -> frozenset[str] | bool:
    return (
        True if True in given else frozenset(name for names in given if not isinstance(names, bool) for name in names)
    )


def register(task: D) -> D:
    """Add a task to the registry; called by ``@task``. A module loaded again replaces its own tasks."""
    qualname = getattr(task.func, "__qualname__", "")
    if "<" in qualname:
        raise ConfigurationError(
            f"The task {task.name!r} is defined inside a function. Define it at the top level of a module, "
            "where a worker finds it."
        )
    if task.atomic and task.is_async:
        raise ConfigurationError(
            f"The task {task.name!r} is async and atomic=True, but Django has no async transactions. "
            "Make it a plain function, or leave atomic out."
        )
    for name in (task.name, *task.aliases):
        if not 1 <= len(name) <= LONGEST_NAME or not is_text(name):
            raise ConfigurationError(
                f"The name of a task is a text of 1 to {LONGEST_NAME} characters, not {len(name)}: {name!r}."
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


def find(name: str) -> TaskDefinition | None:
    """Return the task of this name or former name, or None."""
    return _registry.get(name) or _aliases.get(name)


def definition_of(task: Any) -> TaskDefinition:
    """Return the task that is given or named; raise TaskDoesNotExist or TypeError where there is none."""
    found = get(task) if isinstance(task, str) else native(task)
    if not isinstance(found, TaskDefinition):
        remedy = " Write @task above the function." if callable(task) else ""
        raise TypeError(f"task is a task or the name of one, not {task!r}.{remedy}")
    return found


def get(name: str) -> TaskDefinition:
    """Return the task of this name or former name; raise TaskDoesNotExist, with the nearest names, if there is none."""
    found = find(name)
    if found is None:
        near = difflib.get_close_matches(name, _registry, n=3)
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise TaskDoesNotExist(f"No task is called {name!r}.{hint} {WHERE_TASKS_ARE}")
    return found


def warn_of_late(task: TaskDefinition) -> None:
    """Say once of a task that workers, which only set Django up, do not know it."""
    if task.name in _late and not conf.immediate:
        _late.discard(task.name)
        logger.warning(
            "The task %s was declared after Django was set up, so workers do not know it. Move it to the tasks.py of "
            "an installed app, or import %s there or in an AppConfig.ready().",
            task.name,
            task.func.__module__,
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
