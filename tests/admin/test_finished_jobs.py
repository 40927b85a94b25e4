"""The list of finished jobs, by day."""

import datetime as dt

import pytest

from tests.support.admin_jobs import FINISHED
from tests.support.job_lists import finish, ids

pytestmark = pytest.mark.django_db


def test_finished_jobs_of_a_day(viewer):
    for number, at in enumerate(
        ("2031-04-30T23:59:59Z", "2031-05-01T00:00Z", "2031-05-01T23:59:59Z", "2031-05-02T00:00Z")
    ):
        finish(number, finished_at=at)
    assert ids(viewer, FINISHED, day="2031-05-01") == [2, 1]
    assert ids(viewer, FINISHED, day="2031-05-01", q="tests") == [2, 1]
    days = {dt.datetime.now(dt.UTC).date()}
    page = viewer.get(FINISHED).content.decode()
    days.add(dt.datetime.now(dt.UTC).date())  # midnight may be over by now
    assert any(f"?day={day}" in page for day in days)
    assert "13 ms" in page
