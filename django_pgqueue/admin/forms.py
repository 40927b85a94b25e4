"""Forms of jobs, schedules and queues."""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxLengthValidator
from django.forms.fields import InvalidJSONInput
from django.utils.text import format_lazy
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_pgqueue import registry
from django_pgqueue.admin.formatting import capitalize_labels
from django_pgqueue.exceptions import InvalidArguments, PgQueueError
from django_pgqueue.flow.queue_limits import MOST, Rate, default_burst
from django_pgqueue.jobs.redaction import in_errors
from django_pgqueue.jobs.serialization import check_signature, encode
from django_pgqueue.models import Queue, Schedule
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.schedules import periodic
from django_pgqueue.schedules.recurrence import Recurrence, recurrence_of
from django_pgqueue.states import LONGEST_PERIOD_SECONDS, LONGEST_QUEUE, CatchUp

LONGEST_CRON = 200
TIMING = {"cron", "every_seconds", "timezone"}
EMPTY: dict[str, Any] = {"args": [], "kwargs": {}, "options": {}}
KINDS: dict[type, Any] = {
    list: _("A JSON array, as in {example}."),
    dict: _("A JSON object, as in {example}."),
}
NOT: dict[type, Any] = {list: _("This is not a JSON array."), dict: _("This is not a JSON object.")}
START: dict[str, Any] = {"cron": "", "jitter_seconds": 0, "catch_up": CatchUp.LAST, "catch_up_limit": 100}

UNREADABLE = _("That cannot be read: a number is too long, or it is nested too deeply.")

RATE = {"rate_limit", "rate_period_seconds", "rate_burst"}


class JSONField(forms.JSONField):
    """Django's, which lets errors through where a number is too long, or JSON is nested too deeply."""

    def to_python(self, value: Any) -> Any:
        try:
            return super().to_python(value)
        except (ValueError, RecursionError) as error:
            raise ValidationError(UNREADABLE) from error

    def bound_data(self, data: Any, initial: Any) -> Any:
        try:
            return super().bound_data(data, initial)
        except (ValueError, RecursionError):
            return InvalidJSONInput(data)


def json_field(kind: type, example: str, label: Any) -> JSONField:
    return JSONField(
        label=label,
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "class": "vLargeTextField"}),
        help_text=format_lazy(KINDS[kind], example=example),
    )


