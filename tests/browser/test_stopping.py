"""An operation that somebody thinks better of."""

import pytest

import tests.app.tasks as app
from django_pgqueue import enqueue_many, kill
from django_pgqueue.models import Job, Operation
from tests.support.waiting import eventually

APP = "/admin/django_pgqueue/"


@pytest.fixture
def dead(live_server) -> list[int]:
    ids = enqueue_many(app.record.using(queue="mail"), [("x",)] * 300)
    kill(ids, by="eve")
    kill(enqueue_many(app.record, [("y",)] * 5), by="eve")
    return ids


def test_operation_is_stopped_by_its_button(dead, tab_of, staff_with, start_worker, expect):
    user = staff_with("view_deadjob", "view_operation", "requeue_deadjob", "stop_operation")
    start_worker("--queues", "aside", "--concurrency", "1").wait_until_ready()
    tab = tab_of(user)
    page = tab.open(f"{APP}deadjob/requeue/matching/?queue=mail")
    page.get_by_label("Jobs a second").fill("2")
    page.locator("input[type=submit]").click()
    eventually(lambda: Operation.objects.get().done)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".messagelist")).to_contain_text("It was stopped")
    expect(page.locator(".pgqueue-far")).to_contain_text("stopped by ann")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    operation = Operation.objects.get()
    assert operation.ended_at is not None
    assert 0 < operation.done == Job.objects.count() < 300
    tab.must_be_sound()
