"""Time limits and kills in real worker processes."""

import re

import pytest

import tests.app.tasks as app
from django_pgqueue.exceptions import JobTimeout
from django_pgqueue.jobs import kill
from django_pgqueue.models import DeadJob, Job, SucceededJob
from tests.app.models import Mark
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS = 12  # enough to begin in, however busy the machine is

LIMIT = f"{JobTimeout.__module__}.JobTimeout"


def labels(job_id: int) -> list[str]:
    return list(Mark.objects.filter(job_id=job_id).order_by("id").values_list("label", flat=True))


def have_started(*ids: int) -> bool:
    return Mark.objects.filter(label="start", job_id__in=ids).count() == len(ids)


def sleeping(sql) -> list[tuple]:
    """Return the queries of this database that still wait in the server."""
    return sql(
        "SELECT pid FROM pg_stat_activity "
        "WHERE datname = current_database() AND query LIKE 'SELECT pg_sleep%%' AND state = 'active'"
    )


def test_job_that_listens_is_interrupted_and_no_other_job_notices(start_worker, sql):
    limited = {
        task: task.using(timeout=SECONDS).enqueue(60).id
        for task in (app.spin, app.spin_atomic, app.wait_for_the_server, app.asleep)
    }
    killed = [app.spin.enqueue(600).id, app.asleep.enqueue(600).id, app.wait_for_the_server.enqueue(600).id]
    neighbours = [app.spin.enqueue(3).id, app.asleep.enqueue(3).id]
    patient = app.spin.using(timeout=120).enqueue(3).id
    worker = start_worker("--concurrency", "10").wait_until_ready()
    [child] = worker.children()
    eventually(lambda: have_started(*killed))
    assert set(kill(killed, by="eve").requested) == set(killed)
    eventually(lambda: SucceededJob.objects.filter(pk__in=[*neighbours, patient], attempts=1).count() == 3)
    eventually(lambda: DeadJob.objects.filter(pk__in=killed, reason="killed").count() == 3)
    for dead in DeadJob.objects.filter(pk__in=killed):
        assert (dead.errors[-1]["by"], dead.attempts) == ("eve", 1)
    eventually(lambda: all(job.errors for job in Job.objects.all()))
    jobs = Job.objects.in_bulk()
    assert set(jobs) == set(limited.values())
    for job in jobs.values():
        assert (job.lost, job.errors[0]["error"], job.errors[0]["attempt"]) == (0, LIMIT, 1), job.task
        assert job.errors[0]["message"] == f"It was interrupted after its time limit of {SECONDS} s."
    assert labels(limited[app.spin]) == ["start", "JobTimeout"]
    assert labels(limited[app.spin_atomic]) == [], "its transaction has been rolled back"
    assert labels(killed[0]) == ["start", "JobKilled"]
    assert worker.children() == [child]
    eventually(lambda: not sleeping(sql))


def test_job_that_holds_the_interpreter_in_the_first_cycle_of_its_process_is_noticed(start_worker):
    """What was fetched with it goes back. Nothing in that process could say so, or do it."""
    hog = app.hold_the_interpreter.enqueue().id
    fetched = app.noop.enqueue().id
    settings = "tests.processes.first_cycle_settings"
    worker = start_worker("--concurrency", "1", LEASE_SECONDS="3", DJANGO_SETTINGS_MODULE=settings)
    line = rf"has not finished a cycle for \d+ s, while it runs job {hog} \(tests.app.tasks.hold_the_interpreter\)"
    eventually(lambda: re.search(line, worker.text()))
    assert Job.objects.get(pk=hog).status == "running"
    eventually(lambda: Job.objects.filter(pk=fetched, status="queued", attempts=0, lost=0).exists())


