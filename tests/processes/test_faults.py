"""Real workers, real signals, connections really cut."""

import json
import os
import re
import signal
import time
from datetime import timedelta
from pathlib import Path

import pytest
from django.db.models.functions import Now

import tests.app.tasks as app
from django_pgqueue.db.connections import POSTGRESQL_17
from django_pgqueue.jobs import kill
from django_pgqueue.maintenance.partitions import maintain_partitions
from django_pgqueue.models import DeadJob, Job, SucceededJob, Worker
from django_pgqueue.states import NEVER
from tests.app.models import Mark
from tests.support.crash_points import Point
from tests.support.many import enqueued_ids
from tests.support.waiting import PATIENCE_SECONDS, eventually
from tests.support.workers import parent_of

pytestmark = pytest.mark.django_db(transaction=True)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def started() -> set[int]:
    return set(Mark.objects.filter(label="start").values_list("job_id", flat=True))


def terminate(sql, name: str) -> None:
    """End the sessions on the test database whose name begins so."""
    sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name LIKE %s",
        f"{name}%",
    )


def test_killed_child_pays_for_started_jobs_only_and_all_run_again_at_once(start_worker, tmp_path):
    """The first jobs are over in no time, so the child fetches ahead; then 50 that last are running."""
    quick = enqueued_ids(app.noop.using(priority=10), [()] * 3000)
    go = tmp_path / "go"
    ids = enqueued_ids(app.until_exists.using(lease=3600), [(str(go),)] * 300)
    worker = start_worker("--concurrency", "50").wait_until_ready()
    eventually(lambda: len(started()) == 50 and not Job.objects.filter(pk__in=quick).exists())
    [child] = worker.children()
    os.kill(child, signal.SIGKILL)
    eventually(lambda: "left jobs behind: " in worker.text())
    victims = started() & set(Job.objects.filter(lost=1).values_list("id", flat=True))
    assert len(victims) == 50
    for job in Job.objects.filter(pk__in=victims):
        assert job.errors[0]["kind"] == "lost"
        assert job.errors[0]["worker"].endswith(f"pid {child}")
    for job in Job.objects.exclude(pk__in=victims):
        assert (job.lost, job.errors) == (0, [])
        assert job.attempts == (1 if job.status == "running" else 0)
    go.touch()
    eventually(lambda: Mark.objects.filter(label="end").count() == 300)
    assert set(Mark.objects.filter(label="end").values_list("job_id", flat=True)) == set(ids)
    eventually(lambda: SucceededJob.objects.filter(pk__in=ids).count() == 300)
    attempts = dict(SucceededJob.objects.filter(pk__in=ids).values_list("id", "attempts"))
    assert {attempts[job_id] for job_id in victims} == {2}
    assert {attempts[job_id] for job_id in set(ids) - victims} == {1}


def test_killed_command_loses_its_jobs_to_another_worker_within_the_lease(start_worker):
    ids = enqueued_ids(app.sleep.using(lease=3), [(600,)] * 5)
    doomed = start_worker("--concurrency", "5", LEASE_SECONDS="3").wait_until_ready()
    eventually(lambda: len(started()) == 5)
    other = start_worker("--concurrency", "5", "--shutdown-timeout", "0", LEASE_SECONDS="3").wait_until_ready()
    eventually(lambda: Worker.objects.count() == 2)
    doomed.kill_group()
    eventually(lambda: Mark.objects.filter(label="start").count() == 10)
    for job in Job.objects.filter(pk__in=ids):
        assert (job.attempts, job.lost, job.errors[0]["kind"]) == (2, 1, "lost")
    eventually(lambda: "Reaped jobs of lost workers: 5 go back, 0 dead" in other.text())


def test_killed_command_is_missed_long_before_its_lease_has_passed(start_worker):
    """Its connections are closed when it dies, and it sends no heartbeat. The lease is an hour."""
    ids = enqueued_ids(app.sleep.using(lease=3600), [(600,)] * 5)
    doomed = start_worker("--concurrency", "5", LEASE_SECONDS="3600").wait_until_ready()
    eventually(lambda: len(started()) == 5)
    hasty = {"DJANGO_SETTINGS_MODULE": "tests.processes.hasty_settings", "LEASE_SECONDS": "3600"}
    other = start_worker("--concurrency", "5", "--shutdown-timeout", "0", **hasty).wait_until_ready()
    eventually(lambda: Worker.objects.exclude(session_pid=0).count() == 2)  # all that tells of its end
    doomed.kill_group()
    eventually(lambda: Mark.objects.filter(label="start").count() == 10)
    assert not Job.objects.filter(pk__in=ids, lease_until__lte=Now()).exists()
    assert Worker.objects.filter(lease_until__gt=Now()).count() == 2, "the lease of the dead one has not passed"
    eventually(lambda: "Reaped jobs of lost workers: 5 go back, 0 dead" in other.text())


