"""What staff may do to many jobs: the verbs of ``lifecycle/``, in the words of the command."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django_pgqueue.base.states import Status
from django_pgqueue.lifecycle.browse import Source
from django_pgqueue.lifecycle.bulk import move_jobs, purge, set_priority, still
from django_pgqueue.lifecycle.dead_letter import requeue
from django_pgqueue.lifecycle.kill import kill
from django_pgqueue.lifecycle.left import (
    Why,
    why_not_changed,
    why_not_due,
    why_not_killed,
    why_not_purged,
    why_not_requeued,
)
from django_pgqueue.lifecycle.run_now import run_now
from django_pgqueue.staff.words import LIVE

Ids = Sequence[int]
Options = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Verb:
    """One thing that may be done to jobs.

    Attributes:
        name: what is typed.
        help: what it does.
        source: the jobs it is for.
        statuses: those of the jobs it is for; several may be narrowed down by ``--status``.
        act: does it to a slice of jobs, inside a transaction.
        why: says why others were left alone.
        aliases: what may be typed instead.
        asks: whether it cannot be undone, so that somebody has to say yes where many are chosen.
        to: for verbs that need something more: of which type that is, and its word in the help.
    """

    name: str
    help: str
    source: Source
    act: Callable[[Ids, Options], Mapping[str, Ids]]
    why: Why
    statuses: tuple[str, ...] = ()
    asks: bool = False
    aliases: tuple[str, ...] = ()
    to: Callable[[str], Any] | None = None
    to_words: str = ""

    def why_for(self, options: Options) -> Why:
        """Return what says why jobs were left alone; those that run may not have been asked for."""
        spares_running = options.get("status") and Status.RUNNING not in options["status"]
        return why_not_changed if spares_running else self.why


def _kill(ids: Ids, options: Options) -> Mapping[str, Ids]:
    killed = kill(_still(ids, options), by=options["by"], database=options["database"])
    return {"Killed": killed.dead, "Asked to stop, because it is running": killed.requested}


def _requeue(ids: Ids, options: Options) -> Mapping[str, Ids]:
    return {"Requeued": requeue(ids, by=options["by"], database=options["database"]).ids}


def _run_now(ids: Ids, options: Options) -> Mapping[str, Ids]:
    return {"Due now": run_now(ids, by=options["by"], database=options["database"])}


def _move(ids: Ids, options: Options) -> Mapping[str, Ids]:
    chosen, queue = _still(ids, options), options["to"]
    return {f"Moved to {queue}": move_jobs(chosen, queue=queue, by=options["by"], database=options["database"])}


def _set_priority(ids: Ids, options: Options) -> Mapping[str, Ids]:
    chosen, priority = _still(ids, options), options["to"]
    done = set_priority(chosen, priority=priority, by=options["by"], database=options["database"])
    return {f"Given priority {priority}": done}


def _purge(ids: Ids, options: Options) -> Mapping[str, Ids]:
    return {"Purged": purge(ids, by=options["by"], finished=options["finished"], database=options["database"])}


def _still(ids: Ids, options: Options) -> Ids:
    """Leave out what has no longer the status it was chosen by: it may have begun to run meanwhile."""
    return still(ids, options["status"], database=options["database"]) if options.get("status") else ids


VERBS = (
    Verb(
        name="requeue",
        aliases=("retry",),
        help="send dead jobs back to be run, with all their attempts before them",
        source=Source.DEAD,
        act=_requeue,
        why=why_not_requeued,
    ),
    Verb(
        name="run-now",
        help="make scheduled jobs due at once",
        source=Source.LIVE,
        statuses=(Status.SCHEDULED.value,),
        act=_run_now,
        why=why_not_due,
    ),
    Verb(
        name="kill",
        help="kill jobs: those that wait go to the dead jobs at once, those that run are stopped by their workers",
        source=Source.LIVE,
        statuses=LIVE,
        act=_kill,
        why=why_not_killed,
        asks=True,
    ),
    Verb(
        name="move",
        help="move jobs that do not run to another queue",
        source=Source.LIVE,
        statuses=LIVE,
        act=_move,
        to=str,
        to_words="QUEUE",
        why=why_not_changed,
    ),
    Verb(
        name="priority",
        help="give jobs that do not run another priority",
        source=Source.LIVE,
        statuses=LIVE,
        act=_set_priority,
        to=int,
        to_words="N",
        why=why_not_changed,
    ),
    Verb(
        name="purge",
        help="remove dead jobs for good, or with --finished the finished ones",
        source=Source.DEAD,
        act=_purge,
        why=why_not_purged,
        asks=True,
    ),
)
