"""Schedules, as people and programs are told of them."""

import datetime as dt
import json

import pytest

from django_pgqueue.jobs import kill
from django_pgqueue.models import Job
from django_pgqueue.schedules.enqueuer import fire_due
from tests.support.schedules import START, make
from tests.support.schedules_command import schedule

pytestmark = pytest.mark.django_db(transaction=True)


def test_list_tells_what_is_odd_about_a_schedule():
    make(source="code", edited_at=START, last_error="No luck.", last_job_id=1)
    make("broken", cron="0 0 30 2 *")
    make("odd\x1b[2J")
    assert schedule("list", "hourly").splitlines()[3:] == [
        "  last: job 1 succeeded or removed, nothing was kept",
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
    [told] = json.loads(schedule("list", "a", "--json"))
    assert told["next"][:2] == ["2026-03-03 00:00:00+09:00", "2026-03-04 00:00:00+09:00"]
    assert (told["last_outcome"], told["last_reason"], told["last_at"]) == (
        "dead",
        "killed",
        "2026-03-01 16:00:00+01:00",
    )
    assert (told["cron"], told["is_enabled"], told["source"], told["error"]) == ("@daily", True, "admin", "")
    assert "secret" not in str(told)
