"""Pruning by age, one by one: succeeded jobs with a time of their own, dead jobs, the default partition."""

import datetime as dt

import pytest
from django.db import transaction

import tests.app.tasks as app
from django_pgqueue import Unique, registry
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.jobs import ack, kill, retry
from django_pgqueue.jobs.claim import claim
from django_pgqueue.maintenance import pruner
from django_pgqueue.maintenance.pruner import (
    PRUNE_SECONDS,
    Prunable,
    PrunedRange,
    Pruner,
    delete_slice,
    look,
    prune_default,
)
from django_pgqueue.models import DeadJob, Job, OnceKey, Stat, SucceededJob
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.services import Service, Services
from tests.support.clock import HALF_PAST, clock_set
from tests.support.many import enqueued_ids

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = dt.timedelta(hours=1)


@pytest.fixture(autouse=True)
def _half_past(transactional_db):
    """Let no test meet the end of an hour, or of a day."""
    with clock_set(HALF_PAST):
        yield


@pytest.fixture(autouse=True)
def no_page_in_the_default_partition(_half_past, sql):
    """What other tests have left there is deleted, and its pages are there still."""
    sql("TRUNCATE pgqueue_succeeded_jobs")


def finish(queue, *jobs: int) -> None:
    claimed = claim(queue, "default", limit=100, worker_id=1)
    assert {job.id for job in claimed} == set(jobs)
    ack.write(queue, [Outcome(job, Fate.SUCCEEDED) for job in claimed])


def age(sql, **hours: int) -> None:
    """Let all that is succeeded or dead, or falls due, be older."""
    passed = dt.timedelta(**hours)
    sql("UPDATE pgqueue_succeeded_jobs SET prune_at = prune_at - %s", passed)
    sql("UPDATE pgqueue_dead_jobs SET died_at = died_at - %s", passed)


def die(number: int = 1) -> list[int]:
    ids = enqueued_ids(app.noop, [()] * number)
    assert len(kill(ids, by="test").dead) == number
    return ids


# Succeeded jobs with a time of their own


@pytest.mark.parametrize("keep", [HOUR, 3600, 3599.5])
def test_finished_job_is_kept_for_as_long_as_its_call_said(queue, sql, keep):
    brief, usual = app.noop.using(keep_for=keep).enqueue().id, app.noop.enqueue().id
    finish(queue, brief, usual)
    succeeded = SucceededJob.objects.get(pk=brief)
    assert succeeded.prune_at - succeeded.succeeded_at == HOUR
    age(sql, minutes=59)
    assert (look(queue, dead_days=None, stats_days=7), delete_slice(queue, "prune_timed", limit=100)) == (
        Prunable(False, False, False, False),
        0,
    )
    age(sql, minutes=1)
    assert look(queue, dead_days=None, stats_days=7) == Prunable(True, False, False, False)
    assert delete_slice(queue, "prune_timed", limit=100) == 1
    assert SucceededJob.objects.get().pk == usual
    assert not look(queue, dead_days=None, stats_days=7).timed


def test_task_says_how_long_its_jobs_are_kept_and_a_worker_that_does_not_know_it_prunes_them(queue, sql):
    job_id = app.kept_for_an_hour.enqueue().id
    finish(queue, job_id)
    Job.objects.create(task="unknown.task", keep_seconds=1)
    finish(queue, Job.objects.get().pk)
    assert registry.find("unknown.task") is None
    age(sql, hours=1)
    assert delete_slice(queue, "prune_timed", limit=100) == 2


@pytest.mark.parametrize(
    "options",
    [{"unique_key": "k", "unique": Unique(hold=60)}, {"limit_key": "k"}, {"fair_key": "k"}, {"expires": 60}],
    ids=str,
)
def test_time_of_its_own_goes_with_a_job_whatever_becomes_of_it(queue, sql, options):
    """Enqueued with keys, killed, retried, and succeeded, also with a reserved row."""
    job_id = app.noop.using(keep_for=HOUR, **options).enqueue().id
    assert Job.objects.get().keep_seconds == 3600
    assert kill([job_id], by="ann").dead == [job_id]
    assert DeadJob.objects.get().keep_seconds == 3600
    assert retry([job_id], by="ann").ids == [job_id]
    sql("UPDATE pgqueue_jobs SET status = 'queued', concurrency_slot = concurrency_limit")
    finish(queue, job_id)
    succeeded = SucceededJob.objects.get()
    assert succeeded.prune_at - succeeded.succeeded_at == HOUR