def test_command_that_loses_its_session_alone_is_not_taken_for_gone(start_worker, sql):
    patience = str(PATIENCE_SECONDS)  # a command without a session must only not be silent for that long
    hasty = {"DJANGO_SETTINGS_MODULE": "tests.processes.hasty_settings", "SILENT_SECONDS": patience}
    ids = enqueued_ids(app.sleep, [(600,)] * 5)
    sleeper = start_worker("--concurrency", "5", "--shutdown-timeout", "0").wait_until_ready()
    eventually(lambda: len(started()) == 5)
    other = start_worker("--queue", "none", **hasty).wait_until_ready()
    [child] = sleeper.children()
    [(before,)] = sql("SELECT max(heartbeat_at) FROM pgqueue_workers WHERE pid = %s", child)
    session, another = 0, "SELECT session_pid FROM pgqueue_workers WHERE pid = %s AND session_pid NOT IN (0, %s)"
    for _ in range(3):
        [(session,)] = eventually(lambda session=session: sql(another, child, session))
        assert sql("SELECT pg_terminate_backend(%s)", session) == [(True,)]
    eventually(lambda: sql(another, child, session))
    [(after,)] = sql("SELECT max(heartbeat_at) FROM pgqueue_workers WHERE pid = %s", child)
    assert after > before
    assert set(Job.objects.filter(pk__in=ids).values_list("status", "attempts")) == {("running", 1)}
    assert "Reaped" not in other.text()


def test_children_die_with_their_supervisor(start_worker):
    worker = start_worker("--processes", "2", afresh=True).wait_until_ready()
    children = eventually(lambda: len(worker.children()) == 2 and worker.children())
    os.kill(worker.process.pid, signal.SIGKILL)
    worker.process.wait()
    eventually(lambda: all(parent_of(child) is None for child in children))


def test_idle_worker_stops_at_once_and_leaves_nothing(start_worker):
    worker = start_worker("--processes", "2", afresh=True).wait_until_ready()
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert Worker.objects.count() == 0
    assert "Stopping on SIGTERM" in worker.text()
    assert "Traceback" not in worker.text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_busy_worker_finishes_what_runs_and_gives_the_rest_back(start_worker, number):
    ids = enqueued_ids(app.sleep, [(1.0,)] * 500)
    worker = start_worker("--concurrency", "3").wait_until_ready()
    eventually(lambda: len(started()) >= 3)
    worker.signal(number)
    assert worker.wait() == 0, worker.text()
    begun = started()
    assert set(Mark.objects.filter(label="end").values_list("job_id", flat=True)) == begun
    assert set(SucceededJob.objects.values_list("id", flat=True)) == begun
    assert set(Job.objects.values_list("id", flat=True)) == set(ids) - begun
    assert set(Job.objects.values_list("status", "attempts", "first_started_at")) == {("queued", 0, NEVER)}
    assert Worker.objects.count() == 0


def test_overdue_jobs_go_back_unless_they_may_start_only_once(start_worker):
    long = app.sleep.enqueue(600).id
    once = app.sleep_once.enqueue(600).id
    coroutine = app.asleep.enqueue(600).id
    worker = start_worker("--shutdown-timeout", "0.5").wait_until_ready()
    eventually(lambda: len(started()) == 3)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.text()
    assert set(Job.objects.values_list("id", "status", "attempts")) == {(long, "queued", 0), (coroutine, "queued", 0)}
    dead = DeadJob.objects.get()
    assert (dead.id, dead.reason, dead.errors[0]["kind"]) == (once, "lost", "lost")
    assert "has not stopped in time and is ended" in worker.text()