def test_job_that_does_not_listen_is_ended_with_its_process_when_others_have_finished(start_worker, tmp_path):
    stuck = app.sleep.using(timeout=SECONDS).enqueue(600).id
    last = app.sleep_once.using(timeout=SECONDS).enqueue(600).id
    deaf = app.swallow.using(timeout=SECONDS, max_attempts=1).enqueue(1000).id
    coroutine = app.aswallow.using(timeout=SECONDS, max_attempts=1).enqueue(1000).id
    killed = [app.sleep.enqueue(600).id, app.aswallow.enqueue(1000).id]
    neighbour = app.until_exists.using(max_attempts=1).enqueue(str(tmp_path / "go")).id
    worker = start_worker("--concurrency", "8", "--shutdown-timeout", "600").wait_until_ready()
    [child] = worker.children()
    eventually(lambda: have_started(stuck, last, deaf, coroutine, *killed, neighbour))
    assert set(kill(killed, by="eve").requested) == set(killed)
    eventually(
        lambda: re.search(rf"Process {child} runs \d job\(s\) that do not stop: it takes no more", worker.text())
    )
    taken_over = re.compile(rf"Process (\d+) takes over from process {child}$", flags=re.MULTILINE)
    pid = int(eventually(lambda: taken_over.search(worker.text()))[1])
    eventually(lambda: set(worker.children()) == {child, pid})
    later = app.record.enqueue("by the next process")
    assert eventually(Mark.objects.filter(job_id=later.id).first).pid == pid
    for said in (
        f"Job {stuck} (tests.app.tasks.sleep) does not stop, its {SECONDS} s are over: its process will be ended",
        f"Job {killed[0]} (tests.app.tasks.sleep) does not stop, though killed: its process will be ended",
    ):
        eventually(lambda said=said: said in worker.text())
    (tmp_path / "go").touch()
    eventually(lambda: DeadJob.objects.count() == 5 and Job.objects.get().errors)
    assert labels(neighbour) == ["start", "end"]
    assert SucceededJob.objects.filter(pk=neighbour, attempts=1).exists()
    dead = DeadJob.objects.in_bulk()
    for job_id in (last, deaf, coroutine):
        assert (dead[job_id].reason, dead[job_id].lost) == ("exhausted", 0)
        assert dead[job_id].errors[-1]["error"] == LIMIT
        assert dead[job_id].errors[-1]["worker"].endswith(f"pid {child}")
    for job_id in killed:
        assert (dead[job_id].reason, dead[job_id].errors[-1]["by"]) == ("killed", "eve")
    job = Job.objects.get()
    assert (job.id, job.errors[0]["attempt"], job.lost) == (stuck, 1, 0)
    message = f"Its time limit of {SECONDS} s had passed, and it had not stopped when its process ended."
    assert (job.errors[0]["error"], job.errors[0]["message"]) == (LIMIT, message)
    eventually(lambda: f"Process {child} left" in worker.text())
    text = worker.text()
    assert f"Timed out: job {last} (tests.app.tasks.sleep_once) attempt 1 of 1" in text
    assert "starting another" not in text


def test_process_in_which_nothing_can_run_is_ended_and_its_other_jobs_go_back(start_worker):
    """One call into C keeps the interpreter for itself: the process hears no order and sees to no limit."""
    neighbour = app.sleep.enqueue(600).id
    worker = start_worker("--concurrency", "2", "--shutdown-timeout", "1").wait_until_ready()
    eventually(lambda: have_started(neighbour))
    [child] = worker.children()
    hog = app.backtrack.using(timeout=SECONDS, max_attempts=1).enqueue().id
    dead = eventually(DeadJob.objects.first)
    assert (dead.id, dead.reason, dead.errors[-1]["error"]) == (hog, "exhausted", LIMIT)
    eventually(lambda: Mark.objects.filter(job_id=neighbour, label="start").exclude(pid=child).exists())
    job = Job.objects.get(pk=neighbour)
    assert (job.status, job.attempts, job.lost, job.errors) == ("running", 1, 0, [])
