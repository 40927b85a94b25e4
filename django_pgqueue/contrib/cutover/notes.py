"""Note in the row of a call where it has arrived and what came of it. A note that fails is logged and harms nothing."""

import hashlib
import json
import logging
import threading
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import Error, connections, transaction
from django.db.models.functions import Coalesce, Now

from django_pgqueue.conf import conf
from django_pgqueue.contrib.cutover.enqueue import CallTag

logger = logging.getLogger("django_pgqueue.contrib.cutover")


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
    kind = type(error)
    values = {"outcome": "failed", "detail": f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")}
    if connections[conf.database].in_atomic_block:  # it is about to be rolled back, and the note with it
        _note_elsewhere(side, mark, values)
    else:
        _note(side, mark, values)


def digest(result: Any) -> str:
    """Return a text that is the same for equal results; empty for one that cannot be written as JSON."""
    try:
        text = json.dumps(result, cls=DjangoJSONEncoder, sort_keys=True)
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
    from django_pgqueue.contrib.cutover.models import Call  # noqa: PLC0415 - tasks are declared before apps are loaded

    arrived = {f"{side}_arrived_at": Coalesce(f"{side}_arrived_at", Now())}
    try:
        with transaction.atomic(using=conf.database):  # a savepoint, where a transaction is open
            Call.objects.using(conf.database).filter(pk=mark.call).update(
                **arrived, **{f"{side}_{name}": value for name, value in values.items()}
            )
    except Error:
        logger.exception("The call %s is not noted on the %s side", mark.call, side)
