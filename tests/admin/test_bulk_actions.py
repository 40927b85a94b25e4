"""The list and the pages of bulk actions: how far each is, why jobs were skipped, and the button that stops it."""

import datetime as dt
import re

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.utils import timezone

from django_pgqueue.jobs import actions
from django_pgqueue.jobs.bulk_actions import begin
from django_pgqueue.jobs.search import Filter
from django_pgqueue.models import BulkAction
from tests.support.admin_bulk_actions import BULK_ACTIONS, STAFF, VIEWER, bury, text_of
from tests.support.admin_jobs import DEAD
from tests.support.staff import messages_of, user_with

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(db) -> Client:
    return user_with(*STAFF, name="ann")


@pytest.fixture
def viewer(db) -> Client:
    return user_with(*VIEWER, name="vic")


def test_no_user_adds_changes_or_deletes_bulk_actions(admin_client):
    bulk_action_id = begin(actions.RETRY, Filter(), by="bob")
    for address in (f"{BULK_ACTIONS}add/", f"{BULK_ACTIONS}{bulk_action_id}/delete/"):
        assert admin_client.get(address).status_code == 403
        assert admin_client.post(address, {"post": "yes"}).status_code == 403
    assert admin_client.post(f"{BULK_ACTIONS}{bulk_action_id}/change/", {"by": "eve"}).status_code == 403
    assert BulkAction.objects.get().by == "bob"


def test_page_shows_how_far_it_is_and_why_jobs_were_left_alone(staff, worker):
    bulk_action_id = begin(actions.RETRY, Filter(queues=("mail",)), by="bob", rate=5, expected=20)
    BulkAction.objects.filter(pk=bulk_action_id).update(
        done=8, outcome={"retried": 8}, skipped={"key_held": 2, "gone": 1}, started_at=timezone.now()
    )
    response = staff.get(f"{BULK_ACTIONS}{bulk_action_id}/change/")
    page, markup = text_of(response), response.content.decode()
    for words in (
        *("8 jobs were retried.", "Left alone: 2 (a live job holds the unique key; they stay dead)."),
        *("Left alone: 1 (not here: ", "11 of 20", "at most 5 jobs a second", "under way", "queue mail", "bob"),
    ):
        assert words in page
    assert 'max="20" value="11"' in markup
    assert 'data-pgqueue-live="bulk_action"' in markup
    assert f'href="{DEAD}?queue=mail"' in markup
    assert "No worker is alive" not in page