def test_second_signal_does_not_wait(start_worker):
    job_id = app.sleep.enqueue(600).id
    worker = start_worker("--shutdown-timeout", "600").wait_until_ready()
    eventually(started)
    worker.signal(signal.SIGTERM)
    eventually(lambda: "Stopping on SIGTERM" in worker.text())
    said = re.search(
        r"Stopping on SIGTERM: waiting up to (\d+) s for 1 running job; a second signal stops now\n", worker.text()
    )
    assert 600 - PATIENCE_SECONDS < int(said[1]) <= 600
    assert worker.process.poll() is None
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert (Job.objects.get().id, Job.objects.get().status) == (job_id, "queued")


def test_terminated_connections_are_opened_again_and_no_job_is_lost(start_worker, sql):
    """Every connection of the worker is cut three times while it works."""
    ids = enqueued_ids(app.record_atomic, [(str(number),) for number in range(1500)])
    worker = start_worker("--processes", "2", "--concurrency", "4").wait_until_ready()
    for cut in range(1, 4):
        eventually(lambda cut=cut: SucceededJob.objects.count() > cut * 300)
        terminate(sql, "pgqueue")
    eventually(lambda: SucceededJob.objects.count() == 1500)
    assert worker.process.poll() is None
    assert sorted(Mark.objects.values_list("job_id", flat=True)) == ids
    app.record.enqueue("afterwards")
    eventually(lambda: Mark.objects.filter(label="afterwards").exists())
    assert "Traceback" not in worker.text()


def test_connections_of_handlers_may_die_between_jobs(start_worker, sql):
    start_worker("--concurrency", "1").wait_until_ready()
    app.record.using(max_attempts=1).enqueue("before")
    eventually(lambda: SucceededJob.objects.count() == 1)
    sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND datname = current_database() AND application_name NOT LIKE 'pgqueue%%'"
    )
    for attempt in range(5):  # the first may fail on the dead connection; it must not poison the slot
        app.record.using(max_attempts=1).enqueue(f"after {attempt}")
        eventually(lambda ended=attempt + 2: SucceededJob.objects.count() + DeadJob.objects.count() == ended)
        if SucceededJob.objects.count() == 2:
            break
    assert SucceededJob.objects.count() == 2
    assert DeadJob.objects.count() <= 1


def test_claimed_rows_that_no_process_knows_are_released(start_worker, sql):
    """As after a COMMIT whose answer was lost: the row runs for this process, which has never seen it."""
    start_worker("--queue", "none", LEASE_SECONDS="3").wait_until_ready()
    [(worker_id,)] = sql("SELECT id FROM pgqueue_workers")
    app.noop.enqueue()
    sql(
        "UPDATE pgqueue_jobs SET status = 'running', lease_token = 1234567890123, attempts = 1, worker_id = %s, "
        "lease_until = now() + interval '1 hour'",
        worker_id,
    )
    eventually(lambda: Job.objects.get().status == "queued")
    assert Job.objects.get().attempts == 0


def test_coroutine_that_exits_does_not_stop_the_event_loop(start_worker):
    broken = app.exit_in_a_subtask.enqueue().id
    fine = enqueued_ids(app.arecord, [("x",)] * 5)
    worker = start_worker("--concurrency", "2", "--drain")
    assert worker.wait() == 0
    assert set(SucceededJob.objects.values_list("id", flat=True)) == set(fine)
    assert DeadJob.objects.get().id == broken


def test_coroutines_killed_again_and_again_leave_no_lane_dead(start_worker):
    start_worker("--concurrency", "2").wait_until_ready()
    for _ in range(3):
        ids = enqueued_ids(app.slow_to_tidy, [(), ()])
        eventually(lambda ids=ids: Mark.objects.filter(job_id__in=ids).count() == 2)
        eventually(
            lambda ids=ids: [kill(ids, by="eve") for _ in range(4)] and not Job.objects.filter(pk__in=ids).exists()
        )
    assert set(DeadJob.objects.values_list("reason", flat=True)) == {"killed"}
    fine = enqueued_ids(app.arecord, [("x",)] * 4)
    eventually(lambda: SucceededJob.objects.filter(pk__in=fine).count() == 4)


def test_process_whose_row_was_taken_away_is_registered_again_and_works_on(start_worker, sql):
    worker = start_worker(LEASE_SECONDS="3").wait_until_ready()
    sql("DELETE FROM pgqueue_workers")
    eventually(lambda: "was taken for dead and is registered again" in worker.text())
    app.record.enqueue("x")
    eventually(SucceededJob.objects.exists)


