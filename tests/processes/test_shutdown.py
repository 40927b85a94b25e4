"""SIGTERM while jobs are fetched far ahead."""

import json
import os
import signal

import pytest
from django.db import transaction

import tests.app.tasks as app
from django_pgqueue import workers
from django_pgqueue.models import DeadJob, Job, SucceededJob, Worker
from django_pgqueue.states import NEVER
from tests.app.models import Mark
from tests.support.many import enqueued_ids
from tests.support.waiting import eventually
from tests.support.workers import freeze

pytestmark = pytest.mark.django_db(transaction=True)

BUSY = """
SELECT FROM pg_stat_activity
WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


def test_a_thousand_jobs_fetched_ahead_go_back_as_if_they_had_never_been_claimed(start_worker, sql):
    """Jobs that take no time let the process fetch far ahead; then it is frozen, told to stop, and thawed."""
    greedy = {"DJANGO_SETTINGS_MODULE": "tests.processes.greedy_settings"}
    worker = start_worker("--concurrency", "4", **greedy).wait_until_ready()
    [child] = worker.children()
    quick = app.noop.using(priority=10, keep_result=False)
    with transaction.atomic():
        quick.enqueue_many([()] * 10_000)
        slow = enqueued_ids(app.sleep, [(2,)] * 3_000)

    def fetched() -> int:
        return Job.objects.filter(status="running", pk__in=slow).count()

    def is_frozen_in_time() -> bool:
        if not Job.objects.filter(priority=10).exists():  # too late: they have gone back already
            quick.enqueue_many([()] * 10_000)
        if fetched() < 1000:
            return False
        freeze(child)
        eventually(lambda: not sql(BUSY))  # a statement that it had sent goes on, and may give jobs back
        if fetched() >= 1000:
            return True
        os.kill(child, signal.SIGCONT)
        return False

    eventually(is_frozen_in_time)
    worker.signal(signal.SIGTERM)
    eventually(lambda: "Stopping on SIGTERM" in worker.text())
    os.kill(child, signal.SIGCONT)
    assert worker.wait() == 0, worker.text()
    begun = set(Mark.objects.filter(label="start").values_list("job_id", flat=True))
    assert set(SucceededJob.objects.values_list("pk", flat=True)) == begun
    left = Job.objects.filter(pk__in=slow).values_list(
        "pk", "status", "attempts", "lost", "lease_token", "first_started_at", "errors"
    )
    assert sorted(left) == [(pk, "queued", 0, 0, 0, NEVER, []) for pk in slow if pk not in begun]
    assert len(left) > 1000
    assert DeadJob.objects.count() == Worker.objects.count() == 0


@pytest.mark.parametrize("options", [(), ("--poll-only",)], ids=["told at once", "polling"])
def test_worker_that_is_asked_to_stop_finishes_what_runs_and_another_works_on(start_worker, tmp_path, options):
    settings = {"PGQUEUE": json.dumps({"LEASE_SECONDS": 10})}
    first = start_worker("--processes", "2", "--concurrency", "1", *options, **settings).wait_until_ready()
    eventually(lambda: len(first.children()) == 2)
    asked = sorted(Worker.objects.values_list("id", flat=True))
    done = tmp_path / "done"
    running = app.until_exists.enqueue(str(done)).id
    eventually(lambda: Job.objects.get(pk=running).status == "running")
    second = start_worker(*options, **settings).wait_until_ready()
    assert set(eventually(lambda: workers.stop(asked[:1], by="ann"))) <= set(asked)  # its heartbeat may have the rows
    eventually(lambda: "Stopping, as ann has asked for" in first.text())
    assert Job.objects.get(pk=running).status == "running"
    later = app.noop.enqueue().id
    eventually(SucceededJob.objects.filter(pk=later).exists)
    done.touch()
    assert first.wait() == 0, first.text()
    assert SucceededJob.objects.filter(pk=running).exists()
    assert first.text().count("as ann has asked for") == 1
    assert not Worker.objects.filter(pk__in=asked).exists()
    second.must_live()
    assert Worker.objects.filter(stop_requested_at=None).exists()


@pytest.mark.parametrize("way", ["signal", "request"])
def test_quiet_worker_finishes_what_runs_and_claims_nothing_until_it_is_to_resume(start_worker, tmp_path, way):
    """Its processes ignore the signal, as systemd may send it to all. Each runs a job: no claim is under way."""
    worker = start_worker("--processes", "2", "--concurrency", "1").wait_until_ready()
    eventually(lambda: len(worker.children()) == 2)
    done = tmp_path / "done"
    running = [app.until_exists.enqueue(str(done)).id for _ in range(2)]
    eventually(lambda: Job.objects.filter(pk__in=running, status="running").count() == 2)
    if way == "signal":
        for pid in (*worker.children(), worker.process.pid):
            os.kill(pid, signal.SIGUSR1)
        by = "SIGUSR1"
    else:
        eventually(lambda: workers.quiet(Worker.objects.values_list("id", flat=True)[:1], by="ann"))
        by = "ann"
    eventually(lambda: f"Quiet, as {by} has asked for" in worker.text())
    eventually(lambda: set(Worker.objects.values_list("quiet_by", flat=True)) == {by})
    waiting = app.noop.enqueue().id
    done.touch()
    eventually(lambda: SucceededJob.objects.filter(pk__in=running).count() == 2)
    assert Job.objects.get(pk=waiting).status == "queued"
    if way == "signal":
        worker.process.send_signal(signal.SIGUSR2)
    else:
        eventually(lambda: workers.resume(Worker.objects.values_list("id", flat=True)))
    eventually(SucceededJob.objects.filter(pk=waiting).exists)
    assert "Claiming jobs again" in worker.text()
    eventually(lambda: set(Worker.objects.values_list("quiet_since", flat=True)) == {None})
    assert len(worker.children()) == 2


def test_signal_to_be_quiet_ends_no_process_that_is_being_started(start_worker):
    """Nor the one that multiprocessing starts for itself: systemd sends the signal to all."""
    worker = start_worker("--processes", "2", "--spawn", afresh=True)
    eventually(lambda: len(worker.children()) == 2)
    children = worker.children()
    os.killpg(worker.process.pid, signal.SIGUSR1)
    eventually(lambda: "Quiet, as SIGUSR1 has asked for" in worker.text())
    waiting = app.noop.enqueue().id
    os.killpg(worker.process.pid, signal.SIGUSR2)
    eventually(SucceededJob.objects.filter(pk=waiting).exists)
    assert worker.children() == children
    assert "starting another" not in worker.text()
