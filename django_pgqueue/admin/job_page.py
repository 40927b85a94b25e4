"""The page of one job, whichever table it is in: why it is there, what has happened, what it was given and needs."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.functional import cached_property
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgqueue import registry
from django_pgqueue.admin.actions import ActionsAdmin
from django_pgqueue.admin.formatting import Renderer, exact_moment, history, label, pretty_json, progress
from django_pgqueue.admin.links import Links
from django_pgqueue.conf import conf
from django_pgqueue.insights.explain import why
from django_pgqueue.insights.formatting import Ref, Sentence, job, named, status_of
from django_pgqueue.insights.history import Step, timeline
from django_pgqueue.insights.position import holders_of
from django_pgqueue.jobs.redaction import scrub_json, scrubber, shown, shown_by_name
from django_pgqueue.models import DeadJob, FinishedJob, Job, Schedule
from django_pgqueue.results.lookup import may_be
from django_pgqueue.states import DEAD, FINISHED, STATUSES, Status

MOST_WAITING = 10  # named, of one concurrency key
LONGEST_ID = 19  # digits


class Fact(NamedTuple):
    """One line of what a page says of a job."""

    name: str
    value: str


class TimelineItem(NamedTuple):
    """One step of the timeline."""

    kind: str
    length: int  # 0 to 5
    at: str
    words: str
    duration: str
    is_now: bool


class JobPage:
    """The parts of ``job.html``. Each is safe text: whatever the job holds is text in it, never markup."""

    def __init__(self, admin: ActionsAdmin, request: HttpRequest, one: Any) -> None:
        self.one = one
        self.task = registry.find(one.task)
        self.scrub = scrubber(self.task, one.args, one.kwargs)
        self.links = Links(request, admin.admin_site)
        self.tell = Renderer(self.links, self.scrub)

    @cached_property
    def why(self) -> list[tuple[str, Sentence]]:
        return [(self.tell.sentence(one), one) for one in why(self.one, conf.database)]

    @cached_property
    def steps(self) -> list[TimelineItem]:
        return [self._drawn(step) for step in timeline(self.one)]

    @cached_property
    def facts(self) -> list[Fact]:
        return list(self._facts())

    @cached_property
    def related(self) -> list[Fact]:
        return list(self._related())

    @property
    def status(self) -> str:
        if isinstance(self.one, DeadJob):
            return label(self.one.reason, _("dead: %(reason)s") % {"reason": self.one.get_reason_display()})
        if isinstance(self.one, FinishedJob):
            return label(FINISHED, str(STATUSES[FINISHED]))
        asked = self.one.status == Status.RUNNING and self.one.cancel_requested_at is not None
        return label(self.one.status, _("running, asked to stop") if asked else self.one.get_status_display())

    @cached_property
    def arguments(self) -> list[Fact]:
        args, kwargs = shown(self.task, self.one.args, self.one.kwargs)
        given = [(_("Positional arguments"), self.one.args, args), (_("Keyword arguments"), self.one.kwargs, kwargs)]
        return [Fact(name, pretty_json(seen)) for name, value, seen in given if value]

    @property
    def hides_all(self) -> bool:
        """Whether no argument is shown because this code does not know which of them are sensitive."""
        return self.task is None and bool(self.one.args or self.one.kwargs)

    @cached_property
    def progress(self) -> str:
        return progress(scrub_json(self.one.progress, self.scrub)) if self.one.progress is not None else ""

    @cached_property
    def result(self) -> str:
        if not isinstance(self.one, FinishedJob) or self.one.result is None:
            return ""
        return pretty_json(scrub_json(shown_by_name(self.one.result), self.scrub))

    @cached_property
    def history(self) -> str:
        return history(scrub_json(self.one.errors, self.scrub)) if self.one.errors else ""

    def _drawn(self, step: Step) -> TimelineItem:
        at = exact_moment(step.at) if step.at else ""
        return TimelineItem(step.kind, step.length, at, self.tell.sentence(step.sentence), step.duration, step.is_now)

    def _facts(self) -> Iterator[Fact]:
        one = self.one
        yield Fact(_("Status"), self.status)
        yield Fact(_("Id"), format_html('<code class="pgqueue-copy">{}</code>', one.pk))
        yield Fact(_("Task"), format_html("<code>{}</code>", self.scrub(one.task)))
        yield Fact(_("Queue"), self.tell.ref(named("queue", one.queue)))
        yield Fact(_("Priority"), str(one.priority))
        most = getattr(one, "max_attempts", None)
        words = _("%(number)s of %(most)s") % {"number": one.attempts, "most": most} if most else str(one.attempts)
        yield Fact(_("Attempts"), words)

    def _related(self) -> Iterator[Fact]:
        one, tell = self.one, self.tell
        if one.parent_id is not None:
            yield Fact(_("Enqueued by job"), tell.ref(job(one.parent_id)))
        if one.schedule_id is not None:
            yield Fact(_("Enqueued by schedule"), tell.ref(_schedule(one.schedule_id)))
        if unique := getattr(one, "unique_key", None):
            yield Fact(_("Unique key"), format_html("<code>{}</code>", self.scrub(unique)))
        if key := getattr(one, "concurrency_key", None):
            yield Fact(_("Concurrency key"), format_html("<code>{}</code>", self.scrub(key)))
            yield from self._of_key(key)
        if fair := getattr(one, "fair_key", None):
            yield Fact(_("Fair key"), format_html("<code>{}</code>", self.scrub(fair)))
        yield from self._lists()

    def _of_key(self, key: str) -> Iterator[Fact]:
        holders = [job(holder.id) for holder in holders_of(key, conf.database) if holder.id != self.one.pk]
        waiting = Job.objects.using(conf.database).filter(concurrency_key=key, status=Status.WAITING)
        ids = list(waiting.exclude(pk=self.one.pk).values_list("pk", flat=True)[: MOST_WAITING + 1])
        for name, refs in ((_("Has a slot of it"), holders), (_("Waits for one"), [job(one) for one in ids])):
            if refs:
                yield Fact(name, self._refs(refs[:MOST_WAITING], is_cut=len(refs) > MOST_WAITING))

    def _refs(self, refs: list[Ref], *, is_cut: bool) -> str:
        text = self.tell.refs(refs)
        return format_html("{}, …", text) if is_cut else text

    def _lists(self) -> Iterator[Fact]:
        to_list, queue = self.links.to_list, self.one.queue
        addresses = [
            (_("Jobs of the queue"), to_list("job", queue=queue)),
            (_("Dead jobs of the queue"), to_list("deadjob", queue=queue)),
            (_("Dead jobs of the task"), to_list("deadjob", task=self.one.task)),
            (_("Finished jobs of the queue"), to_list("finishedjob", queue=queue)),
        ]
        if isinstance(self.one, DeadJob):
            addresses.insert(0, (_("Dead jobs with the same cause"), to_list("deadjob", cause=self.one.cause)))
        links = [(address, words) for words, address in addresses if address]
        if links:
            yield Fact(_("Lists"), format_html_join(" · ", '<a href="{}">{}</a>', links))


def _schedule(schedule_id: int) -> Ref:
    name = Schedule.objects.using(conf.database).filter(pk=schedule_id).values_list("name", flat=True).first()
    return Ref("schedule", schedule_id, name if name is not None else _("%(id)s, removed") % {"id": schedule_id})


def go_where_it_is(admin: ActionsAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
    """Send the user to the table in which a job is by now; or say that nothing is kept of it."""
    text = unquote(object_id)
    job_id = int(text) if text.isdecimal() and len(text) <= LONGEST_ID and may_be(int(text)) else 0
    model = _table_of(job_id) if job_id else None
    if model is None:
        words = ngettext(
            "There is no job %(id)s: it was never committed, or nothing is kept of it any more. Finished jobs are kept "
            "for %(days)s day, those of tasks with keep=False not at all.",
            "There is no job %(id)s: it was never committed, or nothing is kept of it any more. Finished jobs are kept "
            "for %(days)s days, those of tasks with keep=False not at all.",
            conf.retention_days,
        )
        admin.message_user(request, words % {"id": text, "days": conf.retention_days}, messages.WARNING)
        return HttpResponseRedirect(admin.address("changelist"))
    found: Any = model(pk=job_id)
    status = status_of(found) if model is not Job else ""
    words = {
        DEAD: _("Job %(id)s is dead by now."),
        FINISHED: _("Job %(id)s has finished by now."),
    }.get(status, _("Job %(id)s is live: it will run, or is running."))
    address = Links(request, admin.admin_site).to_row(model._meta.model_name or "", job_id)  # noqa: SLF001 - Django's own idiom
    if not address:
        words += " " + _("You may not see it there.")
    admin.message_user(request, words % {"id": job_id}, messages.INFO)
    return HttpResponseRedirect(address or admin.address("changelist"))


def _table_of(job_id: int) -> type[Model] | None:
    """Look at the first table twice: jobs move."""
    for model in (Job, DeadJob, FinishedJob, Job):
        if model.objects.using(conf.database).filter(pk=job_id).exists():
            return model
    return None
