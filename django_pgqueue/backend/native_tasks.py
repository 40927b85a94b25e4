"""Tasks of the framework with the queue's options, and the native task that each of them is as well."""

import contextlib
import dataclasses
import datetime as dt
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from asgiref.sync import sync_to_async

from django_pgqueue import tasks
from django_pgqueue.backend.execution import adapter_of
from django_pgqueue.backport import of_both
from django_pgqueue.exceptions import ConfigurationError, InvalidArguments, InvalidOption
from django_pgqueue.framework import AnyTask, InvalidTask, InvalidTaskBackend, Task, TaskResultMismatch
from django_pgqueue.keys import (
    Conflict,
    FairOption,
    Limit,
    LimitOption,
    ShardOption,
    Unique,
    UniqueOption,
    fair_by,
    shard_by,
)
from django_pgqueue.options import (
    MEANT,
    OF_CALLS,
    OF_TASKS,
    TO_START_AFTER,
    TO_START_AT,
    OwnOptionsOrNone,
    Tags,
    meant_by,
)
from django_pgqueue.registry import TaskDefinition

T = TypeVar("T", bound=AnyTask)

NATIVE = "_native"

# The framework has no word for retries, and code written for it does not expect them.
DEFAULTS: dict[str, Any] = {"max_attempts": 1}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # both are the framework's
class PgQueueTask(AnyTask, OwnOptionsOrNone):
    """A task of the framework with the queue's options, which ``@task`` of ``django_pgqueue`` explains.

    One that is None is as the ``OPTIONS`` of its alias have it, else as there; but ``max_attempts`` is 1. ``run_after``
    may be a timedelta: from now by the clock of the database. They make no difference between tasks, so that a
    ``TaskResult`` read back is equal to the one that ``enqueue`` has returned.
    """

    max_attempts: int | None = None
    timeout: float | dt.timedelta | None = None
    lease: float | dt.timedelta | None = None
    keep_result: bool | None = None
    keep_for: float | dt.timedelta | None = None
    head_start: float | dt.timedelta | None = None
    expires: float | dt.datetime | dt.timedelta | None = None
    unique: UniqueOption = None
    unique_key: str | None = None
    on_conflict: Conflict | None = None
    limit: LimitOption = None
    limit_key: str | None = None
    fair: FairOption = None
    fair_key: str | None = None
    shard_by: ShardOption = None
    tags: Tags | None = None
    metadata: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        backend: Any = self.get_backend()
        if issubclass(backend.task_class, PgQueueTask):
            backend.declare(self)

    def __deepcopy__(self, _memo: Any) -> "PgQueueTask":
        return self  # it cannot change; the framework's way would validate it again

    def get_backend(self) -> Any:
        try:
            return super().get_backend()
        except InvalidTaskBackend as error:
            raise of_both(error) from None

    def get_result(self, result_id: str) -> Any:
        try:
            return super().get_result(result_id)
        except TaskResultMismatch as error:
            raise of_both(error) from None

    async def aget_result(self, result_id: str) -> Any:
        try:
            return await super().aget_result(result_id)
        except TaskResultMismatch as error:
            raise of_both(error) from None

    @property
    def native(self) -> tasks.Task[..., Any]:
        """The same task as ``@task`` of ``django_pgqueue`` makes it: for schedules, and all else that takes one."""
        backend: Any = self.get_backend()
        native: tasks.Task[..., Any] = backend.native(self)
        return native

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: dt.datetime | dt.timedelta | None = None,
        backend: str | None = None,
        **options: Any,
    ) -> "PgQueueTask":
        """Return the same task with other options for the jobs enqueued through the result.

        Args:
            options: any of the class but those that are the task's own, as ``backoff``.

        Raises:
            InvalidTask: a value is out of range or of the wrong type.
            TypeError: there is no such option.
        """
        if unknown := sorted(set(options) - JOB_OPTIONS):
            raise TypeError(
                f"using() takes no option {_hints(unknown, JOB_OPTIONS | set(IN_USING), MEANT_IN_USING)} Options are: "
                f"{', '.join([*IN_USING, *sorted(JOB_OPTIONS)])}. Others belong to the task: declare them with it."
            )
        given = {"priority": priority, "queue_name": queue_name, "run_after": run_after, "backend": backend}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return dataclasses.replace(self, **changes, **options)

    def bind(self, *args: Any, **kwargs: Any) -> tasks.Call[Any]:
        """Return the call of ``native`` with these arguments, for ``enqueue_many``, ``periodic``, tests and assertions.

        Its ``enqueue()`` returns a ``JobHandle``, and sends no ``task_enqueued``.

        Raises:
            InvalidArguments: a TypeError. The arguments do not fit the function.
        """
        return self.native.bind(*args, **kwargs)

    def enqueue_many(self, calls: Iterable[tuple[Any, ...] | Mapping[str, Any]]) -> list[Any]:
        """Enqueue many jobs with one statement, all or none; see ``PgQueueBackend.enqueue_many``."""
        backend: Any = self.get_backend()
        results: list[Any] = backend.enqueue_many(self, calls)
        return results

    async def aenqueue_many(self, calls: Iterable[tuple[Any, ...] | Mapping[str, Any]]) -> list[Any]:
        """Do what ``enqueue_many`` does from async code."""
        return await sync_to_async(self.enqueue_many, thread_sensitive=True)(calls)


