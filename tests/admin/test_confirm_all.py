"""Actions on all jobs that a filter finds: from the list by a question to a bulk action."""

import html
import json
import re

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

import tests.app.tasks as app
from django_pgqueue.admin.confirm_all import in_words, query, sentence
from django_pgqueue.jobs import actions
from django_pgqueue.jobs.bulk_actions import begin
from django_pgqueue.jobs.search import Filter, Source
from django_pgqueue.maintenance.bulk_runner import carry_on
from django_pgqueue.models import BulkAction, DeadJob, Job
from tests.support.admin_bulk_actions import BULK_ACTIONS, STAFF, VIEWER, bury, text_of
from tests.support.admin_jobs import DEAD, JOBS, SUCCEEDED
from tests.support.staff import messages_of, user_with

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(db) -> Client:
    return user_with(*STAFF, name="ann")


@pytest.fixture
def viewer(db) -> Client:
    return user_with(*VIEWER, name="vic")


def select_all(client: Client, url: str, action: str, job_id: int):
    """Tick a row, choose "select all", and run the action."""
    return client.post(url, {"action": action, "index": 0, "select_across": 1, "_selected_action": job_id})


def test_select_all_leads_to_a_question_with_the_filter_and_the_count(staff, worker):
    ids = bury(1200, queue="mail")
    bury(5)
    response = select_all(staff, f"{DEAD}?queue=mail&reason=killed", "retry", ids[0])
    assert response.status_code == 302
    assert response.url == f"{DEAD}retry/matching/?queue=mail&reason=killed"
    page = text_of(staff.get(response.url))
    assert "Retry all dead jobs that match?" in page
    assert "Matching now: 1,200" in page
    assert "reason killed queue mail" in page
    assert "Jobs a second, at most" in page
    assert "No worker is alive" not in page
    assert not BulkAction.objects.exists()


def test_all_that_match_are_those_of_every_page(staff):
    ids = bury(150)
    following = re.search(r'href="\?([^"]*after=[^"]*)"', staff.get(f"{DEAD}?reason=killed").content.decode())
    address = f"{DEAD}?{html.unescape(following[1])}"
    response = select_all(staff, address, "retry", ids[0])
    assert response.url == f"{DEAD}retry/matching/?reason=killed"
    assert "Matching now: 150" in text_of(staff.get(response.url))


def test_list_that_looks_through_a_window_offers_all_that_match_of_an_unknown_number(staff, sql):
    sql(
        "INSERT INTO pgqueue_jobs (task, args) "
        "SELECT 't', jsonb_build_array(n % 60000) FROM generate_series(1, 120000) AS n"
    )
    assert "Select all that match" in staff.get(f"{JOBS}?q=arg:7").content.decode()
    address = f"{JOBS}kill/matching/?q=arg:7"
    page = text_of(staff.get(address))
    assert "Matching now: an unknown number" in page
    assert "any argument 7" in page
    staff.post(address, {"rate": ""})
    bulk_action = BulkAction.objects.get()
    assert (bulk_action.filter["argument"], bulk_action.expected) == ("7", None)
    assert "0 of an unknown" not in text_of(staff.get(f"{BULK_ACTIONS}{bulk_action.pk}/change/"))


def test_live_jobs_without_a_filter_are_all_jobs(staff):
    app.noop.enqueue_many([(), ()])
    assert "filter none: all of them" in text_of(staff.get(f"{JOBS}kill/matching/"))
    staff.post(f"{JOBS}kill/matching/", {"rate": ""})
    assert "all jobs; 2 matched" in LogEntry.objects.get().change_message
    assert f'href="{JOBS}"' in staff.get(f"{BULK_ACTIONS}{BulkAction.objects.get().pk}/change/").content.decode()


def test_rows_that_were_ticked_are_done_at_once(staff):
    ids = bury(3)
    response = staff.post(DEAD, {"action": "retry", "index": 0, "select_across": 0, "_selected_action": ids[:2]})
    assert "Retry 2 dead jobs?" in text_of(response)


def test_yes_begins_a_bulk_action_with_an_entry_in_the_log_and_shows_it(staff, worker):
    bury(3, queue="mail")
    response = staff.post(f"{DEAD}retry/matching/?queue=mail", {"rate": "2.5"}, follow=True)
    bulk_action = BulkAction.objects.get()
    assert response.redirect_chain == [(f"{BULK_ACTIONS}{bulk_action.pk}/change/", 302)]
    assert messages_of(response) == ["It has begun, in the background. This page shows how far it is."]
    assert (bulk_action.action, bulk_action.source, bulk_action.by) == ("retry", "dead", "ann")
    assert (bulk_action.rate, bulk_action.expected, bulk_action.filter) == (2.5, 3, {"queues": ["mail"]})
    [entry] = LogEntry.objects.all()
    assert (entry.object_id, entry.content_type.model, entry.user.username) == (
        str(bulk_action.pk),
        "bulkaction",
        "ann",
    )
    assert entry.is_addition()
    assert entry.change_message == "Begun: retry, queue: mail; 3 matched."
    assert DeadJob.objects.count() == 3