def test_many_calls_are_kept_as_one_is(queue):
    app.noop.using(keep_for=HOUR).enqueue_many([(), ()])
    assert set(Job.objects.values_list("keep", "keep_seconds")) == {(True, 3600)}
    assert {app.noop.using(keep_result=keep).options.keep_seconds for keep in (True, False)} == {None}


def test_locked_rows_are_stepped_over_and_a_slice_is_as_large_as_was_said(queue, sql):
    ids = enqueued_ids(app.noop.using(keep_for=1), [()] * 5)
    finish(queue, *ids)
    age(sql, hours=1)
    with transaction.atomic():
        SucceededJob.objects.select_for_update().get(pk=ids[0])
        assert delete_slice(queue, "prune_timed", limit=3) == 3
        assert delete_slice(queue, "prune_timed", limit=3) == 1
        assert delete_slice(queue, "prune_timed", limit=3) == 0
    assert delete_slice(queue, "prune_timed", limit=3) == 1


# Dead jobs


def test_dead_jobs_are_pruned_from_the_oldest_on_where_the_settings_say_so(queue, sql):
    old = die(4)
    age(sql, days=1)
    middle = die()
    age(sql, days=1, minutes=1)
    new = die()
    assert not look(queue, dead_days=None, stats_days=7).dead
    assert not look(queue, dead_days=3, stats_days=7).dead
    assert look(queue, dead_days=1, stats_days=7).dead
    assert delete_slice(queue, "prune_dead", days=2, limit=3) == 3
    assert delete_slice(queue, "prune_dead", days=2, limit=3) == 1
    assert delete_slice(queue, "prune_dead", days=2, limit=3) == 0
    assert set(DeadJob.objects.values_list("pk", flat=True)) == {*middle, *new}
    assert not DeadJob.objects.filter(pk__in=old)


def test_dead_job_that_is_just_being_retried_is_left_alone(queue, sql):
    [job_id] = die()
    age(sql, days=9)
    with transaction.atomic():
        assert retry([job_id], by="ann").ids == [job_id]
        assert delete_slice(queue, "prune_dead", days=1, limit=10) == 0
    assert Job.objects.get().pk == job_id


# The default partition


def put_into_default(sql, rows: int, *, days: int) -> None:
    sql(
        "INSERT INTO pgqueue_succeeded_jobs_default (id, succeeded_at, enqueued_at, run_at, first_started_at, "
        "started_at, worker_id, run_seconds, priority, attempts, lost, queue, task, backend, args, kwargs, metadata, "
        "errors) SELECT number, date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' - %s * interval '1 day',"
        " now(), now(), now(), now(), 1, 0, 0, 1, 0, 'default', 'x', '', jsonb_build_array(repeat('x', 1500)), '{}', "
        "'{}', '[]' FROM generate_series(1, %s) AS number",
        days,
        rows,
    )


def go_through(queue, *, retention_days: int) -> tuple[int, int]:
    """Go through the default partition once; return how many rows were removed in how many stretches."""
    removed, stretches, page = 0, 0, 0
    while page is not None:
        stretch = prune_default(queue, retention_days=retention_days, page=page)
        removed, stretches, page = removed + stretch.removed, stretches + 1, stretch.next_page
    return removed, stretches


def test_default_partition_is_pruned_by_whole_days_stretch_by_stretch(queue, sql):
    assert prune_default(queue, retention_days=7, page=0) == PrunedRange(0, None)
    put_into_default(sql, 700, days=30)  # five to a page
    put_into_default(sql, 1, days=7)
    put_into_default(sql, 5, days=2)
    assert look(queue, dead_days=None, stats_days=7).default
    first = prune_default(queue, retention_days=7, page=0)
    assert (first.next_page, 0 < first.removed < 700) == (pruner.STRETCH, True)
    assert go_through(queue, retention_days=7) == (700 - first.removed, 3)
    assert go_through(queue, retention_days=6) == (1, 3), "a day that began as many days ago is kept whole"
    with transaction.atomic():
        sql("SELECT 1 FROM pgqueue_succeeded_jobs_default WHERE id = 1 FOR UPDATE")
        assert go_through(queue, retention_days=1) == (4, 3)
    assert go_through(queue, retention_days=1) == (1, 3)


# When a worker does it


def test_worker_prunes_all_kinds_as_long_as_there_is_more_and_then_looks_no_sooner_than_after_a_minute(
    queue, sql, settings, caplog
):
    caplog.set_level("INFO")
    settings.PGQUEUE = {"DEAD_RETENTION_DAYS": 1}
    ids = enqueued_ids(app.noop.using(keep_for=1), [()] * 50)
    finish(queue, *ids)
    die(3)
    put_into_default(sql, 700, days=30)
    age(sql, days=2)
    services = Services(Service("prune", Pruner(queue).pass_once, every=PRUNE_SECONDS))
    while services.pass_once() == 0.0:
        pass
    assert not SucceededJob.objects.exists()
    assert not DeadJob.objects.exists()
    assert {"Pruned 50 succeeded jobs", "Pruned 3 dead jobs"} <= set(caplog.messages)
    die()
    age(sql, days=2)
    services.pass_once()
    assert DeadJob.objects.count() == 1


