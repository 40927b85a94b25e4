"""Worker processes that are replaced after a number of jobs, or when they use too much memory."""

import contextlib
import os
import re
import signal

import pytest
from django.core.management import CommandError, call_command

import tests.app.tasks as app
from django_pgqueue.models import DeadJob, Job, SucceededJob, Worker
from django_pgqueue.worker.processes import resident_bytes
from tests.app.models import Mark
from tests.support.many import enqueued_ids
from tests.support.waiting import LONG_PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.django_db(transaction=True)


def recycled(worker) -> list[int]:
    """Return the pids that the log calls recycled."""
    return [int(pid) for pid in re.findall(r"INFO .* Process (\d+) is recycled", worker.text())]


def successor(worker, pid: int) -> int | None:
    """Return the pid of the process that has taken over from this one."""
    found = re.search(rf"Process (\d+) takes over from process {pid}$", worker.text(), flags=re.MULTILINE)
    return int(found[1]) if found else None


def test_process_is_replaced_after_max_jobs_and_no_job_is_lost_or_run_twice(start_worker):
    worker = start_worker("--max-jobs", "50", "--concurrency", "2").wait_until_ready()
    [first] = worker.children()
    ids = enqueued_ids(app.record, [(str(number),) for number in range(200)])
    assert eventually(lambda: recycled(worker))[0] == first
    later = enqueued_ids(app.record, [("later",)] * 200)
    eventually(lambda: SucceededJob.objects.count() == 400)
    assert sorted(Mark.objects.values_list("job_id", flat=True)) == sorted([*ids, *later])
    assert set(SucceededJob.objects.values_list("attempts", flat=True)) == {1}
    assert f"Recycling process {first}: " in worker.text()
    assert "ended (" not in worker.text()  # what is said of a crash
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert Worker.objects.count() == 0


def test_old_process_works_on_until_the_new_one_is_at_work(start_worker):
    """There is a process to run a job at any moment."""
    worker = start_worker("--max-jobs", "5").wait_until_ready()
    [first] = worker.children()
    app.record.enqueue_many([("x",)] * 5)
    eventually(lambda: recycled(worker) == [first])
    second = successor(worker, first)
    said = worker.text()
    assert said.index(f"Process {second} takes over") < said.index(f"Process {first} is recycled")
    eventually(lambda: worker.children() == [second])
    app.record.enqueue("new")
    assert eventually(Mark.objects.filter(label="new").first).pid == second


def test_processes_are_recycled_one_at_a_time(start_worker):
    worker = start_worker("--processes", "3", "--max-jobs", "1", "--concurrency", "1").wait_until_ready()
    eventually(lambda: len(worker.children()) == 3)
    first = set(worker.children())
    seen = set()

    def all_are_recycled():
        app.record.enqueue_many([("x",)] * 3)
        seen.add(len(worker.children()))
        return first <= set(recycled(worker))

    eventually(all_are_recycled, seconds=LONG_PATIENCE_SECONDS)  # processes start one after the other
    assert max(seen) <= 6
    events = re.findall(r"(Recycling process|Process) (\d+)(?=:| is recycled)", worker.text())
    begun = [int(pid) for kind, pid in events if kind == "Recycling process"]
    assert len(set(begun)) == len(begun)


def test_drain_goes_on_through_recycling_to_its_end(start_worker):
    ids = enqueued_ids(app.sleep, [(0.02,)] * 1000)
    worker = start_worker("--drain", "--max-jobs", "20", "--concurrency", "2", "--processes", "2")
    assert worker.wait(seconds=LONG_PATIENCE_SECONDS) == 0, worker.text()
    assert "Recycling process" in worker.text()
    assert sorted(Mark.objects.filter(label="end").values_list("job_id", flat=True)) == sorted(ids)
    assert (Job.objects.count(), Worker.objects.count()) == (0, 0)


def test_job_that_does_not_end_stays_where_it_is_and_processes_do_not_pile_up(start_worker):
    worker = start_worker("--max-jobs", "1", "--concurrency", "2", LEASE_SECONDS="3").wait_until_ready()
    [first] = worker.children()
    endless = app.until_kill_requested.using(max_attempts=1).enqueue(600)
    app.record.enqueue("one")
    second = eventually(lambda: successor(worker, first))
    app.record.enqueue("two")
    eventually(lambda: "is not recycled before one of 1 has ended" in worker.text())
    app.record.enqueue_many([("three",)] * 20)
    eventually(lambda: Mark.objects.filter(label="three").count() == 20)
    assert sorted(worker.children()) == sorted([first, second])
    assert recycled(worker) == []
    eventually(lambda: list(Job.objects.values_list("id", flat=True)) == [endless.id])
    Job.objects.update(kill_requested_at="2026-01-01T00:00Z")  # the next heartbeat carries it to the old process
    eventually(lambda: first in recycled(worker))
    assert DeadJob.objects.get().id == endless.id
    eventually(lambda: second in recycled(worker))  # it had been over its limit all the time


