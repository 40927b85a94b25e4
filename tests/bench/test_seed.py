"""Jobs of a bench are made as its load says."""

import time

import pytest
from django.db import transaction

from django_pgqueue.bench import seed, tasks
from django_pgqueue.bench.load import QUEUE, Load
from django_pgqueue.bench.room import BenchQueue
from django_pgqueue.bench.seed import Seed
from django_pgqueue.models import Job


def seed_of(**load) -> Seed:
    return Seed(Load(**load), BenchQueue("default", is_shared=False, other_workers=0))


def test_backlog_is_enqueued_in_chunks_with_sleep_and_payload_of_each_job(db, monkeypatch):
    monkeypatch.setattr(seed, "CHUNK", 3)
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
