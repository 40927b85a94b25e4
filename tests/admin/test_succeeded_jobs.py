"""The list of succeeded jobs: those of a day, and purging them."""

import datetime as dt

import pytest
from django.contrib.admin.models import LogEntry

from django_pgqueue.models import BulkAction, SucceededJob
from tests.support.admin_bulk_actions import text_of
from tests.support.admin_jobs import SUCCEEDED
from tests.support.job_lists import finish, ids
from tests.support.staff import messages_of, user_with

pytestmark = pytest.mark.django_db


def test_succeeded_jobs_of_a_day(viewer):
    for number, at in enumerate(
        ("2031-04-30T23:59:59Z", "2031-05-01T00:00Z", "2031-05-01T23:59:59Z", "2031-05-02T00:00Z")
    ):
        finish(number, succeeded_at=at)
    assert ids(viewer, SUCCEEDED, day="2031-05-01") == [2, 1]
    assert ids(viewer, SUCCEEDED, day="2031-05-01", q="tests") == [2, 1]
    days = {dt.datetime.now(dt.UTC).date()}
    page = viewer.get(SUCCEEDED).content.decode()
    days.add(dt.datetime.now(dt.UTC).date())  # midnight may be over by now
    assert any(f"?day={day}" in page for day in days)
    assert "13 ms" in page


def test_succeeded_jobs_are_purged_ticked_or_all(sql):
    purger = user_with("view_succeededjob", "delete_succeededjob", "view_bulkaction")
    columns = "enqueued_at, run_at, first_started_at, started_at, worker_id, priority, attempts, lost, run_seconds"
    sql(
        f"INSERT INTO pgqueue_succeeded_jobs (id, queue, task, backend, args, kwargs, metadata, errors, {columns}) "
        "SELECT n, 'mail', 't', '', '[]', '{}', '{}', '[]', now(), now(), now(), now(), 0, 0, 1, 0, 1 "
        "FROM generate_series(1, 5) AS n"
    )
    ticked = {"action": "purge", "index": 0, "select_across": 0, "_selected_action": [1, 2]}
    assert "Remove 2 succeeded jobs for good?" in text_of(purger.post(SUCCEEDED, ticked))
    response = purger.post(f"{SUCCEEDED}purge/", {"ids": "1,2", "confirmed": "yes", "filters": ""}, follow=True)
    assert messages_of(response) == ["2 jobs were removed for good."]
    assert sorted(SucceededJob.objects.values_list("pk", flat=True)) == [3, 4, 5]
    assert {entry.change_message for entry in LogEntry.objects.all()} == {"Purged."}
    purger.post(f"{SUCCEEDED}purge/matching/?queue=mail", {"rate": ""})
    assert (BulkAction.objects.get().source, BulkAction.objects.get().expected) == ("succeeded", 3)
    viewer = user_with("view_succeededjob", "delete_deadjob", name="vic")
    assert viewer.post(f"{SUCCEEDED}purge/", {"ids": "3", "confirmed": "yes"}).status_code == 403
    assert viewer.post(f"{SUCCEEDED}purge/matching/", {"rate": ""}).status_code == 403
    assert "purge" not in viewer.get(SUCCEEDED).content.decode()
