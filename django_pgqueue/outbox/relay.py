"""Hand the calls of an outbox over to one database of the queue, each of them once, even after a crash.

The transaction on the database of the data stays open, with the rows locked, until those on the queue's have noted the
calls and made jobs of them. If the relay ends before it has removed the rows, they come again, and the notes say that
they are jobs already.

A relay that stalls may lose its rows to another one and not know it. So a call is noted only for a limited time
after the relay has held its rows for certain, by the clock of the queue's database, and a note outlives its row for
longer than that.
"""

import contextlib
import datetime as dt
import json
import logging
import math
import os
import selectors
import time
from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from django.db import Error, OperationalError

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import QueueConnection, number_array
from django_pgqueue.db.errors import first_line, is_locked, is_transient, one_line
from django_pgqueue.db.notify import ADMIT, OUTBOX, queue_payload, send_or_warn
from django_pgqueue.db.queries import statement
from django_pgqueue.jobs import unique
from django_pgqueue.jobs.serialization import numbered
from django_pgqueue.keys import Keys
from django_pgqueue.outbox.writing import OUTBOX_SHIFT, Origin, job_id_of
from django_pgqueue.services import AdaptiveBatch

logger = logging.getLogger("django_pgqueue.worker")

MOST_FORGOTTEN = 5000
"""Maximum number of notes that are removed at once, but for one transaction's."""

NOTE_SECONDS = 60.0
"""Maximum time from when a relay has held the rows of calls for certain until it has noted these."""

FORGET_SECONDS = 300.0
"""Least age of a note that is removed: older than any relay that does not know of it, even if a clock was set."""

LOCK_MILLISECONDS = 200  # for a unique key that an open transaction has just taken
SHORT_LOCK_MILLISECONDS = 10  # the same, for the parts of a batch that was locked

LOCKED_SECONDS, MOST_LOCKED_SECONDS = 1.0, 60.0
"""Minimum and maximum interval at which a call is tried again whose key is locked for longer; else half its age."""

LOCKED = "an open transaction holds a lock that it needs, such as that of its unique key"
"""Reason that is stored with a call that waits for a lock."""

SPLIT_SECONDS = 5.0
"""Time after which a pass looks no further for calls that cannot be handed over, and leaves the rest to the next.

At most ``STATEMENT_TIMEOUT_SECONDS``: the transaction with the rows may take twice that.
"""

REFUSED_SECONDS = 60.0
"""Interval at which a call is tried again that the queue's database has refused."""

PRUNE_SECONDS, KEEP_SECONDS, MOST_PRUNED = 3600.0, 3600.0, 1000
"""Interval at which notes of relays that have ended are pruned, their least age, and how many of them a pass prunes."""


class WaitingCall(NamedTuple):
    """A row of the outbox; the columns of ``take_from_outbox.sql``."""

    row: int
    put_at: str  # when, in the format of ISO 8601
    unique_key: str | None
    concurrency_key: str | None
    fair_key: str | None
    options: str  # JSON, alike where the options are; so are the next two
    args: str
    kwargs: str


class HandedCalls(NamedTuple):
    """The result of handing calls over, by their rows. The others are left to the next pass."""

    done: list[int]
    locked: list[int]  # another session has locked their keys
    refused: dict[int, str]  # with the reason

    @property
    def number(self) -> int:
        return len(self.done) + len(self.locked) + len(self.refused)


class Gone(NamedTuple):
    """Calls that are noted as handed over, and whose rows are gone."""

    at: float  # monotonic, after they were noted
    ids: "array[int]"


