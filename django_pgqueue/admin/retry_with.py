"""Send a dead job back with other arguments."""

import json
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.models import ADDITION, CHANGE
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_pgqueue import registry
from django_pgqueue.admin.actions import ActionsAdmin, audited
from django_pgqueue.admin.formatting import linked, of_the_project, pretty_json
from django_pgqueue.admin.forms import JobForm
from django_pgqueue.admin.job_page import go_where_it_is
from django_pgqueue.admin.links import crumbs
from django_pgqueue.admin.row_actions import field_of
from django_pgqueue.conf import conf
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.jobs.actions import PRIORITY, PURGE
from django_pgqueue.jobs.manage import purge
from django_pgqueue.jobs.redaction import shown
from django_pgqueue.jobs.retry_with import (
    Misplaced,
    RetryRefused,
    RetryWithResult,
    keys_of,
    masked,
    retry_with,
    unmasked,
)
from django_pgqueue.jobs.routing import shard_key_of, slot_of
from django_pgqueue.keys import Keys
from django_pgqueue.models import DeadJob, Job
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.stored_values import is_whole

PERMISSION = "change_deadjob"


class RetryForm(JobForm):
    """A job in place of a dead one: its arguments without sensitive values, and whether to purge the dead job."""

    priority = field_of(PRIORITY)
    removes = forms.BooleanField(
        label=_("Purge the dead job"),
        required=False,
        help_text=_("Remove it for good. Otherwise it stays among the dead jobs, with a note of the new one."),
    )

    def __init__(self, task: TaskDefinition, dead: DeadJob, data: Any = None, *, may_remove: bool) -> None:
        self.dead = dead
        self.masked = masked(task, dead.args, dead.kwargs)
        # Once the form is valid: the keys of the new job. Its arguments have the sensitive values put back.
        self.keys = self._keys_before = Keys(dead.unique_key, dead.concurrency_key, dead.fair_key)
        initial = {
            "args": _pretty(self.masked.args),
            "kwargs": _pretty(self.masked.kwargs),
            "queue": dead.queue,
            "priority": dead.priority,
        }
        super().__init__(task, data, initial=initial)
        if not may_remove:
            del self.fields["removes"]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if not self.errors:
            try:
                args, kwargs = unmasked(self.task, cleaned["args"], cleaned["kwargs"], self.masked.kept)
            except Misplaced as error:
                self.add_error(None, str(error))
            else:
                self.check_arguments(args, kwargs)
        return cleaned

    def may_replace(self, value: Any) -> bool:
        return isinstance(value, str) and value in self.masked.kept

    def compute_keys(self) -> None:
        self.keys = keys_of(self.task, self.keys, (tuple(self.dead.args), self.dead.kwargs), self.arguments)

    def check_arguments(self, args: Any, kwargs: Any) -> None:
        """Check also that a key of these arguments belongs on this database, where the queue is on several."""
        super().check_arguments(args, kwargs)
        queue = self.cleaned_data.get("queue", "")
        is_as_before = self.keys == self._keys_before and queue == self.dead.queue
        if self.errors or is_as_before or not conf.is_on_several(queue):
            return
        try:
            key = shard_key_of(self.task.using(queue=queue), *self.arguments)
        except Exception as error:  # noqa: BLE001 - a function of the task; its error may hold sensitive values
            self.add_error(None, str(error) if isinstance(error, PgQueueError) else of_the_project(error))
            return
        alias = conf.database_here if key is None else conf.database_with(slot_of(key), queue)
        if alias != conf.database_here:
            words = gettext("Jobs with these arguments are on the database %(database)s: enqueue a new one.")
            self.add_error(None, words % {"database": alias or "-"})


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


# The page


