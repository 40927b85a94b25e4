"""Records of jobs, leases and outcomes are what statements return, in their order."""

import random

import tests.app.tasks as app
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.leases import worker_leases
from django_pgqueue.models import Job
from django_pgqueue.records import EXPIRED, KILLED, EndCounts, Fate, Lease
from tests.support.claimed import job


def test_claim_returns_the_columns_of_a_job_in_their_order(queue):
    task = app.record.using(queue="mail", priority=7, timeout=60, max_attempts=4, metadata={"a": 1})
    handle = task.enqueue("x")
    [claimed] = claim(queue, "mail", limit=1, worker_id=5)
    row = Job.objects.get()
    assert (claimed.id, claimed.task, claimed.queue) == (handle.id, app.record.name, "mail")
    assert (claimed.args, claimed.kwargs) == ('["x"]', "{}")
    assert (claimed.priority, claimed.attempt, claimed.max_attempts, claimed.timeout_seconds) == (7, 1, 4, 60)
    assert (claimed.lost, claimed.concurrency_key, claimed.is_old) == (0, None, False)
    assert (claimed.run_at, claimed.lease_token) == (row.run_at.timestamp(), row.lease_token)
    assert claimed.place == (-7, claimed.run_at, handle.id)
    assert claimed.enqueued_at is None, "but of fair jobs"


def test_claim_returns_when_a_fair_job_was_enqueued(queue):
    app.record.using(fair_key="a").enqueue("x")
    [claimed] = claim(queue, "default", limit=1, worker_id=5)
    assert claimed.enqueued_at == Job.objects.get().enqueued_at.timestamp()


def test_lease_has_the_columns_of_the_running_row_and_the_number_of_its_run(queue):
    app.record.using(timeout=60, max_attempts=4).enqueue("x")
    [claimed] = claim(queue, "default", limit=1, worker_id=5)
    [lease] = worker_leases(queue, [5])
    assert (lease.id, lease.lease_token, lease.worker_id, lease.queue) == (
        claimed.id,
        claimed.lease_token,
        5,
        "default",
    )
    assert (lease.attempt, lease.max_attempts, lease.lost, lease.is_kill_requested) == (1, 4, 0, False)
    assert (lease.task, lease.timeout_seconds) == (app.record.name, 60)
    assert lease.run_id == claimed.run_id
    assert lease._replace(lease_token=claimed.lease_token + 1).run_id != claimed.run_id
    assert isinstance(lease, Lease)


def test_jobs_sort_as_they_are_to_be_started():
    ordered = [job(rank=-5, run_at=9.0, id=9), job(run_at=1.0, id=8), job(run_at=2.0, id=3), job(run_at=2.0, id=4)]
    shuffled = random.Random(0).sample(ordered, len(ordered))
    assert sorted(shuffled) == ordered


def test_arguments_stand_in_no_text_of_a_job():
    claimed = job('["hunter2"]', '{"password": "hunter2"}', task="shop.log_in", attempt=2)
    assert f"{claimed} {claimed!r}" == " ".join(["<ClaimedJob 1 (shop.log_in) attempt 2>"] * 2)


def test_job_that_is_not_to_run_says_why():
    assert (job().was_killed, job().has_expired) == (False, False)
    killed, expired = job(timeout_seconds=KILLED), job(timeout_seconds=EXPIRED)
    assert (killed.was_killed, killed.has_expired) == (True, False)
    assert (expired.was_killed, expired.has_expired) == (False, True)


def test_success_that_is_recorded_is_called_a_success():
    words = {fate: fate.word for fate in Fate}
    assert words.pop(Fate.RECORDED) == "succeeded"
    assert words == {fate: fate.name.lower() for fate in words}


def test_counts_of_ends_are_joined_kind_by_kind():
    one = EndCounts(lost=(("mail", "a"),), died=(("mail", "a"),))
    other = EndCounts(lost=(("slow", "b"),), retried=(("slow", "b"),))
    assert one.and_also(other) == EndCounts(
        lost=(("mail", "a"), ("slow", "b")), retried=(("slow", "b"),), died=(("mail", "a"),)
    )
    assert one.and_also(EndCounts()) == one
