"""Migrations of the queue's databases: the ids of a shard begin with its number, those of one database are as ever."""

import io

import pytest
from django.core.management import call_command
from django.db import connections

import tests.app.tasks as app
from django_pgqueue.db.queries import numbering
from django_pgqueue.migrations._base import NumberIds

NUMBERED = "ALTER COLUMN id SET MINVALUE"


def printed(alias: str) -> str:
    stream = io.StringIO()
    call_command("sqlmigrate", "pgqueue", "0001", database=alias, stdout=stream, no_color=True)
    return stream.getvalue()


@pytest.mark.django_db(databases=["default", "other"])
def test_ids_are_numbered_on_shards_alone(settings):
    settings.PGQUEUE = {"SHARDS": {"other": {"number": 31}}}
    assert NUMBERED not in printed("default")
    assert numbering("pgqueue_jobs", 31) in printed("other")
    assert NumberIds("Job").describe() == "Let the ids of Job begin with the number of the database"


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_ids_have_their_number_after_a_flush_too(shard):
    ids = [app.noop.using(database=shard).enqueue().id]
    with connections[shard].cursor() as cursor:
        cursor.execute("TRUNCATE pgqueue_jobs RESTART IDENTITY")
    assert [*ids, app.noop.using(database=shard).enqueue().id] == [2**48 + 1] * 2
