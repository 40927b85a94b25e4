"""Send a dead job back with other arguments."""

import json
import secrets
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.models import ADDITION, CHANGE
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_pgqueue import registry
from django_pgqueue.admin.actions import ActionsAdmin, audited
from django_pgqueue.admin.formatting import linked, pretty_json
from django_pgqueue.admin.job_page import go_where_it_is
from django_pgqueue.admin.links import crumbs
from django_pgqueue.admin.row_actions import field_of
from django_pgqueue.conf import conf
from django_pgqueue.exceptions import InvalidArguments
from django_pgqueue.jobs.actions import PRIORITY, PURGE
from django_pgqueue.jobs.manage import purge
from django_pgqueue.jobs.redaction import in_errors, shown
from django_pgqueue.jobs.retry_with import (
    Misplaced,
    RetryRefused,
    RetryWithResult,
    keys_of,
    masked,
    retry_with,
    unmasked,
)
from django_pgqueue.jobs.serialization import check_signature, encode
from django_pgqueue.keys import Keys
from django_pgqueue.models import DeadJob, Job
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.states import LONGEST_QUEUE
from django_pgqueue.stored_values import is_whole

KINDS: dict[str, type] = {"args": list, "kwargs": dict}
EXAMPLES = {"args": '[17, "x"]', "kwargs": '{"order_id": 17}'}

PERMISSION = "change_deadjob"


def _json_field(label: Any, help_text: Any) -> forms.CharField:
    widget = forms.Textarea(attrs={"rows": 10, "class": "vLargeTextField pgqueue-code", "spellcheck": "false"})
    return forms.CharField(label=label, required=False, strip=False, widget=widget, help_text=help_text)


class RetryForm(forms.Form):
    """Arguments as JSON, without sensitive values; queue, priority, and whether to purge the dead job."""

    args = _json_field(_("Positional arguments"), _("A JSON array, in the order of the parameters."))
    kwargs = _json_field(_("Keyword arguments"), _("A JSON object of names and values."))
    queue = forms.CharField(label=_("Queue"), max_length=LONGEST_QUEUE, strip=False)
    priority = field_of(PRIORITY)
    removes = forms.BooleanField(
        label=_("Purge the dead job"),
        required=False,
        help_text=_("Remove it for good. Otherwise it stays among the dead jobs, with a note of the new one."),
    )
    form = forms.CharField(max_length=64, widget=forms.HiddenInput)  # random; identifies a form that is sent twice

    def __init__(self, task: TaskDefinition, dead: DeadJob, data: Any = None, *, may_remove: bool) -> None:
        self.task = task
        self.dead = dead
        self.masked = masked(task, dead.args, dead.kwargs)
        # Once the form is valid: the arguments with the sensitive values put back, and the keys of the new job.
        self.changed: tuple[tuple[Any, ...], dict[str, Any]] = (), {}
        self.keys = Keys(dead.unique_key, dead.concurrency_key, dead.fair_key)
        initial = {
            "args": _pretty(self.masked.args),
            "kwargs": _pretty(self.masked.kwargs),
            "queue": dead.queue,
            "priority": dead.priority,
            "form": secrets.token_urlsafe(16),
        }
        super().__init__(data, initial=initial)
        if not may_remove:
            del self.fields["removes"]

    def clean_args(self) -> Any:
        return self._value("args")

    def clean_kwargs(self) -> Any:
        return self._value("kwargs")

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if not self.errors:
            try:
                args, kwargs = unmasked(self.task, cleaned["args"], cleaned["kwargs"], self.masked.kept)
            except Misplaced as error:
                self.add_error(None, str(error))
            else:
                self._check(args, kwargs)
        return cleaned

    def _check(self, args: Any, kwargs: Any) -> None:
        for name, value in (("args", args), ("kwargs", kwargs)):
            try:
                _check_kind(name, value)
                with in_errors([(self.task, args, kwargs)]):
                    encode(value, what=name)
            except (ValidationError, InvalidArguments) as error:
                self.add_error(name, error if isinstance(error, ValidationError) else str(error))
        if not self.errors:
            self.changed = tuple(args), kwargs
            try:
                check_signature(self.task, *self.changed)
            except InvalidArguments as error:
                self.add_error("kwargs" if "keyword" in str(error.__cause__) else "args", str(error))
            else:
                self._compute_keys()

    def _compute_keys(self) -> None:
        try:
            self.keys = keys_of(self.task, self.keys, (tuple(self.dead.args), self.dead.kwargs), self.changed)
        except Exception as error:  # noqa: BLE001 - a function of the task; its error may hold sensitive values
            words = gettext("The task cannot compute its keys of these arguments: %(error)s.")
            self.add_error(None, words % {"error": type(error).__name__})

    def _value(self, name: str) -> Any:
        text = self.cleaned_data[name]
        if not text.strip():
            return KINDS[name]()
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            words = gettext("It is no JSON: %(why)s at line %(line)s, column %(column)s.")
            where = {"why": error.msg, "line": error.lineno, "column": error.colno}
            raise ValidationError(words % where) from error
        except (ValueError, RecursionError) as error:
            raise ValidationError(
                gettext("That cannot be read: a number is too long, or it is nested too deeply.")
            ) from error
        if not (isinstance(value, str) and value in self.masked.kept):
            _check_kind(name, value)
        return value


def _check_kind(name: str, value: Any) -> None:
    if not isinstance(value, KINDS[name]):
        words = _("It must be a JSON array, as in %s.") if name == "args" else _("It must be a JSON object, as in %s.")
        raise ValidationError(words % EXAMPLES[name])


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
    old, new = shown(form.task, dead.args, dead.kwargs), shown(form.task, *form.changed)
    rows = [
        (gettext("Positional arguments"), dead.args != list(form.changed[0]), pretty_json(old[0]), pretty_json(new[0])),
        (gettext("Keyword arguments"), dead.kwargs != form.changed[1], pretty_json(old[1]), pretty_json(new[1])),
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
            *form.changed,
            keys=form.keys,
            queue=said["queue"],
            priority=said["priority"],
            form=said["form"],
            by=by,
            database=conf.database,
        )
        if retried.id is not None:
            is_gone = said.get("removes", False) and bool(purge([dead.pk], by=by, database=conf.database))
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
