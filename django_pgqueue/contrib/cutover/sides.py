"""Wrappers of the functions of both sides: the one that leads runs a call, the other notes its arrival."""

import functools
import hashlib
import inspect
import json
import logging
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.core.serializers.json import DjangoJSONEncoder
from django.db import Error, connections, transaction
from django.db.models.functions import Coalesce, Now

from django_pgqueue.conf import conf
from django_pgqueue.contrib.cutover.enqueue import KEY, CallTag
from django_pgqueue.exceptions import Snooze
from django_pgqueue.jobs.context import find_current

logger = logging.getLogger("django_pgqueue.contrib.cutover")

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
    call: Any = func

    def run(*args: Any, **kwargs: Any) -> Any:
        mark = mark_of(kwargs)
        if mark is None:
            return call(*args, **kwargs)
        note_arrival(side, mark)
        if not mark.is_run_by(side):
            return None
        try:
            result = call(*args, **kwargs)
        except BaseException as error:
            note_failure(side, mark, error)
            raise
        note_success(side, mark, result)
        return result

    async def arun(*args: Any, **kwargs: Any) -> Any:
        mark = mark_of(kwargs)
        if mark is None:
            return await call(*args, **kwargs)
        await sync_to_async(note_arrival)(side, mark)
        if not mark.is_run_by(side):
            return None
        try:
            result = await call(*args, **kwargs)
        except BaseException as error:
            await sync_to_async(note_failure)(side, mark, error)
            raise
        await sync_to_async(note_success)(side, mark, result)
        return result

    wrapped: Callable[P, R] = functools.wraps(func)(arun if inspect.iscoroutinefunction(func) else run)
    return wrapped


def _mark_of_job(_kwargs: dict[str, Any]) -> CallTag | None:
    job = find_current()
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


# Notes in the row of a call
#
# Where it has arrived, and its results. A note that fails is logged and harms nothing.


def note_arrival(side: str, mark: CallTag) -> None:
    """Note that a side has got the call.

    Not in a transaction of a task's own: the row would be locked for as long as that lasts. Its outcome says it too.
    """
    if not connections[conf.database].in_atomic_block:
        _note(side, mark, {})


def note_success(side: str, mark: CallTag, result: Any) -> None:
    """Note that a side has run the call, with a digest of the result where results are compared."""
    _note(side, mark, {"outcome": "succeeded", "detail": digest(result) if mark.compares else ""})


def note_failure(side: str, mark: CallTag, error: BaseException) -> None:
    """Note that a run of the call has failed, and by which exception."""
    if isinstance(error, Snooze):  # no outcome yet
        return
    kind = type(error)
    values = {"outcome": "failed", "detail": f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")}
    if connections[conf.database].in_atomic_block:  # it is about to be rolled back, and the note with it
        _note_elsewhere(side, mark, values)
    else:
        _note(side, mark, values)


def digest(result: Any) -> str:
    """Return a text that is the same for equal results; empty for one that cannot be written as JSON."""
    try:
        text = json.dumps(result, cls=conf.json_encoder or DjangoJSONEncoder, sort_keys=True)
    except (TypeError, ValueError):
        return ""
    return hashlib.sha256(text.encode()).hexdigest()


def _note_elsewhere(side: str, mark: CallTag, values: dict[str, str]) -> None:
    def note() -> None:
        _note(side, mark, values)
        connections[conf.database].close()

    thread = threading.Thread(target=note, name="pgqueue-cutover")  # Django's connections are those of a thread
    thread.start()
    thread.join()


def _note(side: str, mark: CallTag, values: dict[str, str]) -> None:
    from django_pgqueue.contrib.cutover.models import CutoverCall  # noqa: PLC0415 - tasks are declared before apps are loaded

    arrived = {f"{side}_arrived_at": Coalesce(f"{side}_arrived_at", Now())}
    try:
        with transaction.atomic(using=conf.database):  # a savepoint, where a transaction is open
            CutoverCall.objects.using(conf.database).filter(pk=mark.call).update(
                **arrived, **{f"{side}_{name}": value for name, value in values.items()}
            )
    except Error:
        logger.exception("The call %s is not noted on the %s side", mark.call, side)
