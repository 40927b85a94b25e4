"""Cache of the pauses and limits of queues in one child, and when to try a full queue again.

The claims themselves obey pauses and limits as they are in the database. The cache only decides which claim to send,
which jobs to give back, and when to look again.
"""

import math
import random
import time
from collections.abc import Iterable
from typing import NamedTuple

from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.flow.queue_limits import PendingLimits, QueueLimits, send_limits

LOOK_SECONDS = 0.7
"""Limits are read with the next statements after this; by themselves only where there is something to give back."""

TRY_SECONDS = 0.1
"""A queue that is full is tried again after this, and when one of its jobs has ended here."""

SHORTEST_SECONDS = 0.01  # minimum pause before a look, or before a queue that is full is tried again
MOST_TRIES = 100  # a second, at queues that let nothing in, all together

UNLIMITED = QueueLimits(is_paused=False, max_running=None, rate=None, period_seconds=None, burst=None)


class ExhaustedQueue(NamedTuple):
    until: float  # monotonic
    has_token: bool  # it is full, so that the end of a job may help


class LimitsCache:
    """Pauses and limits for one consumer; not safe for two threads at once, except for ``tell``."""

    def __init__(self) -> None:
        self._limits: dict[str, QueueLimits] = {}
        self._shut: dict[str, ExhaustedQueue] = {}
        self.look_at = 0.0  # not before, without another reason; monotonic
        self._pause_ends_at = math.inf  # of the first that does so by itself
        self._is_told = True

    def tell(self) -> None:
        self._is_told = True

    @property
    def is_empty(self) -> bool:
        """Whether no queue is paused or limited."""
        return not self._limits

    def due_at(self) -> float:
        """Return when a change, announced or the end of a pause, is a reason to look in itself, monotonic."""
        return 0.0 if self._is_told else self._pause_ends_at

    def look(self, database: QueueConnection) -> PendingLimits | None:
        """Ask for the limits along with other statements, if the cache is old; ``heed`` must get the answer."""
        if time.monotonic() < min(self.due_at(), self.look_at):
            return None
        self._is_told = False  # before the answer: changes from here on may not be in it
        return send_limits(database)

    def heed(self, answer: PendingLimits) -> set[str]:
        before = self._limits
        self._limits, seconds = answer.read()
        now = time.monotonic()
        self.look_at, self._pause_ends_at = now + LOOK_SECONDS, now + max(seconds, SHORTEST_SECONDS)
        changed = {queue for queue in {*before, *self._limits} if before.get(queue) != self._limits.get(queue)}
        for queue in changed:
            self._shut.pop(queue, None)
        return changed

    def is_paused(self, queue: str) -> bool:
        return self._limits.get(queue, UNLIMITED).is_paused

    def is_limited(self, queue: str) -> bool:
        return self._limits.get(queue, UNLIMITED).is_limited

    def is_open(self, queue: str) -> bool:
        return not self._limits or not (queue in self._shut or self.is_paused(queue))

    def shut(self, queue: str, token_seconds: float) -> None:
        """Leave a queue alone for a while that let in less than was asked for, and has more.

        Tokens are left to accumulate: a worker that took each by itself would ask all the time.

        Args:
            token_seconds: until there is one; 0 if there is, and the queue was full, or another session held its row.
        """
        fill = self._limits.get(queue, UNLIMITED).fill_seconds
        pause = TRY_SECONDS if fill is None else min(TRY_SECONDS, fill / 2)
        pause = max(token_seconds, pause, SHORTEST_SECONDS, len(self._shut) / MOST_TRIES)
        self._shut[queue] = ExhaustedQueue(time.monotonic() + pause * random.uniform(0.9, 1.1), token_seconds <= 0)  # noqa: S311

    def ended(self, queues: Iterable[str]) -> list[str]:
        return self._reopen(queue for queue in queues if queue in self._shut and self._shut[queue].has_token)

    def reopened(self) -> list[str]:
        now = time.monotonic()
        return self._reopen(queue for queue, shut in self._shut.items() if now >= shut.until)

    def reopen_at(self) -> float:
        return min((shut.until for shut in self._shut.values()), default=math.inf)

    def _reopen(self, queues: Iterable[str]) -> list[str]:
        reopened = list(queues)
        for queue in reopened:
            del self._shut[queue]
        return reopened
