"""A worker is watched, asked to stop, and gone, by the buttons of its page."""

import re
from collections.abc import Callable

import pytest
from django.contrib.admin.models import LogEntry

import tests.app.tasks as app
from django_pgqueue.models import Job, SucceededJob, Worker
from tests.browser.admin_actions import APP, choose, press
from tests.support.waiting import eventually

ASKED = re.compile("[12] worker process(es were| was) asked to stop")
"""A row that its heartbeat has locked for this moment is left out; one of a command is enough."""
LOCKED = "just being changed by its heartbeat; try again"


def ask_to_stop(page, expect, begin: Callable[[], None]) -> None:
    """Ask, and again for as long as the heartbeat has locked all rows."""

    def is_asked() -> bool:
        page.wait_for_load_state()  # the scripts of a list have run
        begin()
        press(page, "Ask to stop")
        expect(page.get_by_text(ASKED).or_(page.get_by_text(LOCKED)).first).to_be_visible()
        return page.get_by_text(ASKED).count() > 0

    eventually(is_asked)


@pytest.fixture
def running(tmp_path, start_worker):
    """A worker of two processes in which one job runs until a file is there; return them and the file."""
    file = tmp_path / "told"
    job_id = app.until_exists.enqueue(str(file)).id
    worker = start_worker("--processes=2", "--concurrency=2", "--name=night shift").wait_until_ready()
    eventually(lambda: len(worker.children()) == 2)
    holder = eventually(lambda: Job.objects.filter(pk=job_id, status="running").values_list("worker_id", flat=True))[0]
    return worker, Worker.objects.get(pk=holder), job_id, file


def test_worker_is_watched_asked_to_stop_and_finishes_what_runs(tab_of, superuser, expect, running):
    worker, process, job_id, file = running
    tab = tab_of(superuser)
    page = tab.open(f"{APP}worker/")
    expect(page.get_by_text("2 worker processes are known.")).to_be_visible()
    expect(page.get_by_text("1 of 2").first).to_be_visible()
    tab.must_be_sound()
    page.get_by_role("link", name=f"{process.host} {process.pid}", exact=True).click()
    expect(page.get_by_role("link", name=str(job_id), exact=True)).to_be_visible()

    def begin():
        press(page, "Ask to stop")
        expect(page.get_by_text("The whole command stops, with all its processes")).to_be_visible()
        tab.must_be_sound()

    ask_to_stop(page, expect, begin)
    expect(page.get_by_text("asked by zoe")).to_be_visible()
    tab.must_be_sound()
    eventually(lambda: "Stopping, as zoe has asked for" in worker.text())
    assert Job.objects.get(pk=job_id).status == "running"
    file.touch()
    assert worker.wait() == 0
    assert SucceededJob.objects.filter(pk=job_id).exists()
    page = tab.open(f"{APP}worker/")
    expect(page.get_by_text("0 worker processes are known.")).to_be_visible()
    assert set(LogEntry.objects.values_list("change_message", flat=True)) == {"Asked to stop."}


def test_page_refreshes_what_it_says_of_a_worker(tab_of, superuser, expect, running):
    _, process, job_id, file = running
    page = tab_of(superuser).open(f"{APP}worker/{process.pk}/change/")
    page.get_by_label("Refresh").select_option(value="2")
    expect(page.get_by_role("link", name=str(job_id), exact=True)).to_be_visible()
    file.touch()
    expect(page.get_by_text("No job. It waits for work.")).to_be_visible()
    expect(page.get_by_text("idle", exact=True)).to_be_visible()


def test_user_who_may_not_stop_workers_is_offered_no_way(tab_of, staff_with, expect, running):
    _, process, *_ = running
    tab = tab_of(staff_with("view_worker"))
    page = tab.open(f"{APP}worker/{process.pk}/change/")
    expect(page.get_by_text("at work")).to_be_visible()
    assert page.get_by_role("button", name="Ask to stop").count() == 0
    tab.must_be_sound()
    assert tab.open(f"{APP}worker/").get_by_role("combobox", name="Action").count() == 0


def test_several_are_asked_from_the_list(tab_of, superuser, expect, running):
    worker, _, _, file = running
    page = tab_of(superuser).open(f"{APP}worker/")

    def begin():
        page.get_by_label("Select all objects on this page").check()
        choose(page, "Ask selected workers to stop")
        expect(page.get_by_text("Ask 2 worker processes to stop?").first).to_be_visible()

    ask_to_stop(page, expect, begin)
    file.touch()
    assert worker.wait() == 0
