"""A filter in words, and the list that shows what it matches."""

from collections.abc import Iterator
from typing import Any

from django.utils.translation import gettext as _

from django_pgqueue.admin.parts.formatting import one_line
from django_pgqueue.conf import conf
from django_pgqueue.insights.retention import span
from django_pgqueue.jobs.actions import LIVE
from django_pgqueue.jobs.search import Filter, Source
from django_pgqueue.models import DeadJob
from django_pgqueue.states import REASONS, STATUSES

LISTS = {Source.LIVE: "job", Source.DEAD: "deadjob", Source.FINISHED: "finishedjob"}
"""The model whose list shows the jobs."""

KINDS = {Source.LIVE: "status", Source.DEAD: "reason"}
UNLISTED = ("older_than_seconds", "error", "before")
"""What no list can be narrowed by."""


def in_words(chosen: Filter, source: Source) -> list[tuple[str, str]]:
    """Return what a filter asks for: names and values; empty where it matches all jobs."""
    return list(_words(chosen, source))


def sentence(chosen: Filter, source: Source) -> str:
    """Return the same in one line."""
    words = [f"{name}: {value}" for name, value in in_words(chosen, source)]
    return "; ".join(words) or _every(source)


def _every(source: Source) -> str:
    return {
        Source.LIVE: _("all jobs"),
        Source.DEAD: _("all dead jobs"),
        Source.FINISHED: _("all finished jobs"),
    }[source]


def _words(chosen: Filter, source: Source) -> Iterator[tuple[str, str]]:
    kind = _("reason") if source is Source.DEAD else _("status")
    kinds = () if chosen.kinds == LIVE else chosen.kinds
    labels = REASONS if source is Source.DEAD else STATUSES
    named = [str(labels.get(word, word)) for word in kinds]
    for name, values in ((kind, named), (_("queue"), chosen.queues), (_("task"), chosen.tasks)):
        if values:
            yield name, ", ".join(values)
    if chosen.cause is not None:
        yield _("died of"), _cause(chosen.cause)
    if chosen.older_than_seconds is not None:
        yield _("older than"), span(round(chosen.older_than_seconds))
    for name, text in (
        (_("task begins with"), chosen.task_prefix),
        (_("last error"), chosen.error),
        (_("unique key"), chosen.unique_key),
        (chosen.argument_name or _("any argument"), chosen.argument),
        (_("day"), chosen.day),
    ):
        if text is not None:
            yield name, text


def _cause(cause: int) -> str:
    """Name a cause by the latest job that died of it."""
    latest = DeadJob.objects.using(conf.database).filter(cause=cause).order_by("-died_at", "-id")
    found = latest.only("task", "reason", "errors").first()
    if found is None:
        return _("a cause of which no job is dead now (%(number)s)") % {"number": cause}
    error = found.errors[-1] if isinstance(found.errors, list) and found.errors else None
    return f"{found.task}: {error.get('error') or found.reason}" if isinstance(error, dict) else one_line(error)


def query(chosen: Filter, source: Source) -> dict[str, Any] | None:
    """Return the filters of the list that shows the same jobs; None: no list can."""
    kinds = () if chosen.kinds == LIVE else chosen.kinds  # which a list shows without being asked
    several = any(len(values) > 1 for values in (chosen.queues, chosen.tasks, kinds))
    before = f"{chosen.argument_name}=" if chosen.argument_name else "arg:"
    terms = [
        chosen.task_prefix,
        None if chosen.unique_key is None else f"key:{chosen.unique_key}",
        None if chosen.argument is None else f"{before}{chosen.argument}",
    ]
    if several or any(getattr(chosen, name) is not None for name in UNLISTED) or sum(map(bool, terms)) > 1:
        return None
    filters = {
        KINDS.get(source, ""): next(iter(kinds), None),
        "queue": next(iter(chosen.queues), None),
        "task": next(iter(chosen.tasks), None),
        "cause": chosen.cause,
        "day": chosen.day,
        "q": next(filter(None, terms), None),
    }
    return {name: value for name, value in filters.items() if name and value is not None}