def test_stop_in_the_middle_of_recycling_ends_old_and_new(start_worker):
    worker = start_worker("--max-jobs", "1", "--concurrency", "2", "--shutdown-timeout", "1").wait_until_ready()
    [first] = worker.children()
    endless = app.sleep.enqueue(600)
    app.record.enqueue("one")
    eventually(lambda: successor(worker, first))
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.text()
    job = Job.objects.get()
    assert (job.id, job.status, job.attempts) == (endless.id, "queued", 0)
    assert Worker.objects.count() == 0
    assert f"Process {first} has not stopped in time" in worker.text()


def test_old_process_that_crashes_while_it_leaves_is_settled_and_not_replaced_again(start_worker):
    worker = start_worker("--max-jobs", "1", "--concurrency", "2").wait_until_ready()
    [first] = worker.children()
    endless = app.sleep_once.enqueue(600)
    app.record.enqueue("one")
    second = eventually(lambda: successor(worker, first))
    os.kill(first, signal.SIGKILL)
    assert eventually(DeadJob.objects.first).id == endless.id
    eventually(lambda: worker.children() == [second])
    assert f"Process {first} ended (killed by SIGKILL) while it was replaced" in worker.text()
    assert "starting another" not in worker.text()


def test_old_process_works_on_while_new_ones_cannot_start(start_worker, tmp_path):
    broken = tmp_path / "broken"
    settings = {"DJANGO_SETTINGS_MODULE": "tests.processes.broken_settings", "BROKEN": str(broken)}
    worker = start_worker("--max-jobs", "2", "--spawn", **settings).wait_until_ready()
    [first] = worker.children()
    app.record.enqueue("good")
    eventually(lambda: Mark.objects.count() == 1)
    broken.touch()
    app.record.enqueue("broken")
    eventually(lambda: worker.text().count("ended (exit code 1), starting another") >= 2)
    app.record.enqueue("still broken")
    assert eventually(Mark.objects.filter(label="still broken").first).pid == first
    broken.unlink()
    second = eventually(lambda: successor(worker, first))
    eventually(lambda: worker.children() == [second])
    assert worker.text().count(f"Recycling process {first}") == 1


def test_process_that_has_grown_too_large_is_replaced(start_worker):
    settled = {"DJANGO_SETTINGS_MODULE": "tests.processes.settled_settings"}
    worker = start_worker("--max-memory", "200", "--concurrency", "1", afresh=True, **settled).wait_until_ready()
    [first] = worker.children()
    app.noop.enqueue()
    eventually(lambda: SucceededJob.objects.count() == 1)
    assert resident_bytes(first) < 200 * 2**20
    app.grow.enqueue(250)
    assert eventually(lambda: recycled(worker)) == [first]
    assert re.search(rf"Recycling process {first}: \d\d\d MiB in use", worker.text())
    second = successor(worker, first)
    app.record.enqueue("new")
    assert eventually(Mark.objects.filter(label="new").first).pid == second
    assert resident_bytes(second) < 200 * 2**20


def test_memory_of_a_process_that_is_gone_is_nothing():
    assert resident_bytes(2**22 + 1) == 0
    assert resident_bytes(os.getpid()) > 10 * 2**20


@pytest.mark.parametrize("memory", [0, 31])
def test_wrong_limits_are_named(memory):
    with pytest.raises(CommandError) as caught:
        call_command("pgqueue_worker", max_jobs=0, max_memory=memory)
    assert "--max-jobs must be 1 or more, not 0." in str(caught.value)
    assert f"--max-memory must be 32 or more MiB, not {memory}." in str(caught.value)


def test_system_that_does_not_tell_memory_is_named(monkeypatch):
    monkeypatch.setattr("django_pgqueue.management.commands.pgqueue_worker.can_read_memory", lambda: False)
    with pytest.raises(
        CommandError, match=r"--max-memory needs /proc, which this system does not have; use --max-jobs\."
    ):
        call_command("pgqueue_worker", max_memory=100)


def test_worn_process_may_die_while_its_replacement_starts(start_worker):
    """As by the kernel, when memory is out."""
    worker = start_worker("--max-jobs", "5", "--concurrency", "2", afresh=True).wait_until_ready()
    [first] = worker.children()
    app.record.enqueue_many([("x",)] * 5)
    eventually(lambda: f"Recycling process {first}" in worker.text())
    with contextlib.suppress(ProcessLookupError):  # the replacement was quick
        os.kill(first, signal.SIGKILL)
    app.record.enqueue_many([("y",)] * 3)
    eventually(lambda: SucceededJob.objects.count() == 8)
    eventually(lambda: len(worker.children()) == 1)
    assert worker.process.poll() is None, worker.text()
