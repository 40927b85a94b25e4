"""Look whether waiting jobs fit the functions that are to run them."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgqueue import tasks
from django_pgqueue.lifecycle.sql import statement
from django_pgqueue.staff.figures import whole
from django_pgqueue.staff.health.finding import Finding, Level
from django_pgqueue.staff.health.jobs import MOST_JOBS, MOST_QUEUES, task_of
from django_pgqueue.staff.health.view import View
from django_pgqueue.staff.health.words import named


class Shape(NamedTuple):
    """Of which shape the arguments of some jobs are; the columns of ``shapes.sql``."""

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
    shapes = map(Shape._make, view.database.rows(statement("shapes"), {"names": names, "limit": MOST_JOBS}))
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


def _problem(shape: Shape) -> str:
    """Return why a function cannot be called so; nothing where it can, or is not known: others say that."""
    if shape.length is None or shape.keys is None:
        return _("args and kwargs are %(args)s and %(kwargs)s, not array and object") % shape._asdict()
    task = task_of(shape.task, shape.backend)
    return _misfit(task, [None] * shape.length, dict.fromkeys(shape.keys)) if task else ""


def _misfit(task: tasks.Task[..., object], args: list[None], kwargs: dict[str, None]) -> str:
    try:
        task.signature.bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    return ""


def _order(shape: Shape) -> tuple[str, int]:
    return shape.task, shape.job_id
