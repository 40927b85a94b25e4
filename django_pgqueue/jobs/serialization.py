"""Encode arguments and results as JSON that PostgreSQL can store; explain a refusal by the path of the value."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Model, QuerySet
from django.db.models.manager import BaseManager

from django_pgqueue.conf import conf, is_sensitive_name
from django_pgqueue.exceptions import InvalidArguments
from django_pgqueue.jobs.redaction import REDACTED, SHOWN_CHARACTERS, shown
from django_pgqueue.options import MEANT, OF_JOBS
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.stored_values import DEEPEST, may_not_be_deep

Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]  # positional and keyword ones, of one job

MOST_SHAPES = 100  # maximum number of shapes of calls remembered of a task; of those beyond, each call is checked

REMEDIES: tuple[tuple[Any, str], ...] = (
    ((set, frozenset, bytes, FunctionType, MethodType, BuiltinFunctionType), "pass something JSON knows"),
    (Model, "pass its primary key, and get the object in the task"),
    (
        (QuerySet, BaseManager),
        "pass primary keys, as in list(….values_list('pk', flat=True)), and get the objects in the task",
    ),
    (Enum, "pass its value"),
    (PurePath, "pass its text, as str() returns it"),
)  # in place of values that no encoder of Django's takes either


def check_signature(task: TaskDefinition, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise InvalidArguments unless the arguments bind to the task's signature.

    Values decide nothing, so calls of the same shape are checked once.
    """
    shape = (len(args), *kwargs) if kwargs else len(args)
    if shape in task.shapes:
        return
    try:
        task.signature.bind(*args, **kwargs)
    except TypeError as error:
        seen = shown(task, args, kwargs)
        raise InvalidArguments(
            f"{task.name} takes {task.signature}, which args={_short(seen[0])} kwargs={_short(seen[1])} do not fit: "
            f"{error}.{_hint(task, kwargs)}"
        ) from error
    if len(task.shapes) < MOST_SHAPES:
        task.shapes.add(shape)


def _hint(task: TaskDefinition, kwargs: Mapping[str, Any]) -> str:
    """Return where options go that were given among the arguments."""
    others = kwargs.keys() - task.signature.parameters.keys()
    if named := sorted(others & OF_JOBS):
        return f" Options go into using({', '.join(f'{name}=…' for name in named)})."
    return "".join(f" Options go into using(…); for {name} {MEANT[name]}." for name in sorted(others & MEANT.keys()))


def encode_many(values: Sequence[Any], *, what: str) -> str | None:
    """Return values as one JSON array; None if all are empty.

    One call of the C encoder does for all, unless something is refused or suspicious, or together they are larger than
    one may be: then each is encoded alone, and errors name the position.
    """
    if not any(values):
        return None
    with contextlib.suppress(Exception):  # each alone says which one it is
        text = _dump(values)
        if len(text.encode()) <= conf.max_payload_bytes and "\\u0000" not in text and not is_deep(text):
            return text
    return f"[{','.join(encode(value, what=f'{what}[{index}]') for index, value in enumerate(values))}]"


