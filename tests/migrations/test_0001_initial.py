"""The first migration makes the schema that the models say, with functions and partitions, and takes it back."""

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection, connections

from django_pgqueue import migrations
from django_pgqueue.models import Job, SucceededJob
from tests.support.catalogue import TABLES

OTHERS = {"pgqueue_cutover_calls", "pgqueue_outbox", "pgqueue_handed_over"}


APP_TABLES = {"pgqueue_cutover": "pgqueue_cutover", "pgqueue_outbox": ("pgqueue_outbox", "pgqueue_handed_over")}


def tables(alias="default") -> set[str]:
    names = connections[alias].introspection.table_names()
    return {name for name in names if name.startswith("pgqueue_") and "succeeded_jobs_" not in name}


def describe() -> list:
    """Return columns, defaults, indexes, constraints and storage settings of all tables; and the functions."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns "
            "WHERE table_name LIKE 'pgqueue%' AND table_name NOT LIKE '%succeeded_jobs_2%' ORDER BY 1, 2"
        )
        columns = cursor.fetchall()
        cursor.execute(
            "SELECT indexdef FROM pg_indexes WHERE tablename LIKE 'pgqueue%' "
            "AND tablename NOT LIKE '%succeeded_jobs_2%' ORDER BY 1"
        )
        indexes = cursor.fetchall()
        cursor.execute("SELECT relname, reloptions FROM pg_class WHERE relname IN ('pgqueue_jobs', 'pgqueue_workers')")
        settings = sorted(cursor.fetchall())
        cursor.execute("SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname LIKE 'pgqueue%' ORDER BY 1")
        return [columns, indexes, settings, cursor.fetchall()]


@pytest.mark.django_db
def test_models_and_migrations_agree():
    call_command("makemigrations", check=True, dry_run=True, stdout=StringIO())


@pytest.mark.django_db
def test_all_tables_are_there():
    assert tables() == {*TABLES, *OTHERS}


@pytest.mark.django_db(transaction=True)
def test_migrating_down_and_up_again_gives_the_same_schema():
    before = describe()
    call_command("migrate", "pgqueue", "zero", verbosity=0)
    try:
        assert tables() == OTHERS
    finally:
        call_command("migrate", "pgqueue", verbosity=0)
    assert describe() == before


@pytest.mark.django_db
def test_sqlmigrate_prints_what_is_run():
    printed = StringIO()
    call_command("sqlmigrate", "pgqueue", "0001", stdout=printed)
    files = [*(Path(migrations.__file__).parent / "sql").iterdir()]
    assert len(files) > 4
    for file in files:
        assert f"-- Run {file.name}\n" in printed.getvalue() or file.stem == "create_succeeded_jobs"
        assert file.read_text() in printed.getvalue()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("app", ["pgqueue_cutover", "pgqueue_outbox"])
def test_other_apps_go_alone(app):
    before = describe()
    call_command("migrate", app, "zero", verbosity=0)
    try:
        assert tables() == {*TABLES, *(name for name in OTHERS if not name.startswith(APP_TABLES[app]))}
    finally:
        call_command("migrate", app, verbosity=0)
    assert describe() == before


@pytest.mark.django_db(databases=["default", "lite", "other"])
def test_other_databases_are_left_alone():
    assert tables("lite") == set()
    assert tables("other") == set()


@pytest.mark.django_db(databases=["default", "lite"], transaction=True)
def test_other_databases_migrate_down_and_up():
    call_command("migrate", "pgqueue", "zero", database="lite", verbosity=0)
    call_command("migrate", "pgqueue", database="lite", verbosity=0)
    assert tables("lite") == set()
    assert tables() == {*TABLES, *OTHERS}


@pytest.mark.django_db
def test_sql_function_tells_queued_from_scheduled(sql):
    [(now_id,)] = sql("SELECT pgqueue_enqueue('shop.send', '[1]', tags => '{a,b}')")
    [(later_id,)] = sql("SELECT pgqueue_enqueue('shop.send', run_at => now() + interval '1 hour', queue => 'mail')")
    assert (Job.objects.get(pk=now_id).status, Job.objects.get(pk=now_id).tags) == ("queued", ["a", "b"])
    assert (Job.objects.get(pk=later_id).status, Job.objects.get(pk=later_id).queue) == ("scheduled", "mail")


@pytest.mark.django_db
def test_sql_function_gives_keys(sql):
    call = "SELECT pgqueue_enqueue('shop.send', unique_key => 'u', concurrency_key => 'c', concurrency_limit => 2)"
    [(job_id,)] = sql(call)
    assert sql(call) == [(job_id,)]
    job = Job.objects.get()
    assert (job.unique_key, job.unique_until, job.status) == ("u", "end", "limited")
    assert (job.concurrency_key, job.concurrency_limit) == ("c", 2)


@pytest.mark.django_db
def test_succeeded_jobs_have_partitions_for_a_week(sql):
    [(count,)] = sql("SELECT count(*) FROM pg_inherits WHERE inhparent = 'pgqueue_succeeded_jobs'::regclass")
    assert count >= 9
    assert SucceededJob.objects.count() == 0
