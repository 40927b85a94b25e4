"""Backoff of a consumer after database errors: time to wait, and number of outcomes to write at once after that."""

import logging
import time
from collections.abc import Collection, Iterable

from django.db import Error

from django_pgqueue.db.errors import is_too_much, one_line
from django_pgqueue.records import Outcome
from django_pgqueue.retry_policy import reconnect_delay
from django_pgqueue.worker.shared_state import CAPACITY, SharedState

logger = logging.getLogger("django_pgqueue.worker")


class DatabaseBackoff:
    """Number of failures in a row, which health probes read from the shared state, and the waits after them."""

    def __init__(self, shared: SharedState) -> None:
        self.most = CAPACITY  # outcomes in one transaction; halved when they were too much
        self.in_doubt: set[int] = set()  # run ids of jobs whose outcomes may be written though the answer was lost
        self.failures = 0
        self.claim_at = 0.0  # no claim before, monotonic
        self._failed_claims = 0  # in a row, sent apart
        self._shared = shared
        self._reason = ""  # of the last failure
        self._retry_at = 0.0  # not before, monotonic

    def seconds_left(self) -> float:
        return max(self._retry_at - time.monotonic(), 0.0) if self._retry_at else 0.0

    def met(
        self, error: Error, outcomes: Collection[Outcome], *, may_be_written: bool, has_ended_session: bool = False
    ) -> None:
        """Note a failed cycle.

        Args:
            may_be_written: its outcomes were sent, and the server reported no failure.
            has_ended_session: the session began and was lost. The second time in a row, one of the outcomes may be the
                reason: fewer are sent then, as after too much work.
        """
        self.failures += 1
        self._note()
        self._retry_at = time.monotonic() + reconnect_delay(self.failures)
        if is_too_much(error) or (has_ended_session and self.failures > 1):
            self.most = max((len(outcomes) or self.most) // 2, 1)
        if may_be_written:
            self.in_doubt.update(outcome.job.run_id for outcome in outcomes)
        reason = one_line(error)
        if self.failures % 10 == 1 or reason != self._reason:
            logger.warning("The consumer cannot work with the database (failure %d): %s", self.failures, reason)
        self._reason = reason

    def doubtful(self, outcomes: Iterable[Outcome], *, stale: Collection[int]) -> list[Outcome]:
        """Return the outcomes that may have been written before, of those whose lease is gone.

        One that was written looks as if it had lost its lease when it is written once more. So does one that was not,
        if another worker has the job by now.
        """
        if not self.in_doubt:
            return []
        return [outcome for outcome in outcomes if outcome.job.id in stale and outcome.job.run_id in self.in_doubt]

    def settled(self, outcomes: Iterable[Outcome]) -> None:
        if self.in_doubt:
            self.in_doubt.difference_update(outcome.job.run_id for outcome in outcomes)

    def over(self) -> None:
        self.most = min(self.most * 2, CAPACITY)
        if self.failures:
            logger.warning("The consumer works again after %d failures", self.failures)
        self.failures, self._retry_at = 0, 0.0
        self._note()

    def met_by_claim(self) -> None:
        self._failed_claims += 1
        self._note()
        self.claim_at = time.monotonic() + reconnect_delay(self._failed_claims)

    def claimed(self) -> None:
        if self._failed_claims:
            self._failed_claims, self.claim_at = 0, 0.0
            self._note()

    def _note(self) -> None:
        self._shared.note_failures(max(self.failures, self._failed_claims))
