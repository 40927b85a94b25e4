"""Actions on workflows and on their stages: what the methods of ``workflows.WorkflowHandle`` do."""

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from django.db.models import Model
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from django_pgqueue import workflows
from django_pgqueue.admin.actions import AdminAction, Change
from django_pgqueue.admin.row_actions import explains
from django_pgqueue.exceptions import InvalidWorkflow
from django_pgqueue.jobs.actions import Params
from django_pgqueue.models import DeadJob, Stage, Workflow
from django_pgqueue.states import StageStatus, WorkflowStatus
from django_pgqueue.workflows.records import STAGES_OF_ONE, workflow_id_of

MOST_MEMBERS = 10_000
"""Maximum number of dead members of a row that one request retries: it does so in one transaction."""

TOO_MANY = _(
    "too many dead members for one request: in the list of the dead jobs of a stage, retry all that match, which is "
    "done in the background"
)

Perform = Callable[[Collection[int], str, str, Params], list[Change]]


def _performs(model: type[Model], act: Callable[[int, str, str], Any], entry: str, message: Any) -> Perform:
    """Return what acts on one row after the other, by id: two users at once then wait for each other in one order."""

    def perform(ids: Collection[int], by: str, alias: str, _params: Params) -> list[Change]:
        there = model._default_manager.using(alias).filter(pk__in=ids).order_by("pk")  # noqa: SLF001 - Django's own idiom
        return [Change(model, [pk for pk in there.values_list("pk", flat=True) if act(pk, by, alias)], entry, message)]

    return perform


def _has_too_many(model: type[Model], pk: int, alias: str) -> bool:
    """Whether a stage, or a workflow, has more dead members than one request retries."""
    first, after = (pk, pk + 1) if model is Stage else (pk * STAGES_OF_ONE, (pk + 1) * STAGES_OF_ONE)
    dead = DeadJob.objects.using(alias).filter(stage_id__gte=first, stage_id__lt=after)
    return dead[: MOST_MEMBERS + 1].count() > MOST_MEMBERS


def _retry(workflow_id: int, by: str, alias: str) -> int:
    if _has_too_many(Workflow, workflow_id, alias):
        return 0
    return workflows.get(workflow_id, database=alias).retry(by=by)


def _retry_stage(stage_id: int, by: str, alias: str) -> int:
    if _has_too_many(Stage, stage_id, alias):
        return 0
    return workflows.get(workflow_id_of(stage_id), database=alias).retry(stage=stage_id, by=by)


def _why_not_retried(model: type[Model]) -> Callable[[Collection[int], str], Counter[Any]]:
    def explain(ids: Collection[int], alias: str) -> Counter[Any]:
        many = {pk for pk in ids if _has_too_many(model, pk, alias)}
        others = explains(model, {}, _("no dead members that can be retried"))(set(ids) - many, alias)
        return +Counter({TOO_MANY: len(many)}) + others

    return explain


def _kill(workflow_id: int, by: str, alias: str) -> bool:
    return workflows.get(workflow_id, database=alias).kill(by=by)


def _kill_stage(stage_id: int, by: str, alias: str) -> bool:
    return workflows.get(workflow_id_of(stage_id), database=alias).kill(stage=stage_id, by=by)


def _skip(stage_id: int, by: str, alias: str) -> bool:
    return workflows.get(workflow_id_of(stage_id), database=alias).skip(stage_id, by=by)


def _rerun(stage_id: int, by: str, alias: str) -> int:
    try:
        return workflows.get(workflow_id_of(stage_id), database=alias).rerun(stage_id, by=by)
    except InvalidWorkflow:  # it has changed nothing
        return 0


def _seal(stage_id: int, _by: str, alias: str) -> bool:
    return workflows.get(workflow_id_of(stage_id), database=alias).seal(stage_id)


