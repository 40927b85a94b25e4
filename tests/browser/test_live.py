"""Pages that refresh themselves, and charts, in a real browser."""

import datetime as dt
import re

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue.jobs import kill, run_now
from django_pgqueue.models import Job, Queue, Stat
from tests.support.waiting import eventually

OVERVIEW = "/admin/pgqueue/overview/"
QUEUED = ".pgqueue-tiles > div:first-child dd"
EVERY_2_S = "localStorage.setItem('pgqueue.live', '2')"
DRAWN = "document.querySelector('[data-pgqueue-chart=hour-throughput] canvas').toDataURL()"


@pytest.fixture
def tab(tab_of, staff_with):
    """A tab on the overview that refreshes every two seconds."""
    tab = tab_of(staff_with("view_overview"))
    tab.page.add_init_script(EVERY_2_S)
    tab.open(OVERVIEW)
    return tab


@pytest.fixture
def flow(live_server) -> None:
    minute = timezone.now().replace(second=0, microsecond=0)
    Stat.objects.bulk_create(
        Stat(minute=minute - dt.timedelta(minutes=back), queue="mail", task="t", succeeded=60, failed=3, wait_seconds=9)
        for back in range(1, 60)
    )


def test_numbers_follow_the_queue_while_folds_and_focus_stay(flow, tab, expect):
    page = tab.page
    expect(page.locator(QUEUED)).to_have_text("0")
    page.locator("#hour-throughput-table summary").click()
    app.noop.enqueue_many([()] * 3)
    expect(page.locator(QUEUED)).to_have_text("3")
    Stat.objects.update(succeeded=77)
    expect(page.locator("#hour-throughput-table")).to_contain_text("77")
    assert page.evaluate("document.getElementById('hour-throughput-table').open")
    assert page.evaluate("document.activeElement.closest('details').id") == "hour-throughput-table"
    assert page.locator("[data-pgqueue-chart=hour-throughput] canvas").count() == 1
    tab.must_be_sound()


def test_cells_of_a_list_follow_while_a_row_is_ticked_and_a_field_is_edited(tab_of, superuser, expect):
    Queue.objects.create(name="mail")
    tab = tab_of(superuser)
    tab.page.add_init_script(EVERY_2_S)
    page = tab.open("/admin/pgqueue/queue/")
    page.locator("tr input.action-select").check()
    page.locator("#searchbar").fill("half a wo")
    app.noop.using(queue="mail").enqueue_many([()] * 3)
    expect(page.locator("td.field-queued")).to_have_text("3")
    assert page.locator("tr input.action-select").is_checked()
    assert page.locator("#searchbar").input_value() == "half a wo"
    page.locator("td.field-queued a").click()
    expect(page.locator("#result_list tbody tr")).to_have_count(3)


def test_list_of_jobs_strikes_out_what_has_left_and_offers_what_is_new(tab_of, superuser, expect):
    first, second = (app.noop.using(delay=dt.timedelta(hours=1)).enqueue().id for _ in range(2))
    tab = tab_of(superuser)
    tab.page.add_init_script(EVERY_2_S)
    page = tab.open("/admin/pgqueue/job/")
    kill([first], by="eve")
    expect(page.locator("tr:has(.pgqueue-gone)")).to_have_count(1)
    expect(page.locator("tr:has(.pgqueue-gone) .field-id")).to_contain_text(str(first))
    run_now([second], by="eve")
    expect(page.locator(".field-status_label").first).to_have_text("queued")
    expect(page.get_by_text("There is more now")).to_be_hidden()
    third = app.noop.enqueue().id
    page.get_by_text("There is more now").click()
    expect(page.locator("#result_list tbody tr")).to_have_count(2)
    expect(page.locator("#result_list tbody tr").first).to_contain_text(str(third))
    tab.must_be_sound()


def test_page_of_a_job_follows_it_to_the_dead_jobs(tab_of, superuser, expect):
    job_id = app.noop.using(delay=dt.timedelta(hours=1)).enqueue().id
    tab = tab_of(superuser)
    tab.page.add_init_script(EVERY_2_S)
    page = tab.open(f"/admin/pgqueue/job/{job_id}/change/")
    kill([job_id], by="eve")
    expect(page).to_have_url(re.compile(f"/deadjob/{job_id}/change/"))
    expect(page.get_by_text(f"Job {job_id} is dead by now.")).to_be_visible()


