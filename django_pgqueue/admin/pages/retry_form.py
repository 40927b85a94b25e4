"""The form of a retry with changed arguments: what cannot be enqueued is refused here, at its field."""

import json
import secrets
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.functional import cached_property
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_pgqueue.cli.edit_arguments import Masked, Misplaced, masked, unmasked
from django_pgqueue.exceptions import InvalidArguments
from django_pgqueue.jobs.redaction import in_errors
from django_pgqueue.jobs.retry_with import keys_of
from django_pgqueue.jobs.serialization import check_signature, encode
from django_pgqueue.models import DeadJob
from django_pgqueue.options import Keys
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.states import HIGHEST_PRIORITY, LONGEST_QUEUE, LOWEST_PRIORITY

KINDS: dict[str, type] = {"args": list, "kwargs": dict}
EXAMPLES = {"args": '[17, "x"]', "kwargs": '{"order_id": 17}'}


def _json_field(label: Any, help_text: Any) -> forms.CharField:
    widget = forms.Textarea(attrs={"rows": 10, "class": "vLargeTextField pgqueue-code", "spellcheck": "false"})
    return forms.CharField(label=label, required=False, strip=False, widget=widget, help_text=help_text)


class RetryForm(forms.Form):
    """Arguments as JSON, without what is sensitive in them; queue, priority, and what becomes of the dead job.

    Attributes:
        changed: the arguments with the sensitive values put back, once the form is valid.
        keys: those of the new job, likewise.
        form: a random text, by which a form that is sent twice is known again.
    """

    args = _json_field(_("Positional arguments"), _("A JSON array, in the order of the parameters."))
    kwargs = _json_field(_("Keyword arguments"), _("A JSON object of names and values."))
    queue = forms.CharField(label=_("Queue"), max_length=LONGEST_QUEUE, strip=False)
    priority = forms.IntegerField(
        label=_("Priority"),
        min_value=LOWEST_PRIORITY,
        max_value=HIGHEST_PRIORITY,
        help_text=_("-100 to 100; larger runs sooner."),
    )
    removes = forms.BooleanField(
        label=_("Purge the dead job"),
        required=False,
        help_text=_("Remove it for good. Otherwise it stays among the dead jobs, with a note of the new one."),
    )
    form = forms.CharField(max_length=64, widget=forms.HiddenInput)

    def __init__(self, task: TaskDefinition, dead: DeadJob, data: Any = None, *, may_remove: bool) -> None:
        self.task = task
        self.dead = dead
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

    @cached_property
    def masked(self) -> Masked:
        return masked(self.task, self.dead.args, self.dead.kwargs)

    def clean_args(self) -> Any:
        return self._value("args")

    def clean_kwargs(self) -> Any:
        return self._value("kwargs")

    def clean(self) -> dict[str, Any]:
        """Put the sensitive values back, and look whether a job can have these arguments."""
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
                with in_errors(self.task, [(args, kwargs)]):
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
        except Exception as error:  # noqa: BLE001 - a function of the task; what it says may hold what is sensitive
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
                gettext("Nobody can read that: a number is too long, or it is nested too deeply.")
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
