"""Several databases that hold a queue: migrations, workers of each, and where a job acts that names none."""

import datetime as dt

import pytest
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.db.models.functions import Now
from django.test import override_settings

import tests.app.tasks as app
from django_pgqueue import periodic
from django_pgqueue.conf import conf
from django_pgqueue.models import Job, Schedule, SucceededJob
from django_pgqueue.routers import PgQueueRouter
from django_pgqueue.signals import attempt_ended
from django_pgqueue.states import JobStatus
from django_pgqueue.testing import run_jobs

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


def test_worker_serves_the_database_that_it_is_given(shard):
    at_home, there = app.noop.enqueue(), app.act_here.using(database=shard).enqueue()
    call_command("pgqueue_worker", database=shard, drain=True, verbosity=0)
    assert there.result() == {"job": shard, "following": shard, "is_new": True}
    assert at_home.status() is JobStatus.QUEUED
    assert SucceededJob.objects.using(shard).count() == 2  # the job that it has enqueued, too


def test_task_acts_on_the_database_of_its_job(shard):
    seen = []

    def hear(event, **_):
        seen.append((event.task, event.database))

    attempt_ended.connect(hear)
    try:
        there = app.act_here_atomically.using(database=shard).enqueue()
        here = app.act_here.enqueue()
        assert len(run_jobs()) == len(run_jobs(database=shard)) == 2
    finally:
        attempt_ended.disconnect(hear)
    assert there.result() == shard
    assert here.result() == {"job": "default", "following": "default", "is_new": True}
    assert {database for _, database in seen[:2]} == {"default"}
    assert {database for _, database in seen[2:]} == {shard}


def test_schedules_become_jobs_on_the_first_database_alone(shard, recode, maintenance_runner):
    recode(periodic(every=dt.timedelta(hours=1), name="tick"))
    runners = {alias: maintenance_runner(alias=alias) for alias in ("default", shard)}
    for _ in range(2):
        for alias, runner in runners.items():
            runner.pass_once()
            Schedule.objects.using(alias).update(next_at=Now())
            runner.services.reschedule("enqueue_schedules", 0.0)
    assert Job.objects.count() == 1
    assert not Schedule.objects.using(shard).exists()


def test_worker_refuses_a_database_that_holds_no_queue():
    with pytest.raises(CommandError, match=r"'other' is no database of the queue, which is on 'default': name it"):
        call_command("pgqueue_worker", database="other", skip_checks=True)


def test_router_leaves_a_row_where_it_is(shard):
    router = PgQueueRouter()
    job = Job.objects.using(shard).get(pk=app.noop.using(database=shard).enqueue().id)
    assert router.db_for_write(Job, instance=job) == shard
    assert router.db_for_write(Job) == "default"
    assert router.allow_migrate(shard, "pgqueue") is True
    assert router.allow_migrate(shard, "pgqueue_cutover") is False
    assert router.allow_migrate("lite", "pgqueue") is False


def test_checks_look_at_each_database(shard):
    Job.objects.using(shard).delete()
    assert found([shard]) == []
    call_command("migrate", "pgqueue", "zero", database=shard, verbosity=0)
    call_command("migrate", "pgqueue", "0001", database=shard, fake=True, verbosity=0)
    try:
        [(number, text)] = found(["default", shard])
        assert (number, text[:10]) == ("pgqueue.W007", "On 'other'")
    finally:
        call_command("migrate", "pgqueue", "zero", database=shard, fake=True, verbosity=0)
        call_command("migrate", "pgqueue", database=shard, verbosity=0)


def found(databases: list[str]) -> list[tuple[str, str]]:
    messages = run_checks(tags=["database"], databases=databases)
    return [(one.id, one.msg) for one in messages]


def test_other_ways_to_a_database_are_its_own():
    shards = {"other": {"listen": "direct", "maintenance": "owner"}, "third": {}}
    with override_settings(PGQUEUE={"LISTEN_DATABASE": "l", "MAINTENANCE_DATABASE": "m", "SHARDS": shards}):
        assert [(conf.listen_alias(alias), conf.maintenance_alias(alias)) for alias in conf.databases] == [
            ("l", "m"),
            ("direct", "owner"),
            ("third", "third"),
        ]
