"""What ``run_jobs`` has done."""

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, overload

from django_pgqueue.records import Fate, Outcome

SUCCEEDED, RETRIED, DIED, RELEASED = "succeeded", "retried", "died", "released"
WORDS = {
    Fate.SUCCEEDED: SUCCEEDED,
    Fate.REPEATED: SUCCEEDED,
    Fate.RECORDED: SUCCEEDED,
    Fate.RETRIED: RETRIED,
    Fate.DIED: DIED,
    Fate.RELEASED: RELEASED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One attempt of one job.

    Attributes:
        id: the job's.
        task: the name it was enqueued under.
        queue: its queue.
        attempt: the number of the attempt, from 1.
        outcome: ``"succeeded"``, ``"retried"``, ``"died"`` or ``"released"``.
        reason: why it died, a ``Reason``; "" where it did not.
        result: what the task returned, as JSON keeps it; None unless it succeeded.
        error: what was raised, ``Discard`` and ``RetryLater`` included.
        delay_seconds: after which a job that was retried or released is due again.
        at: the moment to which ``until=`` had moved the time; None without it.
    """

    id: int
    task: str
    queue: str
    attempt: int
    outcome: str
    reason: str = ""
    result: Any = field(default=None, repr=False)
    error: BaseException | None = field(default=None, repr=False)
    delay_seconds: float = 0.0
    at: dt.datetime | None = None

    @classmethod
    def of(cls, outcome: Outcome, error: BaseException | None, at: dt.datetime | None) -> Self:
        job, word = outcome.job, WORDS[outcome.fate]
        return cls(
            id=job.id,
            task=job.task,
            queue=job.queue,
            attempt=job.attempt,
            outcome=word,
            reason=str(outcome.reason or ""),
            result=json.loads(outcome.result or "null") if word == SUCCEEDED else None,
            error=error,
            delay_seconds=outcome.delay_seconds if word in (RETRIED, RELEASED) else 0.0,
            at=at,
        )

    def __str__(self) -> str:
        fate = f"{self.outcome} ({self.reason})" if self.reason else self.outcome
        again = f", due again in {self.delay_seconds:.3g} s" if self.outcome in (RETRIED, RELEASED) else ""
        return f"job {self.id} ({self.task}) attempt {self.attempt}: {fate}{again}"


@dataclass(frozen=True, slots=True)
class Report(Sequence[Run]):
    """All runs, in the order in which they were made."""

    runs: tuple[Run, ...] = ()

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Run]: ...
    def __getitem__(self, index: int | slice) -> Run | Sequence[Run]:
        return self.runs[index]

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    @property
    def succeeded(self) -> list[Run]:
        return self._those(SUCCEEDED)

    @property
    def failed(self) -> list[Run]:
        """Those that are retried or have died."""
        return self._those(RETRIED, DIED)

    @property
    def retried(self) -> list[Run]:
        return self._those(RETRIED)

    @property
    def died(self) -> list[Run]:
        return self._those(DIED)

    @property
    def released(self) -> list[Run]:
        """Those that asked to run later, and those whose task is unknown: back with the attempt restored."""
        return self._those(RELEASED)

    @property
    def errors(self) -> list[BaseException]:
        """What the failed ones have raised."""
        return [run.error for run in self.failed if run.error is not None]

    def __str__(self) -> str:
        counts = Counter(run.outcome for run in self.runs)
        head = ", ".join(f"{number} {word}" for word, number in counts.items()) or "nothing was run"
        return "\n".join([head, *map(str, self.runs)])

    def _those(self, *outcomes: str) -> list[Run]:
        return [run for run in self.runs if run.outcome in outcomes]
