"""The page of one job, live, dead or succeeded: what it tells, where it leads, and that all it shows is text."""

import datetime as dt
import json
import re
from html import unescape

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import queues
from django_pgqueue.jobs import kill
from django_pgqueue.models import DeadJob, Job, Schedule, SucceededJob, Worker
from django_pgqueue.states import EntryKind
from tests.support.admin_jobs import JOBS, queued, running
from tests.support.hostile import ADMIN, EVIL, must_be_text, page
from tests.support.schedules import make

pytestmark = pytest.mark.django_db

VIEW = ("view_job", "view_deadjob", "view_succeededjob", "view_queue", "view_schedule")
HOUR = dt.timedelta(hours=1)


def client_with(*codenames: str) -> Client:
    user = User.objects.create_user(f"user {len(codenames)}", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def viewer(db) -> Client:
    return client_with(*VIEW)


def words(html: str) -> str:
    """Return what is read on a page."""
    return " ".join(re.sub(r"<[^>]+>", "", html.partition('id="content"')[2]).split())


def dead(**values) -> int:
    job_id = app.record.enqueue().id
    kill([job_id], by="eve")
    DeadJob.objects.filter(pk=job_id).update(**values)
    return job_id


def test_page_tells_why_with_links(viewer):
    key = {"task": "tests.app.tasks.noop", "concurrency_key": "k", "concurrency_limit": 1}
    holder = Job.objects.create(**key, concurrency_slot=1, queue="mail").pk
    waiting = Job.objects.create(**key, status="limited", queue="mail").pk
    queues.pause("mail", by="ann", reason="upgrade")
    html = page(viewer, waiting)
    assert f'job <a href="{ADMIN}job/{holder}/change/">{holder}</a> has the slot.' in html
    assert f'Its queue <a href="{ADMIN}queue/mail/change/">mail</a> is paused by <bdi>ann</bdi>' in html
    assert "upgrade" in html
    assert "manage.py pgqueue_worker" in html
    assert f'<dt>Has a slot of it</dt><dd><a href="{ADMIN}job/{holder}/change/">' in html
    assert f'<dt>Waits for one</dt><dd><a href="{ADMIN}job/{waiting}/change/">' in page(viewer, holder)
    assert "<dt>Slot of the key</dt><dd>1 of 1</dd>" in page(viewer, holder)
    assert f"<dt>Idempotency key</dt><dd><code>job-{holder}</code>" in page(viewer, holder)


def test_page_leads_to_lists_that_can_be_opened(viewer):
    html = page(viewer, dead(errors=[{"kind": "failed", "error": "E", "message": "x 17", "worker_id": 1}]), "deadjob")
    addresses = re.findall(rf'href="({ADMIN}\w+/\?[^"]+)">', html.partition("<dt>Lists</dt>")[2])
    assert len(addresses) == 5
    assert "cause=" in addresses[0]
    for address in addresses:
        assert viewer.get(unescape(address)).status_code == 200


def test_page_has_no_links_to_what_the_user_may_not_see():
    parent = app.noop.enqueue().id
    job_id = app.noop.enqueue().id
    Job.objects.filter(pk=job_id).update(parent_id=parent, queue="mail")
    html = page(client_with("view_job"), job_id)
    assert "deadjob" not in html
    assert f"{ADMIN}queue/" not in html
    assert f'<a href="{ADMIN}job/{parent}/change/">{parent}</a>' in html


def test_page_offers_no_command_in_place_of_a_button(viewer):
    assert "pgqueue_jobs" not in page(viewer, dead(), "deadjob")
    assert "pgqueue_jobs" not in page(viewer, app.noop.using(delay=HOUR).enqueue().id)


def test_page_leads_to_parent_and_schedule(viewer):
    schedule = make("hourly")
    parent = dead()
    job_id = app.noop.enqueue().id
    Job.objects.filter(pk=job_id).update(parent_id=parent, schedule_id=schedule.pk)
    html = page(viewer, job_id)
    assert f'<dt>Enqueued by job</dt><dd><a href="{ADMIN}job/{parent}/change/">{parent}</a>' in html
    assert f'<a href="{ADMIN}schedule/{schedule.pk}/change/">hourly</a>' in html
    Schedule.objects.all().delete()
    assert f"{schedule.pk}, removed" in page(viewer, job_id)


def test_page_tells_the_timeline_as_a_list(viewer):
    at = timezone.now() - HOUR
    entry = {
        "kind": "failed",
        "error": "ValueError",
        "message": "no luck",
        "worker_id": 1,
        "attempt": 1,
        "run_seconds": 2.5,
    }
    times = {"started_at": at.isoformat(), "at": (at + HOUR / 60).isoformat()}
    job_id = dead(errors=[{**entry, **times}], reason="exhausted", enqueued_at=at - HOUR, died_at=at + HOUR / 60)
    html = page(viewer, job_id, "deadjob")
    kinds = re.findall(r'<li class="pgqueue-step pgqueue-step-(\w+) pgqueue-length-(\d)', html)
    assert kinds == [("enqueued", "0"), ("wait", "5"), ("failed", "3"), ("died", "0")]
    assert "Attempt 1 failed with ValueError 1 min" in words(html)
    assert "ran for 2.5 s" in words(html)
    assert re.search(r"Attempt 1, [^<]*<time", html)


def test_history_counts_no_attempt_before_the_first(viewer):
    html = page(viewer, dead(), "deadjob")
    assert "killed by eve" in html
    assert "Attempt 0" not in html


def test_page_marks_the_parts_that_change_for_the_refresh(viewer):
    html = page(viewer, app.noop.enqueue().id)
    names = re.findall(r'data-pgqueue-live="(\w+)"', html)
    assert sorted(names) == sorted(set(names))
    assert {"why", "timeline", "errors", "related", "buttons"} <= set(names)
    assert 'id="pgqueue-live"' in html


def test_arguments_are_exact_and_without_secrets(viewer):
    big, text = 12345678901234567890123, "naïve ✓ مرحبا"
    job_id = app.log_in.enqueue(text, password="open-sesame").id
    Job.objects.filter(pk=job_id).update(
        metadata={"n": big}, unique_key="of open-sesame", unique_until="end", fair_key="of open-sesame"
    )
    html = page(viewer, job_id)
    assert text in html
    assert str(big) in html
    assert "[redacted]" in html
    assert "sesame" not in html


def test_arguments_of_an_unknown_task_are_hidden_with_the_reason(viewer):
    html = page(viewer, Job.objects.create(task="gone", args=["open-sesame"]).pk)
    assert "sesame" not in html
    assert "it does not know which arguments are sensitive" in html
    assert "it does not know which arguments are sensitive" not in page(viewer, Job.objects.create(task="gone").pk)


def test_progress_and_worker_are_told_of_while_it_runs(viewer):
    lease = timezone.now() + HOUR
    worker = Worker.objects.create(supervisor_id=1, lease_until=lease, pid=7, concurrency=1, host="web-7", version="1")
    job_id = Job.objects.create(
        task="tests.app.tasks.noop", status="running", lease_token=1, worker_id=worker.pk, attempts=1,
        started_at=timezone.now(), progress={"done": 3, "total": 12, "message": "page 3"},
    ).pk  # fmt: skip
    html = page(viewer, job_id)
    assert '<progress max="12" value="3">' in html
    assert "on worker web-7 7" in words(html)
    assert "its last heartbeat was" in html


def test_pages_are_shown_without_time_zones_too(viewer, settings):
    ids = (
        dead(
            errors=[{"kind": "failed", "error": "E", "worker_id": 1, "attempt": 1, "at": "2026-01-02T03:04:05+00:00"}]
        ),
        app.noop.enqueue().id,
    )
    settings.USE_TZ = False
    assert "Attempt 1 failed with E" in words(page(viewer, ids[0], "deadjob"))
    assert "Waits for its turn" in words(page(viewer, ids[1]))


def test_page_of_a_job_tells_its_story(viewer):
    failed = {
        "kind": "failed",
        "error": "ValueError",
        "message": "no <i>luck</i>",
        "traceback": "Traceback <x>",
        "log": "line <y>",
    }
    errors = [
        {**failed, "log": "line <y>", "attempt": 1, "at": "2026-01-02T03:04:05+00:00"},
        {"kind": "lost", "worker": "web-7 4711", "attempt": 2, "at": "not a time"},
    ]
    job_id = queued()
    Job.objects.filter(pk=job_id).update(errors=errors, metadata={"order": 9007199254740993})
    page = viewer.get(f"{JOBS}{job_id}/change/").content.decode()
    newest_first = page[page.index("pgqueue-history") :]
    assert newest_first.index("worker lost") < newest_first.index("ValueError")
    assert "2026-01-02 04:04:05+01:00" in page
    assert "no &lt;i&gt;luck" in page
    assert '<details id="pgqueue-traceback-1"><summary>Traceback</summary>' in page
    assert '<summary>Log</summary><pre class="pgqueue-log" tabindex="0">line &lt;y&gt;</pre>' in page
    assert "9007199254740993" in page
    assert "not yet" in page
    assert "1970-01-01" not in page


def test_page_of_a_running_job_names_its_worker(viewer):
    job_id = running(kill_requested_at=timezone.now(), killed_by="zoe")
    page = viewer.get(f"{JOBS}{job_id}/change/").content.decode()
    for words in ("on worker web-7 4711", "The worker is alive", "running, asked to stop", "zoe"):
        assert words in page
    Worker.objects.all().delete()
    assert "not registered any more" in viewer.get(f"{JOBS}{job_id}/change/").content.decode()


def test_page_of_a_job_shows_its_progress_without_secrets(admin_client):
    job_id = app.log_in.enqueue("me", "hunter22").id
    Job.objects.update(progress={"done": 1, "total": 2, "message": "hunter22 tried", "attempt": 1})
    page = admin_client.get(f"{JOBS}{job_id}/change/").content.decode()
    assert '<progress max="2" value="1"></progress> 1 of 2 [redacted] tried' in page
    assert "hunter22" not in page


# Where it is by now


def moved(client: Client, job_id: object, table: str):
    return client.get(f"{ADMIN}{table}/{job_id}/change/", follow=True)


def test_job_that_has_moved_on_is_followed(viewer):
    dead_id, live_id = dead(), app.noop.enqueue().id
    there = moved(viewer, dead_id, "job")
    assert there.redirect_chain == [(f"{ADMIN}deadjob/{dead_id}/change/", 302)]
    assert [str(message) for message in there.context["messages"]] == [f"Job {dead_id} is dead by now."]
    back = moved(viewer, live_id, "deadjob")
    assert back.redirect_chain == [(f"{ADMIN}job/{live_id}/change/", 302)]
    assert f"Job {live_id} is live" in back.content.decode()


@pytest.mark.parametrize("job_id", [4711, 0, 2**63, "x", "-1", "17_20", pytest.param("9" * 5000, id="long")])
def test_job_that_is_nowhere_leads_to_the_list_with_what_is_kept(viewer, job_id):
    there = moved(viewer, job_id, "job")
    assert there.redirect_chain[-1][0] == f"{ADMIN}job/"
    assert "it was never committed, or nothing is kept of it any more" in there.content.decode()
    assert "kept for 7 days" in there.content.decode()


def test_who_may_see_no_job_is_not_told_where_one_is():
    job_id = app.noop.enqueue().id
    client = client_with("view_queue")
    for table in ("job", "deadjob", "succeededjob"):
        for name in ("change", "history", "delete"):
            assert client.get(f"{ADMIN}{table}/{job_id}/{name}/").status_code == 403


def test_job_that_has_moved_where_the_user_may_not_look_is_only_told_of():
    job_id = dead()
    there = moved(client_with("view_job"), job_id, "job")
    assert there.redirect_chain[-1][0] == f"{ADMIN}job/"
    assert "You may not see it there." in there.content.decode()


def test_page_of_a_job_shows_the_log_lines_of_its_run_without_secrets(admin_client):
    job_id = app.log_in.enqueue("me", "hunter22").id
    Job.objects.update(progress={"log": "trying <hunter22>", "attempt": 2})
    page = admin_client.get(f"{JOBS}{job_id}/change/").content.decode()
    assert "trying &lt;[redacted]&gt;</pre>" in page
    assert "pgqueue-progress" not in page
    Job.objects.update(errors=[{"kind": "failed", "error": "ValueError", "attempt": 2, "log": "the same"}])
    page = admin_client.get(f"{JOBS}{job_id}/change/").content.decode()
    assert "trying" not in page
    assert page.count("the same") == 1


def test_page_of_a_job_that_failed_names_the_command_that_no_button_stands_for(viewer):
    job_id = dead(task=app.noop.name, reason="exhausted")
    html = page(viewer, job_id, "deadjob")
    assert f"<code>manage.py pgqueue_jobs try {job_id}</code>" in html
    assert "pgqueue_jobs retry" not in html


# All of it is text


@pytest.mark.parametrize("evil", EVIL, ids=["script", "quotes", "ends", "rtl", "emoji", "control", "format", "long"])
def test_whatever_a_job_holds_is_shown_as_text(viewer, evil):
    name = evil[:100]
    entry = {"error": evil, "message": evil, "traceback": evil, "log": evil, "worker": evil, "by": evil, "at": evil}
    values = dict.fromkeys(("by", "from", "to", "reason", "conflict", "holder", "retried_as"), evil)
    entries = [
        entry | {"kind": "failed", "attempt": 1, "worker_id": 1},
        *({"kind": kind} | values for kind in EntryKind),
    ]
    common = {
        "task": name,
        "queue": name,
        "errors": entries,
        "metadata": {name: evil},
        "progress": {"done": 1, "total": 2, "message": evil},
        "args": [evil, {name: evil}],
        "kwargs": {name: evil},
    }
    keys = {"unique_key": name, "unique_until": "end", "concurrency_key": name, "concurrency_limit": 1}
    worker = Worker.objects.create(
        supervisor_id=1, lease_until=timezone.now() + HOUR, pid=7, concurrency=1, host=name, version="1", queues=[name]
    )
    live = Job.objects.create(**common, **keys, concurrency_slot=1, fair_key=name).pk
    run = Job.objects.create(
        **common, status="running", lease_token=1, worker_id=worker.pk, attempts=1, kill_requested_at=timezone.now(),
        killed_by=evil, started_at=timezone.now(),
    ).pk  # fmt: skip
    waiting = Job.objects.create(**common, **keys | {"unique_key": f"{name}2"}, status="limited").pk
    queues.pause(name, by=evil, reason=evil)
    parked = dead(**common, unique_key=name, unique_until="end", killed_by=evil)
    for job_id, table in ((live, "job"), (run, "job"), (waiting, "job"), (parked, "deadjob")):
        html = page(viewer, job_id, table)
        must_be_text(html, evil)


def test_whatever_a_known_task_was_given_is_shown_as_text(viewer):
    for evil in EVIL:
        html = page(viewer, app.record.enqueue(evil).id)
        must_be_text(html, json.dumps(evil, ensure_ascii=False))
    assert "more characters" in html


def test_result_of_a_finished_job_is_shown_without_secrets(viewer):
    now = timezone.now()
    values = {"attempts": 1, "priority": 0, "lost": 0, "backend": "", "kwargs": {}, "metadata": {}, "errors": []}
    SucceededJob.objects.create(
        id=4711, task="tests.app.tasks.record", queue="q", enqueued_at=now, run_at=now, first_started_at=now,
        started_at=now, succeeded_at=now, worker_id=1, run_seconds=0.25, args=["x"],
        result={"n": 12345678901234567890, "token": "sesame"}, **values,
    )  # fmt: skip
    html = page(viewer, 4711, "succeededjob")
    assert "12345678901234567890" in html
    assert "sesame" not in html
    assert "Attempt 1 succeeded after 250 ms." in words(html)
    there = moved(viewer, 4711, "job")
    assert there.redirect_chain == [(f"{ADMIN}succeededjob/4711/change/", 302)]


@pytest.mark.parametrize("job_id", [None, 4711])
def test_refresh_of_a_job_that_has_moved_leaves_the_message_to_the_page_it_leads_to(viewer, job_id):
    address = f"{ADMIN}job/{job_id or dead()}/change/"
    assert viewer.get(address, follow=True, headers={"X-Pgqueue-Live": "yes"}).redirect_chain
    there = viewer.get(address, follow=True)
    assert len(there.context["messages"]) == 1


def test_tag_with_a_secret_is_no_link(viewer):
    job_id = app.log_in.using(tags=("to:jo@example.com", "paid")).enqueue("jo", password="jo@example.com").id
    page = viewer.get(f"{ADMIN}job/{job_id}/change/").content.decode()
    assert "q=tag%3Apaid" in page
    assert "to:[redacted]" in page
    assert "jo@" not in page
    assert "jo%40" not in page
