"""What staff may do to many jobs, in the words of the command."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django_pgqueue.jobs import actions
from django_pgqueue.jobs.actions import Did, Why
from django_pgqueue.jobs.search import Source

Ids = Sequence[int]
Options = Mapping[str, Any]

WORDS = {
    Did.REQUEUED: "Requeued",
    Did.DUE: "Due now",
    Did.KILLED: "Killed",
    Did.ASKED: "Asked to stop, because it is running",
    Did.MOVED: "Moved to {to}",
    Did.PRIORITIZED: "Given priority {to}",
    Did.PURGED: "Purged",
}

TYPES: dict[str, tuple[Callable[[str], Any], str]] = {"queue": (str, "QUEUE"), "priority": (int, "N")}
"""Of what a verb needs: the type, and its word in the help."""


@dataclass(frozen=True, kw_only=True)
class Verb:
    """One verb as it is typed.

    Attributes:
        name: what is typed.
        help: what it does.
        does: the verb.
        finished: the same for finished jobs, where there is one.
        aliases: what may be typed instead.
    """

    name: str
    help: str
    does: actions.Verb
    finished: actions.Verb | None = None
    aliases: tuple[str, ...] = ()

    @property
    def asks(self) -> bool:
        """Whether somebody has to say yes where many are chosen."""
        return self.does.is_destructive

    def chosen(self, options: Options) -> actions.Verb:
        """Return the verb for the jobs that the options are about."""
        return self.finished if self.finished and options.get("finished") else self.does

    def source(self, options: Options) -> Source:
        return self.chosen(options).source

    def act(self, ids: Ids, options: Options) -> Mapping[str, Ids]:
        """Do it to a slice of jobs, inside a transaction; return which it was done to, by words that say what."""
        verb = self.chosen(options)
        did = verb.act_on_chosen(
            ids,
            by=options["by"],
            said={verb.needs: options["to"]} if verb.needs else {},
            statuses=options.get("status") or (),
            where=options["database"],
        )
        return {WORDS[what].format(to=options.get("to")): done for what, done in did.items()}

    def why_for(self, options: Options) -> Why:
        """Return what says why jobs were left alone."""
        return self.chosen(options).why_for(options.get("status") or ())


VERBS = (
    Verb(
        name="requeue",
        aliases=("retry",),
        help="send dead jobs back to be run, with all their attempts before them",
        does=actions.REQUEUE,
    ),
    Verb(name="run-now", help="make scheduled jobs due at once", does=actions.RUN_NOW),
    Verb(
        name="kill",
        help="kill jobs: those that wait go to the dead jobs at once, those that run are stopped by their workers",
        does=actions.KILL,
    ),
    Verb(name="move", help="move jobs that do not run to another queue", does=actions.MOVE),
    Verb(name="priority", help="give jobs that do not run another priority", does=actions.SET_PRIORITY),
    Verb(
        name="purge",
        help="remove dead jobs for good, or with --finished the finished ones",
        does=actions.PURGE,
        finished=actions.PURGE_FINISHED,
    ),
)
