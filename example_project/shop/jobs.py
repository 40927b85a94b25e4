"""Look up the state of jobs and workflows for pages.

Both keep their ids for life, so an id saved beside an order is enough.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from django_pgqueue import workflows
from django_pgqueue.exceptions import WorkflowDoesNotExist
from django_pgqueue.models import DeadJob, Job


def describe(job_ids: Iterable[int | None]) -> dict[int, str]:
    """Return words for each job that is not done; one that is missing has succeeded."""
    ids = [job_id for job_id in job_ids if job_id]
    live = Job.objects.filter(pk__in=ids).values_list("pk", "status", "attempts")
    words = {pk: f"{status}, attempt {attempts}" if attempts else status for pk, status, attempts in live}
    dead = DeadJob.objects.filter(pk__in=ids).values_list("pk", "reason", "errors")
    return words | {pk: f"dead ({reason}): {errors[-1].get('message', '')}" for pk, reason, errors in dead}


@dataclass
class Step:
    """A stage of a workflow, for a page."""

    name: str
    words: str
    is_done: bool
    is_dead: bool
    is_settled: bool  # nothing changes any more, or only after staff has done something


def steps_of(workflow_id: int) -> list[Step]:
    """Return the stages of a workflow; none where it ended so long ago that it is not kept."""
    try:
        state = workflows.get(workflow_id).state()
    except WorkflowDoesNotExist:
        return []
    is_settled = state.is_finished or state.is_stuck
    return [step_of(stage, is_settled=is_settled) for stage in state.stages]


def step_of(stage: workflows.StageState, *, is_settled: bool) -> Step:
    words = "waits" if stage.status == "blocked" else f"{stage.done} of {stage.members}"
    words += f", {stage.dead} dead" if stage.dead else ""
    is_done = stage.status == "ended" and not stage.dead
    return Step(stage.name, words, is_done, bool(stage.dead), is_settled)
