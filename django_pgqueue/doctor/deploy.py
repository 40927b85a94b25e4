"""Changes that a deployment of this code makes to the queue, before it: tasks, schedules and limits of queues."""

import json
from collections.abc import Iterator
from typing import NamedTuple

from django.db.models import Q

from django_pgqueue import registry
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import bounded, statement
from django_pgqueue.doctor.finding import View
from django_pgqueue.exceptions import InvalidArguments
from django_pgqueue.flow.declared_queues import declared_queues
from django_pgqueue.flow.queue_limits import Limits
from django_pgqueue.insights.overview import living_workers
from django_pgqueue.jobs.queue_selector import QueueSelector
from django_pgqueue.models import Queue, Stat
from django_pgqueue.schedules.periodic import declared
from django_pgqueue.schedules.sync import StoredSchedule, definition_of


class DeployChange(NamedTuple):
    """One difference between the code of this process and the database."""

    kind: str
    name: str
    what: str


def changes(alias: str) -> list[DeployChange]:
    """Return the changes by workers with this code, and names that are new to the database. Changes nothing.

    Raises:
        TookTooLong: reading took longer than ``READ_TIMEOUT_SECONDS``.
    """
    with bounded(alias):
        view = View(alias, [])
        return [*_tasks(view), *_queues(view), *_schedules(view.database), *_limits(view.database)]


def _tasks(view: View) -> Iterator[DeployChange]:
    seen = set(Stat.objects.using(view.alias).values_list("task", flat=True).distinct())
    for name in registry.known():
        task = registry.find(name)
        if task and not seen & {name, *task.aliases}:
            yield DeployChange("task-new", name, "no attempt of it is in the counts of the last days")
    for name in sorted(seen):
        if registry.find(name) is None:
            yield DeployChange("task-gone", name, "not in this code: jobs of it would wait for workers that have it")


def _queues(view: View) -> Iterator[DeployChange]:
    """Name queues of tasks that have no row yet, and say if no living worker serves them."""
    tasks = filter(None, map(registry.find, registry.known()))
    wanted = {*declared_queues(), *(task.options.queue for task in tasks)}
    known = set(Queue.objects.using(view.alias).filter(Q(name__in=wanted)).values_list("name", flat=True))
    new = sorted(wanted - known)
    served = {name for worker in living_workers(view.alias) for name in QueueSelector.of(worker.queues).among(new)}
    for name in new:
        what = "served by a live worker" if name in served else "no live worker serves it"
        yield DeployChange("queue-new", name, what)


def _schedules(database: CallerConnection) -> Iterator[DeployChange]:
    wanted = declared()
    rows = map(StoredSchedule._make, database.rows(statement("declared_schedules"), {"names": list(wanted)}))
    standing = {row.name: row for row in rows}
    for name in sorted({*wanted, *standing}):
        row = standing.get(name)
        if name not in wanted:
            yield DeployChange("schedule-gone", name, "not in this code: no job of it once old workers are gone")
            continue
        try:
            definition = definition_of(wanted[name])
        except InvalidArguments as error:
            yield DeployChange("schedule-refused", name, str(error))
            continue
        if row is None:
            yield DeployChange("schedule-new", name, f"runs {_when(definition)}")
        elif not row.is_of_code:
            yield DeployChange("schedule-taken", name, "one made in the admin has its name, and stays")
        elif definition != (before := json.loads(row.definition)):
            names = ", ".join(sorted(key for key in definition if definition[key] != before.get(key)))
            edited = "; it was edited in the admin, and stays as it is" if row.is_edited else ""
            yield DeployChange("schedule-changed", name, f"{names}{edited}")


def _when(definition: dict[str, object]) -> str:
    cron = definition.get("cron")
    return f"by {cron}" if cron else f"every {definition.get('every_seconds')} s"


def _limits(database: CallerConnection) -> Iterator[DeployChange]:
    wanted = declared_queues()
    if not wanted:
        return
    rows = database.rows(statement("limits_of_code"), {"names": list(wanted)})
    standing = {name: (is_edited, Limits(*limits)) for name, is_edited, *limits in rows}
    for name in sorted(wanted.keys() | standing.keys()):
        limits = wanted[name].limits if name in wanted else Limits()
        is_edited, now = standing.get(name, (False, Limits()))
        if limits != now:
            stays = "; set by hand, and stays as it is" if is_edited else ""
            yield DeployChange("limits-changed", name, f"{_said(now)} → {_said(limits)}{stays}")


def _said(limits: Limits) -> str:
    given = [f"{name} {value}" for name, value in limits._asdict().items() if value is not None]
    return ", ".join(given) or "no limit"
