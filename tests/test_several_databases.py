"""Several databases that hold a queue: migrations, workers of each, and where a job acts that names none."""

import contextlib
import datetime as dt
import io
import json

import pytest
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from django.db.models.functions import Now
from django.test import override_settings

import tests.app.tasks as app
from django_pgqueue import chain, enqueue_many, jobs, periodic, queues, workflows
from django_pgqueue.cli.arguments import check_number
from django_pgqueue.conf import conf
from django_pgqueue.db.queries import numbering
from django_pgqueue.exceptions import (
    ConfigurationError,
    InvalidOption,
    InvalidWorkflow,
    JobDoesNotExist,
    WorkflowDoesNotExist,
)
from django_pgqueue.framework import task_backends
from django_pgqueue.models import Job, Queue, Schedule, SucceededJob
from django_pgqueue.outbox.models import OutboxCall
from django_pgqueue.outbox.relay import Relay
from django_pgqueue.outbox.writing import job_id_of
from django_pgqueue.routers import PgQueueRouter
from django_pgqueue.signals import attempt_ended
from django_pgqueue.states import JobStatus
from django_pgqueue.testing import run_jobs
from tests.app import contract

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
    shards = {"other": {"number": 1, "listen": "direct", "maintenance": "owner"}, "third": {"number": 2}}
    with override_settings(PGQUEUE={"LISTEN_DATABASE": "l", "MAINTENANCE_DATABASE": "m", "SHARDS": shards}):
        assert [(conf.listen_alias(alias), conf.maintenance_alias(alias)) for alias in conf.databases] == [
            ("l", "m"),
            ("direct", "owner"),
            ("third", "third"),
        ]


# Ids


FIRST = 2**48 + 1


def test_ids_name_their_database(shard):
    here, there = app.noop.enqueue(), app.noop.using(database=shard).enqueue()
    others = enqueue_many([app.noop.using(database=shard).bind()] * 2)
    assert [there.id, *(one.id for one in others)] == [FIRST, FIRST + 1, FIRST + 2]
    assert here.id < 2**47
    assert [jobs.get(one.id).database for one in (here, there)] == ["default", shard]
    assert jobs.get(str(there.id)).status() is JobStatus.QUEUED
    assert jobs.get(there.id, database="default").database == "default"  # as it is said


def test_actions_find_the_database_of_their_jobs(shard):
    here, there = app.noop.enqueue(), app.noop.using(database=shard).enqueue()
    assert jobs.kill([there.id]).dead == [there.id]
    assert jobs.retry([there]).ids == [there.id]
    assert jobs.move([str(there.id)], queue="mail") == [there.id]
    assert there.state().queue == "mail"
    with pytest.raises(ValueError, match=rf"^{here.id} is a job on 'default', and {there.id} on 'other': name"):
        jobs.kill([here.id, there.id])
    assert jobs.kill([]).dead == []


def test_workflows_are_on_one_database_which_their_ids_name(shard):
    there = chain(app.record.using(database=shard).bind("a"), app.act_here.using(database=shard).bind(), database=shard)
    begun, here = there.enqueue(), chain(app.record.bind("b")).enqueue()
    assert begun.id == 2**42 + 1
    assert [workflows.get(one.id).database for one in (begun, here)] == [shard, "default"]
    run_jobs(database=shard)
    assert workflows.get(begun.id).status() == "succeeded"
    with pytest.raises(WorkflowDoesNotExist, match="its database would be none in PGQUEUE"):
        workflows.get(7 * 2**42)


def test_workflow_of_a_task_is_on_the_database_of_its_job(shard):
    begun = app.begin_workflow.using(database=shard).enqueue()
    run_jobs(database=shard)
    assert workflows.get(begun.result()).state().status == "succeeded"


def test_child_is_on_the_database_of_its_parent(shard):
    chain(app.begin_child_elsewhere.using(database=shard).bind("default"), database=shard).enqueue()
    with pytest.raises(
        InvalidWorkflow, match="A child is on the database of its parent, 'other', and the workflow 'cha"
    ):
        run_jobs(database=shard)


def test_id_with_the_number_of_no_database_is_told(shard):
    unknown = 7 * 2**48 + 12
    for ask in (lambda: jobs.get(unknown), lambda: jobs.kill([unknown])):
        with pytest.raises(JobDoesNotExist, match=rf"no job {unknown}: it would be on the database with the number 7"):
            ask()
    with pytest.raises(CommandError, match="it would be on the database with the number 7"):
        call_command("pgqueue_jobs", "show", str(unknown))
    for strange in (0, -1):
        with pytest.raises(JobDoesNotExist, match=f"There is no job {strange}:"):
            jobs.get(strange).state()


def test_commands_find_the_database_of_a_job(shard):
    there, here = app.noop.using(database=shard).enqueue(), app.noop.enqueue()
    printed = io.StringIO()
    call_command("pgqueue_jobs", "show", str(there.id), "--json", stdout=printed)
    assert json.loads(printed.getvalue())["id"] == there.id
    call_command("pgqueue_jobs", "kill", str(there.id), "--yes", verbosity=0, stdout=printed, stderr=printed)
    assert there.status() is JobStatus.DEAD
    with pytest.raises(CommandError, match="The jobs are on 'other' and 'default': name those of each by themselves"):
        call_command("pgqueue_jobs", "retry", str(there.id), str(here.id))


