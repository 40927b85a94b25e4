"""Real workers, real signals, connections really cut."""

import os
import signal
import time
from datetime import timedelta
from pathlib import Path

import pytest

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from django_pgqueue.base.states import NEVER
from django_pgqueue.lifecycle.kill import kill
from django_pgqueue.models import DeadJob, FinishedJob, Job, Worker
from tests.app.models import Mark
from tests.workers import eventually, parent_of

pytestmark = pytest.mark.django_db(transaction=True)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def started() -> set[int]:
    return set(Mark.objects.filter(label="start").values_list("job_id", flat=True))


def test_killed_child_pays_for_started_jobs_only_and_all_run_again_at_once(start_worker):
    """The first jobs are over in no time, so the child fetches ahead; then 50 that last are running."""
    enqueue_many(app.noop.using(priority=10), [()] * 3000)
    ids = enqueue_many(app.sleep.using(lease=3600), [(1.5,)] * 300)
    worker = start_worker("--concurrency", "50").wait_until_ready()
    eventually(lambda: len(started()) == 50)
    [child] = worker.children()
    os.kill(child, signal.SIGKILL)
    eventually(lambda: "left" in worker.text() and "jobs: " in worker.text())
    victims = started() & set(Job.objects.filter(lost=1).values_list("id", flat=True))
    assert len(victims) == 50
    for job in Job.objects.filter(pk__in=victims):
        assert job.errors[0]["error"] == "worker lost"
        assert job.errors[0]["worker"].endswith(f"pid {child}")
    for job in Job.objects.exclude(pk__in=victims):
        assert (job.lost, job.errors) == (0, [])
        assert job.attempts == (1 if job.status == "running" else 0)
    assert worker.wait_until_ready()
    eventually(lambda: Mark.objects.filter(label="end").count() == 300, seconds=60)
    assert set(Mark.objects.filter(label="end").values_list("job_id", flat=True)) == set(ids)
    eventually(lambda: FinishedJob.objects.filter(pk__in=ids).count() == 300)
    attempts = dict(FinishedJob.objects.filter(pk__in=ids).values_list("id", "attempts"))
    assert {attempts[job_id] for job_id in victims} == {2}
    assert {attempts[job_id] for job_id in set(ids) - victims} == {1}


def test_killed_command_loses_its_jobs_to_another_worker_within_the_lease(start_worker):
    ids = enqueue_many(app.sleep.using(lease=3), [(600,)] * 5)
    doomed = start_worker("--concurrency", "5", LEASE_SECONDS="3").wait_until_ready()
    eventually(lambda: len(started()) == 5)
    other = start_worker("--concurrency", "5", "--grace", "0", LEASE_SECONDS="3").wait_until_ready()
    eventually(lambda: Worker.objects.count() == 2)
    doomed.kill_group()
    eventually(lambda: Mark.objects.filter(label="start").count() == 10, seconds=20)
    for job in Job.objects.filter(pk__in=ids):
        assert (job.attempts, job.lost, job.errors[0]["error"]) == (2, 1, "worker lost")
    assert "Reaped jobs of lost workers: 5 go back, 0 dead" in other.text()


def test_children_die_with_their_supervisor(start_worker):
    worker = start_worker("--processes", "2").wait_until_ready()
    children = eventually(lambda: len(worker.children()) == 2 and worker.children())
    os.kill(worker.process.pid, signal.SIGKILL)
    worker.process.wait()
    eventually(lambda: all(parent_of(child) is None for child in children))


def test_idle_worker_stops_at_once_and_leaves_nothing(start_worker):
    worker = start_worker("--processes", "2").wait_until_ready()
    worker.signal(signal.SIGTERM)
    assert worker.wait(seconds=20) == 0
    assert Worker.objects.count() == 0
    assert "Stopping on SIGTERM" in worker.text()
    assert "Traceback" not in worker.text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_busy_worker_finishes_what_runs_and_gives_the_rest_back(start_worker, number):
    enqueue_many(app.sleep, [(1.0,)] * 10)
    worker = start_worker("--concurrency", "3").wait_until_ready()
    eventually(lambda: len(started()) == 3)
    worker.signal(number)
    assert worker.wait() == 0, worker.text()
    assert Mark.objects.filter(label="end").count() == Mark.objects.filter(label="start").count() == 3
    assert FinishedJob.objects.count() == 3
    assert set(Job.objects.values_list("status", "attempts", "first_started_at")) == {("queued", 0, NEVER)}
    assert Worker.objects.count() == 0


