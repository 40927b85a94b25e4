"""A second database of the queue, for a test."""

from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.db import connections

from django_pgqueue.conf import SLOTS
from django_pgqueue.jobs import routing
from tests.support.server import Server


@pytest.fixture
def shard(transactional_db, settings) -> Iterator[str]:
    """The alias of a shard; its tables are made for the test."""
    before = settings.PGQUEUE
    settings.PGQUEUE = before | {"SHARDS": {"other": {"number": 1}}}
    call_command("migrate", "pgqueue", "zero", database="other", fake=True, verbosity=0)
    call_command("migrate", "pgqueue", database="other", verbosity=0)
    yield "other"
    call_command("migrate", "pgqueue", "zero", database="other", verbosity=0)
    settings.PGQUEUE = before
    call_command("migrate", "pgqueue", database="other", verbosity=0)


@pytest.fixture
def outbox(transactional_db, settings) -> Iterator[str]:
    """The alias of a database with an outbox, whose number is 5; its tables are made for the test."""
    before = settings.PGQUEUE
    settings.PGQUEUE = before | {"OUTBOXES": {"other": 5}}
    call_command("migrate", "pgqueue_outbox", "zero", database="other", fake=True, verbosity=0)
    call_command("migrate", "pgqueue_outbox", database="other", verbosity=0)
    yield "other"
    call_command("migrate", "pgqueue_outbox", "zero", database="other", verbosity=0)
    settings.PGQUEUE = before
    call_command("migrate", "pgqueue_outbox", database="other", verbosity=0)


@pytest.fixture(scope="module")
def other_server() -> Iterator[Server]:
    """One more server, which a test may stop; the next finds it running again."""
    server = Server()
    yield server
    server.remove()


@pytest.fixture
def far(transactional_db, settings, monkeypatch, other_server) -> Iterator[str]:
    """The alias of a shard with the number 1 on a server of its own; the queue ``spread`` is there and on ``default``.

    Of the slots of keys the lower half is on ``default``.
    """
    alias = "other"
    settings.PGQUEUE = settings.PGQUEUE | {
        "SHARDS": {
            "default": {"number": 0, "queues": ["spread"], "slots": range(SLOTS // 2)},
            alias: {"number": 1, "queues": ["spread"], "slots": range(SLOTS // 2, SLOTS)},
        }
    }
    connections[alias].close()
    with monkeypatch.context() as patch:
        place = {"HOST": other_server.host, "PORT": "", "USER": "postgres", "PASSWORD": "", "NAME": "postgres"}
        for key, value in (place | {"OPTIONS": {"connect_timeout": 2}}).items():
            patch.setitem(connections.settings[alias], key, value)
        call_command("migrate", "pgqueue", database=alias, verbosity=0)  # for the first test
        routing._outages.clear()
        yield alias
        connections[alias].close()
        if not other_server.is_up:
            other_server.restart("fast")
        call_command("flush", database=alias, interactive=False, verbosity=0)
        connections[alias].close()
    routing._outages.clear()
