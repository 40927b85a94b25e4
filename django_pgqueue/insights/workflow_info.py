"""Workflows as people see them: how far each stage is, and why one does not go on.

Members are counted up to a limit, which all stages of a page share: a workflow of a million members costs no more.
"""

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgqueue import registry
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.insights.explain import why as why_job
from django_pgqueue.insights.formatting import Part, Ref, Sentence, at_most, brief, grouped, job, say
from django_pgqueue.insights.worker_info import has_living_worker
from django_pgqueue.jobs.redaction import Scrub, scrubber
from django_pgqueue.models import DeadJob, Job, Workflow
from django_pgqueue.states import OnDeath, StageStatus, Status, WorkflowStatus
from django_pgqueue.stored_values import seconds_between
from django_pgqueue.workflows.records import STAGES_OF_ONE, workflow_id_of

CAP = 10_000  # members of a stage are counted up to here at most
LEAST_CAP = 100
COUNTED = 100_000  # entries read for the live members of all stages together
MOST_EDGES = 100  # of one stage
MOST_ALARMS = 100
MOST_OPEN = 5_000  # workflows and stages that are counted for metrics
MOST_NAMES = 100  # of workflows, with counts of their own
MOST_NAMED = 5


@dataclass(frozen=True)
class StageLine:
    """A stage of a workflow, with the numbers of its members: each is exact up to ``cap``."""

    id: int
    name: str
    status: str
    opens_when: str
    is_sealed: bool
    is_moving: bool  # members are still to be opened, or removed
    members: int
    opened_at: dt.datetime | None
    ended_at: dt.datetime | None
    killed_by: str | None  # None: it was not killed
    is_of_stuck: bool  # a stage of its workflow waits for people
    edges: tuple[tuple[int, str], ...] = ()  # stages behind it, with the outcome for each; "": it is not over
    live: int = 0
    dead: int = 0
    most_live: int = 0  # no more can live
    cap: int = CAP

    @property
    def workflow_id(self) -> int:
        return workflow_id_of(self.id)

    @property
    def is_over(self) -> bool:
        return self.status in (StageStatus.ENDED, StageStatus.SKIPPED)

    @property
    def is_killed(self) -> bool:
        return self.killed_by is not None

    @property
    def is_capped(self) -> bool:
        return max(self.live, self.dead) > self.cap

    @property
    def done(self) -> int:
        """Number of members that have succeeded; a lower bound where counting has stopped at the cap."""
        if self.status == StageStatus.SKIPPED:
            return 0
        return max(self.members - min(max(self.live, self.most_live), self.members) - self.dead, 0)

    @property
    def done_text(self) -> str:
        words = {"done": self._done, "all": grouped(self.members)}
        return _("%(done)s+ of %(all)s") % words if self.is_capped else _("%(done)s of %(all)s") % words

    @property
    def short_text(self) -> str:
        more = "+" if self.is_capped else ""
        return f"{self._done}{more}/{grouped(self.members)}"

    @property
    def _done(self) -> str:
        """The number as text; not known of a skipped stage, whose members were removed if they had not opened."""
        return "-" if self.status == StageStatus.SKIPPED else grouped(self.done)

    @property
    def live_text(self) -> str:
        return at_most(self.live, self.cap)

    @property
    def dead_text(self) -> str:
        return at_most(self.dead, self.cap)

    @property
    def words(self) -> str:
        """Return the line as one sentence, in place of the bar."""
        if self.status == StageStatus.SKIPPED:
            return _("%(stage)s: skipped") % {"stage": self.name}
        said = {"stage": self.name, "done": self.done_text, "dead": self.dead_text}
        return (
            _("%(stage)s: %(done)s done, %(dead)s dead") % said if self.dead else _("%(stage)s: %(done)s done") % said
        )


@dataclass(frozen=True)
class WorkflowLine:
    row: Workflow
    stages: list[StageLine]  # the first ones
    has_more: bool  # stages
    failed: list[Workflow] = field(default_factory=list)  # that its open stages wait for, among the first ones
    waited_for: list[Workflow] = field(default_factory=list)  # open ones that its members have begun, the first ones

    @property
    def is_open(self) -> bool:
        return self.row.status == WorkflowStatus.OPEN

    @property
    def dead(self) -> int:
        return sum(stage.dead for stage in self.stages)

    @property
    def is_stuck(self) -> bool:
        """Whether a stage, shown or not, waits for people to retry or purge its dead members, or to skip it."""
        return any(stage.is_of_stuck for stage in self.stages)

    def is_overdue(self, now: dt.datetime) -> bool:
        return self.is_open and self.row.deadline_at is not None and self.row.deadline_at <= now

    def names_before(self, stage: StageLine) -> list[str]:
        """Return the names of the stages that one waits for, or has waited for."""
        return self._before.get(stage.id, [])

    @cached_property
    def _before(self) -> dict[int, list[str]]:
        before: dict[int, list[str]] = {}
        for stage in self.stages:
            for to_id, _outcome in stage.edges:
                before.setdefault(to_id, []).append(stage.name)
        return before


