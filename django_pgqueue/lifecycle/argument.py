"""Find jobs by the value of an argument, and never by one that people may not see.

The database compares what is stored. What it finds is looked at again here, as it would be shown: by a search for a
value nobody could otherwise guess what stands behind ``[redacted]``.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from django_pgqueue import registry
from django_pgqueue.db.connections import Database
from django_pgqueue.db.queries import statement
from django_pgqueue.lifecycle.redact import named, shown
from django_pgqueue.stored_values import read

NUMBER = re.compile(r"-?(0|[1-9]\d{0,99})(\.\d{1,99})?", re.ASCII)
WORDS = {"true": True, "false": False, "null": None}


def parameters(value: str | None, name: str | None) -> dict[str, Any]:
    """Return what the statements of ``browse`` need to compare arguments.

    Args:
        value: a text, a number or ``true``, ``false``, ``null``, as it is typed. None: nothing is compared.
        name: of a parameter. None: any argument may have the value.
    """
    return {
        "argument": json.dumps(meant(value)) if value is not None else None,
        "argument_name": name,
        "positions": json.dumps(dict(positions(name)) if name else {}),
    }


def visible(database: Database, table: str, ids: Sequence[int], value: str, name: str | None) -> list[int]:
    """Return those of the jobs that have the value where people may see it.

    Args:
        table: ``live``, ``dead`` or ``finished``.
    """
    if not ids:
        return []
    rows = database.rows(statement("arguments"), {"ids": list(ids), "table": table})
    found = {job_id for job_id, task, args, kwargs in rows if is_visible(task, read(args), read(kwargs), value, name)}
    return [job_id for job_id in ids if job_id in found]


def is_visible(task_name: str, args: Any, kwargs: Any, value: str, name: str | None) -> bool:
    """Whether an argument, or that of the name, is shown and has the value."""
    task = registry.find(task_name)
    args, kwargs = shown(task, args, kwargs)
    wanted = meant(value)
    return any(_is_one_of(one, wanted) for one in _candidates(task, args, kwargs, name))


def _candidates(task: Any, args: Any, kwargs: Any, name: str | None) -> Iterator[Any]:
    if isinstance(args, list):
        pairs: Iterable[tuple[Any, Any]] = named(task, args) if name and task else [(None, one) for one in args]
        yield from (one for called, one in pairs if name is None or called == name)
    if isinstance(kwargs, Mapping):
        yield from (one for called, one in kwargs.items() if name is None or called == name)


def meant(value: str) -> list[Any]:
    """Return what may be meant: the text, and the number or the word of JSON that it spells."""
    if value in WORDS:
        return [value, WORDS[value]]
    return [value, json.loads(value)] if NUMBER.fullmatch(value) else [value]


def _is_one_of(one: Any, wanted: Iterable[Any]) -> bool:
    """Compare as JSON does, where true is no number."""
    return any(one == value and isinstance(one, bool) == isinstance(value, bool) for value in wanted)


def positions(name: str) -> Iterator[tuple[str, int]]:
    """Yield the tasks that have a parameter of this name, each with its place among the positional ones."""
    for task_name in registry.answering():
        task = registry.find(task_name)
        parameters_of = list(task.signature.parameters.values()) if task else []
        positional = [one.name for one in parameters_of if one.kind in {one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD}]
        if name in positional:
            yield task_name, positional.index(name)
