"""Django signals of what becomes of jobs. The sender is the registered task, or ``None``.

========================  ========================================  ====================================================
signal                    sent by                                   arguments
========================  ========================================  ====================================================
``job_enqueued``          the caller of enqueue, in its             ``ids``, ``task``, ``queue``, ``database``
                          transaction, after the insert
``attempt_started``       the slot, before the task is called       ``event``
``attempt_ended``         the slot, after the call, before the      ``event``
                          outcome is written
``job_succeeded``         the slot, next, by the outcome            ``event``
``job_retry_scheduled``   the slot, next, by the outcome            ``event``
``job_snoozed``           the slot, next, by the outcome            ``event``
``job_released``          the slot, next, by the outcome            ``event``
``attempt_lost``          the worker that settles a dead process    ``event``, ``worker``
``job_died``              the worker or the caller that has moved   ``event``
                          the job to the dead jobs, after that
``job_killed``            the caller of kill, in its transaction    ``ids``, ``requested``, ``by``, ``database``
``job_retried``           the caller of retry, in its transaction   ``ids``, ``by``, ``database``
``job_purged``            the caller of purge, in its transaction   ``ids``, ``by``, ``succeeded``, ``database``
========================  ========================================  ====================================================

Receivers run in the thread of the sender; those of a worker outside its slots in a thread of its own. An exception
in one is logged and harms nothing.
"""

import contextlib
import functools
import json
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from django.db import connections
from django.dispatch import Signal

from django_pgqueue import registry
from django_pgqueue.records import ClaimedJob, Fate, Lease, Outcome
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.states import AttemptOutcome, DeathReason

__all__ = [
    "JobEvent",
    "attempt_ended",
    "attempt_lost",
    "attempt_started",
    "job_died",
    "job_enqueued",
    "job_killed",
    "job_purged",
    "job_released",
    "job_retried",
    "job_retry_scheduled",
    "job_snoozed",
    "job_succeeded",
]

logger: Final = logging.getLogger("django_pgqueue.jobs")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """A job at the start or the end of an attempt, or at its death.

    Attributes:
        id: the job's.
        task: the name it was enqueued under, which may be an alias of the task.
        queue: its queue.
        attempt: the number of the attempt, from 1; of a job that died, how often it was tried, 0 for never.
        max_attempts: the bound.
        database: the alias of the queue's database.
        outcome: the outcome of the attempt, a ``states.AttemptOutcome``; None while it runs.
        run_seconds: duration of the attempt; 0.0 where no slot has seen its end.
        delay_seconds: the time until it is due again, where it runs again; else 0.0.
        reason: the reason of its death, a ``states.DeathReason``; None where it is not dead.
    """

    id: int
    task: str
    queue: str
    attempt: int
    max_attempts: int
    database: str
    outcome: AttemptOutcome | None = None
    run_seconds: float = 0.0
    delay_seconds: float = 0.0
    reason: DeathReason | None = None
    _error: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    _args: str = field(default="[]", repr=False)  # JSON text, decoded when asked for
    _kwargs: str = field(default="{}", repr=False)

    @property
    def error(self) -> dict[str, Any]:
        """The entry of its history: ``error``, the class of the exception, ``message``, ``traceback`` and more.

        A copy each time; empty where nothing was raised.
        """
        return dict(self._error)

    @property
    def args(self) -> list[Any]:
        """The positional arguments, as JSON keeps them; a copy each time."""
        args: list[Any] = json.loads(self._args)
        return args

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments; a copy each time."""
        kwargs: dict[str, Any] = json.loads(self._kwargs)
        return kwargs


class JobSignal(Signal):
    """A signal that is sent by registered tasks.

    Receivers may be connected by the task, by a copy of it that ``using()`` has made, and by a task of Django's Tasks
    framework.
    """

    def connect(self, receiver: Any, sender: object = None, weak: bool = True, dispatch_uid: Any = None) -> None:  # noqa: FBT001, FBT002 - as in Django
        """Connect a receiver, as Django's signals do.

        Args:
            sender: the task whose jobs it is called for; None: all tasks.

        Raises:
            TypeError: the sender is no task; one that is the name of a task would never match.
        """
        super().connect(receiver, sender=_registered(sender), weak=weak, dispatch_uid=dispatch_uid)

    def disconnect(self, receiver: Any = None, sender: object = None, dispatch_uid: Any = None) -> bool:
        """Disconnect a receiver, as Django's signals do; see ``connect``."""
        return super().disconnect(receiver, sender=_registered(sender), dispatch_uid=dispatch_uid)


