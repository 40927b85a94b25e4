"""Connections and caches of slots between jobs: tidied, checked after an idle time, given up."""

import psycopg
import pytest
from django.db import connection, connections

import tests.app.tasks as app
from django_pgqueue.records import Fate
from django_pgqueue.worker import cleanup as tidy_module
from django_pgqueue.worker import slots as slots_module
from tests.app.models import Mark
from tests.support.proxy import Detour
from tests.support.waiting import PATIENCE_SECONDS, eventually


@pytest.mark.parametrize("task", [app.noop, app.noop_async])
def test_cache_that_cannot_be_made_does_not_stop_the_slots(slots, give, settings, task):
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        "unused": {"BACKEND": f"{__name__}.Unmade"},
    }
    give(task)
    assert slots.mailbox.get(timeout=PATIENCE_SECONDS)[1].fate is Fate.SUCCEEDED


@pytest.mark.parametrize("task", [app.record, app.arecord])
def test_connection_that_died_while_its_slot_was_idle_costs_no_job(slots, give, sql, monkeypatch, task):
    monkeypatch.setattr(slots_module, "IDLE_SECONDS", 0.0)
    slots.concurrency = 1
    give(task)
    assert slots.mailbox.get(timeout=PATIENCE_SECONDS)[1].fate is Fate.SUCCEEDED
    ended = sql(
        "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE datname = current_database() "
        "AND backend_type = 'client backend' AND application_name NOT LIKE 'pgqueue%%' AND pid <> pg_backend_pid()"
    )
    assert (True,) in ended  # those of an earlier test may be just going, too
    give(task)
    assert slots.mailbox.get(timeout=PATIENCE_SECONDS)[1].fate is Fate.SUCCEEDED


def test_connection_whose_close_fails_costs_no_outcome(slots, give, monkeypatch, caplog):
    """As of a driver that cannot close a session which is dead, after a job that was interrupted."""

    def fail(beneath):
        dead.append(beneath)
        raise RuntimeError("it is dead")

    dead, close = [], psycopg.Connection.close

    slots.concurrency = 1
    give(app.record)
    assert slots.mailbox.get(timeout=PATIENCE_SECONDS)[1].fate is Fate.SUCCEEDED
    monkeypatch.setattr(tidy_module, "_tidy_connection", tidy_module._discard)
    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Connection, "close", fail)
        give(app.record)
        assert slots.mailbox.get(timeout=PATIENCE_SECONDS)[1].fate is Fate.SUCCEEDED
    give(app.record)
    assert slots.mailbox.get(timeout=PATIENCE_SECONDS)[1].fate is Fate.SUCCEEDED
    assert "cannot be tidied up; it is forgotten" in caplog.text
    close(*dead)


class Unmade:
    """A cache backend whose library is not installed."""

    def __init__(self, *_):
        raise ImportError("no such library")


def test_slot_gives_up_a_connection_to_a_server_that_only_reads(slots, give, sql):
    """The server is up and answers, so the connection looks fine; all that jobs write would fail on it."""
    give(app.write_where_only_reading)
    _, outcome = slots.mailbox.get(timeout=PATIENCE_SECONDS)
    assert outcome.error["error"] == "django.db.utils.InternalError"
    assert "read-only transaction" in outcome.error["message"]
    pid = Mark.objects.get().label
    eventually(lambda: not sql("SELECT 1 FROM pg_stat_activity WHERE pid = %s::integer", pid))


@pytest.fixture
def by_detour(transactional_db, monkeypatch):
    """Lead the connections that slots open from here on through a proxy, which is yielded."""
    detour = Detour()
    connection.ensure_connection()  # that of the test itself goes straight on
    monkeypatch.setitem(connections.settings["default"], "HOST", "127.0.0.1")
    monkeypatch.setitem(connections.settings["default"], "PORT", str(detour.port))
    yield detour
    detour.close()


@pytest.mark.parametrize("task", [app.record, app.arecord])
def test_connection_that_fell_silent_while_its_slot_was_idle_costs_no_job(by_detour, slots, give, monkeypatch, task):
    monkeypatch.setattr(slots_module, "IDLE_SECONDS", -1.0)
    monkeypatch.setattr(tidy_module, "CHECK_SECONDS", 0.1)
    slots.concurrency = 1
    give(task)
    assert slots.mailbox.get(timeout=PATIENCE_SECONDS)[1].fate is Fate.SUCCEEDED
    assert by_detour.stall("") == 1
    give(task)
    assert slots.mailbox.get(timeout=PATIENCE_SECONDS)[1].fate is Fate.SUCCEEDED
