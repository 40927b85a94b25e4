"""Synchronize the table with the schedules that the code declares: at a worker's start, then every minute.

A schedule of code is fired only by workers whose code declares it. So nothing has to be switched off when one is gone
from the code, and nothing is switched off by an old worker that does not know a new one yet.
"""

import datetime as dt
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django_pgqueue import registry
from django_pgqueue.db.connections import Database, QueueConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import InvalidArguments
from django_pgqueue.jobs.serialization import encode
from django_pgqueue.schedules.periodic import DeclaredSchedule, declared
from django_pgqueue.stored_values import in_utc

logger = logging.getLogger("django_pgqueue.worker")

DECLARE_SECONDS = 60.0

LOCK_MILLISECONDS = 20  # for a name that an open transaction has just taken

TIMING = ("cron", "every_seconds", "timezone")


@dataclass
class SyncResult:
    """Result of a pass, by names of schedules."""

    new: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    edited: list[str] = field(default_factory=list)  # not as in the code: the admin wins
    gone: list[str] = field(default_factory=list)  # from code, but not from this one
    taken: list[str] = field(default_factory=list)  # the name belongs to one made in the admin
    wrong: dict[str, str] = field(default_factory=dict)  # what keeps one from being declared
    forgotten: list[str] = field(default_factory=list)
    strange: dict[str, str] = field(default_factory=dict)  # made in the admin, with a task that is unknown here


class StoredSchedule(NamedTuple):
    """A row as ``declared_schedules.sql`` returns it."""

    name: str
    is_of_code: bool
    is_edited: bool
    since: dt.datetime  # its latest tick, or when it was made, in UTC
    definition: str  # JSON text


class ScheduleSync:
    """The service, which logs what differs from the pass before."""

    def __init__(self, database: QueueConnection) -> None:
        self._database = database
        self._logged: dict[str, set[str]] = {}  # names of schedules, by the kind of line

    def declare_schedules(self) -> None:
        self._log(sync_schedules(self._database))

    def _log(self, found: SyncResult) -> None:
        for name in found.new:
            logger.info("Schedule %s is new", name)
        for name in found.changed:
            logger.info("Schedule %s was changed in the code", name)
        for name in found.forgotten:
            logger.info("Schedule %s is removed: no code has declared it for 30 days", name)
        for name in self._fresh("edited", found.edited):
            logger.info("Schedule %s stays as it was edited in the admin, not as the code has it", name)
        for name in self._fresh("gone", found.gone):
            logger.info("Schedule %s is not in this code: this worker leaves it alone", name)
        for name in self._fresh("taken", found.taken):
            logger.warning("Schedule %s of the code is left out: one made in the admin has its name. Rename one", name)
        for name in self._fresh("wrong", found.wrong):
            logger.error("Schedule %s of the code is left out: %s", name, found.wrong[name])
        for name, task in found.strange.items():
            logger.error("Schedule %s waits: neither this worker nor another knows the task %s", name, task)

    def _fresh(self, kind: str, names: Iterable[str]) -> list[str]:
        before, now = self._logged.get(kind, set()), set(names)
        self._logged[kind] = now
        return sorted(now - before)


def sync_schedules(database: QueueConnection) -> SyncResult:
    """Add the schedules that the code declares, change those that it has changed, and forget those long gone.

    The phase of an interval and the tick of an entry that is as it was stay. Edits made in the admin stay too.
    """
    wanted, found = declared(), SyncResult()
    rows = map(StoredSchedule._make, database.rows(statement("declared_schedules"), {"names": list(wanted)}))
    standing = {row.name: row for row in rows}
    found.gone = sorted(set(standing) - set(wanted))
    found.taken = sorted(row.name for row in standing.values() if row.name in wanted and not row.is_of_code)
    definitions = {}
    for name, schedule in wanted.items():
        try:
            definitions[name] = definition_of(schedule)
        except InvalidArguments as error:
            found.wrong[name] = str(error)
    if definitions:
        _write(database, definitions, standing, found)
    if found.gone:
        found.forgotten = _names(database, "forget_schedules", {})
    found.strange = dict(database.rows(statement("flag_unknown_tasks"), {"tasks": registry.answering()}))
    return found


def _write(
    database: QueueConnection,
    definitions: Mapping[str, dict[str, Any]],
    standing: Mapping[str, StoredSchedule],
    found: SyncResult,
) -> None:
    [(now,)] = database.rows("SELECT statement_timestamp() AT TIME ZONE 'UTC'", {})
    now = in_utc(now)
    new = [{**definitions[name], "next_at": _first_at(name, now)} for name in sorted(set(definitions) - set(standing))]
    changed = []
    for row in standing.values():
        definition, before = definitions.get(row.name), json.loads(row.definition)
        if definition is None or definition == before or not row.is_of_code:
            continue
        if row.is_edited:
            found.edited.append(row.name)
        else:
            next_at = _next_at(row, before, definition, now)
            # change_schedules.sql reads rows of the table's type: it compares this column, and does not write it.
            changed.append({**definition, "last_at": in_utc(row.since).isoformat(), "next_at": next_at})
    if new:
        found.new = [name for schedule in new for name in _add(database, schedule)]
    if changed:
        found.changed = _names(database, "change_schedules", {"definitions": json.dumps(changed)})
    database.rows(statement("confirm_schedules"), {"names": list(definitions)})


def _add(database: QueueConnection, definition: dict[str, Any]) -> list[str]:
    """Add one schedule, unless its name is just being taken by a transaction that is still open."""
    parameters = {"definitions": json.dumps([definition])}
    sql = statement("declare_schedules")
    return [name for (name,) in database.rows_unless_locked(sql, parameters, milliseconds=LOCK_MILLISECONDS) or ()]


def definition_of(schedule: DeclaredSchedule) -> dict[str, Any]:
    """Return a schedule as its row is to have it; raise InvalidArguments where JSON cannot hold its arguments."""
    rhythm = schedule.rhythm
    return {
        "name": schedule.name,
        "task": schedule.task.name,
        "cron": rhythm.cron,
        "every_seconds": rhythm.every.total_seconds() if rhythm.every is not None else None,
        "timezone": rhythm.timezone,
        "jitter_seconds": schedule.jitter_seconds,
        "catch_up": schedule.catch_up,
        "catch_up_limit": schedule.catch_up_limit,
        "args": json.loads(encode(list(schedule.args), what="args")),
        "kwargs": json.loads(encode(dict(schedule.kwargs), what="kwargs")),
        "options": dict(schedule.options),
    }


def _first_at(name: str, now: dt.datetime) -> str:
    return declared()[name].rhythm.next_after(now).isoformat()


def _next_at(row: StoredSchedule, before: dict[str, Any], definition: dict[str, Any], now: dt.datetime) -> str | None:
    """Return the next tick where it is another now.

    An interval is counted from the latest tick. So two workers, one of which still has the old code, that change the
    row in turns, do not put the tick off without end.
    """
    if all(before[key] == definition[key] for key in TIMING):
        return None
    if definition["every_seconds"] is None:
        return _first_at(row.name, now)
    return max(declared()[row.name].rhythm.next_after(in_utc(row.since)), now).isoformat()


def _names(database: Database, name: str, parameters: dict[str, Any]) -> list[str]:
    return sorted(found for (found,) in database.rows(statement(name), parameters))
