"""Registered tasks, for people and programs: options, schedules in code, former names."""

import dataclasses
import datetime as dt
from collections.abc import Mapping
from typing import Any

from django_pgqueue import keys
from django_pgqueue.insights.formatting import plain
from django_pgqueue.options import Options, RetryRules, TaskRules
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.retry_policy import BackoffRule, Discards
from django_pgqueue.schedules.periodic import declared

OF_EVERY_TASK = frozenset({"queue", "priority", "max_attempts", "timeout", "lease"})
"""Options that are always shown; the others only if they are not the default."""


def options_of(task: TaskDefinition) -> dict[str, Any]:
    """Return the options of a task by name, values as JSON has them, durations in seconds."""
    options, default = task.options, Options()
    found = {
        "queue": options.queue,
        "priority": options.priority,
        "max_attempts": options.attempts_allowed,
        "timeout": options.timeout_seconds or None,
        "lease": options.lease_seconds,
    }
    names = [option.name for option in dataclasses.fields(Options) if option.name not in OF_EVERY_TASK]
    found |= {name: getattr(options, name) for name in names if getattr(options, name) != getattr(default, name)}
    return {name: _as_json(value) for name, value in (found | _own_options(task)).items()}


def _own_options(task: TaskDefinition) -> dict[str, Any]:
    """Return the options of the task itself that differ from their defaults; ``as_json`` has its aliases."""
    in_force = vars(task) | vars(task.retry_rules) | {"capture_logs": task.capture_logs_from or None}
    default = vars(TaskRules()) | vars(RetryRules())
    names = [rule.name for rule in dataclasses.fields(TaskRules) if rule.name != "aliases"]
    return {name: in_force[name] for name in names if in_force[name] != default[name]}


def _as_json(value: Any) -> Any:
    match value:
        case BackoffRule():
            value = value.function
        case Discards():
            value = value.kinds
    value = keys.as_json(value)
    if isinstance(value, Mapping):
        if not value:
            return True  # a rule without anything that is not as by default
        return {name: _as_json(one) for name, one in value.items()}
    if isinstance(value, frozenset | tuple | list):
        return [_as_json(one) for one in (sorted(value) if isinstance(value, frozenset) else value)]
    if not callable(value):
        return value
    name = getattr(value, "__qualname__", "<")
    return "a function" if "<" in name else f"{value.__module__}.{name}"


def as_json(task: TaskDefinition) -> dict[str, Any]:
    """Return what the code says of a task; nothing is asked of the database."""
    return {
        "name": task.name,
        "aliases": list(task.aliases),
        "function": f"{task.func.__module__}.{task.func.__qualname__}",
        "is_async": task.is_async,
        "backend": task.backend,
        "options": options_of(task),
        "schedules": [
            {
                "name": schedule.name,
                "cron": schedule.rhythm.cron,
                "every_seconds": schedule.rhythm.every.total_seconds() if schedule.rhythm.every else None,
                "timezone": schedule.rhythm.timezone,
            }
            for schedule in declared().values()
            if schedule.task.name == task.name
        ],
    }


def _in_words(value: Any) -> str:
    if isinstance(value, Mapping):
        named = {name: one for name, one in value.items() if one is not None}
        return ", ".join(name if one is True else f"{name} {_inner(one)}" for name, one in named.items())
    return " and ".join(map(str, value)) if isinstance(value, list) else str(value)


def _inner(value: Any) -> str:
    return f"({_in_words(value)})" if isinstance(value, Mapping) else _in_words(value)


def described(task: TaskDefinition) -> list[str]:
    told = as_json(task)
    options = _in_words(told["options"])
    backend = f", of the backend {task.backend} of TASKS" if task.backend else ""
    lines = [task.name, f"  {'async, ' if task.is_async else ''}{options}{backend}"]
    for schedule in told["schedules"]:
        when = f"cron {schedule['cron']} ({schedule['timezone']})"
        if not schedule["cron"]:
            when = f"every {dt.timedelta(seconds=schedule['every_seconds'])}"
        lines.append(f"  schedule {schedule['name']}: {when}")
    if task.aliases:
        lines.append(f"  formerly {', '.join(task.aliases)}")
    return [plain(line) for line in lines]
