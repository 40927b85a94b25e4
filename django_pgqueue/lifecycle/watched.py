"""Let those who watch runs see one. They have no say in it."""

from collections.abc import Sequence

from django_pgqueue import instrumentation
from django_pgqueue.lifecycle.receivers import log_harm, without_harm
from django_pgqueue.records import ClaimedJob, Outcome
from django_pgqueue.registry import TaskDefinition


def watch(task: TaskDefinition, job: ClaimedJob) -> "Watched | None":
    """Return a run as those in ``hooks.around_runs`` see it; None where none of them has anything to do.

    Called where the run begins, in its context, and for each job: so without a context manager.
    """
    runs = []
    for hook in instrumentation.around_runs:
        try:
            run = hook(task, job)
        except BaseException as error:  # noqa: BLE001 - as with receivers of signals
            log_harm(job, error)
        else:
            if run is not None:
                runs.append(run)
    return Watched(job, runs) if runs else None


class Watched:
    """One run, and those who watch it."""

    def __init__(self, job: ClaimedJob, runs: Sequence[instrumentation.Run]) -> None:
        self._job = job
        self._runs = runs

    def failed(self, error: BaseException, outcome: Outcome) -> None:
        for run in self._runs:
            with without_harm(self._job):
                run.failed(error, outcome)

    def ended(self, outcome: Outcome | None) -> None:
        for run in reversed(self._runs):
            with without_harm(self._job):
                run.ended(outcome)
