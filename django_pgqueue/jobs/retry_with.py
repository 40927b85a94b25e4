"""Retry a dead job with other arguments: a new job takes its place, and both know of each other."""

import logging
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, NamedTuple

from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.notify import notify_keys, notify_queues
from django_pgqueue.db.queries import statement
from django_pgqueue.jobs.redaction import in_errors
from django_pgqueue.jobs.serialization import Call, check_signature, encode
from django_pgqueue.options import Keys, Options
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.signals import job_enqueued

logger = logging.getLogger("django_pgqueue")


class RetryRefused(Enum):
    """Reason why there is no new job."""

    GONE = auto()  # it is not dead any more
    CHANGING = auto()  # another transaction has locked it
    KEY_HELD = auto()  # a live job has its unique key
    ALREADY = auto()  # the same form has been sent before


class RetryWithResult(NamedTuple):
    """Result of a retry.

    Attributes:
        id: of the new job; None where there is none.
        other: the job that has the unique key, or that the same form has made.
    """

    id: int | None
    refused: RetryRefused | None = None
    other: int | None = None


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
        task: that of the dead job.
        keys: of the new job; see ``keys_of``.
        form: any text, of which the same makes one job only, however often it is sent.
        by: who does it; stands in both histories.

    Raises:
        InvalidArguments: they do not fit the signature or are not JSON. Nothing was changed.
        InvalidJob: the queue or the priority cannot be. Nothing was changed.
    """
    caller, options = CallerConnection(database), Options(queue=queue, priority=priority)
    check_signature(task, args, kwargs)
    with in_errors(task, [(args, kwargs)]):
        texts = {"args": encode(args, what="args"), "kwargs": encode(kwargs, what="kwargs")}
    parameters: dict[str, Any] = {"queue": options.queue, "priority": options.priority, "task": task.name, "by": by}
    parameters |= {
        "concurrency_key": keys.concurrency,
        "concurrency_limit": task.options.concurrency_limit,
        "fair_key": keys.fair,
        "unique_scope": task.options.unique_scope,
        "unique_for_seconds": task.options.unique_for_seconds,
    }
    same = {"id": job_id, "form": form, "unique_key": keys.unique}
    rows = caller.rows(statement("retry_with"), texts | parameters | same)
    if not rows:
        return _refused(caller.rows(statement("explain_not_retried"), same))
    [(new_id, queue, key)] = rows
    if key is None:
        notify_queues(caller.alias, queue)
    else:
        notify_keys(caller.alias, {key})
    if job_enqueued.receivers:
        job_enqueued.send_robust(task.name, ids=[new_id], task=task.name, queue=queue, database=caller.alias)
    logger.info("Job %s retried with changed arguments as job %s by %s", job_id, new_id, by)
    return RetryWithResult(new_id)


def keys_of(task: TaskDefinition, keys: Keys, before: Call, after: Call) -> Keys:
    """Return the keys of a job with changed arguments: what its task has computed of them is computed anew.

    Args:
        keys: those that the job has.
        before: the arguments that it has.

    Raises:
        Exception: whatever the task's own function raises for the new arguments.
    """
    try:
        computed = task.keys(*before)
    except Exception:  # noqa: BLE001 - a function of the task, which may not have liked what the job died of
        return keys
    anew = task.keys(*after)
    return Keys(*(new if key == was else key for key, was, new in zip(keys, computed, anew, strict=True)))


def _refused(rows: list[Any]) -> RetryWithResult:
    if not rows:
        return RetryWithResult(None, RetryRefused.GONE)
    [(made, holder)] = rows
    if made is not None:
        return RetryWithResult(None, RetryRefused.ALREADY, made)
    return RetryWithResult(None, RetryRefused.CHANGING if holder is None else RetryRefused.KEY_HELD, holder)