class Alarms(NamedTuple):
    """The columns of ``workflow_alarms.sql``; ``MOST_ALARMS + 1`` where there are more."""

    stuck: int
    overdue: int


def alarms(alias: str) -> Alarms:
    [row] = CallerConnection(alias).rows(statement("workflow_alarms"), {"limit": MOST_ALARMS + 1})
    return Alarms._make(row)


class WorkflowCounts(NamedTuple):
    """The columns of ``workflow_counts.sql``: of the workflows of one name, or of all that have no row of their own."""

    name: str
    open: int
    stuck: int
    overdue: int
    open_stages: int
    stuck_stages: int
    unsealed_stages: int  # that have no member left, and were not sealed for an hour
    oldest_seconds: float  # since the first open one was begun; 0: there is none
    succeeded: int  # within an hour, as the next two
    failed: int
    killed: int
    p50_seconds: float | None  # from begin to end; None: none has ended within an hour
    p95_seconds: float | None
    is_capped: bool  # there may be more, of this name or of others


def counts_by_name(alias: str) -> list[WorkflowCounts]:
    """Count workflows by name, by one query: up to 5,000 that are open, as many open stages, and as many that ended."""
    asked = {"limit": MOST_OPEN, "names": MOST_NAMES}
    return [WorkflowCounts._make(row) for row in CallerConnection(alias).rows(statement("workflow_counts"), asked)]


def lines_of(workflows: Iterable[Workflow], alias: str, *, most_stages: int) -> list[WorkflowLine]:
    """Return the lines of workflows in their order, by three queries at most."""
    workflows = list(workflows)
    stages = stages_of([workflow.pk for workflow in workflows], alias, limit=most_stages + 1)
    failed = _children(stages, alias, [WorkflowStatus.FAILED, WorkflowStatus.KILLED])
    return [
        WorkflowLine(
            workflow,
            own[:most_stages],
            len(own) > most_stages,
            [child for child in failed if workflow_id_of(child.parent_stage_id or 0) == workflow.pk],
        )
        for workflow in workflows
        for own in [[stage for stage in stages if stage.workflow_id == workflow.pk]]
    ]


def line_of(workflow: Workflow, alias: str, *, most_stages: int) -> WorkflowLine:
    """Return the line of one workflow, with those that its members have begun."""
    [line] = lines_of([workflow], alias, most_stages=most_stages)
    line.waited_for.extend(_children(line.stages, alias, [WorkflowStatus.OPEN]))
    return line


def _children(stages: Iterable[StageLine], alias: str, statuses: Sequence[str]) -> list[Workflow]:
    open_ids = [stage.id for stage in stages if stage.status == StageStatus.OPEN]
    if not open_ids:
        return []
    found = Workflow.objects.using(alias).filter(parent_stage_id__in=open_ids, status__in=statuses)
    return list(found.only("pk", "name", "status", "parent_stage_id").order_by("pk")[:MOST_ALARMS])


def children_of(workflow_id: int, alias: str) -> QuerySet[Workflow]:
    """Return the workflows that members of this one have begun and a stage waits for, or has waited for."""
    first, after = workflow_id * STAGES_OF_ONE, (workflow_id + 1) * STAGES_OF_ONE
    return Workflow.objects.using(alias).filter(parent_stage_id__gte=first, parent_stage_id__lt=after)


def stages_of(workflow_ids: Sequence[int], alias: str, *, limit: int) -> list[StageLine]:
    """Return the first stages of workflows, up to ``limit`` of each, with the numbers of their members."""
    if not workflow_ids:
        return []
    asked = {"workflow_ids": list(workflow_ids), "limit": limit, "edges": MOST_EDGES}
    rows = CallerConnection(alias).rows(statement("stages_of_workflows"), asked)
    stages = [
        StageLine(*columns, tuple(zip(behind, outcomes, strict=True)))  # type: ignore[call-arg]
        for *columns, behind, outcomes in rows
    ]
    return _counted(stages, alias)


