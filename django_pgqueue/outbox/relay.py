"""Hand the calls of the outboxes over to one database of the queue, each of them once, even after a crash.

The transaction on the database of the data stays open, with the rows locked, until those on the queue's have noted the
calls and made jobs of them. If the relay ends before it has removed the rows, they come again, and the notes say that
they are jobs already. A note goes once its row is gone for certain.
"""

import contextlib
import json
import logging
import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db import Error

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import QueueConnection, number_array
from django_pgqueue.db.errors import first_line, is_locked, is_too_much, is_transient
from django_pgqueue.db.notify import ADMIT, queue_payload, send_or_warn
from django_pgqueue.db.queries import statement
from django_pgqueue.jobs import unique
from django_pgqueue.keys import Keys
from django_pgqueue.outbox.writing import OUTBOX_SHIFT, Origin, job_id_of

logger = logging.getLogger("django_pgqueue.worker")

MOST_TOGETHER = 500
"""Maximum number of calls that are handed over in one transaction."""

LOCK_MILLISECONDS = 200  # for a unique key that an open transaction has just taken

REFUSED_SECONDS = 60.0
"""Interval at which a call is tried again that the queue's database has refused."""

PRUNE_SECONDS, KEEP_SECONDS = 3600.0, 86400.0
"""Interval at which notes of relays that have ended in between are pruned, and their least age."""


class WaitingCall(NamedTuple):
    """A row of the outbox; the columns of ``take_from_outbox.sql``."""

    row: int
    enqueued_at: Any
    call: str  # JSON


class HandedCalls(NamedTuple):
    """The result of handing calls over, by their rows. The others are locked by other sessions, and left."""

    done: list[int]
    refused: dict[int, str]  # with the reason


