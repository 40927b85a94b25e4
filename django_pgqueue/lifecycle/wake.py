"""Tell idle workers that there is something to do. Whoever misses it finds out by polling."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from django.db import Error, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_pgqueue.base.conf import conf
from django_pgqueue.db import CallerConnection, Database, postgresql
from django_pgqueue.lifecycle.sql import statement

logger = logging.getLogger("django_pgqueue")

# One channel for all queues. A payload is a queue's name, or one of these.
CHANNEL: Final = "pgqueue_jobs"
CANCEL: Final = ""  # no queue: look for cancel requests
PROBE: Final = "?"  # with something random behind it: does a notification arrive?


@dataclass(frozen=True, slots=True)
class WakeUp:
    """A wake-up to be sent after a commit. Two of the same payload are equal, which keeps them from piling up."""

    database: str
    payload: str

    def __call__(self) -> None:
        """Send it after the commit. Failing must not reach the caller: the job is there, and polling finds it."""
        try:
            self.send()
        except Error:
            logger.exception(
                "Wake-up %r failed; workers find out by polling, or with their next heartbeat", self.payload
            )

    def send(self) -> None:
        """Send it now, in the transaction that is open if one is."""
        announce(CallerConnection(self.database), [self.payload])


def wake(alias: str, queue: str) -> None:
    """Announce work on ``queue`` when the caller's transaction has committed; at once if there is none.

    The notification is a statement of its own after the commit: NOTIFY takes a lock of the whole cluster until its
    transaction is on disk, and one that only notifies has nothing to write there.
    Source: https://www.postgresql.org/docs/current/sql-notify.html
    """
    if conf.notify:
        _after_commit(WakeUp(alias, queue))


def wake_for_cancel(alias: str) -> None:
    """Announce a cancel request when the caller's transaction has committed, whatever ``PGQUEUE["NOTIFY"]`` says."""
    _after_commit(WakeUp(alias, CANCEL))


def announce(database: Database, payloads: Iterable[str]) -> None:
    """Send notifications in a transaction of their own, or in the one that is open on ``database``."""
    database.rows(statement("notify"), {"channel": CHANNEL, "payloads": list(payloads)})


def _after_commit(wake_up: WakeUp) -> None:
    connection = postgresql(wake_up.database)
    if not connection.in_atomic_block and not connection.get_autocommit():
        wake_up.send()  # set_autocommit(False): on_commit would raise, so it goes with the transaction
    elif not _is_pending(connection, wake_up):
        transaction.on_commit(wake_up, using=wake_up.database)


def _is_pending(connection: BaseDatabaseWrapper, wake_up: WakeUp) -> bool:
    """Whether an equal hook will run whenever one registered now would.

    Any pending one will. A hook dies with the savepoint it was registered in; a savepoint that is still open has this
    code inside it too, and one that was released can no longer roll back alone.
    """
    return any(hook == wake_up for _, hook, *_ in connection.run_on_commit)
