"""Look who waits too long, or in vain."""

from collections.abc import Iterator

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgqueue import tasks
from django_pgqueue.lifecycle.sql import statement
from django_pgqueue.staff import flow
from django_pgqueue.staff.health.finding import Finding, Level
from django_pgqueue.staff.health.view import View
from django_pgqueue.staff.health.words import named
from django_pgqueue.staff.retention import span

OLD_SECONDS = 15 * 60
"""From then on a job that could run has waited too long."""

FAILING_MINUTES = 15
FAILING_SHARE = 0.5
FEWEST_ATTEMPTS = 10  # that a share is reckoned from

MOST_QUEUES = 100
MOST_JOBS = 100
"""Of each queue so many are looked at for their tasks."""


def old_jobs(view: View) -> Iterator[Finding]:
    """Say which queues are served, and yet a job that could run has waited too long there."""
    for queue in view.with_work:
        seconds = queue.oldest_seconds or 0.0
        if seconds < OLD_SECONDS or not queue.workers:
            continue
        yield Finding(
            name="oldest-job",
            level=Level.WARNING,
            what=_("The oldest job of the queue %(queue)s that could run has waited for %(time)s.")
            % {"queue": queue.name, "time": span(seconds)},
            remedy=_(
                "Add workers or slots to those that serve the queue, or look whether its jobs take longer than they "
                "did. A limit of the queue, or jobs of higher priority, may also let it wait."
            ),
            facts={"queue": queue.name, "seconds": seconds},
        )


def failing(view: View) -> Iterator[Finding]:
    """Say in which queues most attempts fail."""
    for name, counts in sorted(flow.by_queue(view.alias, minutes=FAILING_MINUTES).items()):
        attempts, rate = counts.ended + counts.lost, counts.failure_rate or 0.0
        if attempts < FEWEST_ATTEMPTS or rate < FAILING_SHARE:
            continue
        yield Finding(
            name="failing",
            level=Level.ERROR,
            what=_(
                "%(share)s %% of %(attempts)s attempts in the queue %(queue)s failed in the last %(minutes)s minutes."
            )
            % {"share": round(100 * rate), "attempts": f"{attempts:,}", "queue": name, "minutes": FAILING_MINUTES},
            remedy=_("The dead jobs by cause, and the errors of the scheduled jobs, say what they fail of."),
            facts={"queue": name, "attempts": attempts, "failure_rate": rate},
        )


def unknown_tasks(view: View) -> Iterator[Finding]:
    """Say which tasks of waiting jobs this code does not know. Of each queue the first hundred jobs are looked at."""
    names = [queue.name for queue in view.queues if queue.queued.value][:MOST_QUEUES]
    rows = view.database.rows(statement("next_tasks"), {"names": names, "limit": MOST_JOBS})
    unknown = {task: (number, job_id) for task, number, job_id in sorted(rows) if tasks.find(task) is None}
    if not unknown:
        return
    number = sum(number for number, _id in unknown.values())
    yield Finding(
        name="unknown-tasks",
        level=Level.WARNING,
        what=ngettext(
            "At least %(number)s job waits whose task this code does not know: %(tasks)s.",
            "At least %(number)s jobs wait whose tasks this code does not know: %(tasks)s.",
            number,
        )
        % {"number": f"{number:,}", "tasks": named(list(unknown))},
        remedy=_(
            "Deploy the code that has the task to the workers, or give the task that replaces it the old name in "
            "aliases=. Jobs that have never run go to the dead jobs after a day."
        ),
        facts={"tasks": {task: job_id for task, (_number, job_id) in unknown.items()}},
    )
