"""Schedules declared in code: ``@periodic``, and the declarations by name."""

import datetime as dt
import difflib
import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec, Protocol, TypeVar

from django.conf import settings

from django_pgqueue import registry
from django_pgqueue.exceptions import ConfigurationError, InvalidOption, InvalidSchedule
from django_pgqueue.jobs.serialization import encode
from django_pgqueue.keys import as_json
from django_pgqueue.options import OF_JOBS
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.schedules.recurrence import Recurrence
from django_pgqueue.states import CatchUp
from django_pgqueue.tasks import Call
from django_pgqueue.validation import seconds_of


class AnyTask(Protocol):
    """A task of this queue, or of Django's Tasks framework; or a call."""

    def enqueue(self, *args: Any, **kwargs: Any) -> Any: ...


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=AnyTask)

LONGEST_NAME = 200
LONGEST_JITTER_SECONDS = 24 * 3600
HIGHEST_CATCH_UP_LIMIT = 10_000
NOT_FOR_SCHEDULES = {"run_at", "delay", "database"}

ENTRY_FIRST, GIVE_A_CALL = "the entry comes first, without a name", "give it a call, as in periodic(…)(report.bind(…))"
MEANT = {
    "args": GIVE_A_CALL,
    "cron": ENTRY_FIRST,
    "crontab": ENTRY_FIRST,
    "interval": "use every",
    "kwargs": GIVE_A_CALL,
    "schedule": ENTRY_FIRST,
    "seconds": "use every",
    "tz": "use timezone",
}

_declared: "dict[str, DeclaredSchedule]" = {}
_left_out: dict[str, Any] = {}  # tasks of the framework that another backend runs, by the name of their schedule


@dataclass(frozen=True, kw_only=True)
class DeclaredSchedule:
    name: str
    task: TaskDefinition
    rhythm: Recurrence
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    options: Mapping[str, Any]  # of using(); JSON
    jitter_seconds: float
    catch_up: str
    catch_up_limit: int


def _knows_its_options(function: Callable[P, R]) -> Callable[P, R]:
    """Answer an option that the function does not have in words, not as Python does."""
    own = [one.name for one in inspect.signature(function).parameters.values() if one.kind is one.KEYWORD_ONLY]

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if unknown := sorted(kwargs.keys() - own):
            meant = "; ".join(f"{name}{_meant(name, own)}" for name in unknown)
            end = "" if meant.endswith("?") else "."
            raise InvalidOption(f"periodic() has no option {meant}{end} Its options are: {', '.join(sorted(own))}.")
        return function(*args, **kwargs)

    return checked


def _meant(name: str, own: Sequence[str]) -> str:
    if name in MEANT:
        return f": {MEANT[name]}"
    if name in OF_JOBS:
        return f": it belongs to the jobs, as in periodic(…)(report.using({name}=…).bind())"
    near = difflib.get_close_matches(name, own, n=1)
    return f": did you mean {near[0]}?" if near else ""


@_knows_its_options
def periodic(
    cron: str = "",
    /,
    *,
    every: float | dt.timedelta | None = None,
    timezone: str | dt.tzinfo | None = None,
    name: str | None = None,
    jitter: float | dt.timedelta = 0,
    catch_up: Literal["last", "none", "all"] = "last",
    catch_up_limit: int = 100,
) -> Callable[[T], T]:
    """Declare that a task is enqueued at regular times. Goes above ``@task``, also several times.

    For jobs with arguments, or with options in addition to those of the task, it is given a call:
    ``periodic("@weekly", name="weekly")(report.using(priority=-10).bind("week"))``. ``run_at``, ``delay`` and
    ``database`` are not for schedules.

    A task of Django's Tasks framework that another backend runs, as in tests, gets no schedule; a system check says so.

    Args:
        cron: minute, hour, day of the month, month, day of the week; or ``@daily`` and its like.
        every: in place of ``cron``, the time between two ticks, in seconds or as a timedelta, a second to 100 years.
        timezone: the zone whose clock ``cron`` means, its name or a ``ZoneInfo``. Default: ``TIME_ZONE``.
        name: of the schedule, unique in the database. Default: that of the task.
        jitter: seconds or a timedelta, up to a day: each job may start later by a part of it, which is the same for
            all jobs of the schedule and another for each schedule.
        catch_up: which of the ticks that no worker was there for become jobs after all: the ``last`` one, ``none``, or
            ``all``.
        catch_up_limit: how many ``all`` are at most, 1 to 10,000: the last ones.

    Raises:
        InvalidSchedule: a value cannot work, or the task takes arguments that are not given.
        InvalidOption: an option is unknown.
        ConfigurationError: it is not above ``@task``, or the name is taken.
    """
    if not isinstance(cron, str):
        raise ConfigurationError(f"@periodic says when, as in @periodic('@daily'); it is given {cron!r}.")

    def declare(given: T) -> T:
        task: Any = registry.native(given)
        args: Sequence[Any] = ()
        kwargs: Mapping[str, Any] = {}
        changes: Mapping[str, Any] = {}
        if isinstance(given, Call):
            task, args, kwargs = registry.find(given.task.name), given.args, given.kwargs
            changes = _changes(task, given.task)
        if not isinstance(task, TaskDefinition) and hasattr(task, "get_backend"):
            _left_out[_name(name or task.module_path)] = task
            return given
        if not isinstance(task, TaskDefinition) or registry.find(task.name) is not task:
            raise ConfigurationError(
                f"@periodic is given {given!r}, which is not a task as @task has made it. Write @periodic(…) above "
                "@task, or give it a call, as in periodic('@daily')(report.using(queue='slow').bind('week'))."
            )
        check_arguments(task, args, kwargs)
        register(
            DeclaredSchedule(
                name=_name(task.name if name is None else name),
                task=task,
                rhythm=Recurrence(cron, _interval(every), _zone_name(timezone) or settings.TIME_ZONE),
                args=args,
                kwargs=kwargs,
                options=stored_options(task, changes),
                jitter_seconds=_jitter(jitter),
                **check_catch_up(catch_up, catch_up_limit),
            )
        )
        return given

    return declare


