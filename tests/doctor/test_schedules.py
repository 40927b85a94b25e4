"""Schedules that are late or refused are found."""

import datetime as dt

import pytest
from django.utils import timezone

from django_pgqueue.models import Schedule
from tests.support.doctor import found, only
from tests.support.schedules import make

pytestmark = pytest.mark.django_db


def test_schedule_that_is_late_is_found_unless_it_is_paused():
    make("hourly")
    Schedule.objects.update(next_at=timezone.now() - dt.timedelta(seconds=5))
    assert not found("schedules-late")
    Schedule.objects.update(next_at=timezone.now() - dt.timedelta(seconds=70))
    assert "hourly" in only("schedules-late").what
    Schedule.objects.update(is_enabled=False)
    assert not found("schedules-late")


def test_schedule_whose_tick_was_refused_is_found():
    make("hourly", last_error="no such task")
    assert "hourly" in only("schedules-refused").what
