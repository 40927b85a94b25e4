"""manage.py pgqueue_schedule: schedules are listed, paused and run."""

import datetime as dt
import io
import json

import pytest
from django.core.management import CommandError, call_command

from django_pgqueue import kill
from django_pgqueue.models import Job, Schedule
from django_pgqueue.schedules.enqueuer import fire_due
from tests.support.schedules import HOUR, RECORD, START, make

pytestmark = pytest.mark.django_db(transaction=True)


def schedule(*arguments: object) -> str:
    out = io.StringIO()
    call_command("pgqueue_schedule", *map(str, arguments), stdout=out)
    return out.getvalue()


def test_list_tells_when_schedules_run_next_and_what_became_of_the_last_job(queue):
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


def test_list_tells_what_is_odd_about_a_schedule():
    make(source="code", edited_at=START, last_error="No luck.", last_job_id=1)
    make("broken", cron="0 0 30 2 *")
    make("odd\x1b[2J")
    assert schedule("list", "hourly").splitlines()[3:] == [
        "  last: job 1 finished or removed, nothing was kept",
        "  not in this code: workers that have this code leave it alone",
        "  edited in the admin 2026-10-20 02:00:00+02:00: this wins over the code",
        "  error: No luck.",
    ]
    broken = schedule("list", "broken")
    assert "next: never\n" in broken
    assert "error: cron is '0 0 30 2 *': bad day-of-month." in broken
    assert "odd?[2J\n" in schedule("list")


def test_list_is_told_to_programs(queue):
    make("a", cron="@daily", timezone="Asia/Tokyo", args=["secret"], next_at=dt.datetime(2026, 3, 1, 15, tzinfo=dt.UTC))
    fire_due(queue, now=dt.datetime(2026, 3, 1, 15, tzinfo=dt.UTC))
    kill([Job.objects.get().id], by="eve")
    [told] = json.loads(schedule("list", "a", "--format", "json"))
    assert told["next"][:2] == ["2026-03-03 00:00:00+09:00", "2026-03-04 00:00:00+09:00"]
    assert (told["last_outcome"], told["last_reason"], told["last_at"]) == (
        "dead",
        "killed",
        "2026-03-01 16:00:00+01:00",
    )
    assert (told["cron"], told["is_enabled"], told["source"], told["error"]) == ("@daily", True, "admin", "")
    assert "secret" not in str(told)


def test_database_without_the_tables_is_named():
    with pytest.raises(CommandError, match="'lite' is sqlite"):
        schedule("list", "--database", "lite")


def test_schedules_are_paused_resumed_and_run(queue):
    make()
    assert schedule("pause", "hourly", "--by", "eve") == "hourly: paused.\n"
    assert Schedule.objects.get().paused_by == "eve"
    with pytest.raises(CommandError, match=r"Left alone: 'hourly'\. They are paused already"):
        schedule("pause", "hourly")
    assert schedule("run", "hourly") == f"hourly: job {Job.objects.latest('id').id} is enqueued.\n"
    assert schedule("resume", "hourly") == "hourly: resumed.\n"
    assert Schedule.objects.get().next_at > START + HOUR


def test_run_that_cannot_be_enqueued_changes_nothing():
    make("good")
    make("strange", task="shop.tasks.not_here")
    with pytest.raises(CommandError, match=r"Nothing was changed\. No task is called 'shop\.tasks\.not_here'"):
        schedule("run", "good", "strange")
    assert Job.objects.count() == 0
    with pytest.raises(CommandError, match="There is no schedule 'missing'"):
        schedule("run", "missing")