def _changes(registered: TaskDefinition | None, task: TaskDefinition) -> dict[str, Any]:
    """Return the options that ``using()`` has given a task, beyond those that it was declared with."""
    declared_with = registered.given if registered is not None else {}
    return {
        name: value for name, value in task.given.items() if name not in declared_with or declared_with[name] != value
    }


def _interval(every: Any) -> Any:
    if isinstance(every, int | float) and not isinstance(every, bool):
        try:
            return dt.timedelta(seconds=every)
        except (OverflowError, ValueError):
            return every
    return every


def _zone_name(timezone: Any) -> Any:
    return str(timezone) if isinstance(timezone, dt.tzinfo) else timezone  # of a ZoneInfo its key


def register(schedule: DeclaredSchedule) -> None:
    """Add a schedule to those that the code declares. A module loaded again replaces its own."""
    other = _declared.get(schedule.name)
    if other is not None and (other.task is schedule.task or _origin(other.task) != _origin(schedule.task)):
        raise ConfigurationError(
            f"Two schedules are called {schedule.name!r}: one of {other.task.name} and one of {schedule.task.name}. "
            "Give one of them another name=."
        )
    _declared[schedule.name] = schedule


def declared() -> Mapping[str, DeclaredSchedule]:
    return dict(_declared)


def left_out() -> Mapping[str, Any]:
    """Return the tasks that have no schedule although the code declares one, because another backend runs them."""
    return dict(_left_out)


def check_arguments(task: TaskDefinition, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise InvalidSchedule unless the arguments fit the task; the message has no values."""
    try:
        task.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidSchedule(
            f"{task.name} takes {task.signature}, which the arguments of the schedule do not fit: {error}."
        ) from error


def stored_options(task: TaskDefinition, options: Mapping[str, Any]) -> dict[str, Any]:
    """Check options and return them as JSON has them, durations in seconds.

    Raises:
        InvalidSchedule: an option is not for schedules, or JSON cannot hold it.
        InvalidOption: an option is unknown, out of range or of the wrong type.
    """
    if forbidden := sorted(NOT_FOR_SCHEDULES & set(options)):
        raise InvalidSchedule(f"{', '.join(forbidden)} cannot be given to a schedule, which decides about it itself.")
    task.using(**options)
    stored = {key: as_json(value) for key, value in options.items()}
    try:
        return dict(json.loads(encode(stored, what="options")))
    except (TypeError, ValueError) as error:
        raise InvalidSchedule(f"An option of a schedule cannot be stored as JSON: {error}.") from error


def check_catch_up(catch_up: str, limit: int) -> dict[str, Any]:
    """Return both as they are; raise InvalidSchedule where one cannot work."""
    if catch_up not in tuple(CatchUp):
        raise InvalidSchedule(f"catch_up is one of {', '.join(map(repr, map(str, CatchUp)))}, not {catch_up!r}.")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= HIGHEST_CATCH_UP_LIMIT:
        raise InvalidSchedule(f"catch_up_limit is a whole number from 1 to {HIGHEST_CATCH_UP_LIMIT}, not {limit!r}.")
    return {"catch_up": str(catch_up), "catch_up_limit": limit}


def _name(name: str) -> str:
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME or "\0" in name:
        raise InvalidSchedule(f"name is a text of 1 to {LONGEST_NAME} characters, not {name!r}.")
    return name


def _jitter(jitter: Any) -> float:
    seconds = seconds_of(jitter)
    if isinstance(jitter, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST_JITTER_SECONDS:
        raise InvalidSchedule(f"jitter is 0 or more seconds, or a timedelta, of a day at most, not {jitter!r}.")
    return float(seconds)


def _origin(task: TaskDefinition) -> tuple[str, str]:
    return task.func.__module__, task.func.__qualname__