def test_busy_worker_uses_no_cpu_of_its_own(start_worker):
    """Its one slot sleeps, more jobs wait: the process must wait too."""
    app.sleep.enqueue_many([(4,)] * 3)
    worker = start_worker("--concurrency", "1").wait_until_ready()
    eventually(started)
    [child] = worker.children()
    before = cpu_seconds(child)
    eventually(lambda: Mark.objects.filter(label="end").exists())
    assert cpu_seconds(child) - before < 1.0


def test_handler_that_holds_the_gil_does_not_get_its_neighbours_started_twice(start_worker):
    """For longer than two heartbeats the consumer cannot write down what it has claimed beside the hog."""
    once = enqueued_ids(app.sleep_once.using(queue="a"), [(0.1,)] * 4)
    app.hold_the_gil.using(queue="a", priority=10).enqueue(5)
    start_worker("--concurrency", "5", LEASE_SECONDS="3").wait_until_ready()
    eventually(lambda: SucceededJob.objects.count() == 5)
    assert sorted(Mark.objects.filter(label="start", job_id__in=once).values_list("job_id", flat=True)) == once


CUT = """
CREATE OR REPLACE FUNCTION pgqueue_cut() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('application_name') LIKE 'pgqueue heartbeat%' THEN
        PERFORM pg_terminate_backend(pg_backend_pid()), pg_sleep(60);
    END IF;
    RETURN NULL;
END $$
"""


def test_short_outages_get_no_living_worker_reaped(start_worker, sql, tmp_path):
    """Twice, heartbeats fail for most of a lease; no worker may judge until all have had time to say that they live."""
    go = tmp_path / "go"
    ids = enqueued_ids(app.until_exists.using(lease=6), [(str(go),)] * 2)
    workers = [start_worker("--concurrency", "1", LEASE_SECONDS="6").wait_until_ready() for _ in range(2)]
    eventually(lambda: len(started()) == 2)

    def have_all_said(words: str, times: int) -> bool:
        return all(worker.text().count(words) >= times for worker in workers)

    sql(CUT)
    try:
        for times in (1, 2):
            sql("CREATE TRIGGER cut BEFORE UPDATE ON pgqueue_workers FOR EACH STATEMENT EXECUTE FUNCTION pgqueue_cut()")
            terminate(sql, "pgqueue heartbeat")
            over = time.monotonic() + 5.4
            eventually(
                lambda times=times, over=over: (
                    have_all_said("heartbeat failed and is tried again (failure 1)", times) and time.monotonic() > over
                )
            )
            sql("DROP TRIGGER cut ON pgqueue_workers")
            eventually(lambda times=times: have_all_said("heartbeat works again", times))
    finally:
        sql("DROP FUNCTION pgqueue_cut CASCADE")
    go.touch()
    eventually(lambda: SucceededJob.objects.filter(pk__in=ids, attempts=1).count() == 2)
    assert not any("Reaped" in worker.text() for worker in workers)


def test_worker_stopped_while_it_starts_leaves_no_row(start_worker):
    for is_fresh in (True, False, False, False):
        worker = start_worker("--processes", "2", afresh=is_fresh)
        eventually(lambda worker=worker: Worker.objects.exists() or worker.process.poll() is not None)
        worker.signal(signal.SIGTERM)
        worker.wait()
        assert Worker.objects.count() == 0


def test_one_service_that_fails_does_not_stop_the_others(start_worker, sql, queue):
    """A table in the place of a partition to be made: DDL fails at every pass, and jobs run all the same."""
    [(name,)] = sql("SELECT 'pgqueue_succeeded_jobs_' || to_char((now() AT TIME ZONE 'UTC')::date + 7, 'YYYYMMDD')")
    sql(f"DROP TABLE IF EXISTS {name}")  # midnight may have passed since it was made for seven days ahead
    sql(f"CREATE VIEW {name} AS SELECT 1")
    sql("CREATE FUNCTION pgqueue_no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$")
    sql("CREATE TRIGGER no BEFORE DELETE ON pgqueue_workers FOR EACH STATEMENT EXECUTE FUNCTION pgqueue_no()")
    try:
        worker = start_worker().wait_until_ready()
        app.record.enqueue("x")
        app.record.using(delay=timedelta(seconds=1)).enqueue("later")
        eventually(lambda: SucceededJob.objects.count() == 2)
        eventually(lambda: "The service remove_workers failed" in worker.text())
    finally:
        sql("DROP FUNCTION pgqueue_no CASCADE")
        sql(f"DROP VIEW {name}")
        eventually(lambda: not maintain_partitions(queue, retention_days=7).is_blocked)  # other tests count them