def test_page_says_when_no_worker_is_alive_to_do_it(staff):
    bulk_action_id = begin(actions.RETRY, Filter(), by="bob")
    assert "No worker is alive to do it" in text_of(staff.get(f"{BULK_ACTIONS}{bulk_action_id}/change/"))
    BulkAction.objects.update(ended_at=timezone.now())
    assert "No worker is alive" not in text_of(staff.get(f"{BULK_ACTIONS}{bulk_action_id}/change/"))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "not begun yet"),
        ({"started_at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}, "under way"),
        ({"ended_at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}, "done"),
        ({"ended_at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "last_error": "no <action>"}, "failed"),
        ({"ended_at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "last_error": "Job 7: DataError: <action>"}, "done"),
        (
            {
                "ended_at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
                "stopped_at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
                "stopped_by": "zoe",
            },
            "stopped by zoe",
        ),
    ],
)
def test_state_is_said_in_words(staff, values, words):
    bulk_action_id = begin(actions.RETRY, Filter(), by="bob")
    BulkAction.objects.update(**values)
    for address in (BULK_ACTIONS, f"{BULK_ACTIONS}{bulk_action_id}/change/"):
        response = staff.get(address)
        assert words in text_of(response)
        assert "<action>" not in response.content.decode()


def test_stop_button_ends_it_with_an_entry_in_the_log(staff):
    bulk_action_id = begin(actions.RETRY, Filter(), by="bob")
    address = f"{BULK_ACTIONS}{bulk_action_id}/stop/"
    assert f'action="{address}"' in staff.get(f"{BULK_ACTIONS}{bulk_action_id}/change/").content.decode()
    assert staff.get(address).status_code == 302
    assert BulkAction.objects.get().ended_at is None
    response = staff.post(address, follow=True)
    assert messages_of(response) == ["It was stopped. Finished work is not undone."]
    bulk_action = BulkAction.objects.get()
    assert (bulk_action.stopped_by, bulk_action.ended_at is None) == ("ann", False)
    [entry] = LogEntry.objects.all()
    assert (entry.object_id, entry.change_message) == (str(bulk_action_id), "Stopped.")
    assert f'action="{address}"' not in response.content.decode()
    assert messages_of(staff.post(address, follow=True)) == ["It had ended already."]
    assert LogEntry.objects.count() == 1
    assert "Stopped." in text_of(staff.get(f"{BULK_ACTIONS}{bulk_action_id}/history/"))


def test_viewer_is_offered_no_button(viewer):
    bulk_action_id = begin(actions.RETRY, Filter(), by="bob")
    assert "/stop/" not in viewer.get(f"{BULK_ACTIONS}{bulk_action_id}/change/").content.decode()


@pytest.mark.parametrize("object_id", ["7", "x", "99999999999999999999999"])
def test_bulk_action_that_is_not_there_leads_away(staff, object_id):
    assert staff.get(f"{BULK_ACTIONS}{object_id}/change/").status_code == 302
    assert staff.post(f"{BULK_ACTIONS}{object_id}/stop/").status_code == 302


@pytest.mark.parametrize(
    "odd",
    [
        {"filter": {"colour": "red"}},
        {"filter": []},
        {"action": "<b>drop</b>"},
        {"source": "nowhere"},
        {"params": []},
        {"outcome": {"strange": 1}, "skipped": {"strange": 2}},
        {"outcome": [], "skipped": []},
    ],
    ids=str,
)
def test_odd_bulk_actions_do_not_break_the_pages(staff, odd):
    bulk_action_id = begin(actions.RETRY, Filter(), by="bob")
    BulkAction.objects.update(**odd)
    for address in (BULK_ACTIONS, f"{BULK_ACTIONS}{bulk_action_id}/change/"):
        response = staff.get(address)
        assert response.status_code == 200
        assert "<b>drop" not in response.content.decode()


def test_markup_in_a_bulk_action_is_shown_as_text(staff):
    evil = "<script>alert(1)</script>"
    chosen = Filter(queues=(evil,), tasks=(evil,), error=evil)
    bulk_action_id = begin(actions.MOVE, chosen, by=evil, params={"queue": evil})
    BulkAction.objects.update(last_error=evil, stopped_by=evil, stopped_at=timezone.now(), ended_at=timezone.now())
    for address in (BULK_ACTIONS, f"{BULK_ACTIONS}{bulk_action_id}/change/"):
        page = staff.get(address).content.decode()
        assert evil not in page
        assert "&lt;script&gt;alert(1)" in page
    bury(1)
    assert evil not in staff.get(f"{DEAD}retry/matching/", {"queue": evil}).content.decode()


def test_pages_carry_no_inline_style_or_script(staff):
    bulk_action_id = begin(actions.RETRY, Filter(), by="bob")
    bury(1)
    for address in (BULK_ACTIONS, f"{BULK_ACTIONS}{bulk_action_id}/change/", f"{DEAD}retry/matching/"):
        own = staff.get(address).content.decode().partition('id="content"')[2].partition('id="footer"')[0]
        assert "style=" not in own
        assert not re.search(r"<script(?![^>]*src=)", own)
        assert "onclick" not in own


def test_list_takes_few_queries(staff, worker, django_assert_max_num_queries):
    for number in range(30):
        begin(actions.RETRY, Filter(queues=(f"q{number}",)), by="bob")
    with django_assert_max_num_queries(12):
        page = text_of(staff.get(BULK_ACTIONS))
    assert "queue: q7" in page


def test_bar_is_one_where_numbers_are_written_in_groups(viewer, settings):
    settings.USE_THOUSAND_SEPARATOR = True
    begun = begin(actions.RETRY, Filter(), by="ann", expected=5000)
    BulkAction.objects.filter(pk=begun).update(done=1234, started_at=timezone.now())
    assert 'max="5000" value="1234"' in viewer.get(f"{BULK_ACTIONS}{begun}/change/").content.decode()
