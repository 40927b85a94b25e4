"""A server that is up and has become read-only, as an old primary after a switchover: the queue looks for another.

Here the session alone is read-only, so the same server will do as the other one.
"""

import pytest

from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.worker import listener as listener_module
from django_pgqueue.worker.heartbeat import Liveness
from django_pgqueue.worker.listener import BACKEND, Listener

READ_ONLY = "SET default_transaction_read_only = on"


def test_own_connection_that_only_reads_is_given_up_though_all_it_does_is_read(queue: QueueConnection):
    """It meets no error there; it would look at a queue that stands still for ever."""
    before = queue.rows(BACKEND, {})
    assert queue.rows(BACKEND, {}) == before
    queue.autocommit().execute(READ_ONLY)
    assert queue.rows(BACKEND, {}) != before


def test_listener_goes_where_notifications_are(transactional_db, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(listener_module, "PING_SECONDS", 0.0)
    heard: list = []
    listener = Listener(Liveness(changed=lambda: None), heard.append)
    listener.pass_once()
    listener.pass_once()
    assert heard == [None]
    listener._connection.execute(READ_ONLY)
    listener.pass_once()
    listener.pass_once()
    assert heard == [None, None]
    listener.close()