def _registered(sender: object) -> object:
    """Return the sender of signals about the jobs of a task."""
    task = registry.native(sender)
    if isinstance(task, TaskDefinition):
        return registry.find(task.name) or task
    if sender is None or hasattr(sender, "module_path"):  # that of another backend of the framework, without jobs here
        return sender
    raise TypeError(f"The sender of this signal is a task, as in sender=send_receipt, not {sender!r}.")


job_enqueued: Final = JobSignal()
attempt_started: Final = JobSignal()
attempt_ended: Final = JobSignal()
attempt_lost: Final = JobSignal()
job_succeeded: Final = JobSignal()
job_retry_scheduled: Final = JobSignal()
job_snoozed: Final = JobSignal()
job_released: Final = JobSignal()
job_died: Final = JobSignal()
job_killed: Final = Signal()
job_retried: Final = Signal()
job_purged: Final = Signal()

OF_FATE: Final = {
    Fate.SUCCEEDED: job_succeeded,
    Fate.REPEATED: job_succeeded,
    Fate.RECORDED: job_succeeded,
    Fate.RETRIED: job_retry_scheduled,
    Fate.SNOOZED: job_snoozed,
    Fate.RELEASED: job_released,
}
"""Signals that follow ``attempt_ended``. That a job has died is sent when it is written."""

OUTCOMES: Final = {
    Fate.SUCCEEDED: AttemptOutcome.SUCCEEDED,
    Fate.REPEATED: AttemptOutcome.SUCCEEDED,
    Fate.RECORDED: AttemptOutcome.SUCCEEDED,
    Fate.RETRIED: AttemptOutcome.RETRIED,
    Fate.SNOOZED: AttemptOutcome.SNOOZED,
    Fate.RELEASED: AttemptOutcome.RELEASED,
    Fate.DIED: AttemptOutcome.DIED,
}


RUNNING_AGAIN: Final = {Fate.RETRIED, Fate.SNOOZED, Fate.RELEASED}


def end_signals(outcome: Outcome) -> tuple[Signal, ...]:
    """Return the signals of the end of an attempt, in their order; none where none of them has receivers."""
    fated = job_succeeded if outcome.fate is Fate.SUCCEEDED else OF_FATE.get(outcome.fate, attempt_ended)
    if not attempt_ended.receivers and not fated.receivers:
        return ()
    return (attempt_ended,) if fated is attempt_ended else (attempt_ended, fated)


# Events


def event_of(job: ClaimedJob, outcome: Outcome | None = None) -> JobEvent:
    """Return the event of an attempt that begins, or of one that has this outcome."""
    event = JobEvent(
        id=job.id,
        task=job.task,
        queue=job.queue,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        database=job.database,
        _args=job.args,
        _kwargs=job.kwargs,
    )
    if outcome is None:
        return event
    return replace(
        event,
        outcome=OUTCOMES[outcome.fate],
        run_seconds=outcome.run_seconds,
        delay_seconds=outcome.delay_seconds if outcome.fate in RUNNING_AGAIN else 0.0,
        reason=outcome.reason,
        _error=outcome.error or {},
    )


def lost_event(
    lease: Lease,
    arguments: Sequence[str],
    outcome: AttemptOutcome,
    error: Mapping[str, Any],
    *,
    delay_seconds: float,
    database: str,
) -> JobEvent:
    """Return the event of an attempt whose worker process has ended, and whose job runs again after the delay."""
    args, kwargs = arguments
    return JobEvent(
        id=lease.id,
        task=lease.task,
        queue=lease.queue,
        attempt=lease.attempts,
        max_attempts=lease.max_attempts,
        database=database,
        outcome=outcome,
        delay_seconds=delay_seconds,
        _error=error,
        _args=args,
        _kwargs=kwargs,
    )