def test_overdue_jobs_go_back_unless_they_may_start_only_once(start_worker):
    long = app.sleep.enqueue(600).id
    once = app.sleep_once.enqueue(600).id
    coroutine = app.asleep.enqueue(600).id
    worker = start_worker("--grace", "0.5").wait_until_ready()
    eventually(lambda: len(started()) == 3)
    worker.signal(signal.SIGTERM)
    assert worker.wait(seconds=20) == 0, worker.text()
    assert set(Job.objects.values_list("id", "status", "attempts")) == {(long, "queued", 0), (coroutine, "queued", 0)}
    dead = DeadJob.objects.get()
    assert (dead.id, dead.reason, dead.errors[0]["error"]) == (once, "lost", "worker lost")
    assert "has not stopped in time and is ended" in worker.text()


def test_second_signal_does_not_wait(start_worker):
    job_id = app.sleep.enqueue(600).id
    worker = start_worker("--grace", "600").wait_until_ready()
    eventually(started)
    worker.signal(signal.SIGTERM)
    eventually(lambda: "Stopping on SIGTERM" in worker.text())
    assert worker.process.poll() is None
    worker.signal(signal.SIGTERM)
    assert worker.wait(seconds=20) == 0
    assert (Job.objects.get().id, Job.objects.get().status) == (job_id, "queued")


def test_terminated_connections_are_opened_again_and_no_job_is_lost(start_worker, sql):
    """Every connection of the worker is cut three times while it works."""
    ids = enqueue_many(app.record_atomic, [(str(number),) for number in range(3000)])
    worker = start_worker("--processes", "2", "--concurrency", "4").wait_until_ready()
    for cut in range(1, 4):
        eventually(lambda cut=cut: FinishedJob.objects.count() > cut * 300)
        sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'pgqueue%%'")
    eventually(lambda: FinishedJob.objects.count() == 3000, seconds=60)
    assert worker.process.poll() is None
    assert sorted(Mark.objects.values_list("job_id", flat=True)) == ids
    app.record.enqueue("afterwards")
    eventually(lambda: Mark.objects.filter(label="afterwards").exists())
    assert "Traceback" not in worker.text()


def test_connections_of_handlers_may_die_between_jobs(start_worker, sql):
    start_worker("--concurrency", "1").wait_until_ready()
    app.record.using(max_attempts=1).enqueue("before")
    eventually(lambda: FinishedJob.objects.count() == 1)
    sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND datname = current_database() AND application_name NOT LIKE 'pgqueue%%'"
    )
    for attempt in range(5):  # the first may fail on the dead connection; it must not poison the slot
        app.record.using(max_attempts=1).enqueue(f"after {attempt}")
        eventually(lambda ended=attempt + 2: FinishedJob.objects.count() + DeadJob.objects.count() == ended)
        if FinishedJob.objects.count() == 2:
            break
    assert FinishedJob.objects.count() == 2
    assert DeadJob.objects.count() <= 1


def test_claimed_rows_that_no_process_knows_are_released(start_worker, sql):
    """As after a COMMIT whose answer was lost: the row runs for this process, which has never seen it."""
    start_worker("--queues", "none", LEASE_SECONDS="3").wait_until_ready()
    [(worker_id,)] = sql("SELECT id FROM pgqueue_workers")
    app.noop.enqueue()
    sql(
        "UPDATE pgqueue_jobs SET status = 'running', lease_token = 5, attempts = 1, worker_id = %s, "
        "lease_until = now() + interval '1 hour'",
        worker_id,
    )
    eventually(lambda: Job.objects.get().status == "queued")
    assert Job.objects.get().attempts == 0


def test_coroutine_that_exits_does_not_stop_the_event_loop(start_worker):
    broken = app.exit_in_a_subtask.enqueue().id
    fine = enqueue_many(app.arecord, [("x",)] * 5)
    worker = start_worker("--concurrency", "2", "--drain")
    assert worker.wait() == 0
    assert set(FinishedJob.objects.values_list("id", flat=True)) == set(fine)
    assert DeadJob.objects.get().id == broken


def test_coroutines_killed_again_and_again_leave_no_lane_dead(start_worker):
    start_worker("--concurrency", "2").wait_until_ready()
    for _ in range(3):
        ids = enqueue_many(app.slow_to_tidy, [(), ()])
        eventually(lambda ids=ids: Mark.objects.filter(job_id__in=ids).count() == 2)
        eventually(
            lambda ids=ids: [kill(ids, by="eve") for _ in range(4)] and not Job.objects.filter(pk__in=ids).exists()
        )
    assert set(DeadJob.objects.values_list("reason", flat=True)) == {"killed"}
    fine = enqueue_many(app.arecord, [("x",)] * 4)
    eventually(lambda: FinishedJob.objects.filter(pk__in=fine).count() == 4)


def test_process_whose_row_was_taken_away_is_registered_again_and_works_on(start_worker, sql):
    worker = start_worker(LEASE_SECONDS="3").wait_until_ready()
    sql("DELETE FROM pgqueue_workers")
    eventually(lambda: "was taken for dead and is registered again" in worker.text())
    app.record.enqueue("x")
    eventually(FinishedJob.objects.exists)