def _counted(stages: list[StageLine], alias: str) -> list[StageLine]:
    """Count the members of stages; of a blocked one none has succeeded, so all that are not dead live."""
    if not stages:
        return []
    open_ones = sum(stage.status == StageStatus.OPEN for stage in stages)
    cap = min(CAP, max(LEAST_CAP, COUNTED // max(open_ones, 1)))
    have_begun = [stage.status != StageStatus.BLOCKED for stage in stages]
    asked = {"stage_ids": [stage.id for stage in stages], "have_begun": have_begun, "limit": cap + 1}
    counts = {row[0]: row[1:] for row in CallerConnection(alias).rows(statement("stage_counts"), asked)}
    counted = []
    for stage in stages:
        live, dead, added, most_live = counts[stage.id]
        members = stage.members + added
        if stage.status == StageStatus.BLOCKED:
            live = most_live = members - dead
        counted.append(replace(stage, members=members, live=live, dead=dead, most_live=most_live, cap=cap))
    return counted


# Why it does not go on


def workflow_ref(workflow: Workflow) -> Ref:
    return Ref("workflow", workflow.pk, str(workflow))


def why(line: WorkflowLine, alias: str) -> Iterator[Sentence]:
    """Yield why a workflow is not over, the most important first; of one that is, how it has ended."""
    if not line.is_open:
        yield from _ended(line, alias)
        return
    waiting = [stage for stage in line.stages if stage.status == StageStatus.OPEN]
    waiting.sort(key=lambda stage: (not stage.dead, stage.id))
    for stage in waiting[:MOST_NAMED]:
        yield from _waits_for(stage, line, alias)
    if len(waiting) > MOST_NAMED:
        more = len(waiting) - MOST_NAMED
        yield say(
            ngettext("{number} more stage is open.", "{number} more stages are open.", more),
            number=more,
        )
    if not waiting and line.has_more:
        yield say(_("The first {number} stages are over; those behind them are not shown."), number=len(line.stages))
    if waiting and not any(stage.dead for stage in waiting):
        yield from _next_member(waiting, alias)
    yield from _deadline(line)


def _waits_for(stage: StageLine, line: WorkflowLine, alias: str) -> Iterator[Sentence]:
    if stage.live or stage.dead:
        yield _left(stage)
    if stage.is_killed:
        words = _("{stage} was killed by {by}: it is over when its last members have ended.")
        yield say(words, stage=stage.name, by=stage.killed_by or _("a user"))
    elif stage.dead and line.row.on_death == OnDeath.WAIT:
        words = ngettext(
            "It stays open until its dead member is retried and succeeds, or is purged, or the stage is skipped.",
            "It stays open until its dead members are retried and succeed, or are purged, or the stage is skipped.",
            stage.dead,
        )
        yield say(words)
    for child in [one for one in line.failed if one.parent_stage_id == stage.id][:MOST_NAMED]:
        words = _("Waits for {stage}: workflow {child} of a member has failed. Skip the stage, or kill this workflow.")
        yield say(words, stage=stage.name, child=workflow_ref(child))
    children = [one for one in line.waited_for if one.parent_stage_id == stage.id]
    for child in children[:MOST_NAMED]:
        yield say(
            _("Waits for {stage}: workflow {child} of a member is open."), stage=stage.name, child=workflow_ref(child)
        )
    if stage.live or stage.dead or children:
        return
    if not stage.is_sealed:
        words = _("Waits for {stage}: no member is left, but it is not sealed. Add more members, or seal it.")
        yield say(words, stage=stage.name)
    elif not any(one.parent_stage_id == stage.id for one in line.failed):
        yield say(_("Stage {stage} is over: a worker opens the next ones within a second."), stage=stage.name)
        if not has_living_worker(alias):
            yield say(_("No worker is alive."), remedy=_("Start one:"), command="manage.py pgqueue_worker")


def _left(stage: StageLine) -> Sentence:
    counts: dict[str, Any] = {
        "stage": stage.name,
        "all": stage.members,
        "left": stage.live_text,
        "dead": stage.dead_text,
    }
    if stage.dead:
        return say(_("Waits for {stage}: {left} of {all} left, {dead} dead."), **counts)
    return say(_("Waits for {stage}: {left} of {all} left."), **counts)


def _next_member(waiting: Sequence[StageLine], alias: str) -> Iterator[Sentence]:
    """Yield what the first member waits for, if none of the first ones runs."""
    for stage in waiting[:MOST_NAMED]:
        members = list(Job.objects.using(alias).filter(stage_id=stage.id).order_by("stage_id", "id")[:MOST_ALARMS])
        if not members:
            continue
        if any(member.status == Status.RUNNING for member in members):
            return
        first = members[0]
        yield say(_("Of {stage}, job {job} is the next:"), stage=stage.name, job=job(first.pk))
        scrub = scrubber(registry.find(first.task), first.args, first.kwargs)
        yield from (_scrubbed(sentence, scrub) for sentence in why_job(first, alias))
        return


def _scrubbed(sentence: Sentence, scrub: Scrub) -> Sentence:
    """Remove the sensitive arguments of the job that a sentence is about."""

    def clean(part: Part) -> Part:
        if isinstance(part, Ref):
            return part._replace(words=scrub(part.words))
        if isinstance(part, list):
            return [one._replace(words=scrub(one.words)) for one in part]
        return scrub(part) if isinstance(part, str) else part

    return replace(sentence, parts={name: clean(part) for name, part in sentence.parts.items()})


def _deadline(line: WorkflowLine) -> Iterator[Sentence]:
    deadline = line.row.deadline_at
    if deadline is None:
        return
    if line.is_overdue(timezone.now()):
        yield say(_("Its deadline was {time}: a worker ends it within a second, if one is alive."), time=deadline)
    else:
        yield say(_("If it is not over by {time}, it fails, and its members are killed."), time=deadline)


def _ended(line: WorkflowLine, alias: str) -> Iterator[Sentence]:
    row = line.row
    ended_at = row.ended_at or row.begun_at
    times: dict[str, Any] = {"time": ended_at, "took": brief(seconds_between(row.begun_at, ended_at))}
    died = [stage for stage in line.stages if stage.dead]
    if row.status == WorkflowStatus.SUCCEEDED:
        yield say(_("It succeeded after {took}, at {time}."), **times)
    elif row.status == WorkflowStatus.KILLED and (parent := _parent_at_whose_end(row, alias)):
        yield say(_("It ended at {time}, after {took}, with workflow {parent}."), parent=workflow_ref(parent), **times)
    elif row.status == WorkflowStatus.KILLED:
        yield say(_("It was killed by {by} after {took}, at {time}."), by=row.ended_by or _("a user"), **times)
    elif killed := [stage for stage in line.stages if stage.is_killed]:
        times |= {"by": killed[0].killed_by or _("a user"), "stage": killed[0].name}
        yield say(_("It failed at {time}, after {took}: {by} has killed {stage}."), **times)
    elif row.deadline_at is not None and row.deadline_at <= ended_at:
        yield say(_("It failed at {time}, after {took}: its deadline had passed."), **times)
    elif not died and (child := _failed_child(row, alias)):
        words = _("It failed at {time}, after {took}: workflow {child} of a member has failed, or was killed.")
        yield say(words, child=workflow_ref(child), **times)
    else:
        yield say(_("It failed at {time}, after {took}: members died."), **times)
    if died:
        stages = ", ".join(f"{stage.name} ({stage.dead_text})" for stage in died[:MOST_NAMED])
        yield say(_("Dead members are left in: {stages}."), stages=stages)
    left = [stage for stage in line.stages if stage.is_over and stage.live]
    for stage in left[:MOST_NAMED]:
        words = _("{left} of its members in {stage} still live: they are removed, or killed, in the background.")
        yield say(words, left=stage.live_text, stage=stage.name)


def _parent_at_whose_end(row: Workflow, alias: str) -> Workflow | None:
    """Return the workflow that has ended one by itself, for example by its deadline; None: a user has."""
    if row.ended_by or row.parent_stage_id is None:
        return None
    parents = Workflow.objects.using(alias).only("pk", "name").filter(pk=workflow_id_of(row.parent_stage_id))
    return parents.filter(ended_at__lte=row.ended_at).first()


def _failed_child(row: Workflow, alias: str) -> Workflow | None:
    failed = children_of(row.pk, alias).filter(status__in=[WorkflowStatus.FAILED, WorkflowStatus.KILLED])
    return failed.order_by("parent_stage_id", "pk").first()


def has_dead_members(line: WorkflowLine, alias: str) -> bool:
    """Whether a stage has dead members that are retried with the workflow, or one that the line leaves out has any."""
    if any(stage.dead and not stage.is_killed and stage.status != StageStatus.SKIPPED for stage in line.stages):
        return True
    if not line.has_more:
        return False
    first, after = line.stages[-1].id + 1, (line.row.pk + 1) * STAGES_OF_ONE
    return DeadJob.objects.using(alias).filter(stage_id__gte=first, stage_id__lt=after).exists()
