"""Actions of the admin: confirmed first, by post and with a token, logged, and back to the list."""

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

import tests.app.tasks as app
from django_pgqueue.models import Job
from tests.support.admin_jobs import DEAD, JOBS, entries, queued, scheduled
from tests.support.many import enqueued_ids
from tests.support.staff import confirm, messages_of, tick

pytestmark = pytest.mark.django_db


def test_forms_need_their_token(staff):
    strict, job_id = Client(enforce_csrf_checks=True), queued()
    strict.cookies = staff.cookies
    assert strict.post(f"{JOBS}kill/", {"ids": job_id, "confirmed": "yes"}).status_code == 403
    assert Job.objects.count() == 1


def test_confirmation_comes_first(staff):
    ids = [queued() for _ in range(25)]
    response = tick(staff, JOBS, "kill", *ids)
    page = response.content.decode()
    assert response.status_code == 200
    assert "Kill 25 jobs?" in page
    assert "move to the dead jobs at once" in page
    assert "and 5 more" in page
    assert f'value="{",".join(map(str, ids))}"' in page
    assert Job.objects.count() == 25
    assert entries() == []


def test_audit_log_and_change_are_one(staff, monkeypatch):
    job_id = queued()

    def fail(*args):
        raise RuntimeError("the log is full")

    monkeypatch.setattr("django.contrib.admin.models.LogEntryManager.log_actions", fail)
    with pytest.raises(RuntimeError):
        confirm(staff, f"{JOBS}kill/", job_id)
    assert Job.objects.filter(pk=job_id).exists()


def test_log_entry_leads_to_where_the_job_is_now(admin_client):
    job_id = queued()
    confirm(admin_client, f"{JOBS}kill/", job_id)
    [entry] = LogEntry.objects.all()
    assert entry.object_repr == f"tests.app.tasks.record #{job_id}"
    assert reverse("admin:index") + entry.get_admin_url().removeprefix("/admin/") == f"{DEAD}{job_id}/change/"
    confirm(admin_client, f"{DEAD}retry/", job_id)
    page = admin_client.get(f"{JOBS}{job_id}/history/").content.decode()
    assert "Killed." in page
    assert "Retried." in page


def test_job_that_left_the_filter_is_still_acted_upon(staff):
    job_id = queued()
    Job.objects.filter(pk=job_id).update(status="scheduled")
    assert "Kill 1 job?" in tick(staff, f"{JOBS}?status=queued", "kill", job_id).content.decode()


def test_buttons_lead_to_the_confirmation_and_back_to_the_job(staff):
    job_id = scheduled()
    asked = staff.post(f"{JOBS}run_now/", {"ids": job_id, "page": 1, "filters": ""})
    assert "Run 1 job now?" in asked.content.decode()
    assert Job.objects.get().status == "scheduled"
    done = confirm(staff, f"{JOBS}run_now/", job_id, page=1)
    assert done.redirect_chain == [(f"{JOBS}{job_id}/change/", 302)]
    assert "1 job is due now." in done.content.decode()
    assert confirm(staff, f"{JOBS}kill/", job_id, page=1).redirect_chain == [(JOBS, 302)]


def test_action_leads_back_to_the_filtered_list(staff):
    job_id = queued(queue="mail")
    page = tick(staff, f"{JOBS}?queue=mail&status=queued", "kill", job_id).content.decode()
    assert 'name="filters" value="queue=mail&amp;status=queued"' in page
    done = confirm(staff, f"{JOBS}kill/", job_id, filters="queue=mail&status=queued")
    assert done.redirect_chain == [(f"{JOBS}?queue=mail&status=queued", 302)]


def test_one_action_takes_a_thousand_jobs(staff):
    ids = enqueued_ids(app.record, [()] * 1001)
    refused = confirm(staff, f"{JOBS}kill/", *ids)
    assert "One action takes up to 1,000 jobs. Nothing was changed" in refused.content.decode()
    assert Job.objects.count() == 1001
    asked = staff.post(f"{JOBS}kill/", {"ids": ",".join(map(str, ids[1:]))})
    assert "Kill 1000 jobs?" in asked.content.decode()
    assert "1000 jobs were killed." in messages_of(confirm(staff, f"{JOBS}kill/", *ids[1:]))
    assert LogEntry.objects.count() == 1000


@pytest.mark.parametrize("ids", ["x", "1;2", "1,9999999999999999999", "-9223372036854775809"])
def test_ids_that_are_none_are_refused(staff, ids):
    assert staff.post(f"{JOBS}kill/", {"ids": ids, "confirmed": "yes"}).status_code == 400


def test_nothing_selected_and_plain_gets_change_nothing(staff):
    job_id = queued()
    assert messages_of(confirm(staff, f"{JOBS}kill/")) == ["Nothing was selected, so nothing was changed."]
    assert staff.get(f"{JOBS}kill/?ids={job_id}&confirmed=yes").status_code == 302
    assert Job.objects.count() == 1