def test_dead_jobs_stay_by_default(queue, sql):
    die()
    age(sql, days=10_000)
    assert Pruner(queue).pass_once() is None
    assert DeadJob.objects.count() == 1


def test_role_that_may_not_remove_jobs_is_told_so_where_there_are_any(queue, sql, settings, caplog):
    settings.PGQUEUE = {"DEAD_RETENTION_DAYS": 1}
    sql("DROP ROLE IF EXISTS pgqueue_lesser")
    sql("CREATE ROLE pgqueue_lesser")
    tables = "pgqueue_dead_jobs, pgqueue_succeeded_jobs, pgqueue_stats, pgqueue_bulk_actions, pgqueue_once_keys"
    tables += ", pgqueue_workflows"
    sql(f"GRANT SELECT ON {tables} TO pgqueue_lesser")
    lesser = QueueConnection("default", "lesser")
    lesser.autocommit().execute("SET ROLE pgqueue_lesser")
    pruning = Pruner(lesser)
    assert pruning.pass_once() is None
    assert caplog.text == ""
    die()
    age(sql, days=2)
    assert pruning.pass_once() == pruner.REFUSED_SECONDS
    assert "Jobs cannot be pruned by age: permission denied for table pgqueue_dead_jobs" in caplog.text
    sql("GRANT UPDATE, DELETE ON pgqueue_dead_jobs TO pgqueue_lesser")
    sql("INSERT INTO pgqueue_bulk_actions (action, source, by, ended_at) VALUES ('kill', 'live', 'ann', '2001-01-01')")
    assert pruning.pass_once() == pruner.REFUSED_SECONDS
    assert "permission denied for table pgqueue_bulk_actions" in caplog.text
    assert not DeadJob.objects.exists(), "what it may remove goes all the same"
    lesser.close()
    sql("DROP OWNED BY pgqueue_lesser")
    sql("DROP ROLE pgqueue_lesser")


# Counts


OLD = (
    "INSERT INTO pgqueue_stats (minute, queue, task) SELECT date_trunc('hour', now()) - interval '7 days' "
    "+ make_interval(mins => n), 'q', 't' FROM generate_series(-%s, 0) AS n"
)


def test_counts_are_pruned_by_the_hour_and_younger_ones_stay(queue, sql):
    sql(OLD, 90)
    assert look(queue, dead_days=None, stats_days=7) == Prunable(False, False, False, True)
    assert delete_slice(queue, "prune_stats", days=7, limit=50) == 50
    assert Stat.objects.order_by("minute")[0].minute.minute == 20, "the oldest go first"
    assert delete_slice(queue, "prune_stats", days=7, limit=50) == 40
    assert Stat.objects.count() == 1
    assert not look(queue, dead_days=None, stats_days=7).stats


def test_worker_prunes_counts_for_as_long_as_the_settings_say(queue, sql, settings, caplog):
    sql(OLD, 90)
    settings.PGQUEUE = {"STATS_DAYS": 8}
    caplog.set_level("INFO")
    pruning = Pruner(queue)
    assert pruning.pass_once() is None
    assert Stat.objects.count() == 91
    settings.PGQUEUE = {}
    pruning.pass_once()
    assert Stat.objects.count() == 1
    assert "Pruned 90 rows of counts" in caplog.messages


# Keys of once()


def test_once_keys_are_pruned_by_age_and_younger_ones_stay(queue, sql, settings, caplog):
    sql("INSERT INTO pgqueue_once_keys SELECT 'old ' || n, now() - interval '8 days' FROM generate_series(1, 60) AS n")
    sql("INSERT INTO pgqueue_once_keys (key) VALUES ('new')")
    assert not look(queue, dead_days=None, stats_days=7, once_days=9).once_keys
    assert look(queue, dead_days=None, stats_days=7, once_days=7).once_keys
    assert delete_slice(queue, "prune_once_keys", days=7, limit=50) == 50
    caplog.set_level("INFO")
    Pruner(queue).pass_once()
    assert OnceKey.objects.count() == 11, "30 days by default"
    settings.PGQUEUE = {"ONCE_DAYS": 7}
    Pruner(queue).pass_once()
    assert OnceKey.objects.get().key == "new"
    assert "Pruned 10 once keys" in caplog.messages
