"""Findings, and the data that several looks share."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import psycopg
from django.db import Error, connections
from django.utils.translation import gettext as _

from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.errors import one_line
from django_pgqueue.db.queries import TookTooLong
from django_pgqueue.doctor.catalogue import Catalogue, unapplied
from django_pgqueue.insights.formatting import cut
from django_pgqueue.insights.overview import QueueLine, living_workers
from django_pgqueue.insights.worker_info import with_clock
from django_pgqueue.maintenance import vacuum
from django_pgqueue.maintenance.vacuum import TableCounters
from django_pgqueue.models import Worker

NOT_LOOKED_AT = "not-looked-at"

UNANSWERED = (Error, psycopg.Error, TookTooLong)
"""Errors of a look that has got no answer."""

MOST_NAMED = 5
WIDEST = 200  # columns of names and problems: one may be as large as a job


class Level(StrEnum):
    ERROR = "error"  # jobs do not run, or will not soon
    WARNING = "warning"


@dataclass(frozen=True, kw_only=True)
class Finding:
    name: str  # what kind of thing; stays the same from release to release
    level: Level
    what: str  # the problem, with its values, as a sentence
    remedy: str  # what to do, as a sentence
    facts: Mapping[str, Any] = field(default_factory=dict)  # the values, for programs

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def named(names: Sequence[str]) -> str:
    """Return the first few names, the middle of long ones left out, and how many more there are."""
    more = len(names) - MOST_NAMED
    text = ", ".join(cut(name, WIDEST) for name in names[:MOST_NAMED])
    return _("%(names)s and %(number)s more") % {"names": text, "number": more} if more > 0 else text


def not_looked_at(question: str, error: BaseException, *, look: str) -> Finding:
    """Return the finding for a question that a database has not answered."""
    return Finding(
        name=NOT_LOOKED_AT,
        level=Level.WARNING,
        what=_("The database did not answer the question for %(name)s: %(error)s")
        % {"name": question, "error": one_line(error.__cause__ or error)},
        remedy=_("Look at what the role of this process may read, and how busy the server is."),
        facts={"look": look},
    )


class View:
    """Facts that several checks share, read when the first one asks."""

    def __init__(self, alias: str, queues: Sequence[QueueLine]) -> None:
        self.alias = alias
        self.queues = queues
        self.database = CallerConnection(alias)

    @functools.cached_property
    def workers(self) -> list[Worker]:
        """Those that live; ``at`` of each is the time of the database."""
        return list(with_clock(living_workers(self.alias)))

    @functools.cached_property
    def counters(self) -> TableCounters:
        return vacuum.look(self.database)

    @functools.cached_property
    def unapplied(self) -> list[str]:
        return unapplied(self.alias)

    @functools.cached_property
    def catalogue(self) -> Catalogue:
        return Catalogue(self.alias)

    @functools.cached_property
    def is_pooled(self) -> bool:
        """Whether there is a pooler before the server: it gives its clients process ids of its own."""
        [(pid,)] = self.database.rows("SELECT pg_backend_pid()", {})
        return bool(connections[self.alias].connection.info.backend_pid != pid)

    @functools.cached_property
    def with_work(self) -> list[QueueLine]:
        return [queue for queue in self.queues if queue.has_work and not queue.is_paused]
