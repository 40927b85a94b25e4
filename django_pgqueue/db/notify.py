"""NOTIFY idle workers of work, and waiters of the end of jobs. A process that misses a notification polls."""

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from django.db import Error, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import CallerConnection, Database, MaintenanceConnection, postgresql
from django_pgqueue.db.cursors import FollowUp
from django_pgqueue.db.errors import is_over_limit, is_transient, one_line
from django_pgqueue.db.queries import statement

logger = logging.getLogger("django_pgqueue")

# A channel for all queues, to which the processes that claim listen. A payload is the name of a queue that has work. A
# queue may have any name: one that begins with the mark comes after QUEUE.
CHANNEL: Final = "pgqueue_jobs"

# The other payloads go to the supervisors of worker commands, by a channel of their own: no other process wakes then.
CONTROL: Final = "pgqueue_control"
KILLS: Final = ""  # no queue: look for kill requests
MARK: Final = "?"
QUEUE: Final = "?="  # then the queue's name
LIMITS: Final = "?|"  # then the name of a queue: it was paused, resumed or limited
ADMIT: Final = "?+"  # then a concurrency key: a job waits to be admitted; alone: of any key
MAINTAIN: Final = "?!"  # maintenance has slices to do: of a bulk action, or of a stage with many members
ECHO: Final = "?~"  # then something random: does a notification arrive?

# Another channel, for waiters for the end of jobs: they must not wake for each enqueue, nor workers for each
# end. A payload is the id of a job that has ended.
ENDS: Final = "pgqueue_done"

# The channel of an outbox, in the database that has it. A payload is the number of the queue's database for which calls
# are there.
OUTBOX: Final = "pgqueue_outbox"

MOST_KEYS = 100  # maximum number of concurrency keys named in notifications; more are announced as any key


def queue_payload(name: str) -> str:
    """Return the payload that announces work on a queue."""
    return QUEUE + name if name.startswith(MARK) else name


def limits_payload(name: str) -> str:
    """Return the payload that says that a queue was paused, resumed or limited."""
    return LIMITS + name


def channel_of(payload: str) -> str:
    """Return the channel of a payload for workers."""
    return CHANNEL if queues_in([payload]) else CONTROL


def queues_in(payloads: Iterable[str]) -> set[str]:
    """Return the queues on which payloads announce work."""
    named = (payload.removeprefix(QUEUE) for payload in payloads if payload.startswith(QUEUE) or payload[:1] != MARK)
    return set(filter(None, named))


def limits_in(payloads: Iterable[str]) -> set[str]:
    """Return the queues that payloads say were paused, resumed or limited."""
    return {payload.removeprefix(LIMITS) for payload in payloads if payload.startswith(LIMITS)}


def keys_in(payloads: Iterable[str]) -> set[str]:
    """Return the concurrency keys of jobs that wait to be admitted; an empty one stands for any."""
    return {payload.removeprefix(ADMIT) for payload in payloads if payload.startswith(ADMIT)}


@dataclass(frozen=True, slots=True)
class Notification:
    """A wake-up to be sent after a commit. Two of the same payloads are equal, which keeps them from piling up."""

    database: str
    payloads: tuple[str, ...]
    channel: str = CHANNEL

    def __call__(self) -> None:
        """Send it after the commit. Failing must not reach the caller: the job is there, and polling finds it."""
        try:
            send_or_warn(CallerConnection(self.database), self.payloads, channel=self.channel, to_all=False)
        except Error as error:
            _warn(self.payloads, error)


def notify_queues(to: str | Database, queues: Iterable[str]) -> None:
    """Announce work on each of the queues when the caller's transaction has committed; at once if there is none.

    The notification is a statement of its own after the commit: NOTIFY takes a lock of the whole cluster until its
    transaction is on disk, and one that only notifies has nothing to write there.
    Source: https://www.postgresql.org/docs/current/sql-notify.html
    """
    if conf.notify:
        for queue in sorted(queues):
            _after_commit(to, (queue_payload(queue),))


def wake_up(queue: str) -> FollowUp | None:
    """Return the statement that announces work on a queue; None where workers are not notified."""
    return FollowUp(statement("wake"), _of_queue(queue_payload(queue))) if conf.notify else None


def _of_queue(payload: str) -> dict[str, str]:
    return {"payload": payload, "queue": payload.removeprefix(QUEUE)}


def notify_keys(to: str | Database, keys: Collection[str]) -> None:
    """Announce that jobs of these keys may be admitted when the caller's transaction has committed."""
    if conf.notify and keys:
        named = sorted(keys) if len(keys) <= MOST_KEYS else [""]
        _after_commit(to, tuple(ADMIT + key for key in named))


def notify_due(to: str | Database, jobs: Collection[tuple[str, str | None]]) -> None:
    """Announce due jobs, given as queues and keys: that they may be claimed, or admitted where they have a key."""
    notify_queues(to, {queue for queue, key in jobs if key is None})
    notify_keys(to, {key for _, key in jobs if key is not None})


