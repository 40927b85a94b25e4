"""Scenarios of staff in the admin, by the names that buttons have."""

import pytest
from django.contrib.admin.models import LogEntry

import tests.app.tasks as app
from django_pgqueue.models import BulkAction, DeadJob, Job, Queue, Schedule, SucceededJob
from tests.app.models import Mark
from tests.browser.admin_actions import APP, choose, press
from tests.support.waiting import eventually
from tests.support.workflows import stuck

WORKER = ("--processes=1", "--concurrency=2")


@pytest.fixture
def mail(live_server) -> Queue:
    app.record.using(queue="mail").enqueue("one")
    return Queue.objects.create(name="mail")


def test_queue_is_paused_with_a_reason_and_resumed(mail, tab_of, superuser, expect):
    tab = tab_of(superuser)
    page = tab.open(f"{APP}queue/mail/change/")
    press(page, "Pause")
    tab.must_be_sound()
    page.get_by_label("Reason").fill("the mail server <b>moves</b>")
    press(page, "Pause")
    expect(page.get_by_text("the mail server <b>moves</b>").first).to_be_visible()
    tab.must_be_sound()
    mail.refresh_from_db()
    assert (mail.paused_by, mail.pause_reason) == ("zoe", "the mail server <b>moves</b>")
    press(page, "Resume")
    tab.must_be_sound()
    press(page, "Resume")
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()
    mail.refresh_from_db()
    assert mail.paused_at is None
    assert LogEntry.objects.filter(user=superuser).count() == 2


def test_schedule_is_made_and_run_at_once(tab_of, superuser, expect, start_worker):
    tab = tab_of(superuser)
    page = tab.open(f"{APP}schedule/add/")
    page.get_by_label("Name:").fill("each leap day ☾")
    page.get_by_label("Task:").select_option("tests.app.tasks.record")
    page.get_by_label("Cron:").fill("30 2 29 2 *")
    page.get_by_role("textbox", name="Args:", exact=True).fill('["by night"]')
    press(page, "Save and continue editing")
    expect(page.get_by_text("was added successfully")).to_be_visible()
    tab.must_be_sound()
    assert Schedule.objects.get().name == "each leap day ☾"
    press(page, "Run now")
    tab.must_be_sound()
    press(page, "Run now")
    job = eventually(Job.objects.first)
    assert job.schedule_id == Schedule.objects.get().pk
    start_worker(*WORKER)
    eventually(lambda: list(Mark.objects.values_list("job_id", "label")) == [(job.pk, "by night")])


def test_running_job_is_killed(tab_of, superuser, expect, start_worker):
    job_id = app.until_kill_requested.using(max_attempts=1).enqueue(100_000).id
    start_worker(*WORKER)
    eventually(Mark.objects.exists)
    tab = tab_of(superuser)
    page = tab.open(f"{APP}job/{job_id}/change/")
    tab.must_be_sound()
    press(page, "Kill")
    tab.must_be_sound()
    press(page, "Kill")
    eventually(DeadJob.objects.exists)
    tab = tab_of(superuser)  # the first one may be about to go there by itself
    page = tab.open(f"{APP}deadjob/{job_id}/change/")
    expect(page.get_by_text("killed").first).to_be_visible()
    tab.must_be_sound()
    assert DeadJob.objects.get().killed_by == "zoe"


DEAD = """
INSERT INTO pgqueue_dead_jobs (id, died_at, run_at, enqueued_at, reason, queue, task, errors, attempts)
SELECT number, now() - number * interval '1 s', now(), now(), 'exhausted',
    CASE WHEN number > 5000 THEN 'other' ELSE 'mail' END, 'tests.app.tasks.noop',
    '[{"kind": "failed", "error": "ValueError", "message": "no luck"}]', 10
FROM generate_series(1, 5010) AS number
"""


def test_five_thousand_dead_jobs_are_retried_by_their_filter_and_watched(tab_of, superuser, expect, start_worker, sql):
    sql(DEAD)
    tab = tab_of(superuser)
    page = tab.open(f"{APP}deadjob/?queue=mail")
    page.get_by_label("Select all objects on this page").check()
    page.get_by_text("Select all 5000 dead jobs").click()
    choose(page, "Retry selected dead jobs")
    expect(page.get_by_text("Matching now: 5,000")).to_be_visible()
    tab.must_be_sound()
    press(page, "Retry")
    expect(page.get_by_text("No worker is alive")).to_be_visible()
    tab.must_be_sound()
    start_worker(*WORKER)
    expect(page.get_by_text("5000 jobs were retried.")).to_be_visible()
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    tab.must_be_sound()
    bulk_action = BulkAction.objects.get()
    assert (bulk_action.done, bulk_action.by, DeadJob.objects.count()) == (5000, "zoe", 10)
    eventually(lambda: SucceededJob.objects.count() == 5000)


def test_dead_job_is_found_and_retried_with_changed_arguments(tab_of, superuser, expect, start_worker):
    dead_id = app.fail_until.enqueue(99).id
    app.fail.enqueue("another one")
    start_worker(*WORKER)
    eventually(lambda: DeadJob.objects.count() == 2)
    tab = tab_of(superuser)
    page = tab.open(f"{APP}deadjob/")
    page.locator("#searchbar").fill("tests.app.tasks.fail_")
    press(page, "Search")
    tab.must_be_sound()
    page.locator("#result_list").get_by_role("link", name="tests.app.tasks.fail_until").click()
    expect(page.get_by_text("not before attempt 99").first).to_be_visible()
    page.get_by_role("link", name="Retry with changed arguments").click()
    tab.must_be_sound()
    page.get_by_label("Positional arguments").fill("[1, 2]")
    press(page, "Continue")
    expect(page.get_by_text("too many positional arguments")).to_be_visible()
    tab.must_be_sound()
    page.get_by_label("Positional arguments").fill("[1]")
    press(page, "Continue")
    tab.must_be_sound()
    press(page, "Yes, enqueue it")
    expect(page.get_by_text("which stays where it is")).to_be_visible()
    succeeded = eventually(SucceededJob.objects.first)
    assert (succeeded.parent_id, succeeded.args) == (dead_id, [1])
    page = tab.open(f"{APP}deadjob/{dead_id}/change/")
    expect(page.get_by_role("link", name=str(succeeded.pk)).first).to_be_visible()
    tab.must_be_sound()


def test_stuck_workflow_goes_on_after_its_dead_member_was_retried(tab_of, superuser, expect, start_worker):
    handle = stuck()
    start_worker(*WORKER)
    tab = tab_of(superuser)
    tab.page.add_init_script("localStorage.setItem('pgqueue.live', '2')")
    page = tab.open(f"{APP}workflow/?status=open")
    page.get_by_role("link", name="1 workflow is stuck").click()
    tab.must_be_sound()
    page.get_by_role("link", name=f"batch #{handle.id}").click()
    expect(page.get_by_text("Waits for members: 0 of 3 left, 1 dead.")).to_be_visible()
    Mark.objects.create(job_id=0, label="c")
    press(page, "Retry dead: members")
    tab.must_be_sound()
    press(page, "Retry dead")
    expect(page.get_by_text("Dead members of 1 stage run again.")).to_be_visible()
    expect(page.get_by_text("It succeeded after")).to_be_visible()  # by itself: nothing is clicked
    expect(page.get_by_role("button", name="Kill")).to_have_count(0)
    tab.must_be_sound()
    assert LogEntry.objects.filter(user=superuser, content_type__model="stage").count() == 1
