"""The page of workers: what it says of them, and how they are asked to stop."""

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client

import tests.app.tasks as app
from django_pgqueue.jobs import leases
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import Job, Worker
from tests.support.many import enqueued_ids
from tests.support.worker_rows import register

pytestmark = pytest.mark.django_db(transaction=True)

WORKERS = "/admin/pgqueue/worker/"
ODD = "<script>alert(1)</script>"


def client_with(*codenames: str) -> Client:
    user = User.objects.create_user("ann", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def viewer() -> Client:
    return client_with("view_worker")


@pytest.fixture
def staff() -> Client:
    return client_with("view_worker", "stop_worker", "view_job")


def words(response) -> str:
    """Return the text of a page, without markup and with single spaces."""
    text = re.sub(r"<[^>]+>", " ", response.content.decode())
    return re.sub(r"\s+", " ", text)


def stop(client, *ids, **extra):
    given = {"ids": ",".join(map(str, ids)), "confirmed": "yes", **extra}
    return client.post(f"{WORKERS}stop/", given, follow=True)


# What is shown


def test_list_says_who_lives_what_it_holds_and_how_it_hears(queue, viewer):
    one = register(queue, concurrency=2, queues=["mail", "default"], name="web", version="9.8.7")
    app.noop.enqueue_many([()] * 5)
    claim(queue, "default", limit=5, worker_id=one)
    leases.heartbeat(queue, {one: 4711}, lease_seconds=3600, session_pid=12, memory_bytes={one: 50 * 2**20})
    text = words(viewer.get(WORKERS))
    for expected in ("web1 4711", "at work", "2 of 2", "3 fetched ahead", "50.0", "at once", "mail, default", "9.8.7"):
        assert expected in text
    assert re.search(r"heard .{1,20} ago; if it stays silent, its jobs are reaped in", text)


def test_idle_worker_that_polls_serves_all_and_does_not_tell_its_memory(queue, viewer):
    leases.heartbeat(queue, {register(queue): 1}, lease_seconds=3600)
    text = words(viewer.get(WORKERS))
    assert "idle" in text
    assert "by polling" in text
    assert "0 of 8" in text
    assert re.search(r"\ball\b", text)


def test_silent_worker_is_shown_as_such(queue, viewer, sql):
    register(queue)
    sql("UPDATE pgqueue_workers SET heartbeat_at = now() - interval '2 hours', lease_until = now() - interval '1 hour'")
    text = words(viewer.get(WORKERS))
    assert "silent for 2 h; its jobs are reaped" in text
    assert "at work" not in text


def test_page_of_a_worker_lists_its_jobs_with_links_for_those_who_may_see_them(queue, staff):
    one, two = register(queue), register(queue)
    ids = enqueued_ids(app.noop, [()] * 3)
    claim(queue, "default", limit=2, worker_id=one)
    claim(queue, "default", limit=1, worker_id=two)
    leases.heartbeat(queue, {one: 11, two: 22}, lease_seconds=3600)
    page = staff.get(f"{WORKERS}{one}/change/")
    mine = list(Job.objects.filter(worker_id=one).values_list("id", flat=True))
    assert len(mine) == 2
    for job_id in ids:
        assert (f'href="/admin/pgqueue/job/{job_id}/change/"' in page.content.decode()) is (job_id in mine)
    assert "Together with process 22." in words(page)


def test_user_who_may_not_see_jobs_gets_no_links_to_them(queue, viewer):
    one = register(queue)
    app.noop.enqueue()
    claim(queue, "default", limit=1, worker_id=one)
    page = viewer.get(f"{WORKERS}{one}/change/")
    assert app.noop.name in page.content.decode()
    assert "/job/" not in page.content.decode()


def test_what_a_worker_is_called_is_text(queue, viewer):
    one = register(queue, host=ODD, name=ODD, queues=[ODD], version=ODD)
    Job.objects.create(task=ODD, queue=ODD, status="running", lease_token=1, worker_id=one)
    for address in (WORKERS, f"{WORKERS}{one}/change/"):
        page = viewer.get(address).content.decode()
        assert ODD not in page
        assert "&lt;script&gt;" in page


def test_list_asks_as_often_however_many_there_are(queue, staff, django_assert_max_num_queries):
    for _ in range(20):
        register(queue)
    with django_assert_max_num_queries(12):
        assert "20 worker processes" in words(staff.get(WORKERS))


# Stop


def test_stop_is_confirmed_with_the_count_then_asked_of_the_command_and_logged(queue, staff):
    one, two = register(queue, supervisor_id=7), register(queue, supervisor_id=7)
    chosen = staff.post(WORKERS, {"action": "stop", "index": 0, "_selected_action": [one]})
    assert "Ask 1 worker process to stop?" in words(chosen)
    assert not Worker.objects.exclude(stop_requested_at=None).exists()
    text = words(stop(staff, one))
    assert "2 worker processes were asked to stop." in text
    assert text.count("asked by ann") == 2
    assert set(Worker.objects.values_list("id", "stop_requested_by")) == {(one, "ann"), (two, "ann")}
    entries = LogEntry.objects.values_list("object_id", "change_message", "user__username")
    assert set(entries) == {(str(one), "Asked to stop.", "ann"), (str(two), "Asked to stop.", "ann")}
    assert "Left alone: 1 (asked before)." in words(stop(staff, one))
    assert LogEntry.objects.count() == 2


def test_quiet_is_asked_of_the_command_and_taken_back(queue):
    staff = client_with("view_worker", "quiet_worker")
    one, two = register(queue, supervisor_id=7), register(queue, supervisor_id=7)
    address = f"{WORKERS}{one}/change/"
    given = {"ids": str(one), "confirmed": "yes"}
    assert f'action="{WORKERS}quiet/"' in staff.get(address).content.decode()
    text = words(staff.post(f"{WORKERS}quiet/", given, follow=True))
    assert "2 worker processes were asked to be quiet." in text
    assert text.count("asked by ann") == 2
    page = staff.get(address).content.decode()
    assert f'action="{WORKERS}quiet/"' not in page
    assert f'action="{WORKERS}resume/"' in page
    assert "Left alone: 1 (quiet already)." in words(staff.post(f"{WORKERS}quiet/", given, follow=True))
    text = words(staff.post(f"{WORKERS}resume/", given, follow=True))
    assert "2 worker processes were asked to claim jobs again." in text
    assert not Worker.objects.exclude(quiet_since=None).exists()
    assert LogEntry.objects.filter(object_id=str(two)).count() == 2


def test_who_may_stop_workers_may_not_make_them_quiet(queue, staff):
    one = register(queue)
    assert staff.post(f"{WORKERS}quiet/", {"ids": str(one), "confirmed": "yes"}).status_code == 403
    assert Worker.objects.get().quiet_since is None


def test_button_on_the_page_is_there_until_it_was_pressed(queue, staff):
    one = register(queue)
    address = f"{WORKERS}{one}/change/"
    assert f'action="{WORKERS}stop/"' in staff.get(address).content.decode()
    stop(staff, one)
    assert f'action="{WORKERS}stop/"' not in staff.get(address).content.decode()


def test_worker_that_is_gone_is_left_alone(queue, staff):
    one = register(queue)
    Worker.objects.all().delete()
    assert "Left alone: 1 (not here any more" in words(stop(staff, one))
    assert not LogEntry.objects.exists()


def test_user_who_may_only_look_stops_no_worker(queue, viewer):
    one = register(queue)
    assert "Ask to stop" not in words(viewer.get(f"{WORKERS}{one}/change/"))
    assert stop(viewer, one).status_code == 403
    viewer.post(WORKERS, {"action": "stop", "index": 0, "_selected_action": [one]})
    assert Worker.objects.get().stop_requested_at is None
    for action in ("add/", f"{one}/delete/"):
        assert viewer.post(f"{WORKERS}{action}").status_code == 403


def test_page_is_for_those_who_may_see_it(queue):
    one = register(queue)
    stranger = client_with("stop_worker")
    assert stranger.get(WORKERS).status_code == 403
    assert stop(stranger, one).status_code == 403
    assert Worker.objects.get().stop_requested_at is None