def test_count_ends_at_ten_thousand(staff, sql):
    sql(
        "INSERT INTO pgqueue_dead_jobs (id, task, queue, reason, run_at, enqueued_at) "
        "SELECT n, 't', 'q', 'exhausted', now(), now() FROM generate_series(1, 10001) AS n"
    )
    address = f"{DEAD}purge/matching/"
    assert "Matching now: 10,000+" in text_of(staff.get(address))
    staff.post(address, {"rate": ""})
    assert (BulkAction.objects.get().expected, BulkAction.objects.get().rate) == (10_001, None)
    assert "10,000+ matched" in LogEntry.objects.get().change_message
    assert "0 of 10,000+" in text_of(staff.get(f"{BULK_ACTIONS}{BulkAction.objects.get().pk}/change/"))


def test_list_of_more_than_can_be_counted_offers_all_that_match(staff, sql):
    sql("INSERT INTO pgqueue_jobs (task) SELECT 't' FROM generate_series(1, 10001)")
    page = staff.get(JOBS).content.decode()
    assert "Select all that match" in page
    assert "Select all 10000" not in page


@pytest.mark.parametrize("rate", ["0", "-1", "fast", "100001", "nan", "inf"])
def test_rate_that_cannot_be_is_asked_for_again(staff, rate):
    bury(1)
    response = staff.post(f"{DEAD}retry/matching/", {"rate": rate})
    assert response.status_code == 200
    assert 'class="errorlist"' in response.content.decode()
    assert not BulkAction.objects.exists()
    assert not LogEntry.objects.exists()


def test_what_the_action_needs_is_asked_for_too(staff):
    app.noop.enqueue_many([(), ()])
    address = f"{JOBS}move/matching/?status=queued"
    assert 'name="queue"' in staff.get(address).content.decode()
    assert "This field is required" in text_of(staff.post(address, {"queue": ""}))
    staff.post(address, {"queue": "bulk", "rate": ""})
    bulk_action = BulkAction.objects.get()
    assert (bulk_action.params, bulk_action.filter) == ({"queue": "bulk"}, {"kinds": ["queued"]})


def test_question_says_when_no_worker_would_do_it(staff):
    bury(1)
    assert "No worker is alive" in text_of(staff.get(f"{DEAD}retry/matching/"))


def test_filter_that_the_list_refuses_begins_nothing(staff):
    bury(1)
    for address in (f"{DEAD}retry/matching/?reason=tired", f"{JOBS}kill/matching/?status=x"):
        assert staff.get(address).status_code == 302
        assert staff.post(address, {"rate": ""}).status_code == 302
    assert not BulkAction.objects.exists()


def test_who_may_not_see_bulk_actions_goes_back_to_the_list():
    client = user_with("view_deadjob", "retry_deadjob")
    bury(1)
    response = client.post(f"{DEAD}retry/matching/?reason=killed", {"rate": ""}, follow=True)
    number = BulkAction.objects.get().pk
    assert response.redirect_chain == [(f"{DEAD}?reason=killed", 302)]
    assert messages_of(response) == [f"It has begun, in the background, as bulk action {number}."]
    assert client.get(f"{BULK_ACTIONS}{number}/change/").status_code == 403


def test_forged_posts_without_the_right_begin_and_stop_nothing(viewer):
    bury(2)
    app.noop.enqueue_many([(), ()])
    bulk_action_id = begin(actions.PURGE, Filter(), by="bob")
    for action in actions.ACTIONS:
        url = {Source.LIVE: JOBS, Source.DEAD: DEAD, Source.SUCCEEDED: SUCCEEDED}[action.source]
        params = {"rate": "", "queue": "x", "priority": 1}
        assert viewer.post(f"{url}{action.name}/matching/", params).status_code == 403
        assert viewer.get(f"{url}{action.name}/matching/").status_code == 403
    assert viewer.post(f"{BULK_ACTIONS}{bulk_action_id}/stop/").status_code == 403
    assert viewer.post(f"{BULK_ACTIONS}{bulk_action_id}/change/", {"by": "eve"}).status_code == 403
    assert [bulk_action.pk for bulk_action in BulkAction.objects.filter(ended_at=None)] == [bulk_action_id]
    assert (Job.objects.count(), DeadJob.objects.count(), LogEntry.objects.count()) == (2, 2, 0)


