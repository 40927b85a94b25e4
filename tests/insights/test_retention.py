"""Partitions, jobs that go one by one, and the live table: kept for how long, in text and in JSON."""

import datetime as dt
import json

import pytest

import tests.app.tasks as app
from django_pgqueue.insights import retention
from django_pgqueue.insights.retention import remedy
from django_pgqueue.jobs import kill
from django_pgqueue.maintenance.vacuum import SnapshotHolder, oldest_snapshot
from tests.support.many import enqueued_ids
from tests.support.retention import finish, row_of, run
from tests.support.waiting import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("noon")]


def test_it_tells_of_each_partition_what_the_next_pass_does(queue, sql, today, old_partition):
    sql(f"DROP TABLE pgqueue_succeeded_jobs_{today + dt.timedelta(7):%Y%m%d}")
    finish(queue, app.noop.enqueue().id)
    sql("SELECT pg_stat_force_next_flush()")
    sql(f"ANALYZE pgqueue_succeeded_jobs_{today:%Y%m%d}")
    text = run()
    assert text.startswith(
        "Succeeded jobs are kept for 7 days in addition to today.\nDead jobs are kept until they are purged"
    )
    assert row_of(text, "partition").split() == ["partition", "rows", "size", "age", "next", "pass"]
    assert row_of(text, today - dt.timedelta(9)).split()[1] == "~0"
    assert row_of(text, today - dt.timedelta(9)).endswith("  9 days     is dropped")
    assert row_of(text, today).split()[1:2] == ["~1"]
    assert row_of(text, today).endswith("  today      stays")
    assert row_of(text, today + dt.timedelta(1)).endswith("  in 1 day   stays")
    assert row_of(text, today + dt.timedelta(7)).split() == f"{today + dt.timedelta(7)} - - in 7 days is made".split()
    assert row_of(text, "default").endswith("stays")


def test_it_tells_of_what_goes_one_by_one(queue, sql, today, settings, monkeypatch):
    monkeypatch.setattr(retention, "CAP", 2)
    settings.PGQUEUE = {"DEAD_RETENTION_DAYS": 30, "RETENTION_DAYS": 1}
    ids = enqueued_ids(app.noop, [()] * 3)
    kill(ids, by="test")
    sql("UPDATE pgqueue_dead_jobs SET died_at = '2020-01-01 12:00+00'")
    finish(queue, *enqueued_ids(app.noop.using(keep_for=3600), [()] * 2))
    sql("UPDATE pgqueue_succeeded_jobs SET prune_at = now() WHERE id = (SELECT min(id) FROM pgqueue_succeeded_jobs)")
    finish(queue, app.noop.enqueue().id)
    sql("UPDATE pgqueue_succeeded_jobs SET succeeded_at = succeeded_at - interval '3 days' WHERE prune_at IS NULL")
    text = run()
    assert "Dead jobs are kept for 30 days." in text
    assert "Dead jobs: 2+ (" in text
    assert "the first died at 2020-01-01 13:00:00. The next pass removes 2+." in text
    assert "Succeeded jobs with a time of their own: 2. The next pass removes 1." in text
    assert "\n  tests.app.tasks.kept_for_an_hour: kept for 1 h\n" in text
    assert row_of(text, "default").endswith("1 rows are removed")


def test_it_tells_how_the_live_table_is_cared_for(queue, sql, settings, today):
    settings.PGQUEUE = {"VACUUM_DEAD_ROWS": 12_345}
    sql("VACUUM pgqueue_jobs")
    text = run()
    assert "workers VACUUM it from 12,345 dead rows on." in text
    assert "Last VACUUM: 2" in text
    settings.PGQUEUE = {"VACUUM_DEAD_ROWS": 0, "RETENTION_DAYS": 0}
    text = run()
    assert "workers leave VACUUM to others." in text
    assert "Succeeded jobs are not kept." in text


def test_it_names_who_holds_the_oldest_snapshot_and_how_to_end_it(queue, sql, today, other_queue):
    held = other_queue.autocommit()
    held.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    held.execute("SELECT 'a report'")
    eventually(lambda: oldest_snapshot(queue).name.endswith("(pgqueue other test)"))
    pid = held.info.backend_pid
    eventually(lambda: f"is held by process {pid} (pgqueue other test), for " in run())
    assert f"To end it: SELECT pg_terminate_backend({pid});" in run()
    told = json.loads(run("--json"))["jobs"]["horizon"]
    assert (told["kind"], told["handle"], told["name"]) == ("session", str(pid), f"process {pid} (pgqueue other test)")
    sql(f"SELECT pg_terminate_backend({pid})")
    eventually(lambda: f"process {pid}" not in run())


@pytest.mark.parametrize(
    ("kind", "handle", "words"),
    [
        ("session", "17", "SELECT pg_terminate_backend(17);"),
        ("slot", "old's", "SELECT pg_drop_replication_slot('old''s');"),
        ("prepared", "x", "COMMIT PREPARED 'x' or ROLLBACK PREPARED 'x'"),
        ("standby", "17", "hot_standby_feedback"),
    ],
)
def test_each_holder_has_its_remedy(kind, handle, words):
    assert words in remedy(SnapshotHolder("700", "it", kind, handle, None))


def test_json_says_all_of_it(queue, sql, today, old_partition):
    kill([app.noop.enqueue().id], by="test")
    told = json.loads(run("--json"))
    assert (told["retention_days"], told["dead_retention_days"], told["to_make"]) == (7, None, [])
    by_name = {partition["name"]: partition for partition in told["partitions"]}
    assert by_name[old_partition]["next_pass"] == "drop"
    assert by_name["pgqueue_succeeded_jobs_default"]["is_default"]
    assert by_name[f"pgqueue_succeeded_jobs_{today:%Y%m%d}"]["next_pass"] == "keep"
    assert (told["dead_jobs"]["count"], told["dead_jobs"]["due"]) == (1, 0)
    assert told["timed"]["tasks"]["tests.app.tasks.kept_for_an_hour"] == 3600
    assert told["jobs"]["bytes"] > 0
