"""Redact sensitive arguments of a job wherever the job is shown or written down.

The arguments themselves are in its row unchanged: the task needs them. Sensitive values are declared by names of
parameters, and of keys at any depth: those that a task declares, and those that ``PGQUEUE["SENSITIVE_PARAMETERS"]``
matches.
"""

import contextlib
import functools
import inspect
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, quote_plus

from django_pgqueue.conf import is_sensitive_name
from django_pgqueue.exceptions import InvalidArguments
from django_pgqueue.records import ClaimedJob
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.stored_values import NO_JSON, TOO_DEEP, Unreadable

REDACTED = "[redacted]"

SHORTEST = 4  # shorter values are not looked for in texts: too much else is spelled like them
MOST = 1000  # where there are more values to look for, nothing of the text is kept
MOST_SPELLINGS = 6 * MOST  # the same, for a few values of very many lines
SHOWN_CHARACTERS = 197  # maximum length of a refused value in a message

AnyTask = TaskDefinition | None
IsSensitive = Callable[[str], bool]  # by a name
Scrub = Callable[[str], str]


def shown(task: AnyTask, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return a job's arguments as people may see them; where the task is not known, all of it is sensitive."""
    are_arguments = isinstance(args, list | tuple) and isinstance(kwargs, Mapping)
    if task is None or task.sensitive_parameters is True or not are_arguments:
        return _hidden(args), _hidden(kwargs)
    hides = _hides(task)
    try:
        return [_show(name, value, hides) for name, value in named(task, args)], _show_within(dict(kwargs), hides)
    except RecursionError:
        return _hidden(args), _hidden(kwargs)


def shown_by_name(value: Any) -> Any:
    """Return JSON that belongs to no parameter, such as metadata, as people may see it."""
    try:
        return _show_within(value, is_sensitive_name)
    except RecursionError:
        return REDACTED


def named(task: TaskDefinition, args: Iterable[Any]) -> Iterator[tuple[str | None, Any]]:
    """Yield positional arguments with the names of their parameters; None where there is none."""
    parameters = task.signature.parameters.values()
    rest = next((one.name for one in parameters if one.kind is inspect.Parameter.VAR_POSITIONAL), None)
    return zip(itertools.chain(positional(task), itertools.repeat(rest)), args, strict=False)


def positional(task: TaskDefinition) -> list[str]:
    """Return the names of the parameters that positional arguments go to."""
    parameters = task.signature.parameters.values()
    return [one.name for one in parameters if one.kind in {one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD}]


@dataclass(frozen=True, slots=True)
class Scrubber:
    spellings: tuple[str, ...] = field(repr=False)  # their spellings, the longest first

    def __call__(self, text: str) -> str:
        for spelling in self.spellings:
            text = text.replace(spelling, REDACTED)
        return text


def scrub_end(scrub: Scrub, text: str, longest: int) -> str:
    """Return the end of a text, of about ``longest`` characters, scrubbed.

    A cut may leave the rest of a value, which would not be found. It is shorter than the longest value:
    this many characters more are looked at, and left out.
    """
    spellings = scrub.spellings if isinstance(scrub, Scrubber) else ()
    spare = max(map(len, spellings), default=0)
    if len(text) <= longest + spare:
        return scrub(text)
    text = text[-longest - spare :]
    begin = _behind(text, spare, spellings)
    return (REDACTED if begin > spare else "") + scrub(text[begin:])


def _behind(text: str, at: int, spellings: Iterable[str]) -> int:
    """Return the first place from ``at`` on that is inside no value."""
    is_moved = True
    while is_moved:
        is_moved = False
        for spelling in spellings:
            start = text.find(spelling, max(at - len(spelling) + 1, 0), at + len(spelling) - 1)
            if start != -1:
                at, is_moved = start + len(spelling), True
    return at


def scrubber(task: AnyTask, args: Any, kwargs: Any) -> Scrub:
    """Return a function that takes the sensitive values of these arguments out of a text."""
    found = set(itertools.islice(_secrets(task, args, kwargs), MOST + 1))
    spelled = list(itertools.islice((one for value in found for one in _spellings(value)), MOST_SPELLINGS + 1))
    if len(found) > MOST or len(spelled) > MOST_SPELLINGS:
        return lambda _text: REDACTED
    return Scrubber(tuple(sorted(set(spelled), key=len, reverse=True)))


def scrubber_of(task: AnyTask, job: ClaimedJob) -> Scrub:
    """Return the same for the arguments of a job. Where they cannot be read, nothing of a text is kept."""
    if job.args == "[]" and job.kwargs == "{}":
        return str
    try:
        return scrubber(task, json.loads(job.args), json.loads(job.kwargs))
    except Exception:  # noqa: BLE001 - the end of a run must be written down with any arguments
        return lambda _text: REDACTED


def scrub_json(value: Any, scrub: Callable[[str], Any]) -> Any:
    """Return JSON with each text in it scrubbed, or replaced in another way."""
    match value:
        case str():
            return scrub(value)
        case dict():
            return {key: scrub_json(item, scrub) for key, item in value.items()}
        case list():
            return [scrub_json(item, scrub) for item in value]
        case _:
            return value


@contextlib.contextmanager
def in_errors(calls: Iterable[tuple[AnyTask, Any, Any]]) -> Iterator[None]:
    """Let InvalidArguments through without the sensitive values of these calls: task, args and kwargs of each."""
    try:
        yield
    except InvalidArguments as error:
        text = str(error)
        try:
            for task, args, kwargs in calls:
                text = scrubber(task, args, kwargs)(text)
        except Exception:  # noqa: BLE001 - they are no valid arguments
            text = "Cannot be stored as JSON: the arguments are nested too deeply, or cannot be written as text."
        error.args = (text,)
        raise


def _hides(task: TaskDefinition) -> IsSensitive:
    return functools.partial(is_sensitive_name, declared=task.sensitive_parameters)


def _hidden(value: Any) -> Any:
    """Return the replacement of all arguments: for unreadable ones, the note that says so; for none, none."""
    return value if (isinstance(value, Unreadable) and value in {TOO_DEEP, NO_JSON}) or not value else REDACTED


def _show(name: str | None, value: Any, hides: IsSensitive) -> Any:
    return REDACTED if name is None or hides(name) else _show_within(value, hides)


def _show_within(value: Any, hides: IsSensitive) -> Any:
    match value:
        case dict():
            return {key: _show(str(key), item, hides) for key, item in value.items()}
        case list() | tuple():
            return [_show_within(item, hides) for item in value]
        case _:
            return value


def _secrets(task: AnyTask, args: Any, kwargs: Any) -> Iterator[str]:
    if task is None or not (isinstance(args, list | tuple) and isinstance(kwargs, Mapping)):
        yield from _leaves([args, kwargs], lambda _: True, is_secret=True)
        return
    hides = _hides(task)
    for name, value in named(task, args):
        yield from _leaves(value, hides, is_secret=name is None or hides(name))
    yield from _leaves(dict(kwargs), hides, is_secret=False)


def _leaves(value: Any, hides: IsSensitive, *, is_secret: bool) -> Iterator[str]:
    match value:
        case dict():
            for key, item in value.items():
                yield from _leaves(str(key), hides, is_secret=is_secret)
                yield from _leaves(item, hides, is_secret=is_secret or hides(str(key)))
        case list() | tuple():
            for item in value:
                yield from _leaves(item, hides, is_secret=is_secret)
        case _:
            if is_secret and not isinstance(value, bool | None):
                yield from (text for text in _texts(value) if len(text) >= SHORTEST)


def _texts(value: Any) -> tuple[str, ...]:
    """Return how a value is written in messages; one that is no JSON may have been cut there."""
    if isinstance(value, str | int | float):
        return (str(value),)
    return str(value), repr(value), repr(value)[:SHOWN_CHARACTERS]


def _spellings(value: str) -> Iterator[str]:
    yield value
    yield repr(value)[1:-1]
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield quote(value, safe="", errors="replace")
    yield quote_plus(value, errors="replace")
    if "\n" in value:
        yield from (line for line in value.splitlines() if len(line) >= 2 * SHORTEST)
