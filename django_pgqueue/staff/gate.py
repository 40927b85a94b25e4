"""How the gate of its queue holds a job up: a pause, a limit, a rate."""

import math
from collections.abc import Iterator

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.models import Job, Queue
from django_pgqueue.staff.queues import CAP, limits_of, number
from django_pgqueue.staff.sentence import Sentence, duration, named, say
from django_pgqueue.states import Status


def paused(gate: Queue) -> Sentence:
    """Say who has paused a queue, since when, until when and why."""
    words = {
        (False, False): _("Its queue {queue} is paused by {by} since {since}."),
        (False, True): _("Its queue {queue} is paused by {by} since {since}: {reason}."),
        (True, False): _("Its queue {queue} is paused by {by} since {since}, until {until}."),
        (True, True): _("Its queue {queue} is paused by {by} since {since}, until {until}: {reason}."),
    }
    return say(
        words[gate.resume_at is not None, bool(gate.pause_reason)],
        queue=named("queue", gate.name),
        by=gate.paused_by or _("somebody"),
        since=gate.paused_at or "",
        until=gate.resume_at or "",
        reason=gate.pause_reason.removesuffix("."),
    )


def limits(gate: Queue, alias: str) -> tuple[list[Sentence], bool]:
    """Say which limit of a queue is reached, or that it has one; and return whether one is."""
    words = limits_of(gate)
    if not words:
        return [], False
    if reached := list(_reached(gate, words, alias)):
        return reached, True
    free = _("Its queue {queue} is limited, which does not hold it up now: {limits}.")
    return [say(free, queue=named("queue", gate.name), limits=words)], False


def _reached(gate: Queue, words: str, alias: str) -> Iterator[Sentence]:
    name = named("queue", gate.name)
    if gate.max_running is not None:
        jobs = Job.objects.using(alias).filter(status=Status.RUNNING, queue=gate.name)
        running = jobs[: min(gate.max_running, CAP) + 1].count()
        if running >= min(gate.max_running, CAP):
            yield say(
                ngettext(
                    "Its queue {queue} is limited to {limit} running job, and {number} runs: it waits until that ends.",
                    "Its queue {queue} is limited to {limit} running jobs, and {number} run: it waits until one ends.",
                    gate.max_running,
                ),
                queue=name,
                limit=gate.max_running,
                number=number(running),
            )
    if gate.rate_limit is not None and (seconds := _seconds_to_token(gate, alias)) > 0:
        yield say(
            _("The rate of its queue {queue} is used up ({limits}): the next job may start in {time}."),
            queue=name,
            limits=words,
            time=duration(seconds),
        )


def _seconds_to_token(gate: Queue, alias: str) -> float:
    rows = CallerConnection(alias).rows(statement("room"), {"queue": gate.name})
    return math.ceil(rows[0][1] * 1000) / 1000 if rows else 0.0
