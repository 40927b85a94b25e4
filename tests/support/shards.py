"""A second database of the queue, for a test."""

import contextlib
from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.db import connections, transaction
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone

from django_pgqueue import batch, jobs, once, queues
from django_pgqueue.admin.databases import showing
from django_pgqueue.conf import NUMBER_SHIFT, SLOTS, conf
from django_pgqueue.jobs import routing
from django_pgqueue.jobs.actions import RETRY
from django_pgqueue.jobs.bulk_actions import begin
from django_pgqueue.jobs.search import Filter
from django_pgqueue.models import Worker
from tests.app.tasks import noop, record
from tests.support.server import Server
from tests.support.staff import SUCCEEDED


@pytest.fixture
def shard(transactional_db, settings) -> Iterator[str]:
    """The alias of a shard; its tables are made for the test."""
    settings.PGQUEUE = settings.PGQUEUE | {"SHARDS": {"other": {"number": 1}}}
    with _tables_of("pgqueue"):
        yield "other"


MARKS = {"default": "homeward", "other": "abroad"}
"""What the names of all rows of a database have, by its alias."""


@pytest.fixture
def filled(shard) -> str:
    """The alias of a shard; there and at home there is one of everything."""
    for alias, mark in MARKS.items():
        with showing(alias):
            _fill(alias, mark)
    return shard


def _fill(alias: str, mark: str) -> None:
    task = noop.using(queue=mark)
    task.enqueue()
    jobs.kill([task.enqueue().id], by="eve")
    batch([record.bind("a")], name=mark, then=record.bind("then")).enqueue()
    with transaction.atomic(using=alias):
        once(f"{mark} key", database=alias)
    queues.pause(mark, by="eve", database=alias)
    begin(RETRY, Filter(queues=(mark,)), by=mark)
    Worker.objects.using(alias).create(
        supervisor_id=1, lease_until=timezone.now(), pid=4711, concurrency=4, host=mark, version="1"
    )
    number = (conf.number_of(alias) << NUMBER_SHIFT) + 1000
    with connections[alias].cursor() as cursor:
        cursor.execute(SUCCEEDED.replace("'q', 't'", f"'{mark}', 't'"), [None, number, number])


@pytest.fixture
def outbox(transactional_db, settings) -> Iterator[str]:
    """The alias of a database with an outbox, whose number is 5; its tables are made for the test."""
    settings.PGQUEUE = settings.PGQUEUE | {"OUTBOXES": {"other": 5}}
    with _tables_of("pgqueue_outbox"):
        yield "other"


@contextlib.contextmanager
def _tables_of(app: str) -> Iterator[None]:
    """Make the tables of an app on ``other``, where its migrations are recorded as applied and have made none."""
    recorder = MigrationRecorder(connections["other"])
    applied = [key for key in recorder.applied_migrations() if key[0] == app]
    for key in applied:
        recorder.record_unapplied(*key)
    call_command("migrate", app, database="other", verbosity=0)
    yield
    call_command("migrate", app, "zero", database="other", verbosity=0)
    for key in applied:
        recorder.record_applied(*key)


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
