"""Page of one job in any table: why it is there, its history, its arguments and options."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.functional import cached_property
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgqueue import registry
from django_pgqueue.admin.actions import ActionsAdmin
from django_pgqueue.admin.formatting import (
    Renderer,
    exact_moment,
    history,
    label,
    linked,
    live_status,
    pretty_json,
    progress,
)
from django_pgqueue.admin.keyset import is_integer
from django_pgqueue.conf import conf
from django_pgqueue.insights.explain import find, why
from django_pgqueue.insights.formatting import Ref, Sentence, job, named
from django_pgqueue.insights.history import Step, log_of, timeline
from django_pgqueue.insights.position import holders_of
from django_pgqueue.jobs.captured_log import split
from django_pgqueue.jobs.redaction import scrub_json, scrubber, shown, shown_by_name
from django_pgqueue.models import DeadJob, Job, Schedule, Stage, SucceededJob, Workflow
from django_pgqueue.states import STATUSES, SUCCEEDED, Status
from django_pgqueue.workflows.records import workflow_id_of

MOST_WAITING = 10  # named, of one concurrency key

LIVE_HEADER = "X-Pgqueue-Live"  # of the requests of live.js

Fact = tuple[str, str]  # a line of what a page says of a job: name and value


class TimelineItem(NamedTuple):
    step: Step
    at: str  # when it began; empty where it is not known
    words: str


class JobPage:
    """The parts of ``job.html``. Each is safe text: all values of the job are text in it, never markup."""

    def __init__(self, admin: ActionsAdmin, request: HttpRequest, one: Any) -> None:
        self.one = one
        self.task = registry.find(one.task)
        self.scrub = scrubber(self.task, one.args, one.kwargs)
        self.links = admin.links(request)
        self.renderer = Renderer(self.links, self.scrub)

    def why(self) -> list[tuple[str, Sentence]]:
        return [(self.renderer.sentence(one), one) for one in why(self.one, conf.database_here)]

    def timeline(self) -> list[TimelineItem]:
        return [
            TimelineItem(step, exact_moment(step.at) if step.at else "", self.renderer.sentence(step.sentence))
            for step in timeline(self.one)
        ]

    @property
    def status(self) -> str:
        if isinstance(self.one, DeadJob):
            return label(self.one.reason, _("dead: %(reason)s") % {"reason": self.one.get_reason_display()})
        if isinstance(self.one, SucceededJob):
            return label(SUCCEEDED, str(STATUSES[SUCCEEDED]))
        return live_status(self.one)

    def arguments(self) -> list[Fact]:
        args, kwargs = shown(self.task, self.one.args, self.one.kwargs)
        given = [(_("Positional arguments"), self.one.args, args), (_("Keyword arguments"), self.one.kwargs, kwargs)]
        return [(name, pretty_json(seen)) for name, value, seen in given if value]

    @property
    def hides_all(self) -> bool:
        """Whether no argument is shown because this code does not know which of them are sensitive."""
        return self.task is None and bool(self.one.args or self.one.kwargs)

    @cached_property
    def progress(self) -> str:
        told, _log = split(self.one.progress)
        return progress(scrub_json(told, self.scrub)) if told is not None else ""

    @property
    def log(self) -> str:
        """The log lines of the run that goes on, or was the last; those of failed attempts are in the history."""
        return self.scrub(log_of(self.one))

    @cached_property
    def result(self) -> str:
        if not isinstance(self.one, SucceededJob) or self.one.result is None:
            return ""
        return pretty_json(scrub_json(shown_by_name(self.one.result), self.scrub))

    @cached_property
    def history(self) -> str:
        return history(scrub_json(self.one.errors, self.scrub)) if self.one.errors else ""

    def facts(self) -> Iterator[Fact]:
        one = self.one
        yield _("Status"), self.status
        yield _("Id"), format_html('<code class="pgqueue-copy">{}</code>', one.pk)
        yield _("Task"), format_html("<code>{}</code>", self.scrub(one.task))
        yield _("Queue"), self.renderer.ref(named("queue", one.queue))
        yield _("Priority"), str(one.priority)
        most = getattr(one, "max_attempts", None)
        words = _("%(number)s of %(most)s") % {"number": one.attempts, "most": most} if most else str(one.attempts)
        yield _("Attempts"), words

        if one.tags:
            yield _("Tags"), format_html_join(" ", "{}", ((self._tag(tag),) for tag in filter(None, self.one.tags)))

    def _tag(self, tag: str) -> str:
        """Show a tag, with a link to the list of those that have it unless its address would reveal a value."""
        words = self.scrub(tag)
        return linked(words, self.links.to_list(str(self.one._meta.model_name), q=f"tag:{tag}") if words == tag else "")  # noqa: SLF001 - Django's own idiom

    def related(self) -> Iterator[Fact]:
        one, renderer = self.one, self.renderer
        if one.stage_id is not None:
            yield from self._workflow(one.stage_id)
        if one.parent_id is not None:
            yield _("Enqueued by job"), renderer.ref(job(one.parent_id))
        if one.schedule_id is not None:
            yield _("Enqueued by schedule"), renderer.ref(_schedule(one.schedule_id))
        if unique := getattr(one, "unique_key", None):
            yield _("Unique key"), format_html("<code>{}</code>", self.scrub(unique))
        if key := getattr(one, "concurrency_key", None):
            yield _("Concurrency key"), format_html("<code>{}</code>", self.scrub(key))
            if slot := getattr(one, "concurrency_slot", None):
                number = {"number": slot, "most": one.concurrency_limit}
                yield _("Slot of the key"), _("%(number)s of %(most)s") % number
            yield from self._of_key(key)
        yield _("Idempotency key"), format_html("<code>{}</code>", f"{conf.idempotency_prefix}{one.pk}")
        if fair := getattr(one, "fair_key", None):
            yield _("Fair key"), format_html("<code>{}</code>", self.scrub(fair))
        yield from self._lists()

    def _workflow(self, stage_id: int) -> Iterator[Fact]:
        alias, workflow_id = conf.database_here, workflow_id_of(stage_id)
        workflow = Workflow.objects.using(alias).only("pk", "name").filter(pk=workflow_id).first()
        stage = Stage.objects.using(alias).only("pk", "name").filter(pk=stage_id).first()
        if workflow is None or stage is None:
            yield _("Workflow"), _("%(id)s, removed") % {"id": workflow_id}
            return
        page = self.links.to_row("workflow", workflow_id)
        yield _("Workflow"), linked(workflow, page)
        yield _("Stage"), linked(stage.name, page and f"{page}#pgqueue-stage-{stage_id}")

    def _of_key(self, key: str) -> Iterator[Fact]:
        holders = [job(holder) for holder in holders_of(key, conf.database_here) if holder != self.one.pk]
        waiting = Job.objects.using(conf.database_here).filter(concurrency_key=key, status=Status.LIMITED)
        ids = list(waiting.exclude(pk=self.one.pk).values_list("pk", flat=True)[: MOST_WAITING + 1])
        for name, refs in ((_("Has a slot of it"), holders), (_("Waits for one"), [job(one) for one in ids])):
            if refs:
                text = self.renderer.refs(refs[:MOST_WAITING])
                yield name, format_html("{}, …", text) if len(refs) > MOST_WAITING else text

    def _lists(self) -> Iterator[Fact]:
        to_list, queue = self.links.to_list, self.one.queue
        addresses = [
            (_("Jobs of the queue"), to_list("job", queue=queue)),
            (_("Dead jobs of the queue"), to_list("deadjob", queue=queue)),
            (_("Dead jobs of the task"), to_list("deadjob", task=self.one.task)),
            (_("Succeeded jobs of the queue"), to_list("succeededjob", queue=queue)),
        ]
        if isinstance(self.one, DeadJob):
            addresses.insert(0, (_("Dead jobs with the same cause"), to_list("deadjob", cause=self.one.cause)))
        links = [(address, words) for words, address in addresses if address]
        if links:
            yield _("Lists"), format_html_join(" · ", '<a href="{}">{}</a>', links)


def _schedule(schedule_id: int) -> Ref:
    name = Schedule.objects.using(conf.database).filter(pk=schedule_id).values_list("name", flat=True).first()
    return Ref("schedule", schedule_id, name if name is not None else _("%(id)s, removed") % {"id": schedule_id})


def go_where_it_is(admin: ActionsAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
    """Send the user to the table in which a job is by now; or say that nothing is kept of it."""
    text = unquote(object_id)
    found = find(int(text), conf.database_here) if is_integer(text) else None
    if found is None:
        words = ngettext(
            "There is no job %(id)s: it was never committed, or nothing is kept of it any more. Succeeded jobs are "
            "kept for %(days)s day, those of tasks with keep_result=False not at all.",
            "There is no job %(id)s: it was never committed, or nothing is kept of it any more. Succeeded jobs are "
            "kept for %(days)s days, those of tasks with keep_result=False not at all.",
            conf.retention_days,
        )
        _tell(admin, request, words % {"id": text, "days": conf.retention_days}, messages.WARNING)
        return HttpResponseRedirect(admin.address("changelist"))
    words = _("Job %(id)s is live: it will run, or is running.")
    if isinstance(found, DeadJob):
        words = _("Job %(id)s is dead by now.")
    elif isinstance(found, SucceededJob):
        words = _("Job %(id)s has succeeded by now.")
    address = admin.links(request).to_row(str(found._meta.model_name), found.pk)  # noqa: SLF001 - Django's own idiom
    if not address:
        words += " " + _("You may not see it there.")
    _tell(admin, request, words % {"id": found.pk}, messages.INFO)
    return HttpResponseRedirect(address or admin.address("changelist"))


def _tell(admin: ActionsAdmin, request: HttpRequest, words: str, level: int) -> None:
    """Show a message on the next page, unless ``live.js`` asks: it drops the answer, and reloads the page."""
    if LIVE_HEADER not in request.headers:
        admin.message_user(request, words, level)
