"""manage.py pgqueue_schedules: schedules are listed, paused and run."""

import datetime as dt
import json

import pytest
from django.core.management import CommandError

from django_pgqueue.models import Job, Schedule
from django_pgqueue.schedules.enqueuer import fire_due
from tests.support.schedules import HOUR, RECORD, START, make
from tests.support.schedules_command import schedule

pytestmark = pytest.mark.django_db(transaction=True)


def test_list_tells_that_declared_schedules_are_there_after_the_first_worker(monkeypatch):
    for names, told in ((["a"], "1 declared schedule appears"), (["a", "b"], "2 declared schedules appear")):
        monkeypatch.setattr("django_pgqueue.schedules.periodic._declared", dict.fromkeys(names))
        assert schedule("list") == f"There are no schedules yet: {told} once a worker has run.\n"


def test_list_tells_when_schedules_run_next_and_what_became_of_the_last_job(queue, monkeypatch):
    monkeypatch.setattr("django_pgqueue.schedules.periodic._declared", {})
    assert schedule("list") == "There are no schedules.\n"
    make("a", cron="30 2 * * *", timezone="Europe/Berlin", next_at=dt.datetime(2026, 3, 28, 1, 30, tzinfo=dt.UTC))
    make("b", is_enabled=False, paused_by="eve")
    fire_due(queue, now=START)
    Job.objects.update(status="scheduled", attempts=1)
    Schedule.objects.filter(name="a").update(next_at=dt.datetime(2026, 3, 28, 1, 30, tzinfo=dt.UTC))
    job_id = Job.objects.get().id
    assert schedule("list") == (
        "a\n"
        f"  {RECORD}, cron 30 2 * * * (Europe/Berlin)\n"
        "  next: 2026-03-28 02:30:00+01:00, 2026-03-29 03:00:00+02:00, 2026-03-30 02:30:00+02:00, "
        "2026-03-31 02:30:00+02:00, 2026-04-01 02:30:00+02:00\n"
        f"  last: job {job_id} retrying, due 2026-10-19 02:30:00+02:00\n"
        "b\n"
        f"  {RECORD}, every 1:00:00\n"
        "  next: paused by eve\n"
        "  last: none yet\n"
    )
    assert schedule("list", "b").startswith("b\n")
    with pytest.raises(CommandError, match="There is no schedule 'c'"):
        schedule("list", "c")


def test_schedules_are_paused_resumed_and_run(queue):
    make()
    assert schedule("pause", "hourly", "--by", "eve") == "hourly: paused.\n"
    assert Schedule.objects.get().paused_by == "eve"
    with pytest.raises(CommandError, match=r"Left alone: 'hourly'\. They are paused already"):
        schedule("pause", "hourly")
    assert schedule("run", "hourly") == f"hourly: job {Job.objects.latest('id').id} is enqueued.\n"
    assert schedule("resume", "hourly") == "hourly: resumed.\n"
    assert Schedule.objects.get().next_at > START + HOUR


def test_actions_as_json_tell_how_the_schedules_are_now(queue):
    make()
    [paused] = json.loads(schedule("pause", "hourly", "--by", "eve", "--json"))
    assert (paused["name"], paused["is_enabled"], paused["paused_by"]) == ("hourly", False, "eve")
    [ran] = json.loads(schedule("run", "hourly", "--json"))
    assert (ran["name"], ran["job"]) == ("hourly", Job.objects.latest("id").id)
    [resumed] = json.loads(schedule("resume", "hourly", "--json"))
    assert (resumed["is_enabled"], "job" in resumed) == (True, False)
    assert [resumed] == json.loads(schedule("list", "--json"))


def test_run_that_cannot_be_enqueued_changes_nothing():
    make("good")
    make("strange", task="shop.tasks.not_here")
    with pytest.raises(CommandError, match=r"Nothing was changed\. No task is called 'shop\.tasks\.not_here'"):
        schedule("run", "good", "strange")
    assert Job.objects.count() == 0
    with pytest.raises(CommandError, match="There is no schedule 'missing'"):
        schedule("run", "missing")
