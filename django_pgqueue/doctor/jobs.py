"""Look for jobs that wait too long, or in vain."""

import logging
from collections.abc import Iterator

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgqueue import registry
from django_pgqueue.db.queries import statement
from django_pgqueue.doctor.finding import Finding, Level, View, named
from django_pgqueue.insights import throughput
from django_pgqueue.insights.formatting import duration, whole
from django_pgqueue.jobs.executor import find_at

logger = logging.getLogger("django_pgqueue")

OLD_SECONDS = 15 * 60
"""From then on a job that could run has waited too long."""

FAILING_MINUTES = 15
FAILING_SHARE = 0.5
FEWEST_ATTEMPTS = 10  # that a share is reckoned from

MOST_QUEUES = 100
MOST_JOBS = 100
"""Maximum number of jobs of each queue whose tasks are looked at."""


def old_jobs(view: View) -> Iterator[Finding]:
    """Say in which queues jobs wait too long, although they are served."""
    ages = {queue.name: queue.oldest_seconds or 0.0 for queue in view.with_work if queue.workers}
    old = sorted((name for name in ages if ages[name] >= OLD_SECONDS), key=lambda name: -ages[name])
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


def failing(view: View) -> Iterator[Finding]:
    """Say in which queues most attempts fail."""
    flows = throughput.by_queue(view.alias, minutes=FAILING_MINUTES)
    found = {name: counts for name, counts in sorted(flows.items()) if _is_failing(counts)}
    if not found:
        return
    told = [
        _("%(queue)s (%(share)s %% of %(attempts)s)")
        % {"queue": name, "share": round(100 * (counts.failure_rate or 0.0)), "attempts": whole(_attempts(counts))}
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
    """Say which tasks of waiting jobs this code does not know. Of each queue the first hundred jobs are looked at."""
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
        % {"number": whole(number), "tasks": named(list(found))},
        remedy=_(
            "Workers load the tasks.py of the apps in INSTALLED_APPS, and what these, or an AppConfig.ready(), import: "
            "import the module of the task there. Or deploy the code that has the task to the workers, or give the "
            "task that replaces it the old name in aliases=. Jobs that have never run go to the dead jobs after a day."
        ),
        facts={"tasks": found},
    )


def task_of(name: str, backend: str) -> registry.TaskDefinition | None:
    """Return the task of a job as a worker with this code would find it; None too where its backend fails."""
    if (task := registry.find(name)) or not backend:
        return task
    try:
        return find_at(name, backend)
    except Exception:
        logger.exception("The backend %s cannot find the task %s", backend, name)
        return None


def _is_failing(counts: throughput.StatsCounts) -> bool:
    return _attempts(counts) >= FEWEST_ATTEMPTS and (counts.failure_rate or 0.0) >= FAILING_SHARE


def _attempts(counts: throughput.StatsCounts) -> int:
    return counts.ended + counts.lost
