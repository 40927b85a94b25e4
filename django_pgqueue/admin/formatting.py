"""Format values for the admin."""

import datetime as dt
import json
from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.forms import BaseForm as Form
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html, format_html_join
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from django_pgqueue import registry
from django_pgqueue.admin.links import Links
from django_pgqueue.insights.formatting import Ref, Sentence, duration, grouped
from django_pgqueue.insights.history import Entry, entries_of, title_of
from django_pgqueue.jobs.redaction import Scrub, shown, shown_by_name
from django_pgqueue.models import Job
from django_pgqueue.states import NEVER, Status
from django_pgqueue.stored_values import aware

LONGEST_JSON = 50_000  # characters shown
LONGEST_LINE = 120

Column = Callable[[Any, Any], str]

NAMES = {"queue", "key", "task"}


def moment(value: dt.datetime | None) -> str:
    """Show an instant in relative words, with the exact time as a tooltip; NEVER is "not yet"."""
    return _moment(value, '<time datetime="{iso}" title="{exact}">{words}</time>')


def exact_moment(value: dt.datetime | None) -> str:
    """Show an instant to the second, followed by relative words; NEVER is "not yet"."""
    return _moment(
        value, '<time datetime="{iso}" title="{iso}">{exact}</time> <span class="pgqueue-quiet">{words}</span>'
    )


def pretty_json(value: Any) -> str:
    """Show JSON indented, big integers and unicode as they are, cut where it gets long."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    if len(text) > LONGEST_JSON:
        rest = _("… and %(count)s more characters") % {"count": grouped(len(text) - LONGEST_JSON)}
        text = f"{text[:LONGEST_JSON]}\n{rest}"
    return format_html('<pre class="pgqueue-json">{}</pre>', text)


def history(errors: Any) -> str:
    """Show what went wrong in each attempt, the newest first, tracebacks folded."""
    entries = [_entry(entry) for entry in reversed(entries_of(errors))]
    return render_to_string("admin/pgqueue/history.html", {"entries": entries})


def of_the_project(error: Exception) -> str:
    """Name an error of the project's own code, such as a middleware; its text may hold sensitive values."""
    return _("Code of the project raised %(error)s.") % {"error": type(error).__name__}


def entry_line(entry: Any) -> str:
    """Show one entry of the history as ``ValueError: no luck``, its first line, cut."""
    if not isinstance(entry, dict):
        return ""
    words = ": ".join(filter(None, (title_of(entry), str(entry.get("message") or ""))))
    line = words.strip().partition("\n")[0]
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"


def capitalize_labels(form: Form) -> None:
    """Begin the labels of a form's fields as those of Django's own forms begin."""
    for field in form.fields.values():
        field.label = capfirst(field.label) if field.label else field.label


def linked(shown: Any, address: str) -> str:
    """Show a link, or no more than its words where there is no address."""
    return format_html('<a href="{}">{}</a>', address, shown) if address else str(shown)


def label(kind: str, words: str) -> str:
    """Show a status or a reason; the stylesheet gives it its colour."""
    return format_html('<span class="pgqueue-label pgqueue-{}">{}</span>', kind, words)


def live_status(job: Job) -> str:
    asked = job.status == Status.RUNNING and job.kill_requested_at is not None
    return label(job.status, _("running, asked to stop") if asked else job.get_status_display())


def progress(value: Any) -> str:
    """Show progress as ``set_progress`` stores it; any other value as JSON."""
    if value is None:
        return "-"
    if not isinstance(value, dict) or not isinstance(value.get("done"), int | float):
        return pretty_json(shown_by_name(value))
    done, total, message = value["done"], value.get("total"), value.get("message") or ""
    words = _("%(done)s of %(total)s") % {"done": done, "total": total} if total else str(done)
    attempt = _("attempt %(number)s") % {"number": value.get("attempt")}
    bar = format_html('<progress max="{}" value="{}"></progress> ', total, done) if total else ""
    return format_html('{}{} {} <span class="pgqueue-quiet">{}</span>', bar, words, message, attempt)


def column_of(field: str, description: Any, show: Callable[[Any], str]) -> Column:
    """Return a display method for a field, as it is shown by a function."""

    @admin.display(description=description)
    def column(_admin: Any, row: Any) -> str:
        return show(getattr(row, field))

    return column