def test_frozen_command_starts_nothing_when_it_thaws(start_worker, tmp_path):
    """Stopped for longer than its lease, its jobs are run by another; its own acks are refused."""
    go = tmp_path / "go"
    jobs = enqueued_ids(app.until_exists.using(lease=3), [(str(go),)] * 4)
    frozen = start_worker("--concurrency", "2", LEASE_SECONDS="3").wait_until_ready()
    eventually(lambda: len(started()) == 2)
    frozen.freeze()
    go.touch()
    start_worker("--concurrency", "2", LEASE_SECONDS="3").wait_until_ready()
    eventually(lambda: SucceededJob.objects.count() == 4)
    frozen.thaw()
    eventually(lambda: "Stale result dropped" in frozen.text())
    assert SucceededJob.objects.filter(pk__in=jobs).count() == 4
    assert Mark.objects.filter(label="start").count() == 6
    frozen.signal(signal.SIGTERM)
    assert frozen.wait() == 0


def test_worker_serves_on_after_a_child_ends_itself(start_worker):
    worker = start_worker().wait_until_ready()
    app.record.enqueue("before")
    eventually(SucceededJob.objects.exists)
    [child] = worker.children()
    os.kill(child, signal.SIGTERM)
    eventually(lambda: worker.children() not in ([], [child]))
    app.record.enqueue("x")
    eventually(lambda: SucceededJob.objects.count() == 2)
    assert "ended (exit code 0), starting another" in worker.text()


def test_job_that_kills_its_process_again_and_again_dies_and_the_others_are_done(start_worker):
    killer = app.kill_the_process.using(priority=10).enqueue().id
    others = enqueued_ids(app.record, [("x",)] * 50)
    worker = start_worker("--concurrency", "1").wait_until_ready()
    dead = eventually(DeadJob.objects.filter(pk=killer).first)
    assert (dead.reason, dead.lost, [entry["kind"] for entry in dead.errors]) == ("lost", 3, ["lost"] * 3)
    eventually(lambda: SucceededJob.objects.count() == 50)
    assert set(SucceededJob.objects.values_list("attempts", flat=True)) == {1}
    assert sorted(Mark.objects.filter(label="x").values_list("job_id", flat=True)) == others
    assert worker.process.poll() is None


def test_job_that_ends_its_process_before_it_is_begun_dies_and_the_others_are_done(start_worker, sql):
    """However often it may be attempted."""
    sql("INSERT INTO pgqueue_jobs (task, priority, max_attempts) VALUES ('tests.poison', 5, 1)")
    poison = Job.objects.get(task="tests.poison").id
    others = enqueued_ids(app.record, [("x",)] * 20)
    settings = "tests.processes.poisoned_settings"
    worker = start_worker("--concurrency", "4", DJANGO_SETTINGS_MODULE=settings).wait_until_ready()
    dead = eventually(DeadJob.objects.filter(pk=poison).first)
    assert (dead.reason, dead.lost, [entry["kind"] for entry in dead.errors]) == ("lost", 3, ["lost"] * 3)
    assert "before it was begun" in dead.errors[-1]["message"]
    eventually(lambda: SucceededJob.objects.count() == 20)
    assert sorted(Mark.objects.filter(label="x").values_list("job_id", flat=True)) == others
    assert worker.process.poll() is None


def test_processes_that_a_task_has_made_by_fork_end_at_sigterm(start_worker):
    """They have the worker's handlers, and there is nothing in them that could be stopped."""
    app.end_a_helper.enqueue(PATIENCE_SECONDS)
    worker = start_worker("--concurrency", "1", "--drain", afresh=True)
    assert worker.wait() == 0, worker.text()
    assert SucceededJob.objects.get().result == -signal.SIGTERM
    assert "have left behind" not in worker.text()


