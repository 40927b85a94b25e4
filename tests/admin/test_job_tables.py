"""The base of the admins of jobs: read-only, for those who may see it, in the database of the queue."""

import pytest
from django.core.management import call_command
from django.db import connections

from django_pgqueue.models import DeadJob, Job
from tests.support.admin_jobs import DEAD, JOBS, dead, entries, queued
from tests.support.job_lists import ids
from tests.support.staff import confirm, messages_of, tick, user_with

pytestmark = pytest.mark.django_db


def test_no_user_adds_changes_or_deletes(admin_client):
    job_id, dead_id = queued(), dead()
    for url in (f"{JOBS}add/", f"{JOBS}{job_id}/delete/", f"{DEAD}add/", f"{DEAD}{dead_id}/delete/"):
        assert admin_client.get(url).status_code == 403
        assert admin_client.post(url, {"post": "yes"}).status_code == 403
    for url in (f"{JOBS}{job_id}/change/", f"{DEAD}{dead_id}/change/"):
        assert admin_client.post(url, {"task": "evil", "queue": "evil"}).status_code == 403
        assert "_save" not in admin_client.get(url).content.decode()
    assert tick(admin_client, JOBS, "delete_selected", job_id, post="yes").status_code == 302
    assert Job.objects.get().task == "tests.app.tasks.record"
    assert DeadJob.objects.count() == 1


def test_pages_need_the_permission_to_view():
    stranger, job_id = user_with("kill_job"), queued()
    assert stranger.get(JOBS).status_code == 403
    assert stranger.get(f"{JOBS}{job_id}/change/").status_code == 403
    assert confirm(stranger, f"{JOBS}kill/", job_id).status_code == 403
    assert Job.objects.count() == 1


@pytest.mark.django_db(databases=["default", "other"])
def test_queue_on_another_database_is_browsed_and_changed_there(staff, settings):
    settings.PGQUEUE = {"DATABASE": "other"}
    settings.DATABASE_ROUTERS = ["django_pgqueue.routers.PgQueueRouter"]
    call_command("migrate", "pgqueue", "zero", database="other", fake=True, verbosity=0)
    call_command("migrate", "pgqueue", database="other", verbosity=0)
    job_id = queued()
    assert "1 job" in staff.get(JOBS).content.decode()
    assert "1 job was killed." in messages_of(confirm(staff, f"{JOBS}kill/", job_id))[0]
    with connections["other"].cursor() as cursor:
        cursor.execute("SELECT id FROM pgqueue_dead_jobs")
        assert cursor.fetchall() == [(job_id,)]
    assert "1 job was retried." in messages_of(confirm(staff, f"{DEAD}retry/", job_id))[0]
    assert len(entries()) == 2


def test_job_that_is_not_here_is_looked_for_elsewhere(viewer):
    job_id = dead()
    page = viewer.get(f"{JOBS}?q={job_id}").content.decode()
    assert f'<a href="{DEAD}?q={job_id}">Search dead jobs</a>' in page
    assert ids(viewer, DEAD, q=job_id) == [job_id]
