"""Schedules in real commands."""

import datetime as dt
import signal
from collections import Counter

import pytest
from django.utils import timezone

from django_pgqueue.models import Job, Schedule, SucceededJob
from tests.support.crash_points import Point
from tests.support.schedules import make
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)

SECOND = dt.timedelta(seconds=1)


def ticks_run() -> Counter:
    return Counter(SucceededJob.objects.values_list("run_at", flat=True))


def test_two_commands_run_a_schedule_once_a_second(start_worker):
    row = make(every_seconds=1, next_at=timezone.now())
    for _ in range(2):
        start_worker()
    eventually(lambda: len(ticks_run()) >= 4)
    assert set(ticks_run().values()) == {1}
    steps = {(tick - row.next_at) / SECOND for tick in ticks_run()}
    assert all(step == int(step) for step in steps)


def test_command_killed_between_the_job_and_its_commit_leaves_the_tick_to_the_next(start_worker, tmp_path):
    first = timezone.now() - 3601 * SECOND
    make(every_seconds=600, next_at=first, catch_up="all")
    point = Point(tmp_path, "tick inserted")
    point.arm("kill")
    crashed = start_worker(CRASH_POINTS=str(tmp_path))
    assert crashed.wait() == -signal.SIGKILL, crashed.text()
    assert not point.is_armed
    assert (Job.objects.count(), SucceededJob.objects.count(), Schedule.objects.get().next_at) == (0, 0, first)
    start_worker(CRASH_POINTS=str(tmp_path))
    eventually(lambda: len(ticks_run()) >= 7)
    assert ticks_run() == Counter(first + number * 600 * SECOND for number in range(7))
