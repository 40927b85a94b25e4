"""Jobs that were not started in time die, whether or not a worker comes across them."""

from typing import NamedTuple

from django_pgqueue.db.connections import Database
from django_pgqueue.db.queries import ladder_size, sized
from django_pgqueue.jobs.dead_letter import DeadLetter, dead_letter
from django_pgqueue.jobs.executor import announce_from_duty
from django_pgqueue.records import Ends
from django_pgqueue.signals import job_expired
from django_pgqueue.states import Reason


class Expired(NamedTuple):
    """What a pass came to."""

    dead: int
    is_all: bool  # nothing is left but what somebody else holds
    keys: frozenset[str]  # concurrency keys of the dead, of which others may be admitted now
    ends: Ends


def expire(database: Database, *, limit: int = 1000) -> Expired:
    """Move up to ``limit`` jobs, 1 to 1,000, that have expired to ``dead_jobs``: queued, scheduled or waiting ones.

    What a worker has claimed by then is left alone, and so are rows that somebody else holds.
    """
    size = ladder_size(limit)
    found = {job_id: rest for job_id, *rest in database.rows(sized("expired", size), {})}
    dead = dead_letter(database, [DeadLetter(job_id, 0, Reason.EXPIRED, {"error": "expired"}) for job_id in found])
    if dead:
        announce_from_duty(job_expired, ids=list(dead), database=database.alias)
    gone = [found[job_id] for job_id in dead]
    freed = frozenset(key for key, _, _ in gone if key is not None)
    ends = Ends(died=tuple((queue, task) for _, queue, task in gone))
    return Expired(len(dead), len(found) < size or not dead, freed, ends)