KILL_WORKFLOWS = AdminAction(
    name="kill",
    permission="kill_workflow",
    label=_("Kill"),
    selected=_("Kill selected %(verbose_name_plural)s"),
    question=ngettext_lazy("Kill %(count)d workflow?", "Kill %(count)d workflows?", "count"),
    consequence=_(
        "No stage opens any more. Members that wait are removed, those that run are killed, and so are the workflows "
        "that members have begun. This cannot be undone."
    ),
    perform=_performs(
        Workflow,
        _kill,
        "Killed.",
        ngettext_lazy("%(count)d workflow was killed.", "%(count)d workflows were killed.", "count"),
    ),
    explain=explains(Workflow, {}, _("ended already")),
    is_destructive=True,
)
RETRY_WORKFLOWS = AdminAction(
    name="retry",
    permission="retry_workflow",
    label=_("Retry dead members"),
    selected=_("Retry dead members of selected %(verbose_name_plural)s"),
    question=ngettext_lazy(
        "Retry the dead members of %(count)d workflow?", "Retry the dead members of %(count)d workflows?", "count"
    ),
    consequence=_(
        "They run again with all their attempts, but for those of stages that were skipped or killed. An open workflow "
        "goes on by itself once they have succeeded."
    ),
    perform=_performs(
        Workflow,
        _retry,
        "Dead members retried.",
        ngettext_lazy(
            "Dead members of %(count)d workflow run again.", "Dead members of %(count)d workflows run again.", "count"
        ),
    ),
    explain=_why_not_retried(Workflow),
)
RETRY_STAGE = AdminAction(
    name="retry",
    permission="retry_workflow",
    label=_("Retry dead"),
    question=ngettext_lazy(
        "Retry the dead members of %(count)d stage?", "Retry the dead members of %(count)d stages?", "count"
    ),
    consequence=_(
        "They run again with all their attempts. An open workflow goes on by itself once they have succeeded."
    ),
    perform=_performs(
        Stage,
        _retry_stage,
        "Dead members retried.",
        ngettext_lazy(
            "Dead members of %(count)d stage run again.", "Dead members of %(count)d stages run again.", "count"
        ),
    ),
    explain=_why_not_retried(Stage),
)
SKIP_STAGE = AdminAction(
    name="skip",
    permission="skip_stage",
    label=_("Skip"),
    question=ngettext_lazy("Skip %(count)d stage?", "Skip %(count)d stages?", "count"),
    consequence=_(
        "The workflow goes on as if the stage had succeeded. Members that wait are removed, those that run are "
        "killed, dead ones stay dead. This cannot be undone."
    ),
    perform=_performs(
        Stage,
        _skip,
        "Skipped.",
        ngettext_lazy("%(count)d stage was skipped.", "%(count)d stages were skipped.", "count"),
    ),
    explain=explains(Stage, {}, _("over already")),
    is_destructive=True,
)
SEAL_STAGE = AdminAction(
    name="seal",
    permission="seal_stage",
    label=_("Seal"),
    question=ngettext_lazy("Seal %(count)d stage?", "Seal %(count)d stages?", "count"),
    consequence=_(
        "Code outside of the workflow can add no more members. The stage is over once its members are. This cannot be "
        "undone."
    ),
    perform=_performs(
        Stage, _seal, "Sealed.", ngettext_lazy("%(count)d stage was sealed.", "%(count)d stages were sealed.", "count")
    ),
    explain=explains(Stage, {}, _("sealed already, or over")),
)
KILL_STAGE = AdminAction(
    name="kill",
    permission="kill_workflow",
    label=_("Kill"),
    question=ngettext_lazy("Kill %(count)d stage?", "Kill %(count)d stages?", "count"),
    consequence=_(
        "Members that wait die, those that run are asked to stop, and workflows that members have begun are killed. "
        "Then stages that wait for success are skipped, those for the end or a death open, and other branches go on. "
        "The workflow fails in the end. This cannot be undone."
    ),
    perform=_performs(
        Stage,
        _kill_stage,
        "Killed.",
        ngettext_lazy("%(count)d stage was killed.", "%(count)d stages were killed.", "count"),
    ),
    explain=explains(Stage, {}, _("over, or killed already")),
    is_destructive=True,
)
RERUN_STAGE = AdminAction(
    name="rerun",
    permission="rerun_stage",
    label=_("Run again"),
    question=ngettext_lazy(
        "Run %(count)d stage again, and all after it?", "Run %(count)d stages again, and all after them?", "count"
    ),
    consequence=_(
        "All their members are made once more, and the workflow is open again. Results that these stages have "
        "collected, and their dead members, are removed. This cannot be undone."
    ),
    perform=_performs(
        Stage,
        _rerun,
        "Run again.",
        ngettext_lazy("%(count)d stage runs again.", "%(count)d stages run again.", "count"),
    ),
    explain=explains(
        Stage, {}, _("no kept calls, members alive, a key that is held, or another stage that was not over")
    ),
    is_destructive=True,
)
STAGE_ACTIONS = (RETRY_STAGE, SKIP_STAGE, KILL_STAGE, SEAL_STAGE, RERUN_STAGE)


def can_be_done(action: AdminAction, stage: Any, workflow: Workflow) -> bool:
    """Whether an action can do anything to a stage of a workflow."""
    is_unended = is_open(workflow) and stage.status in (StageStatus.BLOCKED, StageStatus.OPEN) and not stage.is_killed
    if action is RETRY_STAGE:
        return bool(stage.dead)
    if action is RERUN_STAGE:
        return workflow.keeps_calls and stage.status != StageStatus.BLOCKED and not stage.live
    return is_unended and (action in (SKIP_STAGE, KILL_STAGE) or not stage.is_sealed)


def is_open(workflow: Workflow) -> bool:
    return workflow.status == WorkflowStatus.OPEN
