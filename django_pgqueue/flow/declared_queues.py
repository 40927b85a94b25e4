"""Queues that ``PGQUEUE["QUEUES"]`` declares. Workers bring their limits into the table when they start.

Each worker does it once: so one with old code, which goes on for a while in a deploy, does not undo the limits of a new
one. Limits that staff have set win, until they are taken back. Code that declares no queue at all leaves all limits
alone.
"""

import difflib
import logging
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from django.db import Error

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import CallerConnection, QueueConnection
from django_pgqueue.db.errors import is_locked
from django_pgqueue.db.notify import notify_limits
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import InvalidLimit, InvalidOption
from django_pgqueue.flow.queue_limits import MOST, Limits, checked_name, on_each_database, write_limits
from django_pgqueue.states import LONGEST_QUEUE
from django_pgqueue.validation import UNNAMED, By, check_name, check_seconds, check_whole, seconds_of

logger = logging.getLogger("django_pgqueue")

LOCK_MILLISECONDS = 20  # for a row that an open transaction has just changed

DEFAULT = "default"  # the queue of jobs whose task does not say; no slip, so it need not be declared

OPTIONS = ("max_running", "rate", "burst", "start_within", "max_backlog")


class DeclaredQueue(NamedTuple):
    limits: Limits
    start_within: float | None = None  # seconds
    max_backlog: int | None = None  # queued jobs

    @classmethod
    def of(cls, name: Any, options: Any) -> "DeclaredQueue":
        """Check a declaration; raise InvalidLimit where it cannot work."""
        if not isinstance(options, Mapping):
            raise InvalidLimit(f"A queue is declared by a dict of {_listed(OPTIONS)}, not {options!r}.")
        if strange := [key for key in options if key not in OPTIONS]:
            raise InvalidLimit(f"A queue has no {strange[0]!r}. It may have {_listed(OPTIONS)}.")
        seconds, backlog = options.get("start_within"), options.get("max_backlog")
        try:
            check_name("The name of a queue", name, LONGEST_QUEUE)
            if seconds is not None:
                check_seconds("start_within", seconds)
            if backlog is not None:
                check_whole("max_backlog", backlog, 1, MOST)
        except InvalidOption as error:
            raise InvalidLimit(str(error)) from error
        limits = Limits.checked(options.get("max_running"), options.get("rate"), options.get("burst"))
        return cls(limits, None if seconds is None else float(seconds_of(seconds)), backlog)


def declared_queues() -> dict[str, DeclaredQueue]:
    """Return the queues of the settings by their names; raise InvalidLimit where a declaration cannot work."""
    return {name: DeclaredQueue.of(name, options) for name, options in conf.queues.items()}


def start_within(name: str) -> float | None:
    """Return within how many seconds jobs of a queue are to start; None where the settings do not say."""
    options = conf.queues.get(name)
    return DeclaredQueue.of(name, options).start_within if options is not None else None


def undeclared(names: Iterable[str]) -> dict[str, str]:
    """Return the names that are not declared, each with the nearest that is, or "". Where none is, none has to be."""
    declared = list(conf.queues)
    if not declared:
        return {}
    return {
        name: next(iter(difflib.get_close_matches(name, declared, n=1)), "")
        for name in names
        if name != DEFAULT and name not in conf.queues
    }


class DeclaredLimits:
    """The limits that the code has, on their way into the table: one of these for each worker command."""

    def __init__(self, database: QueueConnection) -> None:
        self._database = database
        self._left: set[str] | None = None  # queues whose rows were locked; None: nothing is done yet

    def apply(self) -> list[str]:
        """Give queues the limits that the code has for them, also none; return those that have changed.

        What staff have set stays. A queue whose row another transaction has locked is left for the next time; of the
        others that is over.
        """
        wanted = declared_queues()
        if not wanted or self._left == set():
            return []
        rows = self._database.rows(statement("limits_of_code"), {"names": list(wanted)})
        standing = {name: (is_edited, Limits(*limits)) for name, is_edited, *limits in rows}
        changed, left = [], set()
        for name in sorted(wanted.keys() | standing.keys() if self._left is None else self._left):
            limits = wanted[name].limits if name in wanted else Limits()
            is_edited, now = standing.get(name, (False, Limits()))
            if limits == now or is_edited:
                continue
            if _apply(self._database, name, limits):
                changed.append(name)
                logger.info("Queue %s limited by PGQUEUE['QUEUES']: max_running %s, rate %s", name, *_told(limits))
            else:
                left.add(name)
        self._left = left
        return changed


def _apply(database: QueueConnection, name: str, limits: Limits) -> bool:
    try:
        with database.transaction(lock_milliseconds=LOCK_MILLISECONDS):
            return bool(write_limits(database, name, limits, by=None, spares_edited=True))
    except Error as error:
        if not is_locked(error):
            raise
        return False


@on_each_database
def restore(name: str, *, by: By = "", database: str | None = None) -> bool:
    """Give a queue the limits that ``PGQUEUE["QUEUES"]`` declares, in place of those that were set by hand.

    Runs in the caller's transaction.

    Args:
        by: user who does it, or the username; kept in the log.

    Returns:
        Whether its limits had been set by hand.

    Raises:
        InvalidLimit: the code does not declare this queue, or as what cannot work.
    """
    who = checked_name(by)
    if name not in conf.queues:
        raise InvalidLimit(f"PGQUEUE['QUEUES'] does not declare the queue {name!r}, so the code has no limits for it.")
    limits, caller = (
        DeclaredQueue.of(name, conf.queues[name]).limits,
        CallerConnection(database or conf.database_for(name)),
    )
    [(was_edited,)] = write_limits(caller, name, limits, by=None)
    notify_limits(caller.alias, name)
    logger.info("Queue %s limited by the code again, as %s has asked for", name, who or UNNAMED)
    return bool(was_edited)


def _told(limits: Limits) -> tuple[Any, Any]:
    rate = f"{limits.rate}/{limits.period_seconds:g}s" if limits.rate else None
    return limits.max_running, rate


def _listed(words: Iterable[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} and {last}"
