"""Jobs that are not started in time die, wherever they wait, and no other jobs do."""

import datetime as dt

import pytest
from django.db import transaction

import tests.app.tasks as app
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.dead_letter import dead_letter
from django_pgqueue.maintenance import expirer as expiring
from django_pgqueue.maintenance.expirer import expire
from django_pgqueue.models import DeadJob, Job
from django_pgqueue.records import Fate
from tests.support.consumers import cycle
from tests.support.many import enqueued_ids
from tests.support.passes import run_service

HOUR = dt.timedelta(hours=1)


@pytest.fixture
def pass_time(sql):
    """Let the time come at which jobs expire, exactly or but for a minute."""

    def run(*ids, short_by="0"):
        sql("UPDATE pgqueue_jobs SET expires_at = now() + %s::interval WHERE id = ANY (%s)", short_by, list(ids))

    return run


@pytest.mark.parametrize("short_by", ["0", "1 min"], ids=["just over", "not yet"])
def test_job_is_started_until_it_expires_and_not_after(consumer, pass_time, short_by):
    other, job_id = app.noop.enqueue().id, app.noop.using(expires=HOUR).enqueue().id
    pass_time(job_id, short_by=short_by)
    cycle(consumer)
    started = [job.id for _, job in consumer.slots.accepted]
    assert started == ([other] if short_by == "0" else [other, job_id])
    cycle(consumer)
    assert DeadJob.objects.filter(pk=job_id, reason="expired").exists() is (short_by == "0")


def test_claim_that_came_too_late_is_no_attempt(consumer, pass_time):
    job_id = app.noop.using(expires=HOUR).enqueue().id
    pass_time(job_id)
    cycle(consumer)
    cycle(consumer)
    job = DeadJob.objects.get()
    assert (job.pk, job.attempts, job.first_started_at.year) == (job_id, 0, 1970)
    [entry] = job.errors
    assert (entry["kind"], entry["attempt"]) == ("expired", 0)
    assert f"not started by {job.expires_at:%Y-%m-%d %H:%M:%S} UTC" == entry["message"]
    assert len(consumer._in_flight._free) == 4096, "its cell is free again"


def test_retry_that_would_come_too_late_dies_with_its_history(consumer, queue, pass_time):
    job_id = app.noop.using(expires=HOUR).enqueue().id
    cycle(consumer)
    consumer.slots.finish(Fate.RETRIED, error={"kind": "failed", "error": "x"}, delay_seconds=60.0)
    cycle(consumer)
    pass_time(job_id)
    assert expire(queue).dead == 1
    job = DeadJob.objects.get()
    assert (job.reason, job.attempts) == ("expired", 1)
    assert [(entry["kind"], entry["attempt"]) for entry in job.errors] == [("failed", 1), ("expired", 1)]


def test_pass_ends_what_waits_and_nothing_that_runs_or_holds_a_key(queue, pass_time, sql):
    running = app.noop.using(expires=HOUR, priority=9).enqueue().id
    claim(queue, "default", limit=1, worker_id=1)
    queued, held = enqueued_ids(app.noop.using(expires=HOUR), [(), ()])
    later = app.noop.using(expires=HOUR, delay=HOUR).enqueue().id
    waiting = app.noop.using(expires=HOUR, limit_key="k").enqueue().id
    in_time = app.noop.using(expires=HOUR).enqueue().id
    sql("UPDATE pgqueue_jobs SET status = 'reserved' WHERE id = %s", held)
    pass_time(running, queued, held, later, waiting)
    assert expire(queue)[:3] == (3, True, {"k"})
    assert set(DeadJob.objects.values_list("id", flat=True)) == {queued, later, waiting}
    assert set(Job.objects.values_list("id", flat=True)) == {running, held, in_time}


def test_job_that_gets_more_time_while_the_expired_ones_are_looked_for_lives_on(queue, pass_time, sql, monkeypatch):
    """As a call with "later" gives it that has waited for its row since before it expired."""
    job_id, other = (app.noop.using(expires=HOUR).enqueue().id for _ in range(2))
    pass_time(job_id, other)

    def move_and_dead_letter(*args):
        sql("UPDATE pgqueue_jobs SET expires_at = now() + interval '1 hour' WHERE id = %s", job_id)
        return dead_letter(*args)

    monkeypatch.setattr(expiring, "dead_letter", move_and_dead_letter)
    assert expire(queue).dead == 1
    assert DeadJob.objects.get().id == other


def test_expired_job_gives_its_unique_key_up(queue, pass_time):
    first = app.noop.using(expires=HOUR, unique_key="k").enqueue().id
    pass_time(first)
    expire(queue)
    assert app.noop.using(unique_key="k").enqueue().created


def test_pass_takes_a_bounded_slice_and_steps_over_locked_rows(queue, pass_time):
    ids = enqueued_ids(app.noop.using(expires=HOUR), [()] * 30)
    pass_time(*ids)
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=ids[0])
        assert expire(queue, limit=20)[:2] == (19, False)
        assert expire(queue, limit=20)[:2] == (10, True)
    assert expire(queue, limit=20)[:2] == (1, True)


def test_maintenance_ends_all_that_has_expired_and_lets_in_those_behind(queue, pass_time, caplog, maintenance_runner):
    ids = enqueued_ids(app.noop.using(expires=HOUR, limit_key="k"), [()] * 30)
    behind = app.noop.using(limit_key="k").enqueue().id
    called = []
    maintenance = maintenance_runner(wake=called.append)
    run_service(maintenance.services, "read_pending")
    run_service(maintenance.services, "sweep_concurrency")
    run_service(maintenance.services, "admit")
    assert Job.objects.get(status="queued").pk == ids[0]
    pass_time(*ids)
    run_service(maintenance.services, "read_pending")
    maintenance._expirer._expiring.size = 16
    assert run_service(maintenance.services, "expire") == 0.0
    assert run_service(maintenance.services, "expire") >= 4.5
    assert DeadJob.objects.count() == 30
    run_service(maintenance.services, "admit")
    assert Job.objects.get(status="queued").pk == behind
    assert called == [{"default"}, {"default"}]
    assert "Expired: 16 jobs were not started in time" in caplog.text
