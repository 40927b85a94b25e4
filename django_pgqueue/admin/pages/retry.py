"""Retry a dead job with changed arguments: a form, a confirmation, a new job. Only the last one changes anything."""

from typing import Any

from django.contrib import messages
from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db import router, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.translation import gettext

from django_pgqueue import registry
from django_pgqueue.admin.pages.job import go_where_it_is
from django_pgqueue.admin.pages.retry_form import RetryForm
from django_pgqueue.admin.parts.crumbs import crumbs
from django_pgqueue.admin.parts.formatting import pretty_json
from django_pgqueue.admin.parts.links import Links
from django_pgqueue.admin.verbs.table import VerbsAdmin
from django_pgqueue.conf import conf
from django_pgqueue.jobs.actions import purge
from django_pgqueue.jobs.redaction import shown
from django_pgqueue.jobs.retry_with import Refused, Retried, retry_changed
from django_pgqueue.models import DeadJob, Job
from django_pgqueue.stored_values import Unread, is_whole

PERMISSION = "django_pgqueue.change_deadjob"
REMOVAL = "django_pgqueue.delete_deadjob"


def may_retry(admin: VerbsAdmin, request: HttpRequest) -> bool:
    """Whether this user may retry dead jobs with changed arguments."""
    return admin.has_view_permission(request) and request.user.has_perm(PERMISSION)