def notify_kill(to: str | Database) -> None:
    """Announce a kill request when the caller's transaction has committed, also if ``PGQUEUE["NOTIFY"]`` is off."""
    _after_commit(to, (KILLS,))


def notify_limits(alias: str, queue: str) -> None:
    """Announce that a queue was paused, resumed or limited when the caller's transaction has committed."""
    if conf.notify:
        _after_commit(alias, (limits_payload(queue),))


def notify_maintenance(to: str | Database) -> None:
    """Announce work that maintenance does in slices when the caller's transaction has committed."""
    if conf.notify:
        _after_commit(to, (MAINTAIN,))


def notify_relays(outbox: str, number: int) -> None:
    """Announce calls in an outbox for the database with this number when the caller's transaction has committed."""
    if conf.notify:
        _after_commit(outbox, (str(number),), OUTBOX)


def notify_waiters(database: Database, ids: Collection[int]) -> None:
    """Announce the ends of jobs whose results are waited for, once they are committed.

    On a connection of the queue's own it is sent at once: the ends are committed, or the transaction is the same.
    """
    payloads = tuple(map(str, ids)) if conf.notify else ()
    if payloads and isinstance(database, CallerConnection | MaintenanceConnection):
        _after_commit(database, payloads, ENDS)
    elif payloads:
        send_or_warn(database, payloads, channel=ENDS)


def send_notification(
    database: Database, payloads: Collection[str], *, channel: str = CHANNEL, to_all: bool = True
) -> None:
    """Send notifications in a transaction of their own, or in the one that is open on ``database``.

    Args:
        to_all: False: not of queues on which no worker sleeps. Only for a transaction of their own, which locks
            the answer until its end.

    Raises:
        django.db.Error: as the server refuses them; ``is_over_limit``: its queue is full, as a session does not read.
    """
    if to_all or channel != CHANNEL or not queues_in(payloads):
        channels = [channel_of(payload) if channel == CHANNEL else channel for payload in payloads]
        send = partial(database.notify, statement("notify"), {"channels": channels, "payloads": list(payloads)})
    else:
        [payload] = payloads  # as ``notify_queues`` announces them
        send = partial(database.notify, statement("wake"), _of_queue(payload))
    try:
        send()
    except Error as error:
        if not is_over_limit(error):
            raise
        database.rows(statement("drop_notifications"), {})
        send()


def send_or_warn(database: Database, payloads: Collection[str], *, channel: str = CHANNEL, to_all: bool = True) -> None:
    """Announce what polling finds too: where the server refuses notifications, a warning says so, and work goes on.

    Raises:
        django.db.Error: there is trouble with the connection, or the server, that the caller will have as well.
    """
    try:
        send_notification(database, payloads, channel=channel, to_all=to_all)
    except Error as error:
        if is_transient(error):
            raise
        if _refusals.get(database.alias) != str(error):
            _warn(payloads, error)
        _refusals[database.alias] = str(error)
    else:
        _refusals.pop(database.alias, None)


def announce_queues(database: Database, queues: Collection[str]) -> None:
    """Announce work on queues at once, unless ``PGQUEUE["NOTIFY"]`` is off; raises as ``send_or_warn``."""
    if queues and conf.notify:
        send_or_warn(database, sorted(map(queue_payload, queues)))


def announce_maintenance(database: Database) -> None:
    """Announce work that maintenance does in slices at once, as ``announce_queues`` does that of queues."""
    if conf.notify:
        send_or_warn(database, (MAINTAIN,))


_refusals: dict[str, str] = {}  # why the last announcement by an alias was refused; every reason is said once


def _warn(payloads: Collection[str], error: Error) -> None:
    logger.warning(
        "Wake-up %s failed; workers find out by polling, or with their next heartbeat: %s",
        list(payloads),
        one_line(error),
    )


def _after_commit(to: str | Database, payloads: tuple[str, ...], channel: str = CHANNEL) -> None:
    if isinstance(to, MaintenanceConnection):
        to.announcements.setdefault(channel, set()).update(payloads)
        return
    alias = to if isinstance(to, str) else to.alias
    connection, caller = postgresql(alias), CallerConnection(alias)
    if not connection.in_atomic_block and caller.in_transaction:
        # set_autocommit(False), or a BEGIN of which Django does not know: it goes with the transaction
        send_notification(caller, payloads, channel=channel)
    elif not _is_pending(connection, wake_up := Notification(alias, payloads, channel)):
        transaction.on_commit(wake_up, using=alias)


def _is_pending(connection: BaseDatabaseWrapper, wake_up: Notification) -> bool:
    """Whether an equal hook will run whenever one registered now would.

    Any pending one will. A hook dies with the savepoint it was registered in; a savepoint that is still open has this
    code inside it too, and one that was released can no longer roll back alone.
    """
    return any(hook == wake_up for _, hook, *_ in connection.run_on_commit)