class Relay:
    """The pass, with its connections: one to the queue's database, one to that of the outbox, which listens there.

    Args:
        alias: the database of the queue.
        outbox: the database with the outbox.

    Attributes:
        outbox: as given.
        empty_at: when the last pass began that has found nothing, monotonic.
        handed_over: number of calls that were handed over.
    """

    def __init__(self, alias: str, outbox: str) -> None:
        self.outbox = outbox
        self._number = conf.number_of(alias)
        self._outbox_number = conf.outboxes[outbox]
        self._queue = QueueConnection(alias, "relay")
        self._calls = QueueConnection(outbox, "relay")
        self._prune_at = -math.inf  # monotonic
        self.empty_at = -math.inf
        self.handed_over = 0
        self._batch = AdaptiveBatch()
        self._locked_until = -math.inf  # all calls are due again that were put off for a locked key, monotonic
        self._gone: deque[Gone] = deque()  # in the order of their times
        self._due_at = -math.inf  # the next pass, monotonic
        self._is_told = False  # of calls that the last pass may not have seen
        self._is_stopping = False
        self._woken_read, self._woken_write = os.pipe()
        os.set_blocking(self._woken_write, False)
        self._calls.listen(OUTBOX, self._hear)

    def serve_once(self) -> float:
        """Wait until calls are announced, or the next pass is due, and make it.

        Where a pooler is between, or the connection is away, nothing is announced: passes are due by ``POLL_SECONDS``.

        Returns:
            0: this waits by itself.

        Raises:
            django.db.Error: as ``pass_once``. The next pass is not waited for then.
        """
        self._wait()
        if not self._is_stopping:
            self._due_at = -math.inf
            self._due_at = time.monotonic() + self.pass_once()
        return 0.0

    def wake(self) -> None:
        """End a wait that is under way; may be called from any thread."""
        with contextlib.suppress(BlockingIOError):  # it is full: the wait under way has enough to end for
            os.write(self._woken_write, b"w")

    def stop(self) -> None:
        """Do the same, and make no pass afterwards."""
        self._is_stopping = True
        self.wake()

    def pass_once(self) -> float:
        """Hand over the due calls, up to a bound; return the seconds until the next pass.

        Raises:
            django.db.Error: a database is away.
        """
        begun_at, self._is_told = time.monotonic(), False
        with self._batch.taken() as most:
            number, is_more = self._hand_over_due(most)
        self._forget_gone()
        is_more |= begun_at >= self._prune_at and self._prune_slice(begun_at)
        if is_more:
            return 0.0
        if begun_at < self._locked_until:  # they come again, so that nothing is over
            return min(LOCKED_SECONDS, conf.poll_seconds)
        if not number:
            self.empty_at = begun_at
        return conf.poll_seconds

    def close(self) -> None:
        for database in (self._queue, self._calls):
            database.close()
        os.close(self._woken_read)
        os.close(self._woken_write)

    def _hear(self, payload: str | None) -> None:
        if payload in (None, str(self._number)):
            self._is_told = True

    def _wait(self) -> None:
        while not self._is_told and (seconds := self._due_at - time.monotonic()) > 0:
            with selectors.DefaultSelector() as selector:
                selector.register(self._woken_read, selectors.EVENT_READ)
                if self._calls.is_listening:
                    selector.register(self._calls.fileno(), selectors.EVENT_READ)
                ready = [key.fd for key, _ in selector.select(seconds)]
            if self._woken_read in ready:
                os.read(self._woken_read, 1024)
                return
            if ready:
                self._take_notifications()

    def _take_notifications(self) -> None:
        try:
            self._calls.take_notifications()
        except Error:
            self._calls.close()  # the pass opens another one, or says why it cannot
            self._is_told = True

    def _hand_over_due(self, most: int) -> tuple[int, bool]:
        """Hand over the calls that are due, up to a number; return how many were taken, and whether there may be more.

        There are where some of them were left, too.
        """
        until = time.monotonic() + min(SPLIT_SECONDS, conf.statement_timeout_seconds)
        with self._calls.transaction():
            parameters = {"number": self._number, "limit": most}
            calls = [WaitingCall._make(row) for row in self._calls.rows(statement("take_from_outbox"), parameters)]
            if not calls:
                return 0, False
            handed = self._hand_over(calls, LOCK_MILLISECONDS, until)
            self._remove_or_put_off(handed)
        self.handed_over += len(handed.done)
        self._gone.append(Gone(time.monotonic(), array("q", map(self._job_id, handed.done))))
        return len(calls), len(calls) >= most or len(calls) > handed.number

    def _job_id(self, row: int) -> int:
        return job_id_of(self._number, self._outbox_number, row)

    def _hand_over(self, calls: Sequence[WaitingCall], lock_milliseconds: int, until: float) -> HandedCalls:
        """Make jobs of calls in one transaction; if that fails, in smaller ones, until the one that fails is alone.

        Args:
            until: when the rest is left, monotonic. At least one call has been handed over or put off by then.
        """
        [(begun_at,)] = self._queue.rows("SELECT clock_timestamp()", {})
        self._calls.rows("SELECT 1", {})  # a session that has ended holds its rows no more: another relay may have them
        try:
            self._make_jobs(calls, begun_at, lock_milliseconds)
            return HandedCalls([call.row for call in calls], [], {})
        except Exception as error:  # as of a call of other code, which must not stop the others
            if is_transient(error) and not is_locked(error):
                raise
            reason = error
        if len(calls) == 1:
            row = calls[0].row
            return HandedCalls([], [row], {}) if is_locked(reason) else HandedCalls([], [], {row: first_line(reason)})
        half = len(calls) // 2
        first = self._hand_over(calls[:half], SHORT_LOCK_MILLISECONDS, until)
        if time.monotonic() >= until:
            return first
        second = self._hand_over(calls[half:], SHORT_LOCK_MILLISECONDS, until)
        return HandedCalls(first.done + second.done, first.locked + second.locked, first.refused | second.refused)

    def _make_jobs(self, calls: Sequence[WaitingCall], begun_at: dt.datetime, lock_milliseconds: int) -> None:
        by_id = {self._job_id(call.row): call for call in calls}
        options = {text: json.loads(text) | {"in_transaction": True} for text in {call.options for call in calls}}
        inserted = []
        with self._queue.transaction(lock_milliseconds=lock_milliseconds):
            new = {job_id: by_id[job_id] for job_id in self._note(by_id, begun_at)}
            if plain := {job_id: call for job_id, call in new.items() if call.unique_key is None}:
                inserted.append(self._insert(plain, options))
            if keyed := [_keyed(call, job_id, options) for job_id, call in new.items() if call.unique_key is not None]:
                inserted.append(unique.insert(self._queue, keyed))
                self._note_others(keyed, inserted[-1])
        self._announce(inserted)

    def _note(self, ids: Iterable[int], begun_at: dt.datetime) -> list[int]:
        """Note calls as handed over; return the ids of those that were not noted yet, in their order.

        Raises:
            django.db.OperationalError: the relay has stalled. Another one may have had the calls meanwhile, whose
                notes may be gone.
        """
        parameters = {"ids": number_array(ids), "begun_at": begun_at, "seconds": NOTE_SECONDS}
        [(new, is_in_time)] = self._queue.rows(statement("mark_handed_over"), parameters)
        if not is_in_time:
            raise OperationalError(f"Calls were not noted within {NOTE_SECONDS:g} s, and are looked at again.")
        return new or []

    def _insert(self, calls: Mapping[int, WaitingCall], options: Mapping[str, Any]) -> unique.InsertResult:
        """Insert jobs without unique keys, by their ids; their arguments stay texts, as those of calls are."""
        chosen = calls.values()
        parameters = {
            "number": len(calls),
            **numbered([options[call.options] for call in chosen]),
            "ids": number_array(calls),
            "put_ats": f"{{{','.join([call.put_at for call in chosen])}}}",
            "args": f"[{','.join([call.args for call in chosen])}]",
            "kwargs": f"[{','.join([call.kwargs for call in chosen])}]",
            "unique_keys": _array([None] * len(calls)),
            "concurrency_keys": _array([call.concurrency_key for call in chosen]),
            "fair_keys": _array([call.fair_key for call in chosen]),
        }
        rows = [unique.InsertedRow._make(row) for row in self._queue.rows(statement("hand_over"), parameters)]
        ready = {calls[row.id].options for row in rows if row.is_ready}
        limited = {key for row in rows if row.is_limited and (key := calls[row.id].concurrency_key) is not None}
        queues = {options[text]["queue"] for text in ready}
        return unique.InsertResult([*calls], [True] * len(calls), queues, limited)

    def _announce(self, inserted: Iterable[unique.InsertResult]) -> None:
        queues = {queue_payload(queue) for one in inserted for queue in one.ready}
        keys = {ADMIT + key for one in inserted for key in one.limited}
        if conf.notify and (queues or keys):
            send_or_warn(self._queue, sorted(queues | keys))

    def _note_others(self, calls: Sequence[unique.KeyedCall], inserted: unique.InsertResult) -> None:
        met = [(call.id, job_id) for call, job_id in zip(calls, inserted.ids, strict=True) if call.id != job_id]
        if met:
            ids, job_ids = zip(*met, strict=True)
            self._queue.rows(statement("note_other_jobs"), {"ids": list(ids), "job_ids": list(job_ids)})

    def _remove_or_put_off(self, handed: HandedCalls) -> None:
        if handed.done:
            self._calls.rows(statement("delete_from_outbox"), {"ids": number_array(handed.done)})
        if handed.locked:
            seconds = self._put_off(handed.locked, LOCKED, LOCKED_SECONDS, MOST_LOCKED_SECONDS)
            self._locked_until = max(self._locked_until, time.monotonic() + seconds)
        for row, error in handed.refused.items():
            logger.error("Call %d in the outbox on %r is refused, and stays there: %s", row, self.outbox, error)
            self._put_off([row], error, REFUSED_SECONDS, REFUSED_SECONDS)

    def _put_off(self, rows: Sequence[int], error: str, least: float, most: float) -> float:
        """Put off calls for half their ages, within bounds in seconds; return the longest of these times."""
        parameters = {"ids": number_array(rows), "error": error, "least_seconds": least, "most_seconds": most}
        pauses: list[float] = [seconds for (seconds,) in self._calls.rows(statement("put_off_in_outbox"), parameters)]
        return max(pauses)

    def _forget_gone(self) -> None:
        """Remove notes that are old enough; those of a relay that ends before are pruned."""
        ids: array[int] = array("q")
        while self._gone and self._gone[0].at <= time.monotonic() - FORGET_SECONDS and len(ids) < MOST_FORGOTTEN:
            ids += self._gone.popleft().ids
        if ids:
            with contextlib.suppress(Error):
                self._queue.rows(statement("forget_handed_over"), {"ids": number_array(ids)})

    def _prune_slice(self, begun_at: float) -> bool:
        """Remove some notes of relays that have ended; return whether there are more, for the next pass."""
        self._prune_at = begun_at + PRUNE_SECONDS
        try:
            is_more = self._prune()
        except Error as error:
            logger.warning(
                "Notes of calls in the outbox on %r are not pruned, and tried again in an hour: %s",
                self.outbox,
                one_line(error),
            )
            return False
        if is_more:
            self._prune_at = begun_at
        return is_more

    def _prune(self) -> bool:
        first = self._job_id(0)
        parameters = {
            "first": first,
            "last": first + (1 << OUTBOX_SHIFT) - 1,
            "seconds": KEEP_SECONDS,
            "met_days": conf.retention_days,
            "limit": MOST_PRUNED,
        }
        old = [job_id for (job_id,) in self._queue.rows(statement("old_handed_over"), parameters)]
        rows = {origin.row: job_id for job_id in old if (origin := Origin.of(job_id))}
        left = {row for (row,) in self._calls.rows(statement("left_in_outbox"), {"ids": list(rows)})}
        gone = [job_id for row, job_id in rows.items() if row not in left]
        self._queue.rows(statement("prune_handed_over"), {"ids": gone})
        return len(old) == MOST_PRUNED and bool(gone)


def _keyed(call: WaitingCall, job_id: int, options: Mapping[str, Any]) -> unique.KeyedCall:
    keys = Keys(call.unique_key, call.concurrency_key, call.fair_key)
    args, kwargs = json.loads(call.args), json.loads(call.kwargs)
    return unique.KeyedCall(args, kwargs, keys, options[call.options], job_id, call.put_at)


def _array(texts: Sequence[str | None]) -> Any:
    """Return texts as a parameter; without any, as the text of an array, which is faster than to adapt a list."""
    return list(texts) if any(text is not None for text in texts) else f"{{{','.join(['NULL'] * len(texts))}}}"
