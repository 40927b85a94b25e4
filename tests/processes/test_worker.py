"""Real workers doing real work: the ordinary paths."""

import datetime as dt
import gc
import multiprocessing
import os
from collections import Counter

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections, transaction
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue.jobs import kill
from django_pgqueue.models import DeadJob, Job, SucceededJob, Worker
from tests.app.models import Mark
from tests.support.many import enqueued_ids
from tests.support.needs import NO_POOLER
from tests.support.waiting import LONG_PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


def test_four_processes_run_five_thousand_jobs_once_each(start_worker):
    ids = enqueued_ids(app.record_beside_another.using(priority=1), [()] * 4)  # all the first one can run at a time
    ids += enqueued_ids(app.record, [(str(number),) for number in range(5_000)])
    worker = start_worker("--processes", "4", "--concurrency", "4", "--drain", afresh=True)
    assert worker.wait(seconds=LONG_PATIENCE_SECONDS) == 0, worker.text()
    runs = Counter(Mark.objects.values_list("job_id", flat=True))
    assert set(runs) == set(ids)
    assert set(runs.values()) == {1}
    assert len(set(Mark.objects.values_list("pid", flat=True))) > 1
    assert Job.objects.count() == 0
    assert SucceededJob.objects.count() == 5_004
    assert Worker.objects.count() == 0


def test_every_death_is_told_once(start_worker):
    lost = app.kill_the_process.using(max_attempts=1).enqueue().id  # alone: a process that is killed tells of no other
    first = start_worker("--drain", afresh=True, TELL_OF_DEATHS="yes")
    assert first.wait() == 0, first.text()
    expired = app.noop.using(expires=3600).enqueue().id
    Job.objects.filter(pk=expired).update(expires_at=timezone.now() - dt.timedelta(seconds=1))
    discarded, exited = app.discard.enqueue().id, app.call_exit.enqueue().id
    failed = app.fail.using(max_attempts=1).enqueue().id
    second = start_worker("--drain", afresh=True, TELL_OF_DEATHS="yes")
    assert second.wait() == 0, second.text()
    dead = {lost: "lost", expired: "expired", discarded: "discarded", failed: "exhausted", exited: "exhausted"}
    assert dict(DeadJob.objects.values_list("id", "reason")) == dead
    told = Mark.objects.filter(pid=0).values_list("job_id", "label")
    assert sorted(told) == sorted([*dead.items(), (discarded, "of <Task tests.app.tasks.discard>")])


def test_every_kind_of_job_ends_where_it_should(start_worker):
    recorded = app.record.enqueue("x").id
    coroutine = app.arecord.enqueue("x").id
    atomic = app.record_atomic.enqueue("x").id
    failed = app.fail.enqueue("no luck").id
    lucky = app.fail_until.enqueue(3).id
    discarded = app.discard.enqueue().id
    exited = app.call_exit.enqueue().id
    later = app.snooze.enqueue(0).id
    unkept = app.unkept.enqueue().id
    old_name = app.renamed.enqueue().id
    Job.objects.filter(pk=old_name).update(task="tests.app.tasks.old_name")
    unknown = app.noop.enqueue().id
    Job.objects.filter(pk=unknown).update(task="tests.app.tasks.gone")
    worker = start_worker("--drain", afresh=True)
    assert worker.wait() == 0, worker.text()

    succeeded = SucceededJob.objects.in_bulk()
    assert succeeded.keys() == {recorded, coroutine, atomic, lucky, later, old_name}
    assert succeeded[recorded].result == succeeded[coroutine].result == "recorded x"
    assert (succeeded[lucky].attempts, [e["attempt"] for e in succeeded[lucky].errors]) == (3, [1, 2])
    assert succeeded[later].attempts == 1
    dead = DeadJob.objects.in_bulk()
    assert {job_id: job.reason for job_id, job in dead.items()} == {
        failed: "exhausted",
        discarded: "discarded",
        exited: "exhausted",
    }
    assert (dead[failed].attempts, [e["message"] for e in dead[failed].errors]) == (3, ["no luck"] * 3)
    assert "raise ValueError(message)" in dead[failed].errors[0]["traceback"]
    assert dead[exited].errors[0]["error"] == "SystemExit"
    assert Mark.objects.filter(job_id=unkept).count() == 1
    assert (Job.objects.get().id, Job.objects.get().status, Job.objects.get().attempts) == (unknown, "scheduled", 0)
    assert "Unknown task tests.app.tasks.gone" in worker.text()


