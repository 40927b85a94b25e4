"""Retry a dead job with other arguments: a new job takes its place, and both know of each other."""

import itertools
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple

from django.utils.translation import gettext as _

from django_pgqueue.db.connections import CallerConnection, as_one
from django_pgqueue.db.notify import notify_due
from django_pgqueue.db.queries import statement
from django_pgqueue.jobs.enqueue import encode_arguments
from django_pgqueue.jobs.redaction import REDACTED, shown
from django_pgqueue.jobs.serialization import Arguments, check_signature
from django_pgqueue.keys import Keys
from django_pgqueue.options import Options
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.signals import announce, job_enqueued
from django_pgqueue.validation import check_snapshot

logger = logging.getLogger("django_pgqueue")


class RetryRefused(Enum):
    GONE = auto()  # it is not dead any more
    CHANGING = auto()  # another transaction has locked it
    KEY_HELD = auto()  # a live job has its unique key
    ALREADY = auto()  # the same form has been sent before


class RetryWithResult(NamedTuple):
    id: int | None  # of the new job; None where there is none
    refused: RetryRefused | None = None
    other: int | None = None  # the job that has the unique key, or that the same form has made


def retry_with(
    job_id: int,
    task: TaskDefinition,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    keys: Keys,
    queue: str,
    priority: int,
    form: str,
    by: str,
    database: str | None = None,
) -> RetryWithResult:
    """Enqueue a new job like a dead one, with other arguments, in the caller's transaction.

    It has the options and metadata of the dead one, all its attempts before it, and the dead one as its parent.
    Both histories get a note. The dead job stays dead. Workers are woken after the commit.

    Args:
        keys: of the new job; see ``keys_of``.
        form: any text; the same one makes one job only, even if it is sent several times.
        by: user who does it; kept in both histories.

    Raises:
        InvalidArguments: they do not fit the signature or are not JSON. Nothing was changed.
        InvalidOption: the queue or the priority cannot be. Nothing was changed.
    """
    caller, options = CallerConnection(database), Options(queue=queue, priority=priority)
    check_signature(task, args, kwargs)
    same = {"id": job_id, "form": form, "unique_key": keys.unique}
    parameters = {
        **same,
        **encode_arguments(task, args, kwargs),
        "queue": options.queue,
        "priority": options.priority,
        "task": task.name,
        "by": by,
        "concurrency_key": keys.concurrency,
        "concurrency_limit": task.options.limit_rule.running,
        "fair_key": keys.fair,
        "unique_until": task.options.unique_rule.until,
        "unique_hold_seconds": task.options.unique_rule.hold_seconds,
    }
    with as_one(caller):
        check_snapshot(caller.rows(statement("share_workflows"), {"ids": [job_id]}))
        rows = caller.rows(statement("retry_with"), parameters)
    if not rows:
        return _refused(caller.rows(statement("explain_not_retried"), same))
    [(new_id, queue, key)] = rows
    notify_due(caller, [(queue, key)])
    announce(job_enqueued, task.name, ids=[new_id], task=task.name, queue=queue, database=caller.alias)
    logger.info("Job %s retried with changed arguments as job %s by %s", job_id, new_id, by)
    return RetryWithResult(new_id)


def keys_of(task: TaskDefinition, keys: Keys, before: Arguments, after: Arguments) -> Keys:
    """Return the keys of a job with changed arguments: keys that its task has computed of them are computed again.

    Raises the exceptions of the task's own function for the new arguments.
    """
    try:
        computed = task.keys_of(*before)
    except Exception:  # noqa: BLE001 - a function of the task, which may not have liked what the job died of
        return keys
    anew = task.keys_of(*after)
    return Keys(*(new if key == was else key for key, was, new in zip(keys, computed, anew, strict=True)))


def _refused(rows: list[Any]) -> RetryWithResult:
    if not rows:
        return RetryWithResult(None, RetryRefused.GONE)
    [(made, holder)] = rows
    if made is not None:
        return RetryWithResult(None, RetryRefused.ALREADY, made)
    return RetryWithResult(None, RetryRefused.CHANGING if holder is None else RetryRefused.KEY_HELD, holder)


# Arguments that are edited by people who may not see sensitive values in them
#
# A numbered placeholder replaces each sensitive value. Wherever it is left, the value is put back; but only
# where that is hidden again, for otherwise it would have been read by moving it.


class Misplaced(ValueError):  # noqa: N818 - reads as what happened
    """A placeholder is in a place where its value cannot be restored; the message says which and why."""


@dataclass(frozen=True)
class Masked:
    args: Any
    kwargs: Any
    kept: Mapping[str, Any]  # the sensitive values by their placeholders


def masked(task: TaskDefinition, args: Any, kwargs: Any) -> Masked:
    """Return arguments with placeholders. The same arguments get the same ones every time."""
    seen_args, seen_kwargs = shown(task, args, kwargs)
    text = json.dumps([seen_args, seen_kwargs], ensure_ascii=False)
    names = (f"[redacted {number}]" for number in itertools.count(1))
    tokens = (name for name in names if name not in text)
    kept: dict[str, Any] = {}

    def mask(seen: Any, stored: Any) -> Any:
        match seen:
            case str() if seen == REDACTED and stored != REDACTED:
                token = next(tokens)
                kept[token] = stored
                return token
            case dict():
                return {key: mask(item, stored[key]) for key, item in seen.items()}
            case list():
                return [mask(item, one) for item, one in zip(seen, stored, strict=True)]
            case _:
                return stored

    return Masked(mask(seen_args, args), mask(seen_kwargs, kwargs), kept)


def unmasked(task: TaskDefinition, args: Any, kwargs: Any, kept: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return edited arguments with the values put back.

    Raises:
        Misplaced: a placeholder is where its value would be seen, or is part of a longer text.
    """
    restored = _restored(args, kept), _restored(kwargs, kept)
    if isinstance(restored[0], list) and isinstance(restored[1], dict):
        seen = shown(task, *restored)
        for token in (*_in_sight(args, seen[0], kept), *_in_sight(kwargs, seen[1], kept)):
            raise Misplaced(
                _("%(placeholder)s is where its value would be seen. Leave it where it was, or write a value.")
                % {"placeholder": token}
            )
    return restored


def _restored(value: Any, kept: Mapping[str, Any]) -> Any:
    match value:
        case str():
            if value in kept:
                return kept[value]
            if part := next((token for token in kept if token in value), None):
                raise Misplaced(
                    _("%(placeholder)s is part of a longer text, and its value cannot be put in there.")
                    % {"placeholder": part}
                )
            return value
        case dict():
            return {key: _restored(item, kept) for key, item in value.items()}
        case list():
            return [_restored(item, kept) for item in value]
        case _:
            return value


def _in_sight(given: Any, seen: Any, kept: Mapping[str, Any]) -> Iterator[str]:
    """Yield placeholders whose values, once put back, would not be hidden."""
    if isinstance(seen, str) and seen == REDACTED:
        return
    match given:
        case str() if given in kept:
            yield given
        case dict() if isinstance(seen, dict):
            for key, item in given.items():
                yield from _in_sight(item, seen.get(key), kept)
        case list() if isinstance(seen, list):
            for item, one in zip(given, seen, strict=False):
                yield from _in_sight(item, one, kept)