TASK_MODULES = "task_modules"
TASK_OPTIONS = frozenset(OF_TASKS)
JOB_OPTIONS = (
    frozenset(one.name for one in dataclasses.fields(PgQueueTask))
    - frozenset(one.name for one in dataclasses.fields(Task))
    - TASK_OPTIONS
)
ANY_OPTION = TASK_OPTIONS | JOB_OPTIONS
OF_ALIASES = {"database", "metadata", "tasks", TASK_MODULES}
IN_USING = ("priority", "queue_name", "run_after", "backend")  # those of the framework
BACKEND_OPTIONS = (ANY_OPTION - {"aliases"} - OF_CALLS) | OF_ALIASES  # keys of OPTIONS

# Hints on unknown options, in the words of the framework.

AFTER, AT = "use run_after, a timedelta", "use run_after, a datetime"
ON_TASK = {"queue_name": "…", "priority": "…", "takes_context": "True"}
MEANT_IN_USING = {
    **{name: AFTER for name, text in MEANT.items() if text == TO_START_AFTER},
    **{name: AT for name, text in MEANT.items() if text == TO_START_AT},
    **{name: f"it belongs to the task, @job_options({name}=…)" for name in TASK_OPTIONS},
    "delay": AFTER,
    "run_at": AT,
    "queue": "use queue_name",
    "takes_context": "it belongs to @task(takes_context=True)",
    "database": "it belongs to the OPTIONS of an alias in TASKS",
    "name": "a task is called by its module_path",
}
MEANT_ON_TASK = {
    **{name: f"{text}, in using()" for name, text in MEANT_IN_USING.items() if text in (AFTER, AT)},
    **{name: f"it belongs to @task({name}={value})" for name, value in ON_TASK.items()},
    "run_after": "it belongs to calls, using(run_after=…)",
    "queue": "use queue_name, of @task(queue_name=…)",
    "database": MEANT_IN_USING["database"],
    "name": MEANT_IN_USING["name"],
}


def _hints(unknown: Iterable[str], allowed: Collection[str], words: Mapping[str, str]) -> str:
    """Return unknown options as a sentence with its end, each with a hint if there is one."""
    told = "; ".join(name + (f": {words[name]}" if name in words else meant_by(name, allowed)) for name in unknown)
    return told if told.endswith("?") else f"{told}."


def hints_on_keys(unknown: Iterable[str]) -> str:
    """Return hints on unknown keys of ``OPTIONS``, with a space behind them; "" if there are none."""
    told = [(name, _hints([name], BACKEND_OPTIONS, MEANT_ON_TASK)) for name in unknown]
    return "".join(f"{hint} " for name, hint in told if hint != f"{name}.")