def test_busy_worker_uses_no_cpu_of_its_own(start_worker):
    """Its one slot sleeps, more jobs wait: the process must wait too."""
    enqueue_many(app.sleep, [(4,)] * 3)
    worker = start_worker("--concurrency", "1").wait_until_ready()
    eventually(started)
    [child] = worker.children()
    before = cpu_seconds(child)
    eventually(lambda: Mark.objects.filter(label="end").exists())
    assert cpu_seconds(child) - before < 1.0


def test_handler_that_holds_the_gil_does_not_get_its_neighbours_started_twice(start_worker):
    """For longer than two heartbeats the pump cannot write down what it has claimed beside the hog."""
    once = enqueue_many(app.sleep_once.using(queue="a"), [(0.1,)] * 4)
    app.hold_the_gil.using(queue="a", priority=10).enqueue(8)
    start_worker("--concurrency", "5", LEASE_SECONDS="3").wait_until_ready()
    eventually(lambda: FinishedJob.objects.count() == 5, seconds=60)
    assert sorted(Mark.objects.filter(label="start", job_id__in=once).values_list("job_id", flat=True)) == once


def test_short_outages_get_no_living_worker_reaped(start_worker, sql):
    """Twice, heartbeats fail for most of a lease; nobody may judge until all have had time to say that they live."""
    ids = enqueue_many(app.sleep.using(lease=3), [(14,)] * 2)
    workers = [start_worker("--concurrency", "1", LEASE_SECONDS="3").wait_until_ready() for _ in range(2)]
    eventually(lambda: len(started()) == 2)
    for _ in range(2):
        deadline = time.monotonic() + 2.7
        while time.monotonic() < deadline:
            sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'pgqueue heart%%'")
        eventually(lambda: all(text.count("heartbeat works again") for text in [w.text() for w in workers]))
    eventually(lambda: FinishedJob.objects.filter(pk__in=ids, attempts=1).count() == 2, seconds=40)
    assert not any("Reaped" in worker.text() for worker in workers)


def test_worker_stopped_while_it_starts_leaves_no_row(start_worker):
    for _ in range(4):
        worker = start_worker("--processes", "2")
        eventually(lambda worker=worker: Worker.objects.exists() or worker.process.poll() is not None)
        worker.signal(signal.SIGTERM)
        worker.wait()
        assert Worker.objects.count() == 0


def test_one_duty_that_fails_does_not_stop_the_others(start_worker, sql):
    """A table in the place of a partition to be made: DDL fails at every pass, and jobs run all the same."""
    [(name,)] = sql("SELECT 'pgqueue_finished_jobs_' || to_char((now() AT TIME ZONE 'UTC')::date + 7, 'YYYYMMDD')")
    sql(f"DROP TABLE {name}")
    sql(f"CREATE VIEW {name} AS SELECT 1")
    sql("CREATE FUNCTION pgqueue_no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$")
    sql("CREATE TRIGGER no BEFORE DELETE ON pgqueue_workers FOR EACH STATEMENT EXECUTE FUNCTION pgqueue_no()")
    try:
        worker = start_worker().wait_until_ready()
        app.record.enqueue("x")
        app.record.using(run_at=timedelta(seconds=1)).enqueue("later")
        eventually(lambda: FinishedJob.objects.count() == 2)
        assert "The duty forget_workers failed" in worker.text()
    finally:
        sql("DROP FUNCTION pgqueue_no CASCADE")
        sql(f"DROP VIEW {name}")


def test_frozen_command_starts_nothing_when_it_thaws(start_worker):
    """Stopped for longer than its lease, its jobs are run by another; its own acks are refused."""
    jobs = enqueue_many(app.sleep.using(lease=3), [(0.5,)] * 4)
    frozen = start_worker("--concurrency", "2", LEASE_SECONDS="3").wait_until_ready()
    eventually(lambda: len(started()) == 2)
    os.killpg(frozen.process.pid, signal.SIGSTOP)
    start_worker("--concurrency", "2", LEASE_SECONDS="3").wait_until_ready()
    eventually(lambda: FinishedJob.objects.count() == 4, seconds=30)
    os.killpg(frozen.process.pid, signal.SIGCONT)
    eventually(lambda: "Stale result dropped" in frozen.text())
    assert FinishedJob.objects.filter(pk__in=jobs).count() == 4
    assert Mark.objects.filter(label="start").count() == 6
    frozen.signal(signal.SIGTERM)
    assert frozen.wait() == 0


def test_worker_serves_on_after_a_child_ends_itself(start_worker):
    worker = start_worker().wait_until_ready()
    app.record.enqueue("before")
    eventually(FinishedJob.objects.exists)
    [child] = worker.children()
    os.kill(child, signal.SIGTERM)
    eventually(lambda: worker.children() not in ([], [child]))
    app.record.enqueue("x")
    eventually(lambda: FinishedJob.objects.count() == 2)
    assert "ended (exit code 0), starting another" in worker.text()
