"""A job is found in whichever table it is, by one statement."""

import json

import pytest

import tests.app.tasks as app
from django_pgqueue import Unique, jobs
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import JobDoesNotExist
from django_pgqueue.jobs import ack
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.lookup import find
from django_pgqueue.models import DeadJob, Job, SucceededJob
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.states import DeathReason, JobStatus
from tests.support.many import enqueued_ids


def end(queue, fate, **values):
    [job] = claim(queue, "default", limit=1, worker_id=7)
    ack.write(queue, [Outcome(job, fate, **values)])
    return job


def test_queued_job_has_not_started(queue):
    handle = app.record.using(priority=3, metadata={"tenant": 5}, tags=("b", "a", "b", '"{\\,')).enqueue("x")
    state, row = find(CallerConnection(), handle.id), Job.objects.get()
    assert (state.id, state.status, state.queue, state.task) == (handle.id, "queued", "default", app.record.name)
    assert (state.backend, state.priority, state.attempts, state.lost) == ("", 3, 0, 0)
    assert (state.run_at, state.enqueued_at) == (row.run_at, row.enqueued_at)
    assert (state.started_at, state.last_attempted_at, state.ended_at, state.worker_id) == (None, None, None, None)
    assert state.tags == ("b", "a", '"{\\,')
    assert (state.args, state.kwargs, state.metadata, state.errors) == (["x"], {}, {"tenant": 5}, [])
    assert (state.reason, state.result, state.progress, state.keeps_result) == (None, None, None, False)
    assert not state.succeeded
    assert not state.is_finished


def test_running_job_has_a_worker(queue):
    app.noop.enqueue()
    [job] = claim(queue, "default", limit=1, worker_id=7)
    state, row = find(CallerConnection(), job.id), Job.objects.get()
    assert (state.status, state.worker_id, state.attempts) == ("running", 7, 1)
    assert (state.started_at, state.last_attempted_at) == (row.first_started_at, row.started_at)


@pytest.mark.parametrize("result", [None, 0, "text", {"a": [1]}])
def test_finished_job_has_its_result(queue, result):
    app.noop.enqueue()
    job = end(queue, Fate.SUCCEEDED, result=json.dumps(result))
    state, row = find(CallerConnection(), job.id), SucceededJob.objects.get()
    assert (state.status, state.result, state.keeps_result) == ("succeeded", result, True)
    assert (state.ended_at, state.last_attempted_at, state.worker_id) == (row.succeeded_at, row.started_at, 7)
    assert state.succeeded
    assert state.is_finished


def test_dead_job_has_its_reason_and_history(queue):
    app.noop.enqueue()
    job = end(queue, Fate.DIED, reason=DeathReason.DISCARDED, error={"error": "Discard", "message": "no such order"})
    state, row = find(CallerConnection(), job.id), DeadJob.objects.get()
    assert (state.status, state.reason, state.ended_at) == ("dead", "discarded", row.died_at)
    assert [error["message"] for error in state.errors] == ["no such order"]
    assert state.is_finished
    assert not state.succeeded


def test_what_is_kept_of_a_job_goes_before_its_reserved(queue):
    app.noop.using(unique_key="u", unique=Unique(hold=600)).enqueue()
    job = end(queue, Fate.SUCCEEDED, result="5")
    assert Job.objects.get().status == "reserved"
    state = find(CallerConnection(), job.id)
    assert (state.status, state.result) == ("succeeded", 5)


def test_reserved_alone_is_a_job_that_has_finished(queue):
    app.unkept.using(unique_key="u", unique=Unique(hold=600)).enqueue()
    state = find(CallerConnection(), end(queue, Fate.SUCCEEDED, result="5").id)
    assert (state.status, state.succeeded, state.keeps_result) == ("reserved", True, False)


@pytest.mark.parametrize("job_id", [-1, 0, 1, 2**63 - 1, 2**63, 10**30])
def test_id_without_a_job_is_unknown(queue, job_id):
    with pytest.raises(JobDoesNotExist, match=f"There is no job {job_id}: "):
        find(CallerConnection(), job_id)


def test_both_kinds_of_connection_read_the_same(queue):
    handle = app.noop.enqueue()
    assert find(queue, handle.id) == find(CallerConnection(), handle.id)


def test_finding_is_one_statement(queue, django_assert_num_queries):
    handle = app.noop.enqueue()
    with django_assert_num_queries(1):
        find(CallerConnection(), handle.id)


def test_live_job_is_found_without_a_look_into_history(queue, sql):
    handle = app.noop.enqueue()
    text = statement("find_job").replace("%(id)s", str(handle.id)).replace("%", "%%")
    plan = "\n".join(line for (line,) in sql(f"EXPLAIN (ANALYZE) {text}"))
    succeeded = [line for line in plan.splitlines() if "succeeded_jobs" in line and "Scan" in line]
    assert succeeded
    assert all("never executed" in line for line in succeeded), plan


def test_numbers_come_back_as_they_were_returned_and_what_python_cannot_hold_as_text(queue, sql):
    """A program gets what the task returned; one that SQL has written in its place is no reason to fail."""
    [whole, too_long] = enqueued_ids(app.noop, [()] * 2)
    claimed = claim(queue, "default", limit=2, worker_id=1)
    ack.write(queue, [Outcome(one, Fate.SUCCEEDED, result="1" + "0" * 400) for one in claimed])
    sql("UPDATE pgqueue_succeeded_jobs SET result = %s WHERE id = %s", "9" * 5000, too_long)
    assert jobs.get(whole).result() == 10**400
    assert jobs.get(too_long).result() == "9" * 5000


class Newer(CallerConnection):
    """A database in which jobs have a status that this code does not know."""

    def rows(self, sql, parameters):
        [[job_id, _, *rest]] = super().rows(sql, parameters)
        return [(job_id, "frozen", *rest)]


def test_status_and_reason_are_words_of_the_code_and_those_of_newer_code_texts(queue):
    handle = app.noop.enqueue()
    assert handle.status() is JobStatus.QUEUED
    handle.kill()
    state = handle.state()
    assert (state.status, state.reason) == (JobStatus.DEAD, DeathReason.KILLED)
    assert type(state.reason) is DeathReason
    assert find(Newer(), handle.id).status == "frozen"