class Relay:
    """The pass, with its connections: one to the queue's database, one to that of each outbox.

    Args:
        alias: the database of the queue.
    """

    def __init__(self, alias: str) -> None:
        self._number = conf.number_of(alias)
        self._queue = QueueConnection(alias, "relay")
        self._outboxes = {number: QueueConnection(outbox, "relay") for outbox, number in conf.outboxes.items()}
        self._prune_at = -math.inf  # monotonic
        self.empty_at = -math.inf  # when the last pass began that has found nothing, monotonic

    def pass_once(self) -> float:
        """Hand over the due calls of each outbox, up to a bound; return the seconds until the next pass.

        Raises:
            django.db.Error: a database is away; calls of other outboxes are handed over all the same.
        """
        trouble: Error | None = None
        most, begun_at = 0, time.monotonic()
        for number, outbox in self._outboxes.items():
            try:
                most = max(most, self._hand_over_from(outbox, number))
                if begun_at >= self._prune_at:
                    self._prune(outbox, number)
            except Error as error:
                trouble = error
        if trouble is not None:
            raise trouble
        if begun_at >= self._prune_at:
            self._prune_at = begun_at + PRUNE_SECONDS
        if not most:
            self.empty_at = begun_at
        return 0.0 if most >= MOST_TOGETHER else conf.poll_seconds

    def close(self) -> None:
        for database in (self._queue, *self._outboxes.values()):
            database.close()

    def _hand_over_from(self, outbox: QueueConnection, number: int) -> int:
        with outbox.transaction():
            parameters = {"number": self._number, "limit": MOST_TOGETHER}
            calls = [WaitingCall._make(row) for row in outbox.rows(statement("take_from_outbox"), parameters)]
            if not calls:
                return 0
            handed = self._hand_over(calls, number)
            self._remove(outbox, handed)
        if handed.done:
            self._forget([job_id_of(self._number, number, row) for row in handed.done])
        return len(calls)

    def _hand_over(self, calls: Sequence[WaitingCall], number: int) -> HandedCalls:
        """Make jobs of calls in one transaction; if that fails, in smaller ones, until the one that fails is alone."""
        try:
            self._make_jobs(calls, number)
        except Error as error:
            if is_transient(error) and not is_locked(error) and not (is_too_much(error) and len(calls) > 1):
                raise
            reason: Exception = error
        except Exception as error:  # noqa: BLE001 - a call of other code must not stop the others
            reason = error
        else:
            return HandedCalls([call.row for call in calls], {})
        if len(calls) == 1:
            return HandedCalls([], {} if is_locked(reason) else {calls[0].row: first_line(reason)})
        half = len(calls) // 2
        first, second = self._hand_over(calls[:half], number), self._hand_over(calls[half:], number)
        return HandedCalls(first.done + second.done, first.refused | second.refused)

    def _make_jobs(self, calls: Sequence[WaitingCall], number: int) -> None:
        made: dict[str, dict[str, Any]] = {}
        keyed = [_keyed(call, job_id_of(self._number, number, call.row), made) for call in calls]
        inserted = unique.InsertResult([], [])
        with self._queue.transaction(lock_milliseconds=LOCK_MILLISECONDS):
            rows = self._queue.rows(
                statement("mark_handed_over"), {"ids": number_array([one.id or 0 for one in keyed])}
            )
            new = {job_id for (job_id,) in rows}
            keyed = [call for call in keyed if call.id in new]
            if keyed:
                inserted = unique.insert(self._queue, keyed)
                self._note_others(keyed, inserted)
        payloads = {*map(queue_payload, inserted.ready), *(ADMIT + key for key in inserted.limited)}
        if conf.notify and payloads:
            send_or_warn(self._queue, sorted(payloads))

    def _note_others(self, calls: Sequence[unique.KeyedCall], inserted: unique.InsertResult) -> None:
        met = [(call.id, job_id) for call, job_id in zip(calls, inserted.ids, strict=True) if call.id != job_id]
        if met:
            ids, job_ids = zip(*met, strict=True)
            self._queue.rows(statement("note_other_jobs"), {"ids": list(ids), "job_ids": list(job_ids)})

    def _remove(self, outbox: QueueConnection, handed: HandedCalls) -> None:
        if handed.done:
            outbox.rows(statement("delete_from_outbox"), {"ids": handed.done})
        for row, error in handed.refused.items():
            logger.error("Call %d in the outbox on %r is refused, and stays there: %s", row, outbox.alias, error)
            parameters = {"id": row, "error": error, "seconds": REFUSED_SECONDS}
            outbox.rows(statement("put_off_in_outbox"), parameters)

    def _forget(self, ids: list[int]) -> None:
        with contextlib.suppress(Error):  # the notes are pruned later
            self._queue.rows(statement("forget_handed_over"), {"ids": ids})

    def _prune(self, outbox: QueueConnection, number: int) -> None:
        first = job_id_of(self._number, number, 0)
        parameters = {"first": first, "last": first + (1 << OUTBOX_SHIFT) - 1, "seconds": KEEP_SECONDS, "limit": 1000}
        while old := [job_id for (job_id,) in self._queue.rows(statement("old_handed_over"), parameters)]:
            rows = {origin.row: job_id for job_id in old if (origin := Origin.of(job_id))}
            left = {row for (row,) in outbox.rows(statement("left_in_outbox"), {"ids": list(rows)})}
            gone = [job_id for row, job_id in rows.items() if row not in left]
            if not gone:
                return
            self._queue.rows(statement("prune_handed_over"), {"ids": gone})


def _keyed(waiting: WaitingCall, job_id: int, made: dict[str, dict[str, Any]]) -> unique.KeyedCall:
    """Return a call for ``unique.insert``; ``made``: options so far, one object for all calls with the same ones."""
    call = json.loads(waiting.call)
    text = json.dumps(call["options"], sort_keys=True)
    options = made.setdefault(text, call["options"] | {"in_transaction": True})
    return unique.KeyedCall(call["args"], call["kwargs"], Keys(*call["keys"]), options, job_id, waiting.enqueued_at)