def test_worker_serves_the_named_queues_only_and_in_their_order(start_worker):
    for queue in ("low", "other", "high"):
        app.record.using(queue=queue).enqueue(queue)
    assert start_worker("--queue", "high,low", "--concurrency", "1", "--drain").wait() == 0
    assert list(Mark.objects.order_by("id").values_list("label", flat=True)) == ["high", "low"]
    assert Job.objects.get().queue == "other"


def test_transaction_a_job_leaves_open_is_rolled_back_and_the_next_job_is_clean(start_worker):
    app.leave_transaction_open.using(priority=1).enqueue()
    app.record.enqueue("next")
    worker = start_worker("--concurrency", "1", "--drain")
    assert worker.wait() == 0
    assert list(Mark.objects.order_by("id").values_list("label", flat=True)) == ["before", "next"]
    assert "A job left a transaction open on 'default'; it is rolled back" in worker.text()


@pytest.mark.skipif("THROUGH_PGBOUNCER" in os.environ, reason=NO_POOLER)
def test_slots_keep_their_connection_between_jobs(start_worker):
    app.backend_pid.enqueue_many([()] * 30)
    assert start_worker("--concurrency", "1", "--drain").wait() == 0
    assert len(set(SucceededJob.objects.values_list("result", flat=True))) == 1


def test_idle_worker_is_woken_for_queued_and_for_scheduled_jobs(start_worker):
    worker = start_worker().wait_until_ready()
    assert "LISTEN on" in worker.text()
    with transaction.atomic():
        app.record.enqueue("now")
        app.record.using(delay=dt.timedelta(seconds=0.5)).enqueue("soon")
    eventually(lambda: Mark.objects.filter(label="now").exists())
    eventually(lambda: Mark.objects.filter(label="soon").exists())
    soon = SucceededJob.objects.filter(args=["soon"])
    assert eventually(soon.first).started_at >= soon.get().run_at


def test_polling_finds_jobs_that_were_not_announced(start_worker, sql):
    worker = start_worker("--poll-only").wait_until_ready()
    assert "LISTEN off, polling every 1 s" in worker.text()
    sql("INSERT INTO pgqueue_jobs (task, args) VALUES ('tests.app.tasks.record', '[\"sql\"]')")
    sql(
        "INSERT INTO pgqueue_jobs (task, args, run_at) "
        "VALUES ('tests.app.tasks.record', '[\"later\"]', statement_timestamp() + interval '2 s')"
    )
    eventually(lambda: Mark.objects.filter(label="sql").exists())
    eventually(lambda: Mark.objects.filter(label="later").exists())
    later = eventually(SucceededJob.objects.filter(args=["later"]).first)
    assert later.started_at >= later.run_at


@pytest.mark.parametrize("task", [app.until_kill_requested, app.asleep], ids=["sync", "async"])
def test_killing_a_running_job_reaches_it(start_worker, task):
    start_worker().wait_until_ready()
    handle = task.using(max_attempts=1).enqueue(60)
    eventually(lambda: Mark.objects.filter(label="start").exists())
    assert kill([handle.id], by="eve").requested == [handle.id]
    dead = eventually(DeadJob.objects.filter(pk=handle.id).first)
    assert (dead.killed_by, dead.reason) == ("eve", "killed")


def test_coroutines_run_at_once_with_connections_of_their_own(start_worker, tmp_path):
    go = tmp_path / "go"
    app.auntil_exists.using(max_attempts=1).enqueue_many([(str(go),)] * 20)
    start_worker("--concurrency", "20").wait_until_ready()
    eventually(lambda: Mark.objects.filter(label="start").count() == 20)
    go.touch()
    eventually(lambda: Mark.objects.filter(label="end").count() == 20)


