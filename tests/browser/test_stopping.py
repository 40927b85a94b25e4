"""A bulk action that a user stops."""

import pytest

import tests.app.tasks as app
from django_pgqueue.jobs import kill
from django_pgqueue.models import BulkAction, Job
from tests.support.many import enqueued_ids
from tests.support.waiting import eventually

APP = "/admin/pgqueue/"


@pytest.fixture
def dead(live_server) -> list[int]:
    ids = enqueued_ids(app.record.using(queue="mail"), [("x",)] * 1000)
    kill(ids, by="eve")
    kill(enqueued_ids(app.record, [("y",)] * 5), by="eve")
    return ids


def test_bulk_action_is_stopped_by_its_button(dead, tab_of, staff_with, start_worker, expect):
    user = staff_with("view_deadjob", "view_bulkaction", "retry_deadjob", "stop_bulkaction")
    start_worker("--queue", "aside", "--concurrency", "1").wait_until_ready()
    tab = tab_of(user)
    page = tab.open(f"{APP}deadjob/retry/matching/?queue=mail")
    page.get_by_label("Jobs a second").fill("2")
    page.locator("input[type=submit]").click()
    eventually(lambda: BulkAction.objects.filter(done__gt=0).exists())
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".messagelist")).to_contain_text("It was stopped")
    expect(page.locator(".pgqueue-far")).to_contain_text("stopped by ann")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    bulk_action = BulkAction.objects.get()
    assert bulk_action.ended_at is not None
    assert 0 < bulk_action.done == Job.objects.count() < 1000
    tab.must_be_sound()
