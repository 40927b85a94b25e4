"""The base of the admins of jobs: read-only, for those who may see it, in the database of the queue."""

from collections.abc import Callable

import pytest
from django.core.management import call_command
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from django_pgqueue.models import DeadJob, Job
from tests.support.admin_jobs import DEAD, JOBS, SUCCEEDED, dead, entries, queued
from tests.support.job_lists import ids
from tests.support.staff import confirm, messages_of, tick, user_with
from tests.support.waiting import eventually

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


@pytest.fixture
def replica(settings) -> Callable[[str], None]:
    """Give the lists a database of their own, with the tables; return a function that executes SQL there."""
    given = settings.PGQUEUE
    settings.PGQUEUE = {**given, "DATABASE": "other"}
    call_command("migrate", "pgqueue", "zero", database="other", fake=True, verbosity=0)
    call_command("migrate", "pgqueue", database="other", verbosity=0)
    settings.PGQUEUE = {**given, "REPLICA_DATABASE": "other"}
    return connections["other"].cursor().execute


DEAD_JOB = {"id": "1000000002", "task": "'shop.b'", "queue": "'there'", "reason": "'lost'"}
DEAD_JOB |= dict.fromkeys(("died_at", "run_at", "enqueued_at"), "now()")
OF_REPLICA = (
    "INSERT INTO pgqueue_jobs (id, task, queue, status) VALUES (1000000001, 'shop.a', 'there', 'queued')",
    f"INSERT INTO pgqueue_dead_jobs ({', '.join(DEAD_JOB)}) VALUES ({', '.join(DEAD_JOB.values())})",
    "INSERT INTO pgqueue_queues (name) VALUES ('there')",
    "SET TRANSACTION READ ONLY",
)


@pytest.mark.django_db(databases=["default", "other"])
def test_lists_are_read_from_the_replica_and_the_rest_from_the_primary(viewer, replica):
    live, gone = queued(), dead()
    for one in OF_REPLICA:
        replica(one)
    with CaptureQueriesContext(connection) as asked:
        assert ids(viewer, JOBS) == ids(viewer, JOBS, q="shop.") == [1000000001]
        assert ids(viewer, DEAD) == ids(viewer, DEAD, q="shop.") == [1000000002]
        assert ids(viewer, SUCCEEDED) == []
        for url in (JOBS, DEAD, SUCCEEDED):
            assert ">there</a>" in viewer.get(url).content.decode()  # a filter offers the queue
    assert not [query["sql"] for query in asked.captured_queries if "FROM pgqueue" in query["sql"].replace('"', "")]
    for url, here, there in ((JOBS, live, 1000000001), (DEAD, gone, 1000000002)):
        assert viewer.get(f"{url}{here}/change/").status_code == 200
        assert viewer.get(f"{url}{there}/change/").status_code == 302


@pytest.mark.django_db(databases=["default", "other"])
def test_action_on_a_list_of_the_replica_is_done_on_the_primary(staff, replica):
    job_id = queued()
    for one in OF_REPLICA:
        replica(one)
    page = tick(staff, JOBS, "kill", job_id).content.decode()
    assert f'value="{job_id}"' in page
    assert "1 job was killed." in messages_of(confirm(staff, f"{JOBS}kill/", job_id))[0]
    assert DeadJob.objects.get().pk == job_id


@pytest.fixture
def slow_replica(replica, settings) -> None:
    """Let all that reads jobs there take longer than it may."""
    replica(OF_REPLICA[0])
    replica("ALTER TABLE pgqueue_jobs RENAME TO slow")
    replica("CREATE VIEW pgqueue_jobs AS SELECT slow.* FROM slow, pg_sleep(60)")
    settings.PGQUEUE = {**settings.PGQUEUE, "READ_TIMEOUT_SECONDS": 0.05}


@pytest.mark.django_db(databases=["default", "other"])
def test_list_that_takes_too_long_on_the_replica_is_stopped(viewer, slow_replica):
    assert viewer.get(JOBS).status_code == 503


@pytest.mark.django_db(databases=["default", "other"])
def test_count_that_takes_too_long_on_the_replica_is_not_known(staff, slow_replica):
    def count():  # a server that stands still for a moment keeps the page from all it has to tell
        return staff.get(f"{JOBS}kill/matching/").context.get("count")

    assert eventually(count) == "an unknown number"


def test_job_that_is_not_here_is_looked_for_elsewhere(viewer):
    job_id = dead()
    page = viewer.get(f"{JOBS}?q={job_id}").content.decode()
    assert f'<a href="{DEAD}?q={job_id}">Search dead jobs</a>' in page
    assert ids(viewer, DEAD, q=job_id) == [job_id]