def test_banner_names_database_queues_and_concurrency(start_worker):
    worker = start_worker("--queue", "mail,default", "--processes", "2", "--concurrency", "3", "--drain", afresh=True)
    assert worker.wait() == 0
    assert f"database default ({connection.settings_dict['NAME']}@" in worker.text()
    assert "queues mail, default, 2 process(es) x 3, LISTEN on" in worker.text()
    assert "Drained" in worker.text()


def test_all_wrong_options_are_named_at_once():
    with pytest.raises(CommandError) as caught:
        call_command("pgqueue_worker", concurrency=0, processes=0, shutdown_timeout=-1.0, queue=" , ")
    assert "--concurrency must be 1 to 1000, not 0." in str(caught.value)
    assert "--processes must be 1 to 256, not 0." in str(caught.value)
    assert "--shutdown-timeout must be 0 or more seconds, not -1.0." in str(caught.value)
    assert "--queue: it names no queue: ' , '." in str(caught.value)


def test_queues_that_can_never_be_served_are_refused():
    with pytest.raises(CommandError, match=r"--queue: 'mail\.slow' is wanted, and excluded by '-mail"):
        call_command("pgqueue_worker", queue="mail.slow,-mail*")


def test_process_that_may_not_have_children_starts_no_worker(monkeypatch):
    """As those of manage.py test --parallel."""
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    with pytest.raises(CommandError, match=r"may not: it is a daemon .* without --parallel"):
        call_command("pgqueue_worker", drain=True, verbosity=0)


def test_patterns_and_exclusions_decide_what_a_worker_takes(start_worker):
    for queue in ("mail", "mail.slow", "post", "x.urgent"):
        app.noop.using(queue=queue).enqueue()
    assert start_worker("--queue=*.urgent,mail*,-mail.slow", "--drain").wait() == 0
    assert set(Job.objects.values_list("queue", flat=True)) == {"mail.slow", "post"}


def test_worker_on_another_vendor_says_so(settings):
    settings.PGQUEUE = {"DATABASE": "lite"}
    with pytest.raises(CommandError, match="'lite' is sqlite"):
        call_command("pgqueue_worker", skip_checks=True)


def test_worker_without_its_tables_says_what_to_run(settings):
    settings.PGQUEUE = {"DATABASE": "other"}
    with pytest.raises(
        CommandError, match=r"no table pgqueue_jobs in 'test_.*Run: manage.py migrate pgqueue zero --fake"
    ):
        call_command("pgqueue_worker", skip_checks=True)


def test_worker_without_its_database_says_so(settings, monkeypatch):
    settings.PGQUEUE = {"DATABASE": "other"}
    connections["other"].close()
    monkeypatch.setitem(connections["other"].settings_dict, "HOST", "/nowhere")
    with pytest.raises(CommandError, match=r"alias 'other' cannot be reached: .*/nowhere"):
        call_command("pgqueue_worker", skip_checks=True)


def test_worker_started_inside_a_test_works_on_the_test_database():
    app.record.enqueue("x")
    call_command("pgqueue_worker", drain=True, verbosity=0)
    assert Mark.objects.get().label == "x"
    gc.collect()  # a connection left open would say so here


def test_worker_processes_are_named_in_the_table(start_worker):
    worker = start_worker("--processes", "2", "--name", "blue", "--queue", "mail").wait_until_ready()
    eventually(lambda: len(worker.children()) == 2)
    rows = Worker.objects.all()
    assert {row.name for row in rows} == {"blue"}
    assert {row.host for row in rows} == {os.uname().nodename}
    assert [row.queues for row in rows] == [["mail"], ["mail"]]
    assert len({row.supervisor_id for row in rows}) == 1


def test_job_in_pure_python_leaves_the_interpreter_to_others_soon(start_worker):
    """The consumer and the other slots wait for it whenever they wake; Python's own default is ten times as long."""
    interval = app.switch_interval.enqueue().id
    assert start_worker("--drain").wait() == 0
    assert SucceededJob.objects.get(pk=interval).result == pytest.approx(0.0005)
