"""The listener: cut off, without notifications for a while, on a server that only reads."""

import contextlib
import selectors

import psycopg
import pytest
from django.db import Error, connections

from django_pgqueue.db.notify import limits_payload, send_notification
from django_pgqueue.worker import listener as listener_module
from django_pgqueue.worker.heartbeat import Liveness
from django_pgqueue.worker.listener import Listener
from tests.support.waiting import PATIENCE_SECONDS, eventually


@pytest.fixture
def heard() -> list:
    return []


@pytest.fixture
def make_listener(transactional_db, heard):
    """Make a listener, which is closed at the end, also of a test that fails."""
    with contextlib.ExitStack() as at_the_end:

        def make() -> Listener:
            made = Listener("default", Liveness(changed=lambda: None), heard.append)
            at_the_end.callback(made.close)
            return made

        yield make


@pytest.fixture
def listener(make_listener, monkeypatch, heard):
    """One that is connected, and does not wait for long."""
    monkeypatch.setattr(listener_module, "PING_SECONDS", 0.1)
    made = make_listener()
    made.pass_once()
    assert heard.pop() is None
    return made


@pytest.fixture
def hears(queue, listener, heard):
    """Announce that a queue has limits and wait until it is heard."""

    def run(name):
        send_notification(queue, [limits_payload(name)])
        eventually(lambda: listener.pass_once() or {limits_payload(name)} in heard)

    return run


def test_listener_that_was_cut_off_listens_again_and_has_all_children_look(queue, sql, listener, heard, hears):
    """What was announced in between is gone, so the workers that it was meant for have to look."""
    hears("before")
    assert sql("SELECT pg_terminate_backend(%s, 30000)", listener._connection.info.backend_pid) == [(True,)]
    send_notification(queue, [limits_payload("in between")])
    with pytest.raises((Error, psycopg.Error)):
        eventually(listener.pass_once)  # it returns nothing until it notices
    listener.pass_once()
    hears("after")
    assert heard == [{"?|before"}, None, {"?|after"}]


def test_announcement_that_comes_with_the_answer_to_a_ping_is_heard(queue, listener, heard):
    """It has been read from the socket then, which says no more that there is something to read."""
    send_notification(queue, [limits_payload("mail")])
    with selectors.DefaultSelector() as selector:
        selector.register(listener._connection.fileno(), selectors.EVENT_READ)
        assert selector.select(PATIENCE_SECONDS)
    listener._connection.execute("SELECT 1")
    listener.pass_once()
    assert heard == [{"?|mail"}]


def test_machine_that_stands_still_for_longer_than_the_echo_is_waited_for_is_no_reason_to_stop_listening(
    make_listener, monkeypatch, heard
):
    monkeypatch.setattr(listener_module, "ECHO_SECONDS", 0.0)
    for _ in range(20):
        listener = make_listener()
        listener.stop()  # the wait that follows ends at once
        listener.pass_once()
        assert listener.works
        listener.close()
    assert heard == [None] * 20


def test_listener_goes_where_notifications_are(make_listener, monkeypatch, heard):
    monkeypatch.setattr(listener_module, "PING_SECONDS", 0.0)
    listener = make_listener()
    listener.pass_once()
    listener.pass_once()
    assert heard == [None]
    listener._connection.execute("SET default_transaction_read_only = on")
    listener.pass_once()
    listener.pass_once()
    assert heard == [None, None]


def test_work_is_heard_by_the_listener_only_where_processes_cannot_listen(
    queue, settings, monkeypatch, heard, make_listener
):
    monkeypatch.setattr(listener_module, "PING_SECONDS", 0.1)
    monkeypatch.setitem(connections.settings, "direct", connections.settings["default"])
    for listens in (None, "direct"):
        settings.PGQUEUE = {"LISTEN_DATABASE": listens}
        listener = make_listener()
        listener.pass_once()
        heard.clear()
        send_notification(queue, ["mail", limits_payload("end")])
        eventually(lambda listener=listener: listener.pass_once() or any("?|end" in told for told in heard))
        assert ("mail" in set().union(*heard)) == (listens == "direct")
        listener.close()