def test_page_of_a_job_of_which_nothing_is_kept_leads_to_the_list_and_says_so(tab_of, superuser, expect):
    job_id = app.noop.using(delay=dt.timedelta(hours=1)).enqueue().id
    tab = tab_of(superuser)
    tab.page.add_init_script(EVERY_2_S)
    page = tab.open(f"/admin/pgqueue/job/{job_id}/change/")
    Job.objects.filter(pk=job_id).delete()
    expect(page).to_have_url(re.compile("/pgqueue/job/$"))
    expect(page.get_by_text(f"There is no job {job_id}")).to_be_visible()


def test_place_in_a_table_is_kept_when_it_is_swapped(flow, tab, expect):
    page = tab.page
    page.locator("#hour-throughput-table summary").click()
    table = page.locator("#hour-throughput-table .pgqueue-scroll")
    table.evaluate("place => { place.scrollTop = 200; }")
    Stat.objects.update(succeeded=77)
    expect(table).to_contain_text("77")
    assert table.evaluate("place => place.scrollTop") == 200


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (
            "document.getSelection().selectAllChildren(document.getElementById('verdict'))",
            "document.getSelection().removeAllRanges()",
        ),
        (
            "Object.defineProperty(document, 'hidden', {value: true, configurable: true})",
            "delete document.hidden",
        ),
    ],
    ids=["text is selected", "the tab is hidden"],
)
def test_nothing_is_fetched_while(tab_of, staff_with, expect, begin, end):
    tab, fetched = tab_of(staff_with("view_overview")), []
    page = tab.page
    page.clock.install(time=0)
    page.clock.pause_at(1)  # else it would go on between the lines
    tab.open(OVERVIEW)
    page.on("request", lambda request: fetched.append(request.url))
    page.evaluate(begin)
    app.noop.enqueue_many([()] * 3)
    page.clock.run_for(60_000)
    assert not fetched
    page.evaluate(end)
    page.clock.run_for(6_000)
    expect(page.locator(QUEUED)).to_have_text("3")
    assert len(fetched) == 1


def test_choice_of_the_pace_is_kept_and_off_is_off(tab_of, staff_with, expect):
    tab = tab_of(staff_with("view_overview"))
    page = tab.open(OVERVIEW)
    choice = page.get_by_label("Refresh")
    expect(choice).to_have_value("5")
    choice.select_option("0")
    page.reload()
    expect(choice).to_have_value("0")
    app.noop.enqueue_many([()] * 3)
    choice.select_option("2")
    expect(page.locator(QUEUED)).to_have_text("3")


def test_page_says_so_when_its_user_is_logged_out(tab, expect):
    Session.objects.all().delete()
    expect(tab.page.get_by_role("status")).to_contain_text("you are logged out")
    expect(tab.page.get_by_label("Refresh")).to_be_disabled()


def test_page_says_so_when_its_user_may_not_see_it_any_more(tab, expect):
    User.objects.get().user_permissions.clear()
    expect(tab.page.get_by_role("status")).to_contain_text("may not see this any more")
    tab.problems = [problem for problem in tab.problems if "403" not in problem]


def test_charts_follow_the_theme(flow, tab_of, superuser, expect):
    tab = tab_of(superuser)
    page = tab.open(OVERVIEW)
    page.get_by_label("Refresh").select_option("0")
    expect(page.locator("[data-pgqueue-chart=hour-throughput] canvas")).to_be_visible()
    light = page.evaluate(DRAWN)
    page.locator("#header .theme-toggle").click()
    eventually(lambda: page.evaluate(DRAWN) != light)
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_page_is_complete_without_scripts(flow, tab_of, superuser, expect):
    tab = tab_of(superuser, scripts=False)
    page = tab.open(OVERVIEW)
    expect(page.get_by_label("Refresh")).to_be_hidden()
    page.locator("#hour-throughput-table summary").click()
    expect(page.locator("#hour-throughput-table tbody tr").first).to_contain_text("60")