def test_result_of_the_framework_is_found_by_its_id(shard):
    there = contract.add.using(backend="default").native.using(database=shard).enqueue(1, 2)
    assert task_backends["default"].get_result(str(there.id)).job == there


def test_alias_that_leads_to_another_database_is_refused(shard, settings):
    settings.PGQUEUE = settings.PGQUEUE | {"SHARDS": {"other": {"number": 2}}}
    said = "New ids of jobs on other begin with the number 1, and its number in SHARDS is 2. Correct PGQUEUE"
    with pytest.raises(CommandError, match=said) as caught:
        call_command("pgqueue_worker", database=shard, skip_checks=True)
    [(number, text)] = found([shard])
    assert number == "pgqueue.W013"
    assert said.startswith(text.removeprefix("On 'other': "))
    with connections[shard].cursor() as cursor:
        cursor.execute(str(caught.value).split("no job has an id from there yet: ")[1].removesuffix(";"))
        assert found([shard]) == []
        assert app.noop.using(database=shard).enqueue().id == 2 * 2**48 + 1
        cursor.execute("TRUNCATE pgqueue_jobs")
        cursor.execute(numbering("pgqueue_jobs", 1))


def test_first_database_may_have_another_number(settings):
    settings.PGQUEUE = settings.PGQUEUE | {"SHARDS": {"default": {"number": 3}, "other": {"number": 0}}}
    assert conf.databases == ("default", "other")
    assert [conf.database_of(job_id) for job_id in (3 * 2**48 + 1, 1)] == ["default", "other"]


def test_shard_without_a_number_makes_no_tables(settings):
    settings.PGQUEUE = settings.PGQUEUE | {"SHARDS": {"other": {}}}
    with pytest.raises(ConfigurationError, match=r"PGQUEUE\['SHARDS'\]\['other'\] has no number from 0 to 31, with wh"):
        jobs.get(FIRST)


def test_one_database_looks_at_no_number(django_assert_num_queries):
    assert jobs.get(FIRST).database == "default"
    with django_assert_num_queries(0):
        check_number("default")


# Queues on one of them


@pytest.fixture
def mail(shard, settings):
    """Let the queue of this name be on the shard."""
    settings.PGQUEUE = settings.PGQUEUE | {"SHARDS": {shard: {"number": 1, "queues": ["mail"]}}}


def test_queue_is_on_the_database_that_the_settings_say(shard, mail):
    mailed, other = app.noop.using(queue="mail").enqueue(), app.noop.enqueue()
    assert (mailed.database, other.database) == (shard, "default")
    assert app.noop.using(queue="mail", database="default").enqueue().database == "default"
    assert [one.database for one in app.noop.using(queue="mail").enqueue_many([(), ()])] == [shard] * 2
    with pytest.raises(InvalidOption, match=r"is enqueued on 'other', tests.app.tasks.noop on 'default'"):
        enqueue_many([app.noop.using(queue="mail").bind(), app.noop.bind()])


def test_queue_on_another_database_is_paused_and_limited_there(shard, mail):
    assert queues.pause("mail", reason="test")
    queues.limit("mail", max_running=1)
    [row] = Queue.objects.using(shard).filter(name="mail")
    assert row.paused_at
    assert row.max_running == 1
    assert not Queue.objects.filter(name="mail").exists()
    call_command("pgqueue_queues", "resume", "mail", stdout=io.StringIO())
    assert not Queue.objects.using(shard).get(name="mail").paused_at
    call_command("pgqueue_queues", "pause", "mail", "default", stdout=io.StringIO())
    assert Queue.objects.using(shard).get(name="mail").paused_at
    assert Queue.objects.get(name="default").paused_at
    assert not Queue.objects.filter(name="mail").exists()


def test_job_goes_to_the_database_of_its_queue_by_an_outbox_too(shard, mail, settings):
    settings.PGQUEUE = settings.PGQUEUE | {"OUTBOXES": {"default": 0}}
    with transaction.atomic():
        handle = app.record.using(queue="mail").enqueue("x")
    assert handle.id == job_id_of(1, 0, OutboxCall.objects.get().pk)
    call_command("migrate", "pgqueue_outbox", "zero", database=shard, fake=True, verbosity=0)
    call_command("migrate", "pgqueue_outbox", database=shard, verbosity=0)
    try:
        with contextlib.closing(Relay(shard, "default")) as relay:
            relay.pass_once()
        assert jobs.get(handle.id).state().queue == "mail"
        assert Job.objects.using(shard).get().pk == handle.id
    finally:
        call_command("migrate", "pgqueue_outbox", "zero", database=shard, verbosity=0)
        call_command("migrate", "pgqueue_outbox", database=shard, fake=True, verbosity=0)
