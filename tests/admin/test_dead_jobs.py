"""The list of dead jobs, and their pages."""

import json
import secrets

import pytest
from django.test import Client
from django.utils.http import urlencode

from tests.support.admin_jobs import DEAD, dead
from tests.support.dead_groups import PAGE
from tests.support.dead_groups import dead as died
from tests.support.staff import user_with

pytestmark = pytest.mark.django_db


def test_list_of_dead_jobs_shows_the_last_error_on_one_line(viewer):
    history = [
        {"kind": "failed", "error": "First", "message": "x"},
        {"kind": "failed", "error": "ValueError", "message": "no luck\nat all <b>", "attempt": 2},
    ]
    dead(errors=history, reason="exhausted")
    page = viewer.get(DEAD).content.decode()
    assert "ValueError: no luck</div>" in page
    assert "exhausted" in page
    assert "at all" not in page


@pytest.mark.parametrize("errors", [[], [{}], ["text"], {"error": "x"}, [None]], ids=str)
def test_odd_histories_do_not_break_the_pages(viewer, errors):
    job_id = dead(errors=errors)
    assert viewer.get(DEAD).status_code == 200
    assert viewer.get(f"{DEAD}{job_id}/change/").status_code == 200


def test_list_of_dead_jobs_shows_no_sensitive_value_that_was_stored_before_it_was_declared(viewer):
    error = {"kind": "failed", "error": "ValueError", "message": "bad password hunter22"}
    shown = {"task": "tests.app.tasks.log_in", "errors": [error]}
    dead(**shown, args=["ann"], kwargs={"password": "hunter22"})
    dead(**shown, args=["ann"], kwargs={"password": "hunter22", "basket": secrets.token_hex(100_000)})
    page = viewer.get(DEAD).content.decode()
    assert page.count("ValueError: bad password [redacted]</div>") == 1
    assert page.count("[redacted]: [redacted]</div>") == 1, "of arguments that are too large to be looked into"
    assert "hunter22" not in page


# Dead jobs by cause


@pytest.fixture
def cause_viewer() -> Client:
    return user_with("view_deadjob")


def test_address_leads_to_the_next_page(cause_viewer):
    for number in range(51):
        died(f"Error{chr(65 + number // 26)}{chr(65 + number % 26)}")
    first = cause_viewer.get(PAGE)
    following = cause_viewer.get(PAGE + first.context["next"])
    lines = [line["cause"].job_id for page in (first, following) for line in page.context["lines"]]
    assert len(lines) == len(set(lines)) == 51
    assert (following.context["next"], len(following.context["lines"])) == ("", 1)
    for cursor in ("x", '["x", "1"]', '["2031-01-01T00:00Z"]', json.dumps(["2031-01-01T00:00Z", "x"])):
        page = cause_viewer.get(f"{PAGE}?{urlencode({'after': cursor})}")
        assert "This is the first one." in page.content.decode()
        assert len(page.context["lines"]) == 50


def test_markup_and_secrets_are_not_shown_as_such(cause_viewer):
    evil = "<script>alert(1)</script>"
    died(evil, evil, task=evil)
    died("Refused", "hunter22 is wrong", task="tests.app.tasks.log_in", args=["ann", "hunter22"])
    page = cause_viewer.get(PAGE).content.decode()
    assert evil not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "hunter22" not in page
    assert "[redacted] is wrong" in page


@pytest.mark.parametrize(
    "errors", [[], [{}], ["text"], {"error": "x"}, [None], [{"error": 7, "message": [1]}]], ids=str
)
def test_odd_histories_do_not_break_it(cause_viewer, errors):
    died(errors=errors)
    assert cause_viewer.get(PAGE).status_code == 200


def test_page_without_dead_jobs_says_so(cause_viewer):
    assert "There are no dead jobs." in cause_viewer.get(PAGE).content.decode()


def test_page_needs_the_permission_and_offers_what_the_user_may(cause_viewer):
    died()
    assert user_with("view_job", "retry_deadjob").get(PAGE).status_code == 403
    page = cause_viewer.get(PAGE).content.decode()
    assert "Retry these" not in page
    assert "Purge these" not in page
    staff = user_with("view_deadjob", "retry_deadjob", "delete_deadjob")
    response = staff.get(PAGE)
    [line] = response.context["lines"]
    assert [str(words) for words, _ in line["actions"]] == ["Retry these…", "Purge these…"]
    for _, address in line["actions"]:
        assert staff.get(address).status_code == 200
