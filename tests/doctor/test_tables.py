"""Dead rows and what keeps them, partitions, storage options and clocks: each fault is found, until it is cured."""

import datetime as dt

import pytest
from django.db import connection
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import doctor
from django_pgqueue.doctor import tables
from django_pgqueue.doctor.finding import View
from django_pgqueue.maintenance.vacuum import SnapshotHolder
from tests.support.doctor import diagnosis, found, is_healthy, only
from tests.support.waiting import eventually
from tests.support.worker_rows import forget_others

pytestmark = pytest.mark.django_db

MANY = tables.MANY_DEAD_ROWS


@pytest.mark.django_db(transaction=True)
def test_old_snapshot_is_found_with_whose_it_is(elsewhere, monkeypatch):
    assert not found("old-snapshot")
    monkeypatch.setattr(tables, "OLD_SECONDS", 0)
    finding = only("old-snapshot")
    assert finding.facts["application"] == "report"
    assert finding.facts["user"] == connection.settings_dict["USER"]
    assert "idle in transaction" in finding.what
    assert f"pg_terminate_backend({finding.facts['handle']})" in finding.remedy


@pytest.mark.parametrize(
    ("seconds", "dead", "is_found"),
    [
        (tables.OLD_SECONDS, 0, True),
        (tables.OLD_SECONDS - 1, 10**9, False),
        (None, MANY, True),
        (None, MANY - 1, False),
    ],
)
def test_who_tells_no_time_is_judged_by_the_dead_rows(seconds, dead, is_found, monkeypatch):
    monkeypatch.setattr(tables, "MANY_DEAD_ROWS", MANY)
    holder = SnapshotHolder("1", "replication slot standby_1", "slot", "standby_1", seconds)
    assert tables._is_old(holder, dead) is is_found


@pytest.mark.django_db(transaction=True)
def test_dead_rows_are_found_once_there_are_many(sql, monkeypatch):
    monkeypatch.setattr(tables, "MANY_DEAD_ROWS", 20)

    def dead_rows() -> list[doctor.Finding]:
        app.noop.enqueue_many([()] * 20)
        sql("DELETE FROM pgqueue_jobs")
        sql("SELECT pg_stat_force_next_flush()")
        sql("SELECT 1")
        return found("dead-rows")  # not if an autovacuum, for rows of tests before, has just begun anew

    [finding] = eventually(dead_rows)
    assert finding.facts["dead"] >= 20
    monkeypatch.setattr(tables, "MANY_DEAD_ROWS", 1_000_000)
    assert not found("dead-rows")


def test_days_without_a_partition_are_named(sql):
    [(today,)] = sql("SELECT (statement_timestamp() AT TIME ZONE 'UTC')::date")
    assert not found("partitions-missing")
    sql(f"DROP TABLE IF EXISTS pgqueue_succeeded_jobs_{today + dt.timedelta(7):%Y%m%d}")  # made before midnight?
    assert not found("partitions-missing")
    sql(f"DROP TABLE pgqueue_succeeded_jobs_{today + dt.timedelta(1):%Y%m%d}")
    assert str(today + dt.timedelta(1)) in only("partitions-missing").what


@pytest.mark.django_db(transaction=True)
def test_rows_in_the_default_partition_are_found(sql):
    forget_others(sql)
    assert not found("default-partition")
    sql(
        "INSERT INTO pgqueue_succeeded_jobs (id, succeeded_at, enqueued_at, run_at, first_started_at, started_at, "
        "worker_id, run_seconds, priority, attempts, lost, queue, task, backend, args, kwargs, metadata, errors) "
        "VALUES (1, '2001-01-01', now(), now(), now(), now(), 0, 1, 0, 1, 0, 'q', 't', '', '[]', '{}', '{}', '[]')"
    )
    sql("SELECT pg_stat_force_next_flush()")
    sql("SELECT 1")
    assert only("default-partition").facts == {"rows": 1}


def test_changed_storage_options_are_found(sql):
    sql("ALTER TABLE pgqueue_jobs SET (fillfactor = 90)")
    finding = only("storage-options")
    assert "fillfactor = 90" in finding.what
    assert finding.remedy.endswith("ALTER TABLE pgqueue_jobs SET (fillfactor = 50);")
    sql("ALTER TABLE pgqueue_jobs SET (fillfactor = 50, autovacuum_enabled = off)")
    assert "autovacuum_enabled = on" in only("storage-options").remedy


def test_server_without_autovacuum_is_found(monkeypatch):
    options, _is_on, rows = tables._storage(View("default", []))
    monkeypatch.setattr(tables, "_storage", lambda _view: (options, False, rows))
    assert "no autovacuum" in only("autovacuum-off").what


