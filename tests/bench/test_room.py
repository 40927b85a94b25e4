"""A bench comes in only where nothing is in its way, and leaves the rows of others alone."""

import datetime as dt
import io
import time

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction

import tests.app.tasks as app
from django_pgqueue.bench import room, tasks
from django_pgqueue.bench.report import QUEUE, Load
from django_pgqueue.bench.room import BenchQueue, Seed, alone, check_others
from django_pgqueue.models import DeadJob, Job, SucceededJob
from tests.support.benches import everything, of_the_bench, real


@real
def test_bench_refuses_to_start_beside_jobs_of_others():
    app.noop.enqueue()
    before = everything()
    with pytest.raises(CommandError, match=r"There are 1 jobs in pgqueue_jobs of 'test_.*With --yes the bench runs"):
        call_command("pgqueue_bench", jobs=10)
    assert everything() == before


@real
def test_with_yes_the_bench_leaves_the_rows_of_others_alone(few_pick_ups):
    app.noop.enqueue_many([()] * 5)
    app.noop.using(queue="other", delay=dt.timedelta(hours=1)).enqueue()
    SucceededJob.objects.create(
        id=10**9,
        worker_id=1,
        run_seconds=0,
        priority=0,
        attempts=1,
        lost=0,
        queue="default",
        **dict.fromkeys(("enqueued_at", "run_at", "first_started_at", "started_at"), "2024-01-01T00:00Z"),
        task="x",
        backend="",
        args=[],
        kwargs={},
        metadata={},
        errors=[],
    )
    DeadJob.objects.create(
        id=10**9 + 1,
        run_at="2024-01-01T00:00Z",
        enqueued_at="2024-01-01T00:00Z",
        reason="exhausted",
        queue="default",
        task="x",
    )
    before = everything()
    out = io.StringIO()
    call_command("pgqueue_bench", jobs=50, history=True, yes=True, stdout=out, verbosity=0)
    assert everything() == before
    assert "Measured together with jobs of other queues" in out.getvalue()


@real
def test_bench_refuses_to_start_beside_workers_that_would_take_its_jobs(register):
    register()  # all queues
    with pytest.raises(CommandError, match=r"Workers that serve all queues would take .*Stop them, or start them with"):
        call_command("pgqueue_bench", jobs=10, yes=True)
    assert of_the_bench() == [0, 0, 0, 0]


@real
def test_one_bench_at_a_time():
    with alone("default"), pytest.raises(CommandError, match="Another pgqueue_bench measures this database"):
        call_command("pgqueue_bench", jobs=10)


def test_jobs_of_the_bench_alone_are_no_jobs_of_others(sql):
    sql("INSERT INTO pgqueue_jobs (task, queue) VALUES ('x', %s)", QUEUE)
    assert check_others("default", beside_others=False) is False
    sql("INSERT INTO pgqueue_jobs (task, queue) VALUES ('x', 'y')")
    assert check_others("default", beside_others=True) is True


def seed_of(**load) -> Seed:
    return Seed(Load(**load), BenchQueue("default", is_shared=False, other_workers=0))


def test_backlog_is_enqueued_in_chunks_with_sleep_and_payload_of_each_job(db, monkeypatch):
    monkeypatch.setattr(room, "CHUNK", 3)
    shares = []
    made = seed_of(jobs=7, sleep_ms=(1, 5), payload_bytes=10)
    ids, seconds = made.backlog(range(7), shares.append)
    jobs = list(Job.objects.order_by("id"))
    assert (ids, made.room.first_id) == ((jobs[0].id, jobs[-1].id), jobs[0].id)
    assert {(job.queue, job.task, job.keep) for job in jobs} == {(QUEUE, tasks.work.name, False)}
    assert [job.args[0] for job in jobs] == list(range(7))
    sleeps, payloads = [job.args[1] for job in jobs], {job.args[2] for job in jobs}
    assert all(0.001 <= sleep <= 0.005 for sleep in sleeps)
    assert len(set(sleeps)) > 1
    assert [len(payload) for payload in payloads] == [10]
    assert seconds > 0
    assert shares == pytest.approx([3 / 7, 6 / 7, 1])


def test_each_bench_of_a_load_has_the_same_sleeps(db):
    for _ in range(2):
        seed_of(jobs=5, sleep_ms=(1, 50)).backlog(range(5), lambda _: None)
    sleeps = [job.args[1] for job in Job.objects.order_by("id")]
    assert sleeps[:5] == sleeps[5:]


def test_jobs_that_are_alike_sleep_equally_long(db):
    made = seed_of(is_async=True, history=True)
    first, last = made.alike(range(10, 13), seconds=0.02)
    jobs = list(Job.objects.order_by("id"))
    assert (jobs[0].id, jobs[-1].id) == (first, last)
    assert [job.args for job in jobs] == [[10, 0.02], [11, 0.02], [12, 0.02]]
    assert {(job.task, job.keep) for job in jobs} == {(tasks.awork.name, True)}


@pytest.mark.django_db(transaction=True)
def test_single_job_is_committed_and_its_instant_known():
    made = seed_of()
    before = time.monotonic()
    job_id, committed_at = made.one(7)
    assert before <= committed_at <= time.monotonic()
    assert not transaction.get_connection().in_atomic_block
    job = Job.objects.get()
    assert (job.id, job.args, made.room.first_id) == (job_id, [7, 0.0], None)