def death_event(job_id: int, told: str, *, database: str) -> JobEvent:
    """Return the event of a job that was moved to the dead jobs, from the JSON of ``dead_letter.sql``."""
    death = json.loads(told)
    return JobEvent(
        id=job_id,
        task=death["task"],
        queue=death["queue"],
        attempt=death["attempt"],
        max_attempts=death["max_attempts"],
        database=database,
        outcome=AttemptOutcome.DIED,
        reason=DeathReason(death["reason"]),
        _error=death["error"],
        _args=death["args"],
        _kwargs=death["kwargs"],
    )


def deaths(outcomes: Iterable[Outcome], *, stale: Collection[int]) -> list[JobEvent]:
    """Return the events of the jobs that these outcomes have ended; those of the jobs ``stale`` were dropped."""
    if not job_died.receivers:
        return []
    dead = [outcome for outcome in outcomes if outcome.fate is Fate.DIED and outcome.job.id not in stale]
    return [_dead(outcome) for outcome in dead]


def _dead(outcome: Outcome) -> JobEvent:
    event = event_of(outcome.job, outcome)
    if outcome.reason is DeathReason.EXPIRED:  # found by a claim, which is no attempt
        return replace(event, attempt=event.attempt - 1)
    return event


# Sending


def announce(signal: Signal, sender: str | None = None, **named: Any) -> None:
    """Send a signal, if it has receivers. A receiver that calls ``sys.exit()`` ends neither the caller nor a worker.

    Args:
        sender: the name of the task that is the sender; None: it is about jobs of several tasks.
    """
    if not signal.receivers:
        return
    send = functools.partial(_send, signal, registry.find(sender) if sender else None, **named)
    collected: list[Callable[[], None]] | None = getattr(_thread, "collected", None)
    if collected is None:
        send()
    else:
        collected.append(send)


def announce_deaths(events: Iterable[JobEvent]) -> None:
    for event in events:
        announce(job_died, event.task, event=event)


def send_from_maintenance(signal: Signal, sender: str | None = None, **named: Any) -> None:
    """Send a signal in a thread that a worker cannot do without: it survives all exceptions of receivers.

    Connections that they have opened stay open for the next time; a broken one is closed, else all would fail by it.
    """
    if not signal.receivers:
        return
    try:
        announce(signal, sender, **named)
    except BaseException:
        logger.exception("Receivers of a signal failed; the worker goes on")
    close_broken_connections()


def send_deaths_from_maintenance(events: Iterable[JobEvent]) -> None:
    """Send ``job_died`` for each event, as ``send_from_maintenance`` does."""
    for event in events:
        send_from_maintenance(job_died, event.task, event=event)


def close_broken_connections() -> None:
    """Close broken connections of this thread that code of the project has opened: the next use opens new ones."""
    for connection in connections.all(initialized_only=True):
        if connection.errors_occurred and not connection.in_atomic_block and not connection.is_usable():
            connection.close()


@contextlib.contextmanager
def sent_elsewhere(call_later: Callable[[Callable[[], None]], None]) -> Iterator[None]:
    """Send no signal of this thread in it: what sends them is passed on when the block ends, after its transactions."""
    collected: list[Callable[[], None]] = []
    _thread.collected = collected
    try:
        yield
    finally:
        _thread.collected = None
        for send in collected:
            call_later(send)


@contextlib.contextmanager
def dropped_on_error() -> Iterator[None]:
    """Drop what ``sent_elsewhere`` has collected in this block if that raises: it is around a transaction."""
    collected: list[Callable[[], None]] | None = getattr(_thread, "collected", None)
    number = len(collected or ())
    try:
        yield
    except BaseException:
        if collected is not None:
            del collected[number:]
        raise


_thread = threading.local()


def _send(signal: Signal, sender: TaskDefinition | None, **named: Any) -> None:
    try:
        signal.send_robust(sender, **named)
    except SystemExit:
        logger.exception("A receiver of a signal has called sys.exit(), which is ignored")