@pytest.mark.parametrize(("minutes", "word"), [(10.5, "ahead"), (-10.5, "behind")])
def test_clock_that_differs_from_the_databases_is_found(monkeypatch, minutes, word):
    now = timezone.now
    monkeypatch.setattr(tables.timezone, "now", lambda: now() + dt.timedelta(minutes=minutes))
    finding = only("clocks-differ")
    assert word in finding.what
    assert "10 min" in finding.what


@pytest.mark.usefixtures("living")
def test_old_snapshot_is_found_until_its_transaction_ends(request, sql, monkeypatch):
    monkeypatch.setattr(tables, "OLD_SECONDS", 0)
    request.getfixturevalue("elsewhere")
    finding = diagnosis()[0]["old-snapshot"]
    assert finding["facts"]["application"] == "report"
    sql(f"SELECT pg_terminate_backend({finding['facts']['handle']}, 30000)")
    eventually(lambda: is_healthy(sql))


@pytest.mark.usefixtures("living")
def test_dead_rows_are_found_until_a_vacuum(sql, monkeypatch):
    monkeypatch.setattr(tables, "MANY_DEAD_ROWS", 20)

    def dead_rows() -> dict | None:
        app.noop.enqueue_many([()] * 20)
        sql("DELETE FROM pgqueue_jobs")
        sql("SELECT pg_stat_force_next_flush()")
        return diagnosis()[0].get("dead-rows")  # not if an autovacuum, for rows of tests before, has just begun anew

    assert eventually(dead_rows)["facts"]["dead"] >= 20
    sql("VACUUM pgqueue_jobs")
    eventually(lambda: is_healthy(sql))


@pytest.mark.usefixtures("living")
def test_rows_in_the_default_partition_are_found_until_they_are_gone(sql):
    sql(
        "INSERT INTO pgqueue_succeeded_jobs (id, succeeded_at, enqueued_at, run_at, first_started_at, started_at, "
        "worker_id, run_seconds, priority, attempts, lost, queue, task, backend, args, kwargs, metadata, errors) "
        "VALUES (1, '2001-01-01', now(), now(), now(), now(), 0, 1, 0, 1, 0, 'q', 't', '', '[]', '{}', '{}', '[]')"
    )
    sql("SELECT pg_stat_force_next_flush()")
    assert "default-partition" in diagnosis()[0]
    sql("DELETE FROM pgqueue_succeeded_jobs")
    eventually(lambda: is_healthy(sql))


@pytest.mark.usefixtures("living")
def test_clock_that_is_wrong_is_found(sql, monkeypatch):
    now = timezone.now
    with monkeypatch.context() as patch:
        patch.setattr(tables.timezone, "now", lambda: now() + dt.timedelta(minutes=10))
        assert "clocks-differ" in diagnosis()[0]
    eventually(lambda: is_healthy(sql))


@pytest.mark.usefixtures("living")
def test_server_without_autovacuum_is_found_until_it_is_switched_on(sql):
    sql("ALTER SYSTEM SET autovacuum = off")
    try:
        sql("SELECT pg_reload_conf()")
        eventually(lambda: "autovacuum-off" in diagnosis()[0])
    finally:
        sql("ALTER SYSTEM RESET autovacuum")
        sql("SELECT pg_reload_conf()")
    eventually(lambda: is_healthy(sql))


@pytest.mark.usefixtures("living")
def test_claim_that_does_not_use_its_index_is_found_until_it_does(sql):
    sql("ALTER INDEX pgqueue_jobs_claim RENAME TO claims_before")
    sql("CREATE INDEX pgqueue_jobs_claim ON pgqueue_jobs (queue) WHERE status = 'queued'")
    finding = diagnosis()[0]["claim-plan"]
    sql("DROP INDEX pgqueue_jobs_claim")
    sql("ALTER INDEX claims_before RENAME TO pgqueue_jobs_claim")
    assert (finding["level"], finding["facts"]["steps"]) == ("warning", ["Index Scan claims_before"])
    assert "claim-plan" not in diagnosis()[0]
    assert sql("SHOW enable_seqscan") == [("on",)], "settings of workers do not stay"


def test_role_that_may_not_claim_is_not_asked_for_its_plan(sql):
    sql("CREATE ROLE only_reads")
    sql("GRANT SELECT ON ALL TABLES IN SCHEMA public TO only_reads")
    sql("SET LOCAL ROLE only_reads")
    assert list(tables.claim_plan(View("default", []))) == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("contents", ["FOR ALL TABLES", "FOR TABLES IN SCHEMA public", "FOR TABLE pgqueue_jobs"])
def test_publication_with_the_live_table_is_found_until_it_names_others(contents, sql):
    assert not found("queue-in-publication")
    sql(f"CREATE PUBLICATION everything {contents}")
    try:
        finding = only("queue-in-publication")
        assert finding.facts == {"publications": ["everything"]}
        sql("DROP PUBLICATION everything")
        sql("CREATE PUBLICATION everything FOR TABLE pgqueue_dead_jobs")
        assert not found("queue-in-publication")
    finally:
        sql("DROP PUBLICATION everything")
