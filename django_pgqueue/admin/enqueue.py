"""Enqueue a job by a form: its task, then its arguments."""

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.models import ADDITION, CHANGE
from django.core.exceptions import PermissionDenied
from django.db import Error
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_pgqueue import registry
from django_pgqueue.admin.actions import ActionsAdmin, audited
from django_pgqueue.admin.databases import is_elsewhere, located, showing
from django_pgqueue.admin.formatting import linked, of_the_project
from django_pgqueue.admin.forms import JobForm
from django_pgqueue.admin.links import crumbs
from django_pgqueue.admin.row_actions import field_of
from django_pgqueue.conf import conf
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.jobs.actions import PRIORITY
from django_pgqueue.jobs.once import once
from django_pgqueue.models import Job
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.tasks import enqueue_one

PERMISSION = "enqueue_job"

LONGEST_DELAY = 366 * 24 * 60 * 60  # seconds; longer ones are typing errors


class EnqueueForm(JobForm):
    """A job of a task, with the queue and the priority that the task declares unless they are changed."""

    priority = field_of(PRIORITY)
    delay = forms.FloatField(
        label=_("Delay"),
        required=False,
        min_value=0,
        max_value=LONGEST_DELAY,
        help_text=_("Seconds from now until the earliest start. Leave empty for none."),
    )

    def __init__(self, task: TaskDefinition, data: Any = None) -> None:
        declared = task.options
        super().__init__(task, data, initial={"queue": declared.queue, "priority": declared.priority})

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if not self.errors:
            self.check_arguments(cleaned["args"], cleaned["kwargs"])
        return cleaned

    @property
    def chosen(self) -> TaskDefinition:
        """The task with the options that were entered; raises InvalidOption for one that cannot be."""
        entered = {name: self.cleaned_data[name] for name in ("queue", "priority")}
        delay = {"delay": self.cleaned_data["delay"]} if self.cleaned_data["delay"] else {}
        return self.task.using(**entered, **delay)


def enqueue_view(admin: ActionsAdmin, request: HttpRequest) -> HttpResponse:
    """Show the tasks; then the form of one; then enqueue."""
    if not admin.may(request, PERMISSION):
        raise PermissionDenied
    name, tasks = request.GET.get("task", ""), _offered()
    if name not in tasks:
        if (task := registry.find(name)) and task.database in conf.databases:
            return HttpResponseRedirect(located(request.path, request.GET.urlencode(), alias=task.database))
        unknown = gettext("This code has no task %(task)s.") % {"task": name} if name else ""
        return _page(admin, request, {"tasks": tasks, "problem": unknown})
    form = EnqueueForm(tasks[name], request.POST if request.method == "POST" else None)
    if not form.is_valid():
        return _page(admin, request, {"form": form})
    try:
        return _enqueue(admin, request, form)
    except PgQueueError as error:
        form.add_error(None, str(error))
    except Error:
        raise
    except Exception as error:  # noqa: BLE001 - of code of the project; its text may hold sensitive values
        form.add_error(None, of_the_project(error))
    return _page(admin, request, {"form": form})


def _offered() -> dict[str, TaskDefinition]:
    """Return the tasks whose jobs are put on the database of the page, by name."""
    tasks = map(registry.get, registry.known())
    return {task.name: task for task in tasks if task.database == conf.database_here}


def _page(admin: ActionsAdmin, request: HttpRequest, more: dict[str, Any]) -> HttpResponse:
    title = gettext("Enqueue a job")
    trail = crumbs(admin.admin_site, admin.opts, (title, ""))
    here = conf.database_here if is_elsewhere() else ""
    return admin.page(request, "enqueue", title, crumbs=trail, back=admin.address("changelist"), database=here, **more)


def _enqueue(admin: ActionsAdmin, request: HttpRequest, form: EnqueueForm) -> HttpResponse:
    with audited(request) as log:
        is_first = once(f"enqueue-form:{form.cleaned_data['form']}", database=conf.database_here)
        if is_first:
            args, kwargs = form.arguments
            handle = enqueue_one(form.chosen, args, kwargs)
            job = Job(pk=handle.id, task=form.task.name)
            with showing(handle.database):  # its queue may be on another one than the page
                if handle.created:
                    log([job], ADDITION, "Enqueued by the form.")
                else:
                    log([job], CHANGE, "Not enqueued by the form: this job has the unique key.")
    if not is_first:
        admin.message_user(request, gettext("This form was sent before. Nothing was enqueued."), messages.WARNING)
        return HttpResponseRedirect(admin.address("changelist"))
    words, level = gettext("Job {job} was enqueued."), messages.SUCCESS
    if not handle.created:
        words, level = gettext("The live job {job} has the unique key. No job was added."), messages.WARNING
    with showing(handle.database):
        address = admin.links(request).to_row("job", handle.id)
    admin.message_user(request, format_html(words, job=linked(handle.id, address)), level)
    return HttpResponseRedirect(address or admin.address("changelist"))
