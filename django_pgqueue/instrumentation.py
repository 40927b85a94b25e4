"""Hooks around the insert of jobs and around each run, for tracing, error reports and immediate mode.

Integrations register here when apps are loaded, so that the floors below need not know of them. Without any, this costs
a look at an empty list. Unlike receivers of signals they act in the context of the insert or run that they surround.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from django_pgqueue.conf import conf

if TYPE_CHECKING:
    from django_pgqueue.records import ClaimedJob, Outcome

logger = logging.getLogger("django_pgqueue")

T = TypeVar("T")


class InsertHook:
    """The insert of one job or many of a task, as a context manager around the statement. This one does nothing."""

    metadata: Mapping[str, str] = {}  # of each job, in addition to that of the caller

    def inserted(self, ids: list[int]) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class RunHook(Protocol):
    """One run of a job. All is called in the run's own context, which is left with it: nothing need be put back."""

    def failed(self, error: BaseException, outcome: "Outcome") -> None:
        """Take note of what the task has raised, while that is being handled."""
        ...

    def ended(self, outcome: "Outcome | None") -> None:
        """Take note of what the run came to; None: it was broken off on its way out."""
        ...


UNSEEN = InsertHook()

around_inserts: list[Callable[[Any, int], InsertHook | None]] = []  # of task and number; the first returned hook acts

around_runs: list[Callable[[Any, "ClaimedJob"], RunHook | None]] = []  # of task and job; None: nothing to do


def add(hook: T, place: list[T]) -> None:
    """Put a hook into one of the lists, once."""
    if hook not in place:
        place.append(hook)


def around_insert(task: Any, number: int) -> InsertHook:
    """Return what surrounds the insert of ``number`` jobs of a task; a hook that fails does not keep it from them."""
    for hook in around_inserts:
        try:
            seen = hook(task, number)
        except Exception:
            logger.exception("The enqueueing of %s cannot be watched, and goes on", task.name)
        else:
            if seen:
                return seen
    return UNSEEN


runners: list[Callable[[str, Collection[int]], None]] = []  # of immediate mode, added when apps are loaded


def run_if_immediate(alias: str, ids: Collection[int]) -> None:
    """Run jobs that have just been enqueued on an alias, once that is committed; where the setting is off, do nothing.

    Raises:
        Exception: as the first one that fails has raised it. The others stay in the queue. None is raised where
            ``PGQUEUE["IMMEDIATE_ERRORS"]`` is ``"log"``.
    """
    if conf.immediate and ids:
        for run in runners:
            run(alias, ids)