def retry_view(admin: VerbsAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
    """Show the form; then what would be enqueued; then enqueue it."""
    may_remove = request.user.has_perm(REMOVAL)
    if not may_retry(admin, request) or ("removes" in request.POST and not may_remove):
        raise PermissionDenied
    dead: Any = admin.get_object(request, unquote(object_id))
    if dead is None:
        return go_where_it_is(admin, request, object_id)
    task = registry.find(dead.task)
    is_whole_call = isinstance(dead.args, list) and isinstance(dead.kwargs, dict) and is_whole([dead.args, dead.kwargs])
    if task is None or not is_whole_call:
        return _page(admin, request, dead, {"problem": _problem(dead, task)})
    form = RetryForm(task, dead, request.POST if request.method == "POST" else None, may_remove=may_remove)
    if "back" in request.POST or not form.is_valid():
        return _page(admin, request, dead, {"form": form})
    if "confirmed" not in request.POST:
        return _page(admin, request, dead, {"form": form, "changes": _changes(form), "is_asked": True})
    return _retry(admin, request, form)


def _problem(dead: DeadJob, task: Any) -> str:
    if task is None:
        return gettext(
            "This code does not know the task %(task)s, so nobody can tell which arguments it takes. Deploy the code "
            "that has it, or add the name to the aliases of the task it is now."
        ) % {"task": dead.task}
    if isinstance(dead.args, Unread) or isinstance(dead.kwargs, Unread) or not is_whole([dead.args, dead.kwargs]):
        return gettext(
            "Nobody can read its arguments: a number is too long, or they are nested too deeply. Enqueue it anew."
        )
    return gettext(
        "Its arguments are no JSON array and JSON object: there is nothing here to be changed. Enqueue it anew."
    )


def _page(admin: VerbsAdmin, request: HttpRequest, dead: DeadJob, more: dict[str, Any]) -> HttpResponse:
    context = {
        **admin.admin_site.each_context(request),
        "title": gettext("Retry with changed arguments"),
        "crumbs": crumbs(
            admin.admin_site,
            admin.opts,
            (str(dead), admin.address("change", dead.pk)),
            (gettext("Retry with changed arguments"), ""),
        ),
        "subtitle": str(dead),
        "opts": admin.opts,
        "media": admin.media,
        "dead": dead,
        "back": admin.address("change", dead.pk),
        **more,
    }
    request.current_app = admin.admin_site.name
    return TemplateResponse(request, "admin/django_pgqueue/retry.html", context)


def _changes(form: RetryForm) -> list[tuple[str, str, str]]:
    """Return what would be different, and what it is now, without what is sensitive."""
    dead, said = form.dead, form.cleaned_data
    old, new = shown(form.task, dead.args, dead.kwargs), shown(form.task, *form.changed)
    rows = [
        (gettext("Positional arguments"), dead.args != list(form.changed[0]), pretty_json(old[0]), pretty_json(new[0])),
        (gettext("Keyword arguments"), dead.kwargs != form.changed[1], pretty_json(old[1]), pretty_json(new[1])),
        (gettext("Queue"), dead.queue != said["queue"], dead.queue, said["queue"]),
        (gettext("Priority"), dead.priority != said["priority"], str(dead.priority), str(said["priority"])),
    ]
    return [(name, before, after) for name, is_changed, before, after in rows if is_changed]


def _retry(admin: VerbsAdmin, request: HttpRequest, form: RetryForm) -> HttpResponse:
    """Do it and write the audit log, both or neither."""
    dead, said, by = form.dead, form.cleaned_data, request.user.get_username()
    args, kwargs = form.changed
    with transaction.atomic(using=conf.database), transaction.atomic(using=router.db_for_write(LogEntry)):
        retried = retry_changed(
            dead.pk,
            form.task,
            args,
            kwargs,
            keys=form.keys,
            queue=said["queue"],
            priority=said["priority"],
            form=said["form"],
            by=by,
            database=conf.database,
        )
        if retried.id is not None:
            is_gone = said.get("removes", False) and bool(purge([dead.pk], by=by, database=conf.database))
            _log(request, dead, Job(pk=retried.id, task=form.task.name), is_gone=is_gone)
    if retried.id is None:
        return _refuse(admin, request, form, retried)
    words = gettext("Job {new} was enqueued in place of the dead job {old}, which stays where it is.")
    if is_gone:
        words = gettext("Job {new} was enqueued in place of the dead job {old}, which was purged.")
    admin.message_user(
        request, format_html(words, new=_link(admin, request, retried.id), old=dead.pk), messages.SUCCESS
    )
    address = Links(request, admin.admin_site).to_row("job", retried.id)
    return HttpResponseRedirect(address or admin.address("changelist"))


def _log(request: HttpRequest, dead: DeadJob, new: Job, *, is_gone: bool) -> None:
    words = f"Retried with changed arguments as job {new.pk}{', and purged' if is_gone else ''}."
    said = [(dead, CHANGE, words), (new, ADDITION, f"Retried with changed arguments from job {dead.pk}.")]
    for row, flag, message in said:
        LogEntry.objects.log_actions(request.user.pk, [row], flag, message, single_object=True)  # type: ignore[call-overload]


def _refuse(admin: VerbsAdmin, request: HttpRequest, form: RetryForm, retried: Retried) -> HttpResponse:
    """Say why there is no new job. What was filled in is not lost where trying again may help."""
    dead = form.dead
    if retried.refused is Refused.GONE:
        return go_where_it_is(admin, request, str(dead.pk))
    words = {
        Refused.ALREADY: gettext("This form was sent before, and has made job {job}. Nothing was done again."),
        Refused.KEY_HELD: gettext(
            "The live job {job} has the unique key that the new one would have. Nothing was enqueued."
        ),
        Refused.CHANGING: gettext("Somebody else is just changing the dead job. Nothing was enqueued; try again."),
    }[retried.refused or Refused.CHANGING]
    told = format_html(words, job=_link(admin, request, retried.other))
    if retried.refused is Refused.ALREADY:
        admin.message_user(request, told, messages.WARNING)
        return HttpResponseRedirect(admin.address("change", dead.pk))
    return _page(admin, request, dead, {"form": form, "problem": told})


def _link(admin: VerbsAdmin, request: HttpRequest, job_id: int | None) -> str:
    address = Links(request, admin.admin_site).to_row("job", job_id)
    return format_html('<a href="{}">{}</a>', address, job_id) if address else str(job_id or "")