def job_options(**options: Any) -> Callable[[T], T]:
    """Give a task of the framework options of the queue. Goes right above ``@task``.

    For Django 6.0, whose ``@task`` takes none; and for tasks that other backends run too, as in tests: there the task
    is left as it is.

    Args:
        options: those of ``PgQueueTask``.

    Raises:
        InvalidTask: a value is out of range or of the wrong type.
        TypeError: there is no such option.
        ConfigurationError: it is not above ``@task`` of the framework.
    """
    check_names(options, TypeError)

    def give(task: T) -> T:
        if isinstance(task, TaskDefinition):
            raise ConfigurationError(
                f"@job_options is for tasks of Django's Tasks framework, and {task.name} is one of django_pgqueue: "
                "give it its options by @task(…)."
            )
        if not isinstance(task, Task):
            raise ConfigurationError(f"@job_options is given {task!r}, which is no task. Write it right above @task.")
        if not isinstance(task, PgQueueTask):
            return task
        made = dataclasses.replace(task, **options)
        backend: Any = made.get_backend()
        backend.declare(made, anew=True)
        return made

    return give


def native_of(task: AnyTask, alias: str, options: Mapping[str, Any]) -> TaskDefinition:
    """Return the native task that one of the framework is as well; raise InvalidTask where an option is wrong."""
    cache: dict[str, Any] = getattr(task, "__dict__", {})  # tasks of other backends have none
    known: tuple[Any, TaskDefinition] | None = cache.get(NATIVE)
    made_for = (alias, options)
    if known is not None and known[0] == made_for:
        return known[1]
    native = _make_native(task, alias, options)
    cache[NATIVE] = made_for, native
    return native


def _make_native(task: AnyTask, alias: str, options: Mapping[str, Any]) -> TaskDefinition:
    of_alias = {name: options[name] for name in options.keys() - {"tasks", TASK_MODULES}}
    of_task = _mapping(_mapping(options.get("tasks")).get(task.module_path))
    own = {name: getattr(task, name, None) for name in ANY_OPTION}
    place = f"TASKS[{alias!r}]['OPTIONS']['tasks'][{task.module_path!r}]"
    with in_words_of_the_framework(place if of_task else ""):
        check_names(of_task)
        chosen = dict(DEFAULTS)
        for given in (of_alias, of_task, own):
            chosen |= {name: value for name, value in given.items() if value is not None}
        return tasks.make(
            task.func,
            name=task.module_path,
            queue=task.queue_name,
            priority=int(task.priority),
            **_start(task.run_after),
            backend=alias,
            adapter=adapter_of(task),
            **chosen,
        )


def _start(run_after: Any) -> dict[str, Any]:
    return {"delay" if isinstance(run_after, dt.timedelta) else "run_at": run_after}


def _mapping(given: Any) -> Mapping[str, Any]:
    return given if isinstance(given, Mapping) else {}  # a system check reports another shape


def check_names(given: Mapping[str, Any], kind: type[Exception] = InvalidOption) -> None:
    """Raise an exception unless each key is an option of a task or of its jobs."""
    if unknown := sorted(set(given) - ANY_OPTION):
        hints = _hints(unknown, ANY_OPTION, MEANT_ON_TASK)
        raise kind(f"There is no option {hints} Options are: {', '.join(sorted(ANY_OPTION))}.")


def check_options(given: Mapping[str, Any]) -> None:
    """Raise InvalidOption where a value cannot be one of an option; its task knows which keys there are."""
    for name, rule in (("unique", Unique), ("limit", Limit)):
        rule.of(name, given.get(name))
    fair_by(given.get("fair"))
    shard_by(given.get("shard_by"))
    known = {name: value for name, value in given.items() if name not in {"unique", "limit", "fair", "shard_by"}}
    made = tasks.make(lambda: None, name="any", **known)
    if made.discard_on is not None:
        _ = made.discard_on.classes


@contextlib.contextmanager
def in_words_of_the_framework(place: str = "") -> Iterator[None]:
    """Raise InvalidTask where a task cannot be as it is declared, or as this place in the settings has it."""
    try:
        yield
    except (InvalidOption, InvalidArguments, ConfigurationError) as error:
        raise of_both(InvalidTask(f"{place}: {error}" if place else str(error))) from error