class ScheduleForm(forms.ModelForm):  # type: ignore[type-arg]  # generic for the type checker only
    """Adds or changes a schedule. Fields that a user may not edit are missing."""

    cron = forms.CharField(
        label=_("cron"),
        required=False,
        max_length=LONGEST_CRON,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text=_("Minute, hour, day of the month, month, day of the week, as in 0 9 * * mon-fri; or @daily."),
    )
    every_seconds = forms.FloatField(
        label=_("every"), required=False, help_text=_("Alternatively: an interval in seconds (at least 1).")
    )
    timezone = forms.CharField(
        label=_("time zone"),
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text=_("Time zone for the cron expression, e.g. Europe/Berlin."),
    )
    jitter_seconds = forms.FloatField(
        label=_("jitter"),
        min_value=0,
        max_value=periodic.LONGEST_JITTER_SECONDS,
        help_text=_("Maximum delay in seconds; constant for each schedule."),
    )
    catch_up_limit = forms.IntegerField(
        label=_("catch up at most"),
        min_value=1,
        max_value=periodic.HIGHEST_CATCH_UP_LIMIT,
        help_text=_("With “all”: the maximum number of missed runs to catch up."),
    )
    args = json_field(list, '["daily", 7]', _("args"))
    kwargs = json_field(dict, '{"to": "ann@example.com"}', _("kwargs"))
    options = json_field(dict, '{"queue": "reports", "priority": 5, "unique_key": "report"}', _("options"))

    class Meta:
        model = Schedule
        fields = ["name", "task", "every_seconds", "timezone", *EMPTY, *START]
        widgets = {"name": forms.TextInput(attrs={"class": "vTextField"})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in set(self.declared_fields).difference(self._meta.fields or ()):
            del self.fields[name]  # a form has declared fields even where they may not be edited
        if not self.instance.pk:  # defaults of the database are not known to a form
            self.initial.update({**EMPTY, **START, "timezone": settings.TIME_ZONE, **(kwargs.get("initial") or {})})
        if "task" in self.fields:
            names = sorted({*registry.known(), self.instance.task or registry.known()[0]} if registry.known() else ())
            self.fields["task"] = forms.ChoiceField(label=_("task"), choices=[(name, name) for name in names])
        if "name" in self.fields:
            self.fields["name"].widget.attrs["maxlength"] = periodic.LONGEST_NAME
            self.fields["name"].validators.append(MaxLengthValidator(periodic.LONGEST_NAME))
        capitalize_labels(self)

    @property
    def rhythm(self) -> Recurrence:
        """The ticks of the values entered, if they are valid."""
        return recurrence_of(*(self._value(name) for name in ("cron", "every_seconds", "timezone")))

    def clean(self) -> dict[str, Any]:
        super().clean()
        for name, empty in EMPTY.items():
            if name in self.cleaned_data and self.cleaned_data[name] is None:
                self.cleaned_data[name] = empty
        if not TIMING & set(self.errors):
            with self._errors_at("every_seconds" if self._value("every_seconds") is not None else "cron"):
                self.rhythm  # noqa: B018 - reckoned to see whether it can be
        task = registry.find(self._value("task"))
        if task is not None and not set(EMPTY) & set(self.errors):
            self._check_job(task)
        return self.cleaned_data

    def _check_job(self, task: registry.TaskDefinition) -> None:
        args, kwargs, options = (self._value(name) for name in EMPTY)
        for name, value, kind in (("args", args, list), ("kwargs", kwargs, dict), ("options", options, dict)):
            if not isinstance(value, kind):
                self.add_error(name, NOT[kind])
                return
        with self._errors_at("args"):
            periodic.check_arguments(task, args, kwargs)
            encode(args, what="args")
        with self._errors_at("kwargs"):
            encode(kwargs, what="kwargs")
        with self._errors_at("options"):
            periodic.stored_options(task, options)

    @contextmanager
    def _errors_at(self, field: str) -> Iterator[None]:
        try:
            yield
        except PgQueueError as error:
            self.add_error(field if field in self.fields else None, ValidationError(str(error)))

    def _value(self, name: str) -> Any:
        return self.cleaned_data.get(name) if name in self.fields else getattr(self.instance, name)


# Limits of a queue


def limit_field(label: Any, help_text: Any) -> forms.IntegerField:
    return forms.IntegerField(label=label, required=False, min_value=1, max_value=MOST, help_text=help_text)


class LimitsForm(forms.ModelForm):  # type: ignore[type-arg]  # generic for the type checker only
    """The limits of one queue; what ``queues.limit`` would refuse is refused here, at its field."""

    max_running = limit_field(
        _("at once"), _("Maximum jobs running at once, across all workers. Leave empty for no limit.")
    )
    rate_limit = limit_field(_("rate"), _("Maximum jobs started in each period. Leave empty for no limit."))
    rate_period_seconds = forms.FloatField(
        label=_("period"),
        required=False,
        min_value=0.001,
        max_value=LONGEST_PERIOD_SECONDS,
        help_text=_("Seconds per rate period. Default: 1."),
    )
    rate_burst = limit_field(
        _("burst"),
        _("Maximum jobs of the rate that start at once. Default: what the rate gives in a fifth of a second."),
    )

    class Meta:
        model = Queue
        fields = ["max_running", "rate_limit", "rate_period_seconds", "rate_burst"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        capitalize_labels(self)

    def clean(self) -> dict[str, Any]:
        super().clean()
        cleaned = self.cleaned_data
        if self.errors:
            return cleaned
        if cleaned["rate_limit"]:
            cleaned["rate_period_seconds"] = cleaned["rate_period_seconds"] or 1.0
            cleaned["rate_burst"] = cleaned["rate_burst"] or default_burst(
                Rate(cleaned["rate_limit"], cleaned["rate_period_seconds"])
            )
            return cleaned
        for name in ("rate_period_seconds", "rate_burst"):
            if cleaned[name] is not None:
                self.add_error(name, _("This belongs to a rate, and there is none."))
        return cleaned


# A job

PARTS: dict[str, tuple[type, Any, str]] = {
    "args": (list, _("It must be a JSON array, as in %s."), '[17, "x"]'),
    "kwargs": (dict, _("It must be a JSON object, as in %s."), '{"order_id": 17}'),
}


def _code_field(label: Any, help_text: Any) -> forms.CharField:
    widget = forms.Textarea(attrs={"rows": 10, "class": "vLargeTextField pgqueue-code", "spellcheck": "false"})
    return forms.CharField(label=label, required=False, strip=False, widget=widget, help_text=help_text)


class JobForm(forms.Form):
    """Arguments of a task as JSON, and the queue.

    Attributes:
        arguments: args and kwargs of the job, once the form is valid.
    """

    args = _code_field(_("Positional arguments"), _("A JSON array, in the order of the parameters."))
    kwargs = _code_field(_("Keyword arguments"), _("A JSON object of names and values."))
    queue = forms.CharField(label=_("Queue"), max_length=LONGEST_QUEUE, strip=False)
    form = forms.CharField(max_length=64, widget=forms.HiddenInput)  # random; identifies a form that is sent twice

    def __init__(self, task: TaskDefinition, data: Any, *, initial: dict[str, Any]) -> None:
        self.task = task
        self.arguments: tuple[tuple[Any, ...], dict[str, Any]] = (), {}
        super().__init__(data, initial={**initial, "form": secrets.token_urlsafe(16)})

    def clean_args(self) -> Any:
        return self._value("args")

    def clean_kwargs(self) -> Any:
        return self._value("kwargs")

    def may_replace(self, value: Any) -> bool:
        """Whether a value may be entered in place of the array or the object."""
        return False

    def compute_keys(self) -> None:
        """Compute the keys of the job; raise what a function of the task raises."""
        self.task.keys_of(*self.arguments)

    def check_arguments(self, args: Any, kwargs: Any) -> None:
        """Set ``arguments``, or add errors where they are no JSON of their kind or the task does not take them."""
        for name, value in (("args", args), ("kwargs", kwargs)):
            try:
                _check_kind(name, value)
                with in_errors([(self.task, args, kwargs)]):
                    encode(value, what=name)
            except (ValidationError, InvalidArguments) as error:
                self.add_error(name, error if isinstance(error, ValidationError) else str(error))
        if not self.errors:
            self.arguments = tuple(args), kwargs
            try:
                check_signature(self.task, *self.arguments)
            except InvalidArguments as error:
                self.add_error("kwargs" if "keyword" in str(error.__cause__) else "args", str(error))
            else:
                self._check_keys()

    def _check_keys(self) -> None:
        try:
            self.compute_keys()
        except Exception as error:  # noqa: BLE001 - a function of the task; its error may hold sensitive values
            words = gettext("The task cannot compute its keys of these arguments: %(error)s.")
            self.add_error(None, words % {"error": type(error).__name__})

    def _value(self, name: str) -> Any:
        text = self.cleaned_data[name]
        if not text.strip():
            return PARTS[name][0]()
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            words = gettext("It is no JSON: %(why)s at line %(line)s, column %(column)s.")
            where = {"why": error.msg, "line": error.lineno, "column": error.colno}
            raise ValidationError(words % where) from error
        except (ValueError, RecursionError) as error:
            raise ValidationError(UNREADABLE) from error
        if not self.may_replace(value):
            _check_kind(name, value)
        return value


def _check_kind(name: str, value: Any) -> None:
    kind, words, example = PARTS[name]
    if not isinstance(value, kind):
        raise ValidationError(words % example)
