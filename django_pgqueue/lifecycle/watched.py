"""Let those who watch runs see one. They have no say in it."""

from typing import Any

from django_pgqueue.base import hooks
from django_pgqueue.base.records import ClaimedJob, Outcome
from django_pgqueue.lifecycle.receivers import without_harm
from django_pgqueue.tasks import Task


class Watched:
    """One run as those in ``hooks.around_runs`` see it; made where it begins, in its context."""

    def __init__(self, task: Task[..., Any], job: ClaimedJob) -> None:
        self._job = job
        self._runs: list[hooks.Run] = []
        for hook in hooks.around_runs:
            with without_harm(job):
                if run := hook(task, job):
                    self._runs.append(run)

    def failed(self, error: BaseException, outcome: Outcome) -> None:
        for run in self._runs:
            with without_harm(self._job):
                run.failed(error, outcome)

    def ended(self, outcome: Outcome | None) -> None:
        for run in reversed(self._runs):
            with without_harm(self._job):
                run.ended(outcome)