def test_whatever_a_task_leaves_behind_the_next_one_starts_clean(start_worker):
    """A transaction begun behind Django's back, an interrupt, an error that cannot be stored, a fork; in one slot."""
    begun = app.begin_by_hand.enqueue().id
    interrupted = [app.interrupt.enqueue().id, app.interrupt_async.enqueue().id]
    unstorable = app.fail_unstorably.enqueue().id
    forked = [app.fork_and_return.enqueue().id, app.fork_and_return_atomic.enqueue().id]
    helped = app.fork_a_helper.enqueue().id
    fine = app.record.enqueue("next").id
    worker = start_worker("--concurrency", "1", "--drain", afresh=True)
    assert worker.wait() == 0, worker.text()

    marks = {
        job_id: list(Mark.objects.filter(job_id=job_id).values_list("label", flat=True))
        for job_id in (begun, *forked, helped)
    }
    assert marks[begun] == ["before"]
    assert [marks[job_id] for job_id in forked] == [["inside"], ["inside"]]
    assert sorted(marks[helped]) == ["after", "before", "helper"]
    succeeded = SucceededJob.objects.in_bulk()
    assert succeeded.keys() == {begun, *forked, helped, fine}
    assert [succeeded[job_id].result for job_id in forked] == ["original"] * 2
    assert {job.attempts for job in succeeded.values()} == {1}
    dead = DeadJob.objects.in_bulk()
    assert dead.keys() == {*interrupted, unstorable}
    assert {dead[job_id].errors[0]["error"] for job_id in interrupted} == {"KeyboardInterrupt"}
    [error] = dead[unstorable].errors
    assert dead[unstorable].reason == "exhausted"
    assert error["error"].endswith("Odd\ufffd?")
    assert error["message"].endswith("and much more ")
    assert "A job left a transaction open on 'default'; it is rolled back" in worker.text()
    assert "ended (" not in worker.text(), "no process had to be replaced"


def test_command_frozen_in_the_middle_of_its_flush_keeps_no_rows_locked(start_worker, sql, tmp_path):
    """Between the statements of its pipeline: the server hears no end of the transaction, and must not wait."""
    [(version,)] = sql("SELECT current_setting('server_version_num')::integer")
    point = Point(tmp_path, "ack sent")
    job_id = app.record.using(lease=3).enqueue().id
    point.arm("freeze")
    limits = {"LEASE_SECONDS": "3", "PGQUEUE": json.dumps({"STATEMENT_TIMEOUT_SECONDS": 1})}
    frozen = start_worker("--concurrency", "1", CRASH_POINTS=str(tmp_path), **limits)
    eventually(lambda: not point.is_armed)
    frozen.wait_until_frozen()
    other = start_worker("--concurrency", "1", **limits)
    if version >= POSTGRESQL_17:
        eventually(lambda: SucceededJob.objects.filter(pk=job_id).exists())
        assert (SucceededJob.objects.get().attempts, SucceededJob.objects.get().lost) == (2, 1)
    frozen.thaw()
    eventually(lambda: SucceededJob.objects.filter(pk=job_id).exists())
    later = enqueued_ids(app.record, [("later",)] * 20)
    eventually(lambda: SucceededJob.objects.filter(pk__in=later).count() == 20)
    assert Mark.objects.filter(job_id=job_id).count() == SucceededJob.objects.get(pk=job_id).attempts
    other.wait_until_ready()
    for worker in (frozen, other):
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.text()


def test_job_announced_without_a_listener_is_found_when_the_listener_is_back(start_worker, sql):
    """Notifications sent while no session listened are gone for ever; a listener that is back looks everywhere."""
    worker = start_worker(PGQUEUE=json.dumps({"POLL_SECONDS": 3600})).wait_until_ready()
    assert "LISTEN on" in worker.text()
    app.record.enqueue("first")
    eventually(lambda: SucceededJob.objects.count() == 1)
    sql("INSERT INTO pgqueue_jobs (task, queue) VALUES ('tests.app.tasks.record', 'a queue that no worker knows yet')")
    terminate(sql, "pgqueue listener")
    eventually(lambda: SucceededJob.objects.count() == 2)
    app.record.enqueue("heard")
    eventually(lambda: SucceededJob.objects.count() == 3)


def test_job_that_kills_its_process_takes_no_other_job_with_it(start_worker):
    """Those that run beside it are lost with it, and run again; it alone ends as lost."""
    killer = app.kill_the_process.enqueue()
    innocent = [app.sleep.enqueue(0.3) for _ in range(7)]
    worker = start_worker("--drain")
    assert worker.wait() == 0
    dead = DeadJob.objects.get()
    assert (dead.id, dead.reason, dead.lost) == (killer.id, "lost", 3)
    assert SucceededJob.objects.filter(id__in=[job.id for job in innocent]).count() == 7
    assert "was lost 2 times: it runs alone" in worker.text()
