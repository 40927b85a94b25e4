"""What a child holds: each job from its claim until its outcome is written.

Each has a cell, the number of its place in the marks that the child shares with its supervisor. Its outcome is
unwritten, perhaps blocked because somebody has locked its row, and written; then the cell is free.
"""

import itertools
import math
import time
from collections.abc import Collection, Sequence

from django_pgqueue.records import ClaimedJob, Outcome
from django_pgqueue.runtime.marks import CAPACITY, Marks

Held = tuple[int, ClaimedJob]
"""A job with its cell."""

BLOCKED_SECONDS = 0.1
"""An outcome whose row somebody else has locked is tried again after this."""


class Book:
    """Kept by the pump; not safe for two threads at once.

    Attributes:
        unwritten: outcomes that are to be written, by cell.
    """

    def __init__(self, marks: Marks) -> None:
        self.unwritten: dict[int, Outcome] = {}
        self._marks = marks
        self._free = list(range(CAPACITY))
        self._blocked: dict[int, Outcome] = {}  # by cell
        self._blocked_until = math.inf  # when to try those again, monotonic
        self._abandoned = 0  # outcomes that cannot be written at all; held until this process ends

    def hold(self, jobs: Sequence[ClaimedJob]) -> list[Held]:
        """Write jobs down that were claimed, all at once: none may start while another is not in the marks."""
        cells = [self._free.pop() for _ in jobs]
        self._marks.hold(cells, jobs)
        return list(zip(cells, jobs, strict=True))

    def room(self) -> int:
        """Return how many more jobs may be held."""
        return len(self._free)

    def held(self) -> int:
        """Return how many jobs are held that are still to be written."""
        return CAPACITY - len(self._free) - self._abandoned

    def outstanding(self) -> int:
        """Return how many jobs are held that have not ended."""
        return self.held() - len(self.unwritten) - len(self._blocked)

    def blocked_until(self) -> float:
        """Return when what is blocked is to be tried again, monotonic; infinity if nothing is."""
        return self._blocked_until

    def batch(self, most: int) -> dict[int, Outcome]:
        """Return what to write now, each job once: an old run of a job may end beside the new one."""
        if time.monotonic() >= self._blocked_until:
            self.unwritten |= self._blocked
            self._blocked, self._blocked_until = {}, math.inf
        batch = dict(itertools.islice(self.unwritten.items(), most))
        cells = {outcome.job.id: cell for cell, outcome in batch.items()}
        return batch if len(cells) == len(batch) else {cell: batch[cell] for cell in cells.values()}

    def settle(self, batch: dict[int, Outcome], *, locked: Collection[int]) -> Collection[Outcome]:
        """Forget what is written, or can never be, and return it; put aside what somebody else has locked.

        Args:
            locked: ids of jobs.
        """
        for cell in batch:
            del self.unwritten[cell]
        if locked:
            blocked = {cell: outcome for cell, outcome in batch.items() if outcome.job.id in locked}
            batch = {cell: outcome for cell, outcome in batch.items() if cell not in blocked}
            self._blocked |= blocked
            self._blocked_until = time.monotonic() + BLOCKED_SECONDS
        self._marks.free(batch)
        self._free.extend(batch)
        return batch.values()

    def abandon(self, cell: int) -> None:
        """Give up writing an outcome; its job is left to the lease."""
        del self.unwritten[cell]
        self._abandoned += 1
