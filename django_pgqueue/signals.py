"""Django signals of the transitions of jobs. The sender is the task's name (``str``) or ``None`` where it is not known.

=======================  =========================================  ====================================================
signal                   sent by                                    arguments
=======================  =========================================  ====================================================
``job_enqueued``         the caller of enqueue, in its              ``ids``, ``task``, ``queue``, ``database``
                         transaction, after the insert
``job_started``          the slot, before the task is called        ``job``
``job_finished``         the slot, after the call, before the       ``job``, ``outcome``
                         outcome is written
``job_succeeded``        likewise, next, by the outcome             ``job``, ``outcome``
``job_retry_scheduled``  likewise                                   ``job``, ``outcome``
``job_snoozed``          likewise                                   ``job``, ``outcome``
``job_released``         likewise                                   ``job``, ``outcome``
``job_died``             likewise; the consumer, where its task     ``job``, ``outcome``
                         has been unknown for too long
``job_lost``             the worker that settles a dead process     ``id``, ``task``, ``queue``, ``attempt``,
                                                                    ``max_attempts``, ``worker``, ``reason``
``job_expired``          the worker that found jobs that were not   ``ids``, ``database``
                         started in time
``job_superseded``       the pass that found newer jobs to have     ``ids``, ``database``
                         their unique keys
``job_killed``           the caller of kill, in its transaction     ``ids``, ``requested``, ``by``, ``database``
``job_retried``          the caller of retry, in its transaction    ``ids``, ``by``, ``database``
``job_purged``           the caller of purge, in its transaction    ``ids``, ``by``, ``succeeded``, ``database``
=======================  =========================================  ====================================================

Receivers run in the thread of the sender; maintenance of a worker has a thread of its own for them. An exception in
one is logged and harms nothing.
"""

import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from django.db import connections
from django.dispatch import Signal

from django_pgqueue.records import Fate

logger: Final = logging.getLogger("django_pgqueue.jobs")

job_enqueued: Final = Signal()
job_started: Final = Signal()
job_finished: Final = Signal()
job_succeeded: Final = Signal()
job_retry_scheduled: Final = Signal()
job_snoozed: Final = Signal()
job_released: Final = Signal()
job_died: Final = Signal()
job_lost: Final = Signal()
job_expired: Final = Signal()
job_superseded: Final = Signal()
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
    Fate.DIED: job_died,
}


def announce(signal: Signal, sender: str | None = None, **named: Any) -> None:
    """Send a signal, if it has receivers. A receiver that calls ``sys.exit()`` ends neither the caller nor a worker."""
    if not signal.receivers:
        return
    send = functools.partial(_send, signal, sender, **named)
    collected: list[Callable[[], None]] | None = getattr(_thread, "collected", None)
    if collected is None:
        send()
    else:
        collected.append(send)


def send_from_maintenance(signal: Signal, sender: str | None = None, **named: Any) -> None:
    """Send a signal in a thread that a worker cannot do without: it outlives whatever receivers raise.

    What they have opened stays open for the next time; a connection that broke is given up, else all would fail by it.
    """
    if not signal.receivers:
        return
    try:
        announce(signal, sender, **named)
    except BaseException:
        logger.exception("Receivers of a signal failed; the worker goes on")
    close_broken_connections()


def close_broken_connections() -> None:
    """Close those of this thread that code of the project has opened and that broke: the next use opens them anew."""
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


_thread = threading.local()


def _send(signal: Signal, sender: str | None, **named: Any) -> None:
    try:
        signal.send_robust(sender, **named)
    except SystemExit:
        logger.exception("A receiver of a signal has called sys.exit(), which is ignored")
