"""Look whether what is to run fits this code's functions: jobs that wait, and the next jobs of schedules."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgqueue import registry
from django_pgqueue.db.queries import statement
from django_pgqueue.doctor.finding import Finding, Level, View, named
from django_pgqueue.doctor.jobs import MOST_JOBS, MOST_QUEUES, task_of
from django_pgqueue.doctor.schedules import MOST_LOOKED_AT
from django_pgqueue.insights.formatting import whole
from django_pgqueue.models import Schedule

IN_JSON = {list: "array", dict: "object", str: "string", bool: "boolean", type(None): "null"}
"""The types of Python, in words of JSON; others are numbers."""


class ArgumentShape(NamedTuple):
    """Of which shape the arguments of some jobs are; the columns of ``argument_shapes.sql``."""

    task: str
    backend: str
    args: str  # the type, in words of JSON
    length: int | None
    kwargs: str
    keys: Sequence[str] | None
    number: int
    job_id: int


def unfit_arguments(view: View) -> Iterator[Finding]:
    """Say for which waiting jobs this code's function of the task cannot be called."""
    names = [queue.name for queue in view.queues if queue.queued.value][:MOST_QUEUES]
    shapes = map(
        ArgumentShape._make, view.database.rows(statement("argument_shapes"), {"names": names, "limit": MOST_JOBS})
    )
    unfit = [(shape, problem) for shape in sorted(shapes, key=_order) if (problem := _problem(shape))]
    if not unfit:
        return
    number = sum(shape.number for shape, _problem in unfit)
    told = {shape.task: {"job": shape.job_id, "problem": problem} for shape, problem in reversed(unfit)}
    words = _("%(task)s (%(problem)s: job %(job)s)")
    yield Finding(
        name="arguments-unfit",
        level=Level.ERROR,
        what=ngettext(
            "At least %(number)s job waits with arguments that its task does not take: %(tasks)s.",
            "At least %(number)s jobs wait with arguments that their tasks do not take: %(tasks)s.",
            number,
        )
        % {
            "number": whole(number),
            "tasks": named([words % {"task": name, **told[name]} for name in sorted(told)]),
        },
        remedy=_(
            "Let the function take the old arguments too until these jobs are done: give new parameters defaults, and "
            "keep those that were removed. What has failed of it can be retried with changed arguments."
        ),
        facts={"tasks": told},
    )


def unfit_schedules(view: View) -> Iterator[Finding]:
    """Say of which schedules the next job could not run. Those of the code are declared anew with it."""
    rows = (
        Schedule.objects.using(view.alias)
        .filter(is_enabled=True)
        .exclude(source="code", edited_at=None)
        .order_by("next_at")[:MOST_LOOKED_AT]
    )
    unfit = {row.name: problem for row in rows if (problem := _problem_of(row))}
    if not unfit:
        return
    yield Finding(
        name="schedules-unfit",
        level=Level.ERROR,
        what=ngettext(
            "The next job of %(number)s schedule cannot run: %(schedules)s.",
            "The next jobs of %(number)s schedules cannot run: %(schedules)s.",
            len(unfit),
        )
        % {"number": whole(len(unfit)), "schedules": named([f"{name} ({problem})" for name, problem in unfit.items()])},
        remedy=_("Change its task or arguments in the admin, or pause it; or let the function take what it gives."),
        facts={"schedules": unfit},
    )


def _problem(shape: ArgumentShape) -> str:
    """Return why a function cannot be called so; nothing where it can, or is not known: others say that."""
    if shape.length is None or shape.keys is None:
        return _misshapen(shape.args, shape.kwargs)
    task = task_of(shape.task, shape.backend)
    return _misfit(task, [None] * shape.length, shape.keys) if task else ""


def _problem_of(schedule: Schedule) -> str:
    task = registry.find(schedule.task)
    if task is None:
        return _("this code does not know %(task)s") % {"task": schedule.task}
    kinds = [IN_JSON.get(type(value), "number") for value in (schedule.args, schedule.kwargs)]
    if kinds != ["array", "object"]:  # only SQL stores that
        return _misshapen(*kinds)
    return _misfit(task, schedule.args, schedule.kwargs)


def _misshapen(args: str, kwargs: str) -> str:
    return _("args and kwargs are %(args)s and %(kwargs)s, not array and object") % {"args": args, "kwargs": kwargs}


def _misfit(task: registry.TaskDefinition, args: Iterable[Any], keys: Iterable[str]) -> str:
    """Return why arguments cannot be bound, by their number and names; values decide nothing."""
    try:
        task.signature.bind(*args, **dict.fromkeys(keys))
    except TypeError as error:
        return str(error)
    return ""


def _order(shape: ArgumentShape) -> tuple[str, int]:
    return shape.task, shape.job_id
