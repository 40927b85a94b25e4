"""A second database of the queue, for a test."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connections, transaction
from django.db.migrations.recorder import MigrationRecorder
from django.test import override_settings
from django.utils import timezone

from django_pgqueue import batch, jobs, once, queues
from django_pgqueue.admin.databases import showing
from django_pgqueue.conf import NUMBER_SHIFT, SLOTS, conf
from django_pgqueue.jobs import routing, waiter
from django_pgqueue.jobs.actions import RETRY
from django_pgqueue.jobs.bulk_actions import begin
from django_pgqueue.jobs.search import Filter
from django_pgqueue.models import Worker
from tests.app.tasks import noop, record
from tests.support.server import Server
from tests.support.staff import SUCCEEDED
from tests.support.waiting import PATIENCE_SECONDS

SHARDS = {"SHARDS": {"other": {"number": 1}}}
OUTBOXES = {"OUTBOXES": {"other": 5}}

EMPTY = """
DO $$
BEGIN
    EXECUTE (
        SELECT 'TRUNCATE ' || string_agg(oid::regclass::text, ', ') || ' RESTART IDENTITY'
        FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
        AND relname NOT IN ('django_migrations', 'django_content_type', 'auth_permission')
    );
END
$$
"""


@pytest.fixture(scope="module")
def copy_for_shard(django_db_setup, django_db_blocker) -> Iterator[str]:
    """The name of a copy of the database ``other`` with the tables of a shard whose number is 1."""
    with _copy_with("pgqueue", SHARDS, django_db_blocker) as name:
        yield name


@pytest.fixture
def shard(copy_for_shard, transactional_db, settings) -> Iterator[str]:
    """The alias of a shard; it is empty."""
    settings.PGQUEUE = settings.PGQUEUE | SHARDS
    with _in_place_of_other(copy_for_shard):
        before = _numbering()
        yield "other"
        assert _numbering() == before, "The test has left ids that begin with another number."


def _numbering() -> list[int]:
    """Return where the ids of the tables of ``other`` begin; the next test finds them so."""
    with connections["other"].cursor() as cursor:
        cursor.execute("SELECT seqstart FROM pg_sequence ORDER BY seqstart")
        return [start for (start,) in cursor.fetchall()]


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


@pytest.fixture(scope="module")
def copy_for_outbox(django_db_setup, django_db_blocker) -> Iterator[str]:
    """The name of a copy of the database ``other`` with the tables of an outbox."""
    with _copy_with("pgqueue_outbox", OUTBOXES, django_db_blocker) as name:
        yield name


@pytest.fixture
def outbox(copy_for_outbox, transactional_db, settings) -> Iterator[str]:
    """The alias of a database with an outbox, whose number is 5; it is empty."""
    settings.PGQUEUE = settings.PGQUEUE | OUTBOXES
    with _in_place_of_other(copy_for_outbox):
        yield "other"


@contextlib.contextmanager
def _copy_with(app: str, options: dict[str, Any], blocker: Any) -> Iterator[str]:
    """Copy ``other``, where the migrations of an app are recorded as applied and have made no tables, and make them."""
    creation = connections["other"].creation
    name = creation.get_test_db_clone_settings(app)["NAME"]
    with blocker.unblock():
        with connections["other"]._nodb_cursor() as cursor:
            cursor.execute(f'DROP DATABASE IF EXISTS "{name}"')  # which a run that was broken off has left
        creation.clone_test_db(app, verbosity=0)
        with override_settings(PGQUEUE=settings.PGQUEUE | options), _in_place_of_other(name):
            recorder = MigrationRecorder(connections["other"])
            for key in [key for key in recorder.applied_migrations() if key[0] == app]:
                recorder.record_unapplied(*key)
            call_command("migrate", app, database="other", verbosity=0)
    yield name
    with blocker.unblock():
        waiter.stop_all()  # their connections linger, and DROP DATABASE waits for some seconds only
        creation.destroy_test_db(suffix=app, verbosity=0)


@contextlib.contextmanager
def _in_place_of_other(name: str) -> Iterator[None]:
    """Let the alias ``other`` be another database; empty its tables in the end."""
    other = connections["other"]
    other.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(connections.settings["other"], "NAME", name)
        yield
        with other.cursor() as cursor:
            cursor.execute("SET lock_timeout = %s", [f"{PATIENCE_SECONDS:g}s"])  # of a session that a test has left
            cursor.execute(EMPTY)
        other.close()


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
        for key, value in (place | {"OPTIONS": {"connect_timeout": int(PATIENCE_SECONDS)}}).items():
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