@pytest.mark.parametrize("action", actions.ACTIONS, ids=lambda action: action.permission)
def test_each_action_has_a_permission_of_its_own_for_all_too(action):
    url, view = {
        Source.LIVE: (JOBS, "view_job"),
        Source.DEAD: (DEAD, "view_deadjob"),
        Source.SUCCEEDED: (SUCCEEDED, "view_succeededjob"),
    }[action.source]
    others = {other.permission for other in actions.ACTIONS} - {action.permission}
    may, may_not = user_with(view, action.permission, name="ann"), user_with(view, *others, name="bob")
    params = {"rate": "", "queue": "x", "priority": 1}
    assert may_not.post(f"{url}{action.name}/matching/", params).status_code == 403
    assert may.post(f"{url}{action.name}/matching/", params).status_code == 302
    assert BulkAction.objects.get().by == "ann"


def test_who_sees_no_jobs_changes_none():
    stranger = user_with("retry_deadjob", "stop_bulkaction")
    bulk_action_id = begin(actions.RETRY, Filter(), by="bob")
    assert stranger.post(f"{DEAD}retry/matching/", {"rate": ""}).status_code == 403
    assert stranger.post(f"{BULK_ACTIONS}{bulk_action_id}/stop/").status_code == 403
    assert stranger.get(BULK_ACTIONS).status_code == 403


def test_forms_need_their_token(staff):
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = staff.cookies
    bulk_action_id = begin(actions.RETRY, Filter(), by="bob")
    assert strict.post(f"{DEAD}retry/matching/", {"rate": ""}).status_code == 403
    assert strict.post(f"{BULK_ACTIONS}{bulk_action_id}/stop/").status_code == 403
    assert BulkAction.objects.get().ended_at is None


@pytest.mark.django_db(transaction=True)
def test_from_the_list_to_the_end(staff, queue):
    ids = bury(1500, queue="mail")
    bury(3)
    staff.post(f"{DEAD}retry/matching/?queue=mail", {"rate": ""})
    while carry_on(queue).bulk_action_id is not None:
        pass
    page = text_of(staff.get(f"{BULK_ACTIONS}{BulkAction.objects.get().pk}/change/"))
    assert "1500 jobs were retried." in page
    assert "done" in page
    assert list(Job.objects.order_by("pk").values_list("pk", flat=True)) == ids
    assert DeadJob.objects.count() == 3
    assert "retried by ann" in staff.get(f"{JOBS}{ids[0]}/change/").content.decode()


def test_filter_is_said_in_words(db):
    chosen = Filter(
        kinds=("unknown_task",), queues=("a", "b"), older_than_seconds=7200, argument="7", argument_name="to"
    )
    assert list(in_words(chosen, Source.DEAD)) == [
        ("reason", "unknown task"),
        ("queue", "a, b"),
        ("older than", "2 h"),
        ("to", "7"),
    ]
    assert sentence(Filter(), Source.DEAD) == "all dead jobs"
    assert sentence(Filter(task_prefix="shop."), Source.LIVE) == "task begins with: shop."


def test_cause_is_named_by_the_latest_job_that_died_of_it(db):
    [job_id] = bury(1)
    DeadJob.objects.filter(pk=job_id).update(errors=[{"error": "SMTPError", "message": "no luck"}])
    cause = DeadJob.objects.get().cause
    assert sentence(Filter(cause=cause), Source.DEAD) == "died of: tests.app.tasks.noop: SMTPError"
    assert "no job is dead now (7)" in sentence(Filter(cause=7), Source.DEAD)


@pytest.mark.parametrize(
    ("chosen", "source", "expected"),
    [
        (Filter(), Source.DEAD, {}),
        (Filter(kinds=("lost",), queues=("a",), cause=7), Source.DEAD, {"reason": "lost", "queue": "a", "cause": 7}),
        (Filter(kinds=("queued",)), Source.LIVE, {"status": "queued"}),
        (Filter(unique_key="k"), Source.LIVE, {"q": "key:k"}),
        (Filter(tags=("a",)), Source.DEAD, {"q": "tag:a"}),
        (Filter(tags=("a", "b")), Source.DEAD, None),
        (Filter(queues=("a", "b")), Source.DEAD, None),
        (Filter(older_than_seconds=5), Source.DEAD, None),
        (Filter(error="ValueError"), Source.DEAD, None),
    ],
)
def test_list_of_a_filter_is_found_where_there_is_one(chosen, source, expected):
    assert query(chosen, source) == expected


def test_last_window_of_a_list_offers_no_number_for_all_of_them(staff):
    bury(3)
    newest = DeadJob.objects.order_by("-died_at", "-id").first()
    below = json.dumps([newest.died_at.isoformat(), str(newest.pk)])
    page = staff.get(DEAD, {"reason": "killed", "queue": "default", "below": below})
    assert "Select all that match" in page.content.decode()