def retry_view(admin: ActionsAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
    """Show the form; then what would be enqueued; then enqueue it."""
    may_remove = admin.may(request, PURGE.permission)
    if not admin.may(request, PERMISSION) or ("removes" in request.POST and not may_remove):
        raise PermissionDenied
    dead: Any = admin.get_object(request, unquote(object_id))
    if dead is None:
        return go_where_it_is(admin, request, object_id)
    task = registry.find(dead.task)
    problem = _problem(dead, task)
    if task is None or problem:
        return _page(admin, request, dead, {"problem": problem})
    form = RetryForm(task, dead, request.POST if request.method == "POST" else None, may_remove=may_remove)
    if "back" in request.POST or not form.is_valid():
        return _page(admin, request, dead, {"form": form})
    if "confirmed" not in request.POST:
        return _page(admin, request, dead, {"form": form, "changes": _changes(form), "is_asked": True})
    return _retry(admin, request, form)


def _problem(dead: DeadJob, task: TaskDefinition | None) -> str:
    """Return why its arguments cannot be changed; empty where they can."""
    if task is None:
        return gettext(
            "This code does not know the task %(task)s, so its parameters are not known. Deploy the code "
            "that has it, or add the name to the aliases of the task it is now."
        ) % {"task": dead.task}
    if not is_whole([dead.args, dead.kwargs]):
        return gettext(
            "Its arguments cannot be read: a number is too long, or they are nested too deeply. Enqueue a new job."
        )
    if not isinstance(dead.args, list) or not isinstance(dead.kwargs, dict):
        return gettext("Its arguments are no JSON array and JSON object, so they cannot be changed. Enqueue a new job.")
    return ""


def _page(admin: ActionsAdmin, request: HttpRequest, dead: DeadJob, more: dict[str, Any]) -> HttpResponse:
    title, back = gettext("Retry with changed arguments"), admin.address("change", dead.pk)
    trail = crumbs(admin.admin_site, admin.opts, (str(dead), back), (title, ""))
    return admin.page(request, "retry", title, crumbs=trail, subtitle=str(dead), dead=dead, back=back, **more)


def _changes(form: RetryForm) -> list[tuple[str, str, str]]:
    dead, said = form.dead, form.cleaned_data
    old, new = shown(form.task, dead.args, dead.kwargs), shown(form.task, *form.arguments)
    # The typed text is compared with the shown one: comparing the values would confirm a guess at a sensitive one.
    args, kwargs = said["args"] != form.masked.args, said["kwargs"] != form.masked.kwargs
    rows = [
        (gettext("Positional arguments"), args, pretty_json(old[0]), pretty_json(new[0])),
        (gettext("Keyword arguments"), kwargs, pretty_json(old[1]), pretty_json(new[1])),
        (gettext("Queue"), dead.queue != said["queue"], dead.queue, said["queue"]),
        (gettext("Priority"), dead.priority != said["priority"], str(dead.priority), str(said["priority"])),
    ]
    return [(name, before, after) for name, is_changed, before, after in rows if is_changed]


def _retry(admin: ActionsAdmin, request: HttpRequest, form: RetryForm) -> HttpResponse:
    dead, said, by = form.dead, form.cleaned_data, request.user.get_username()
    with audited(request) as log:
        retried = retry_with(
            dead.pk,
            form.task,
            *form.arguments,
            keys=form.keys,
            queue=said["queue"],
            priority=said["priority"],
            form=said["form"],
            by=by,
            database=conf.database_here,
        )
        if retried.id is not None:
            is_gone = said.get("removes", False) and bool(purge([dead.pk], by=by, database=conf.database_here))
            entry = f"Retried with changed arguments as job {retried.id}{', and purged' if is_gone else ''}."
            log([dead], CHANGE, entry)
            new = Job(pk=retried.id, task=form.task.name)
            log([new], ADDITION, f"Retried with changed arguments from job {dead.pk}.")
    if retried.id is None:
        return _refuse(admin, request, form, retried)
    words = gettext("Job {new} was enqueued in place of the dead job {old}, which stays where it is.")
    if is_gone:
        words = gettext("Job {new} was enqueued in place of the dead job {old}, which was purged.")
    address = admin.links(request).to_row("job", retried.id)
    told = format_html(words, new=linked(retried.id, address), old=dead.pk)
    admin.message_user(request, told, messages.SUCCESS)
    return HttpResponseRedirect(address or admin.address("changelist"))


def _refuse(admin: ActionsAdmin, request: HttpRequest, form: RetryForm, retried: RetryWithResult) -> HttpResponse:
    dead = form.dead
    if retried.refused is RetryRefused.GONE:
        return go_where_it_is(admin, request, str(dead.pk))
    words = {
        RetryRefused.ALREADY: gettext("This form was sent before, and has made job {job}. Nothing was done again."),
        RetryRefused.KEY_HELD: gettext(
            "The live job {job} has the unique key that the new one would have. Nothing was enqueued."
        ),
        RetryRefused.CHANGING: gettext(
            "Another session is just changing the dead job. Nothing was enqueued; try again."
        ),
    }[retried.refused or RetryRefused.CHANGING]
    told = format_html(words, job=linked(retried.other, admin.links(request).to_row("job", retried.other)))
    if retried.refused is RetryRefused.ALREADY:
        admin.message_user(request, told, messages.WARNING)
        return HttpResponseRedirect(admin.address("change", dead.pk))
    return _page(admin, request, dead, {"form": form, "problem": told})
