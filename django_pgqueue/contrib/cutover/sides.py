"""Wrappers of the functions of both sides: the one that leads runs a call, the other notes its arrival."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async

from django_pgqueue.contrib.cutover.enqueue import KEY, CallTag
from django_pgqueue.contrib.cutover.notes import note_arrival, note_failure, note_success
from django_pgqueue.exceptions import RetryLater
from django_pgqueue.jobs.context import current_job

P = ParamSpec("P")
R = TypeVar("R")


def new_side(func: Callable[P, R]) -> Callable[P, R]:
    """Wrap the function of our task; goes below ``@task``. Calls without a mark just run."""
    return _side("new", func, _mark_of_job)


def old_side(func: Callable[P, R]) -> Callable[P, R]:
    """Wrap the function of the old queue's task; goes below its decorator. Calls without a mark just run.

    The mark is a keyword argument more, which the function does not get to see.
    """
    wrapped = _side("old", func, _mark_of_keyword)
    wrapped.__signature__ = _with_keyword(inspect.signature(func))  # type: ignore[attr-defined]
    return wrapped


def _side(side: str, func: Callable[P, R], mark_of: Callable[[dict[str, Any]], CallTag | None]) -> Callable[P, R]:
    wrap = _coroutine if inspect.iscoroutinefunction(func) else _plain
    wrapped: Callable[P, R] = functools.wraps(func)(wrap(side, func, mark_of))
    return wrapped


def _plain(side: str, func: Callable[..., Any], mark_of: Callable[[dict[str, Any]], CallTag | None]) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        mark = mark_of(kwargs)
        if mark is None:
            return func(*args, **kwargs)
        note_arrival(side, mark)
        if not mark.is_run_by(side):
            return None
        try:
            result = func(*args, **kwargs)
        except RetryLater:  # no outcome yet
            raise
        except BaseException as error:
            note_failure(side, mark, error)
            raise
        note_success(side, mark, result)
        return result

    return run


def _coroutine(side: str, func: Callable[..., Any], mark_of: Callable[[dict[str, Any]], CallTag | None]) -> Any:
    async def run(*args: Any, **kwargs: Any) -> Any:
        mark = mark_of(kwargs)
        if mark is None:
            return await func(*args, **kwargs)
        await sync_to_async(note_arrival)(side, mark)
        if not mark.is_run_by(side):
            return None
        try:
            result = await func(*args, **kwargs)
        except RetryLater:  # no outcome yet
            raise
        except BaseException as error:
            await sync_to_async(note_failure)(side, mark, error)
            raise
        await sync_to_async(note_success)(side, mark, result)
        return result

    return run


def _mark_of_job(_kwargs: dict[str, Any]) -> CallTag | None:
    job = current_job()
    given = job.metadata.get(KEY) if job else None
    return CallTag(**given) if given else None


def _mark_of_keyword(kwargs: dict[str, Any]) -> CallTag | None:
    given = kwargs.pop(KEY, None)
    return CallTag(**given) if given else None


def _with_keyword(signature: inspect.Signature) -> inspect.Signature:
    """Return the signature with the mark in it: queues that check arguments ask for it."""
    mark = inspect.Parameter(KEY, inspect.Parameter.KEYWORD_ONLY, default=None)
    parameters = list(signature.parameters.values())
    is_open = bool(parameters) and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD
    parameters.insert(len(parameters) - is_open, mark)
    return signature.replace(parameters=parameters)
