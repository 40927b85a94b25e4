"""Look for jobs that wait too long or without end, also because they do not fit this code's functions."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgqueue import registry
from django_pgqueue.conf import LARGEST_NUMBER, conf
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import bounded, statement
from django_pgqueue.doctor.finding import UNANSWERED, Finding, Level, View, named, not_looked_at
from django_pgqueue.doctor.schedules import MOST_LOOKED_AT
from django_pgqueue.flow.backlog import count_queued
from django_pgqueue.insights import throughput
from django_pgqueue.insights.formatting import duration, grouped
from django_pgqueue.insights.overview import patience_seconds
from django_pgqueue.jobs.executor import find_task
from django_pgqueue.models import Schedule
from django_pgqueue.outbox.relay import LOCKED

logger = logging.getLogger("django_pgqueue")

FAILING_MINUTES = 15
FEWEST_ATTEMPTS = 10  # that a share is reckoned from

OLD_CALL_SECONDS = 120.0  # in an outbox: workers look there each second

MOST_QUEUES = 100
MOST_JOBS = 100  # of each queue, whose tasks are looked at


def backlogs(view: View) -> Iterator[Finding]:
    """Yield four findings by one look: each look takes statements of its own for its limits of time."""
    yield from old_jobs(view)
    yield from full_queues(view)
    for outbox in conf.outboxes:
        yield from calls(view, outbox)


def calls(view: View, outbox: str) -> list[Finding]:
    """Look into an outbox. Its database may be another one, and away: one finding says so, and hides no other."""
    try:
        return [*old_calls(view, outbox), *orphaned_calls(view, outbox)]
    except UNANSWERED as error:
        return [not_looked_at(f"outbox {outbox}", error, look=calls.__name__)]


def old_jobs(view: View) -> Iterator[Finding]:
    ages = {queue.name: queue.oldest_seconds or 0.0 for queue in view.with_work if queue.workers}
    old = sorted((name for name in ages if ages[name] >= patience_seconds(name)), key=lambda name: -ages[name])
    if not old:
        return
    yield Finding(
        name="oldest-job",
        level=Level.WARNING,
        what=_("Jobs that could run have waited too long in: %(queues)s.")
        % {"queues": named([f"{name} ({duration(ages[name])})" for name in old])},
        remedy=_(
            "Add workers or slots to those that serve the queue, or look whether its jobs take longer than they did. "
            "A limit of the queue, or jobs of higher priority, may also let them wait."
        ),
        facts={"queues": old, "seconds": ages[old[0]]},
    )


def old_calls(view: View, outbox: str) -> Iterator[Finding]:
    """Look for calls that have not become jobs."""
    if view.alias not in conf.databases:
        return
    with bounded(outbox):
        number = {"number": conf.number_of(view.alias)}
        rows = CallerConnection(outbox).rows(statement("oldest_in_outbox"), number)
    if not rows or rows[0][0] < OLD_CALL_SECONDS:
        return
    seconds, error = rows[0]
    yield Finding(
        name="outbox-old",
        level=Level.ERROR,
        what=_("A call in the outbox on %(outbox)s has waited for %(age)s and has become no job.")
        % {"outbox": outbox, "age": duration(seconds)},
        remedy=_remedy_of_call(error),
        facts={"outbox": outbox, "seconds": seconds, "error": error},
    )


def _remedy_of_call(error: str) -> str:
    if error == LOCKED:
        return _(
            "An open transaction in the database of the queue holds a lock that the call needs, such as that of its "
            "unique key: end that transaction. Look for it in pg_stat_activity."
        )
    if error:
        return _("The database of the queue refuses it: %(error)s. Correct or delete its row.") % {"error": error}
    return _(
        "Workers hand calls over: look whether one runs whose settings have PGQUEUE['OUTBOXES'], and what its log has "
        "about relay."
    )


def orphaned_calls(view: View, outbox: str) -> Iterator[Finding]:
    """Look for calls that no worker takes; once, among the findings of ``PGQUEUE["DATABASE"]``."""
    if view.alias != conf.database:
        return
    numbers = sorted({*range(LARGEST_NUMBER + 1)} - {conf.number_of(alias) for alias in conf.databases})
    with bounded(outbox):
        rows = CallerConnection(outbox).rows(statement("orphans_in_outbox"), {"numbers": numbers})
    if not rows:
        return
    orphaned = [number for (number,) in rows]
    yield Finding(
        name="outbox-orphaned",
        level=Level.ERROR,
        what=_("Calls in the outbox on %(outbox)s are for a number that no database has: %(numbers)s.")
        % {"outbox": outbox, "numbers": named([str(number) for number in orphaned])},
        remedy=_(
            "Name the database in PGQUEUE['SHARDS'] again, until they are jobs. If it is lost, change their number "
            "in pgqueue_outbox to that of another one."
        ),
        facts={"outbox": outbox, "numbers": orphaned},
    )


def full_queues(view: View) -> Iterator[Finding]:
    bounds = {line.name: line.max_backlog for line in view.queues if line.max_backlog and line.queued.value}
    full = {name: most for name, most in bounds.items() if count_queued(view.database, name, limit=most) >= most}
    if not full:
        return
    yield Finding(
        name="queue-full",
        level=Level.WARNING,
        what=_("These queues have as many queued jobs as max_backlog allows, and refuse more: %(queues)s.")
        % {"queues": named([f"{name} ({grouped(most)})" for name, most in full.items()])},
        remedy=_("Add workers or slots to those that serve the queue, or raise max_backlog in PGQUEUE['QUEUES']."),
        facts={"queues": full},
    )


def failing(view: View) -> Iterator[Finding]:
    flows = throughput.by_queue(view.alias, minutes=FAILING_MINUTES)
    found = {
        name: counts
        for name, counts in sorted(flows.items())
        if counts.attempts >= FEWEST_ATTEMPTS and counts.is_failing
    }
    if not found:
        return
    told = [
        _("%(queue)s (%(share)s %% of %(attempts)s)")
        % {"queue": name, "share": round(100 * (counts.failure_rate or 0.0)), "attempts": grouped(counts.attempts)}
        for name, counts in found.items()
    ]
    yield Finding(
        name="failing",
        level=Level.ERROR,
        what=_("Most attempts of the last %(minutes)s minutes failed in: %(queues)s.")
        % {"minutes": FAILING_MINUTES, "queues": named(told)},
        remedy=_("See “Dead jobs by cause” and the errors of scheduled jobs for the reasons."),
        facts={"queues": list(found)},
    )


def unknown_tasks(view: View) -> Iterator[Finding]:
    """Look at the first hundred jobs of each queue."""
    names = [queue.name for queue in view.queues if queue.queued.value][:MOST_QUEUES]
    rows = view.database.rows(statement("next_tasks"), {"names": names, "limit": MOST_JOBS})
    unknown = [(task, number, job_id) for task, backend, number, job_id in sorted(rows) if not task_of(task, backend)]
    if not unknown:
        return
    number = sum(number for _task, number, _id in unknown)
    found = {task: job_id for task, _number, job_id in unknown}
    yield Finding(
        name="unknown-tasks",
        level=Level.WARNING,
        what=ngettext(
            "At least %(number)s job waits whose task this code does not know: %(tasks)s.",
            "At least %(number)s jobs wait whose tasks this code does not know: %(tasks)s.",
            number,
        )
        % {"number": grouped(number), "tasks": named(list(found))},
        remedy=_(
            "Workers load the tasks.py of the apps in INSTALLED_APPS, and what these, or an AppConfig.ready(), import: "
            "import the module of the task there. Or deploy the code that has the task to the workers, or give the "
            "task that replaces it the old name in aliases=. Jobs that have never run go to the dead jobs after a day."
        ),
        facts={"tasks": found},
    )


def task_of(name: str, backend: str) -> registry.TaskDefinition | None:
    """Return the task of a job as a worker with this code would find it; None too where its backend fails."""
    try:
        return find_task(name, backend)
    except Exception:
        logger.exception("The backend %s cannot find the task %s", backend, name)
        return None


# Arguments of jobs that wait, and of the next jobs of schedules

IN_JSON = {list: "array", dict: "object", str: "string", bool: "boolean", type(None): "null"}  # others are numbers


class ArgumentShape(NamedTuple):
    """A shape of arguments, and the jobs that have it; the columns of ``argument_shapes.sql``."""

    task: str
    backend: str
    args: str  # the type, in words of JSON
    length: int | None
    kwargs: str
    keys: Sequence[str] | None
    number: int
    job_id: int


def unfit_arguments(view: View) -> Iterator[Finding]:
    names = [queue.name for queue in view.queues if queue.queued.value][:MOST_QUEUES]
    rows = view.database.rows(statement("argument_shapes"), {"names": names, "limit": MOST_JOBS})
    shapes = sorted(map(ArgumentShape._make, rows), key=lambda shape: (shape.task, shape.job_id))
    unfit = [(shape, problem) for shape in shapes if (problem := _problem(shape))]
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
            "number": grouped(number),
            "tasks": named([words % {"task": name, **told[name]} for name in sorted(told)]),
        },
        remedy=_(
            "Let the function take the old arguments too until these jobs are done: give new parameters defaults, and "
            "keep those that were removed. Failed jobs can be retried with changed arguments."
        ),
        facts={"tasks": told},
    )


def unfit_schedules(view: View) -> Iterator[Finding]:
    """Look at schedules made or edited by staff: those of the code change with it."""
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
        % {
            "number": grouped(len(unfit)),
            "schedules": named([f"{name} ({problem})" for name, problem in unfit.items()]),
        },
        remedy=_("Change its task or arguments in the admin, or pause it; or change the function to take them."),
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
    try:
        task.signature.bind(*args, **dict.fromkeys(keys))
    except TypeError as error:
        return str(error)
    return ""