def live_column(name: str, description: Any, show: Callable[[Any], Any]) -> Column:
    """Return a display method for a cell that is refreshed by itself where ``live.js`` is on the page."""

    @admin.display(description=description)
    def column(_admin: Any, row: Any) -> str:
        return format_html('<div data-pgqueue-live="{} {}">{}</div>', row.pk, name, show(row))

    return column


def moment_of(field: str, description: Any) -> Column:
    return column_of(field, description, exact_moment)


def sentence_of(field: str, description: Any, model: Any = Job) -> Column:
    """Return a display method for a plain value on the page of one row, with what the field means below it."""

    @admin.display(description=description)
    def column(_admin: Any, row: Any) -> str:
        meaning = model._meta.get_field(field).help_text  # noqa: SLF001 - Django's own idiom
        said = _said(getattr(row, field))
        return format_html('{}<div class="help">{}</div>', said, meaning) if meaning else said

    return column


def pretty_json_of(field: str, description: Any) -> Column:
    """Return a display method for a JSON field on the page of one job, without values of sensitive names."""
    return column_of(field, description, lambda value: pretty_json(shown_by_name(value)))


def arguments_of(field: str, description: Any) -> Column:
    """Return a display method for ``args`` or ``kwargs`` on the page of one job, without sensitive values."""

    @admin.display(description=description)
    def column(_admin: Any, job: Any) -> str:
        args, kwargs = shown(registry.find(job.task), job.args, job.kwargs)
        return pretty_json(args if field == "args" else kwargs)

    return column


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return _("Yes") if value else _("No")
    return "-" if value in {None, ""} else str(value)


def _moment(value: dt.datetime | None, markup: str) -> str:
    if value is None:
        return "-"
    value = aware(value)
    if value == NEVER:
        return _("not yet")
    local = timezone.localtime(value)
    iso = local.isoformat(sep=" ", timespec="seconds")
    return format_html(markup, iso=iso, exact=to_the_second(local), words=_relative(value))


def to_the_second(value: dt.datetime) -> str:
    """Return an instant in the admin's own format of dates, and to the second, which its format of times has not."""
    return f"{date_format(value, 'DATE_FORMAT')}, {date_format(value, 'H:i:s')}"


def _relative(value: dt.datetime) -> str:
    """Use the largest unit alone: more would change at each look."""
    seconds = round((aware(timezone.now()) - value).total_seconds())
    if not seconds:
        return _("now")
    words = _("%(elapsed)s ago") if seconds > 0 else _("%(time)s from now")
    length = duration(abs(seconds), most_units=1)
    return words % {"elapsed": length, "time": length}


def _entry(entry: Entry) -> dict[str, Any]:
    at = moment(entry.at) if entry.at else entry.raw.get("at")
    ran = "" if entry.run_seconds is None else duration(entry.run_seconds)
    kind = entry.kind or "unknown"
    return {**entry.raw, "kind": kind, "title": entry.title, "message": entry.message, "at": at, "ran": ran}


# Sentences with links

TABLES = {"job": ("job", "deadjob", "succeededjob")}  # the first page that the user may see knows where the job is


class Renderer:
    """Renders sentences for one user, with links. What stands for their parts is text, never markup."""

    def __init__(self, links: Links, scrub: Scrub) -> None:
        self.links = links
        self.scrub = scrub

    def sentence(self, one: Sentence) -> str:
        parts = {name: self._part(part) for name, part in one.parts.items()}
        return format_html(one.words, "", **parts)  # something to put in, where there is nothing

    def ref(self, one: Ref) -> str:
        pages = (self.links.to_row(model, one.key) for model in TABLES.get(one.kind, (one.kind,)))
        words = self.scrub(one.words)
        address = next(filter(None, pages), "")
        if address or one.kind not in NAMES:
            return linked(words, address)
        return format_html("<code>{}</code>", words)

    def refs(self, many: list[Ref]) -> str:
        return format_html_join(", ", "{}", ((self.ref(one),) for one in many))

    def _part(self, part: Any) -> str:
        if isinstance(part, Ref):
            return self.ref(part)
        if isinstance(part, list):
            return self.refs(part)
        if isinstance(part, int):
            return grouped(part)
        if isinstance(part, str):
            return format_html("<bdi>{}</bdi>", self.scrub(part))  # one from right to left turns nothing else round
        return exact_moment(part)
