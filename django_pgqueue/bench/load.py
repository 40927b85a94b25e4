"""Load of a bench: numbers of jobs."""

from dataclasses import dataclass
from typing import Final

from django_pgqueue.exceptions import PgQueueError

QUEUE: Final = "pgqueue_bench"
"""The bench's own queue; whatever is on it is removed."""


class BenchFailed(PgQueueError):  # noqa: N818 - the name says what happened
    """There is no measurement. The message says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The jobs and their workers; validated by the command.

    Args:
        jobs: how many form the backlog, 1 or more.
        processes: worker processes, 1 or more.
        concurrency: jobs at once in each process, 1 or more.
        sleep_ms: between how many and how many milliseconds a handler sleeps; 0 and 0: it does nothing.
        is_async: whether the handlers are ``async def``.
        payload_bytes: size of the text that is each job's argument, 0 or more.
        history: whether the jobs are kept in the history when they are done.
    """

    jobs: int = 20_000
    processes: int = 1
    concurrency: int = 8
    sleep_ms: tuple[float, float] = (0.0, 0.0)
    is_async: bool = False
    payload_bytes: int = 0
    history: bool = False

    @property
    def slots(self) -> int:
        """The number of jobs that may run at once."""
        return self.processes * self.concurrency

    @property
    def slots_per_second(self) -> float | None:
        """Jobs a second that the slots could do if nothing but the sleep took time; None if handlers do not sleep."""
        mean_ms = sum(self.sleep_ms) / 2
        return self.slots / mean_ms * 1000 if mean_ms else None
