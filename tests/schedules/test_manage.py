"""Staff pause, resume, run and restore schedules; the last job of each is found."""

import pytest
from django.db import transaction
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import schedules
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.exceptions import InvalidArguments, TaskDoesNotExist
from django_pgqueue.jobs import ack
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import Job, Schedule
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.schedules.enqueuer import FireResult, fire_due
from django_pgqueue.schedules.manage import LastJob, last_jobs
from django_pgqueue.states import DeathReason
from tests.support.schedules import HOUR, SECOND, START, make

pytestmark = pytest.mark.django_db(transaction=True)


def test_paused_schedule_misses_its_ticks_and_goes_on_with_the_next(queue):
    now = timezone.now()
    make(next_at=now - 90 * SECOND)
    assert schedules.pause(["hourly", "missing"], by="eve") == ["hourly"]
    assert schedules.pause(["hourly"], by="eve") == []
    assert (Schedule.objects.get().is_enabled, Schedule.objects.get().paused_by) == (False, "eve")
    assert fire_due(queue) == FireResult()
    assert schedules.resume(["hourly", "missing"], by="ann") == ["hourly"]
    assert schedules.resume(["hourly"], by="ann") == []
    row = Schedule.objects.get()
    assert (row.is_enabled, row.paused_by, row.next_at) == (True, "", now - 90 * SECOND + HOUR)
    assert fire_due(queue).jobs == 0


def test_pause_and_resume_wait_for_no_lock(queue, other_queue):
    make()
    with other_queue.transaction():
        other_queue.rows("SELECT id FROM pgqueue_schedules FOR UPDATE", {})
        assert schedules.pause(["hourly"], by="eve") == []
        assert schedules.resume(["hourly"], by="eve") == []


def test_schedule_is_run_now_besides_its_ticks(queue):
    made = make(args=["x"], options={"queue": "reports"}, is_enabled=False)
    with transaction.atomic():
        jobs = schedules.run(["hourly", "missing"], by="eve")
    job = Job.objects.get()
    assert jobs == {"hourly": job.id}
    assert (job.args, job.queue, job.status, job.schedule_id) == (["x"], "reports", "queued", made.id)
    row = Schedule.objects.get()
    assert (row.last_job_id, row.next_at, row.last_at, row.is_enabled) == (job.id, START, None, False)


def test_schedule_that_cannot_be_run_now_says_why():
    make("strange", task="shop.tasks.not_here")
    make("misfit", args=["too", "many"])
    with pytest.raises(TaskDoesNotExist, match="shop"):
        schedules.run(["strange"], by="eve")
    with pytest.raises(InvalidArguments, match="takes"):
        schedules.run(["misfit"], by="eve")
    assert Job.objects.count() == 0


def test_only_edits_of_schedules_of_the_code_are_taken_back(other_queue):
    now = timezone.now()
    for name, source, edited_at in (("edited", "code", now), ("plain", "code", None), ("mine", "admin", now)):
        make(name, source=source, edited_at=edited_at)
    names = ["edited", "plain", "mine", "missing"]
    with other_queue.transaction():
        other_queue.rows("SELECT id FROM pgqueue_schedules FOR UPDATE", {})
        assert schedules.restore(names, by="eve") == [], "it waits for no lock"
    assert schedules.restore(names, by="eve") == ["edited"]
    assert dict(Schedule.objects.values_list("name", "edited_at")) == {"edited": None, "plain": None, "mine": now}
    assert schedules.restore(names, by="eve") == []


def test_last_job_is_told_wherever_it_is(queue, sql):
    queued, running, retrying, dead, succeeded, gone = (app.noop.enqueue().id for _ in range(6))
    sql("UPDATE pgqueue_jobs SET status = 'scheduled', attempts = 1 WHERE id = %s", retrying)
    Job.objects.filter(pk=gone).delete()
    found = {job.id: job for job in claim(queue, "default", limit=9, worker_id=1)}
    ack.write(
        queue,
        [
            Outcome(found[dead], Fate.DIED, reason=DeathReason.DISCARDED, error={}),
            Outcome(found[succeeded], Fate.SUCCEEDED),
            Outcome(found[queued], Fate.RELEASED),
        ],
    )
    assert last_jobs(CallerConnection(), [queued, running, retrying, dead, succeeded, gone]) == {
        queued: LastJob("queued"),
        running: LastJob("running"),
        retrying: LastJob("retrying"),
        dead: LastJob("dead", "discarded"),
        succeeded: LastJob("succeeded"),
    }


@pytest.mark.parametrize("act", [schedules.pause, schedules.resume, schedules.run, schedules.restore])
def test_one_name_is_no_list_of_names(act):
    with pytest.raises(TypeError, match=r"'hourly' is no list of names of schedules: write \['hourly'\]\."):
        act("hourly", by="eve")