def numbered(options: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the options of each job as parameters of a statement.

    Args:
        options: for each job the parameters that are none of its own; jobs with the same ones share one object.

    Returns:
        ``options``, each object once, as a JSON array whose elements have a ``number``; ``numbers``, for each job that
        of its options, as the text of a PostgreSQL array.
    """
    keys = [*map(id, options)]
    known = dict(zip(keys, options, strict=True))
    numbers = {key: str(number) for number, key in enumerate(known)}
    chosen = [{**one, "number": number} for number, one in enumerate(known.values())]
    return {
        "options": json.dumps(chosen, default=str),
        "numbers": f"{{{','.join([numbers[key] for key in keys])}}}",  # faster than to adapt a list
    }


def encode(value: Any, *, what: str) -> str:
    """Return ``value`` as JSON text that jsonb accepts.

    The C encoder runs first; only a value it refuses, or one with a suspicious text, is walked to find the culprit.

    Args:
        what: ``"args"``, ``"kwargs"``, ``"result"``; the beginning of the path in the error.

    Raises:
        InvalidArguments: not JSON, NaN or Infinity, NUL or a lone surrogate in a text, nested deeper than ``DEEPEST``,
            or larger than ``PGQUEUE["MAX_PAYLOAD_BYTES"]``. The message names the path.
    """
    try:
        text = _dump(value)
        size = len(text.encode())
    except Exception as error:  # of an encoder or a value of the project, which may raise anything
        raise InvalidArguments(f"Cannot be stored as JSON: {_first_problem(value, what) or error}.") from error
    if "\\u0000" in text and (problem := _first_problem(value, what)):
        raise InvalidArguments(f"Cannot be stored as JSON: {problem}.")
    if size > conf.max_payload_bytes:
        raise InvalidArguments(
            f"{what} is {size:,} bytes as JSON, more than PGQUEUE['MAX_PAYLOAD_BYTES'] = {conf.max_payload_bytes:,}. "
            "Store the data in a model or a file and pass its key."
        )
    if is_deep(text):
        _check_depth(text, what)
    return text


def check_keys(value: Any, *, what: str) -> None:
    """Raise InvalidArguments where a key of a mapping is no text: the task would get one, as JSON has no others."""
    match value:
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise InvalidArguments(
                        f"Cannot be stored as JSON: the key {_short(key)} of {what} is of the type "
                        f"{type(key).__name__}, and would come back as {str(key)!r}; make it a text."
                    )
                check_keys(item, what=f"{what}[{key!r}]")
        case list() | tuple():
            for index, item in enumerate(value):
                check_keys(item, what=f"{what}[{index}]")


def _check_depth(text: str, what: str) -> None:
    try:
        path = deep_path(json.loads(text))
    except RecursionError:
        path = ""
    if path is not None:
        raise InvalidArguments(
            f"Cannot be stored as JSON: {_cut(what + path)} is nested deeper than {DEEPEST} levels, which could not be "
            "shown. Make it flatter, or store the data in a model or a file and pass its key."
        )


def is_deep(text: str) -> bool:
    """Whether JSON may be nested deeper than ``DEEPEST``; brackets in its texts count too, so it may not be.

    Brackets alone are looked at, and level by level those of the innermost go.
    """
    if may_not_be_deep(text):
        return False
    brackets = text.encode("ascii", "ignore").translate(_AS_ARRAYS, _ALL_BUT_BRACKETS)
    for _ in range(DEEPEST):
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return False
    return True


def deep_path(value: Any) -> str | None:
    """Return the path to the first value that is nested too deeply; None where there is none."""
    pending: list[tuple[Any, str, int]] = [(value, "", 0)]
    while pending:
        one, path, depth = pending.pop()
        if isinstance(one, dict | list | tuple):
            if depth == DEEPEST:
                return path
            inner = one.items() if isinstance(one, dict) else enumerate(one)
            pending += [(item, f"{path}[{key!r}]", depth + 1) for key, item in inner]
    return None


_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_AS_ARRAYS = bytes.maketrans(b"{}", b"[]")  # so that one pass takes away one level, whichever it is


def _dump(value: Any) -> str:
    return json.dumps(value, cls=conf.json_encoder, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def _first_problem(value: Any, what: str) -> str | None:
    try:
        return next(_problems(value, what), None)
    except RecursionError:
        return f"{what} is nested too deeply, or contains itself"
    except Exception:  # noqa: BLE001 - of a value that cannot even be shown
        return None


def _problems(value: Any, path: str) -> Iterator[str]:
    match value:
        case None | bool() | int():
            return
        case str():
            yield from _text_problems(value, path)
        case float():
            if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 - NaN is what differs from itself
                yield f"{path} is {value!r}, which JSON has no word for"
        case list() | tuple():
            for index, item in enumerate(value):
                yield from _problems(item, f"{path}[{index}]")
        case dict():
            for key, item in value.items():
                yield from _text_problems(key, f"the key {key!r} of {path}") if isinstance(key, str) else ()
                yield from _problems(item, f"{path}[{key!r}]")
        case _:
            yield from _foreign_problems(value, path)


def _text_problems(text: str, path: str) -> Iterator[str]:
    if "\0" in text:
        yield f"{path} contains a NUL character, which PostgreSQL cannot store; remove it"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        culprit = text[error.start]
        yield f"{path} contains the lone surrogate {culprit!r}, which is not text; decode it with errors='replace'"


def _foreign_problems(value: Any, path: str) -> Iterator[str]:
    if conf.json_encoder is not None:
        try:
            encoded = json.loads(json.dumps(value, cls=conf.json_encoder))
        except Exception:  # noqa: BLE001, S110 - of an encoder of the project
            pass
        else:
            yield from _problems(encoded, path)
            return
    seen = REDACTED if is_sensitive_name(path) else _short(value)
    yield f"{path} is the {type(value).__name__} {seen}; {_remedy(value)}"


def _remedy(value: Any) -> str:
    for kinds, remedy in REMEDIES:
        if isinstance(value, kinds):
            return remedy
    if _takes(DjangoJSONEncoder, value):
        return (
            "pass its text, or set PGQUEUE['JSON_ENCODER'] to 'django.core.serializers.json.DjangoJSONEncoder'; "
            "either way the task gets text"
        )
    if conf.json_encoder is None:
        return "pass its key or text, or set PGQUEUE['JSON_ENCODER'] to a json.JSONEncoder of yours that knows it"
    return f"pass its key or text, or let PGQUEUE['JSON_ENCODER'], {conf.json_encoder.__name__}, return what JSON knows"


def _takes(encoder: type[json.JSONEncoder], value: Any) -> bool:
    try:
        json.dumps(value, cls=encoder)
    except Exception:  # noqa: BLE001 - what the value itself does, as text that is translated only now
        return False
    return True


def _short(value: Any) -> str:
    return _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS + 3 else f"{text[:SHOWN_CHARACTERS]}..."
