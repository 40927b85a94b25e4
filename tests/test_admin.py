import datetime as dt
import json
import logging
import re
from collections.abc import Iterator

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import call_command
from django.db import connection, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from django_pgqueue.admin import changelist, formatting, keyset
from django_pgqueue.admin.job_actions import WORDS
from django_pgqueue.insights.bounded import bounded
from django_pgqueue.insights.history import title_of
from django_pgqueue.jobs.actions import SkipReason, kill, run_now
from django_pgqueue.models import DeadJob, Job, Queue, Worker
from django_pgqueue.states import NEVER
from tests.support.staff import confirm, messages_of, tick, user_with

pytestmark = pytest.mark.django_db

JOBS = "/admin/django_pgqueue/job/"
DEAD = "/admin/django_pgqueue/deadjob/"
FINISHED = "/admin/django_pgqueue/finishedjob/"
HOUR = dt.timedelta(hours=1)


@pytest.fixture
def viewer(db) -> Client:
    return user_with("view_job", "view_deadjob", "view_finishedjob")


@pytest.fixture
def staff(db) -> Client:
    return user_with("view_job", "view_deadjob", "run_job", "kill_job", "retry_deadjob")


def queued(label="x", **options) -> int:
    return app.record.using(**options).enqueue(label).id


def scheduled(**options) -> int:
    return app.record.using(run_at=HOUR, **options).enqueue().id


def running(**values) -> int:
    worker = Worker.objects.create(
        supervisor_id=1, lease_until=timezone.now() + HOUR, pid=4711, concurrency=4, host="web-7", version="1"
    )
    values = {"task": "tests.app.tasks.sleep", "attempts": 1, "started_at": timezone.now(), **values}
    return Job.objects.create(status="running", lease_token=99, worker_id=worker.pk, **values).pk


def dead(**values) -> int:
    job_id = queued()
    kill([job_id], by="ann")
    DeadJob.objects.filter(pk=job_id).update(**values)
    return job_id


def entries() -> list[tuple[str, str, str, str]]:
    return [
        (entry.object_id, entry.content_type.model, entry.change_message, entry.user.username)
        for entry in LogEntry.objects.order_by("pk")
    ]


# Reading


def test_list_shows_jobs_in_words(viewer):
    queued(queue="mail", priority=7)
    scheduled()
    running()
    page = viewer.get(JOBS).content.decode()
    for words in ("tests.app.tasks.record", "mail", "0/10", "scheduled", "running", "web-7 4711", "from now"):
        assert words in page
    assert "3 jobs" in page


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


def test_page_of_a_job_tells_its_story(viewer):
    failed = {"kind": "failed", "error": "ValueError", "message": "no <i>luck</i>", "traceback": "Traceback <x>"}
    errors = [
        {**failed, "attempt": 1, "at": "2026-01-02T03:04:05+00:00"},
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
    assert "9007199254740993" in page
    assert "not yet" in page
    assert not re.search(r"\b1970\b", page)  # it may be part of an id, or of a fraction of a second


def test_page_of_a_running_job_names_its_worker(viewer):
    job_id = running(cancel_requested_at=timezone.now(), cancelled_by="zoe")
    page = viewer.get(f"{JOBS}{job_id}/change/").content.decode()
    for words in ("on worker web-7 4711", "The worker is alive", "running, asked to stop", "zoe"):
        assert words in page
    Worker.objects.all().delete()
    assert "not registered any more" in viewer.get(f"{JOBS}{job_id}/change/").content.decode()


def test_markup_in_a_job_is_shown_as_text(viewer, staff):
    evil = "<script>alert(1)</script>"
    job_id = app.record.using(queue=evil, metadata={evil: evil}).enqueue(evil).id
    everywhere = {"queue": evil, "task": evil, "unique_key": evil, "unique_scope": "live", "cancelled_by": evil}
    dead_id = dead(
        errors=[{"error": evil, "message": evil, "traceback": evil, "worker": evil, "at": evil}], **everywhere
    )
    Job.objects.filter(pk=job_id).update(
        unique_key=evil,
        unique_scope="live",
        concurrency_key=evil,
        concurrency_limit=1,
        concurrency_slot=1,
        fair_key=evil,
    )
    named_id = Job.objects.create(task=evil, backend=evil).pk
    running(task=evil)
    Worker.objects.update(host=evil)
    pages = [JOBS, f"{JOBS}{job_id}/change/", f"{JOBS}{named_id}/change/", DEAD, f"{DEAD}{dead_id}/change/"]
    pages += [f"{JOBS}?q={evil}", f"{JOBS}?queue={evil}", f"{DEAD}?task={evil}"]
    for page in [viewer.get(url).content.decode() for url in pages]:
        assert evil not in page
        assert "&lt;script&gt;alert(1)" in page
    assert evil not in tick(staff, JOBS, "kill", job_id, named_id).content.decode()
    assert evil not in confirm(staff, f"{JOBS}kill/", named_id).content.decode()
    assert evil not in staff.get(f"{DEAD}{named_id}/history/").content.decode()


def test_pages_carry_no_inline_style_or_script(staff):
    job_id = queued()
    for response in (staff.get(f"{JOBS}{job_id}/change/"), tick(staff, JOBS, "kill", job_id)):
        own = response.content.decode().partition('id="content"')[2].partition('id="footer"')[0]
        assert "style=" not in own
        assert not re.search(r"<script(?![^>]*src=)", own)
        assert "onclick" not in own


def test_long_arguments_are_cut():
    shown = formatting.pretty_json(["x" * 60_000])
    assert len(shown) < 51_000
    assert "more characters" in shown


def test_instants_that_have_not_come_are_not_yet(settings):
    assert formatting.moment(NEVER) == formatting.exact_moment(NEVER) == "not yet"
    assert formatting.moment(None) == "-"
    settings.USE_TZ = False
    assert formatting.moment(timezone.make_naive(NEVER, timezone.get_default_timezone())) == "not yet"


# Read-only


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


def test_viewer_sees_but_cannot_act(viewer):
    live, parked = [queued(), scheduled()], dead()
    for url, job_id, verbs in ((JOBS, live[1], ["kill", "run_now", "set_priority"]), (DEAD, parked, ["retry"])):
        page = viewer.get(url).content.decode() + viewer.get(f"{url}{job_id}/change/").content.decode()
        assert "Select all" not in page
        for verb in verbs:
            assert f'"{verb}"' not in page
            assert f"{verb}/" not in page
            assert viewer.post(f"{url}{verb}/", {"ids": job_id}).status_code == 403
            assert confirm(viewer, f"{url}{verb}/", job_id).status_code == 403
            tick(viewer, url, verb, job_id)
    assert set(Job.objects.values_list("pk", "status")) == {(live[0], "queued"), (live[1], "scheduled")}
    assert DeadJob.objects.count() == 1
    assert entries() == []


@pytest.mark.parametrize(
    ("permission", "offered", "refused"),
    [
        ("move_job", "move", "set_priority"),
        ("reprioritize_job", "set_priority", "move"),
        ("run_job", "run_now", "kill"),
        ("kill_job", "kill", "move"),
    ],
)
def test_each_verb_has_a_permission_of_its_own(permission, offered, refused):
    client, job_id = user_with("view_job", permission), scheduled()
    assert tick(client, JOBS, offered, job_id).status_code == 200
    assert tick(client, JOBS, refused, job_id).status_code == 302
    page = client.get(f"{JOBS}{job_id}/change/").content.decode()
    assert f"{JOBS}{offered}/" in page
    assert f"{JOBS}{refused}/" not in page
    assert confirm(client, f"{JOBS}{refused}/", job_id).status_code == 403
    assert confirm(client, f"{JOBS}{offered}/", job_id, queue="new", priority=1).status_code == 200


def test_forms_need_their_token(staff):
    strict, job_id = Client(enforce_csrf_checks=True), queued()
    strict.cookies = staff.cookies
    assert strict.post(f"{JOBS}kill/", {"ids": job_id, "confirmed": "yes"}).status_code == 403
    assert Job.objects.count() == 1


# Acting


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


def test_kill_moves_what_waits_and_asks_what_runs(staff):
    waiting, later, active = queued(), scheduled(), running()
    response = confirm(staff, f"{JOBS}kill/", waiting, later, active)
    buried = DeadJob.objects.get(pk=waiting)
    assert (buried.reason, buried.cancelled_by) == ("killed", "ann 5")
    assert set(DeadJob.objects.values_list("pk", flat=True)) == {waiting, later}
    job = Job.objects.get()
    assert (job.pk, job.status, job.cancelled_by) == (active, "running", "ann 5")
    assert job.cancel_requested_at is not None
    assert messages_of(response) == ["2 jobs were killed.", "1 running job was asked to stop."]
    assert sorted(entries()) == sorted(
        [
            (str(waiting), "deadjob", "Killed.", "ann 5"),
            (str(later), "deadjob", "Killed.", "ann 5"),
            (str(active), "job", "Asked to stop.", "ann 5"),
        ]
    )


def test_run_now_makes_scheduled_jobs_due(staff):
    later, ready, active = scheduled(), queued(), running()
    response = confirm(staff, f"{JOBS}run_now/", later, ready, active, 10**12)
    job = Job.objects.get(pk=later)
    assert job.status == "queued"
    assert job.run_at <= timezone.now()
    assert sorted(messages_of(response)) == [
        "1 job is due now.",
        "Left alone: 1 (not here any more: finished, killed or removed).",
        "Left alone: 1 (queued already).",
        "Left alone: 1 (running already).",
    ]
    assert entries() == [(str(later), "job", "Made due at once.", "ann 5")]


def test_retry_sends_dead_jobs_back(staff):
    job_id = dead(reason="exhausted", attempts=10)
    assert "Retry 1 dead job?" in tick(staff, DEAD, "retry", job_id).content.decode()
    response = confirm(staff, f"{DEAD}retry/", job_id)
    job = Job.objects.get(pk=job_id)
    assert (job.status, job.attempts) == ("queued", 0)
    assert title_of(job.errors[-1]) == "died (exhausted), retried by ann 5"
    assert DeadJob.objects.count() == 0
    assert messages_of(response) == [
        f'1 job was retried. <a href="{JOBS}{job_id}/change/">Show job {job_id}</a>',
    ]
    assert entries() == [(str(job_id), "job", "Retried.", "ann 5")]
    assert f'<a href="{JOBS}{job_id}/change/">' in response.content.decode()


@pytest.mark.parametrize(
    ("verb", "said", "question", "entry", "message"),
    [
        ("move", {"queue": "mail"}, "Move 2 jobs to another queue?", "Moved to queue mail.", "1 job was moved."),
        (
            *("set_priority", {"priority": -7}, "Change the priority of 2 jobs?"),
            *("Given priority -7.", "The priority of 1 job was changed."),
        ),
    ],
)
def test_queue_or_priority_is_asked_for_and_changed(verb, said, question, entry, message):
    mover, waiting, active = user_with("view_job", "move_job", "reprioritize_job"), queued(), running()
    page = tick(mover, JOBS, verb, waiting, active).content.decode()
    assert question in page
    assert f'name="{next(iter(said))}"' in page
    response = confirm(mover, f"{JOBS}{verb}/", waiting, active, **said)
    assert Job.objects.filter(pk=waiting, **said).exists()
    assert Job.objects.filter(pk=active, queue="default", priority=0).exists()
    assert messages_of(response) == [message, "Left alone: 1 (running already)."]
    assert entries() == [(str(waiting), "job", entry, "ann 3")]


@pytest.mark.parametrize(
    ("verb", "field", "value", "complaint"),
    [
        ("move", "queue", "", "This field is required"),
        ("move", "queue", "q" * 129, "at most 128 characters"),
        ("set_priority", "priority", "101", "less than or equal to 100"),
        ("set_priority", "priority", "high", "Enter a whole number"),
    ],
)
def test_queue_or_priority_that_cannot_be_is_asked_for_again(verb, field, value, complaint):
    mover, job_id = user_with("view_job", "move_job", "reprioritize_job"), queued()
    page = confirm(mover, f"{JOBS}{verb}/", job_id, **{field: value}).content.decode()
    assert complaint in page
    assert f'name="ids" value="{job_id}"' in page
    assert Job.objects.filter(pk=job_id, queue="default", priority=0).exists()
    assert entries() == []


def test_words_for_what_was_left_alone_are_those_of_the_command():
    assert {left: str(words) for left, words in WORDS.items()} == {left: left.value for left in SkipReason}


def test_dead_job_whose_unique_key_is_held_stays_dead(staff):
    blocked, free, doubled = (
        dead(unique_key="k", unique_scope="live"),
        dead(unique_key="free", unique_scope="live"),
        dead(),
    )
    Job.objects.create(task="t", unique_key="k", unique_scope="live")
    Job.objects.create(pk=doubled, task="t")
    response = confirm(staff, f"{DEAD}retry/", blocked, free, doubled, 10**12)
    assert sorted(messages_of(response)) == [
        f'1 job was retried. <a href="{JOBS}{free}/change/">Show job {free}</a>',
        "Left alone: 1 (a live job has the same id; they stay dead).",
        "Left alone: 1 (a live job holds the unique key; they stay dead).",
        "Left alone: 1 (not here any more: finished, killed or removed).",
    ]
    assert set(DeadJob.objects.values_list("pk", flat=True)) == {blocked, doubled}
    assert [entry[0] for entry in entries()] == [str(free)]


@pytest.mark.django_db(transaction=True)
def test_jobs_that_another_session_is_changing_are_left_alone(staff, other_queue):
    job_id, dead_id = scheduled(), dead()
    with other_queue.transaction():
        other_queue.rows("SELECT id FROM pgqueue_jobs FOR UPDATE", {})
        other_queue.rows("SELECT id FROM pgqueue_dead_jobs FOR UPDATE", {})
        for url, locked in ((f"{JOBS}kill/", job_id), (f"{JOBS}run_now/", job_id), (f"{DEAD}retry/", dead_id)):
            response = confirm(staff, url, locked)
            assert messages_of(response) == ["Left alone: 1 (just being changed by another session; try again)."]
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


@pytest.mark.parametrize(
    ("model", "title"),
    [
        ("job", "Jobs"),
        ("queue", "Queues"),
        ("worker", "Workers"),
        ("schedule", "Schedules"),
        ("bulkaction", "Bulk actions"),
    ],
)
def test_each_list_has_its_name_as_title(admin_client, model, title):
    assert f"<title>{title} |" in admin_client.get(f"/admin/django_pgqueue/{model}/").content.decode()


def test_times_are_in_the_format_of_the_admin_and_to_the_second(admin_client, settings):
    job_id = queued()
    at = timezone.make_aware(dt.datetime(2031, 1, 2, 3, 4, 5))
    Job.objects.filter(pk=job_id).update(enqueued_at=at)
    page = admin_client.get(f"{JOBS}{job_id}/change/").content.decode()
    iso = timezone.localtime(at).isoformat(sep=" ", timespec="seconds")
    assert f'<time datetime="{iso}" title="{iso}">Jan. 2, 2031, 03:04:05</time>' in page


def test_labels_of_forms_begin_as_those_of_django(admin_client):
    Queue.objects.create(name="mail")
    for url in ("schedule/add/", "queue/mail/change/"):
        page = admin_client.get(f"/admin/django_pgqueue/{url}").content.decode()
        labels = re.findall(r"<label[^>]*for=\"id_[^>]*>\s*([^<]+?)\s*</label>", page)
        assert len(labels) >= 4
        assert [label for label in labels if label[0].islower()] == []


def test_each_verb_has_one_button_on_the_page_of_a_job(admin_client):
    """Whatever Django is installed: from 6.1 on, actions could be located there too."""
    waiting, parked = scheduled(), dead()
    for url, job_id, verbs in (
        (JOBS, waiting, ("run_now", "move", "set_priority", "kill")),
        (DEAD, parked, ("retry", "purge")),
    ):
        page = admin_client.get(f"{url}{job_id}/change/").content.decode()
        for verb in verbs:
            assert page.count(f'action="{url}{verb}/"') == 1
        assert 'name="action"' not in page


def test_action_leads_back_to_the_filtered_list(staff):
    job_id = queued(queue="mail")
    page = tick(staff, f"{JOBS}?queue=mail&status=queued", "kill", job_id).content.decode()
    assert 'name="filters" value="queue=mail&amp;status=queued"' in page
    done = confirm(staff, f"{JOBS}kill/", job_id, filters="queue=mail&status=queued")
    assert done.redirect_chain == [(f"{JOBS}?queue=mail&status=queued", 302)]


def test_one_action_takes_a_thousand_jobs(staff):
    ids = enqueue_many(app.record, [()] * 1001)
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


def test_run_now_wakes_workers_and_logs_who(caplog, django_capture_on_commit_callbacks):
    one, two = scheduled(queue="a"), scheduled(queue="b")
    with caplog.at_level(logging.INFO, "django_pgqueue"), django_capture_on_commit_callbacks() as hooks:
        assert sorted(run_now([one, two, two], by="ann")) == [one, two]
        assert run_now([one, two], by="ann") == []
    assert [hook.payloads for hook in hooks] == [("a",), ("b",)]
    assert "Made due at once by ann" in caplog.text


# Big tables


@pytest.fixture
def big(sql):
    """50,000 jobs and as many dead and finished ones, on a few queues and tasks."""
    now = "statement_timestamp()"
    sql(
        "INSERT INTO pgqueue_jobs (task, queue, priority, status, run_at, lease_token, worker_id) "
        "SELECT 'shop.task_' || n % 7, 'queue_' || n % 5, n % 3, "
        "CASE WHEN n % 1000 = 0 THEN 'running' WHEN n % 3 = 0 THEN 'scheduled' ELSE 'queued' END, "
        f"{now} + n * interval '1 second', CASE WHEN n % 1000 = 0 THEN n ELSE 0 END, n % 8 "
        "FROM generate_series(1, 50000) AS n"
    )
    sql(
        "INSERT INTO pgqueue_dead_jobs (id, task, queue, reason, died_at, run_at, enqueued_at) "
        "SELECT n, 'shop.task_' || n % 7, 'queue_' || n % 5, CASE WHEN n % 10 = 0 THEN 'killed' ELSE 'exhausted' END, "
        f"{now} - n * 7919 % 50000 * interval '1 second', {now}, {now} FROM generate_series(1, 50000) AS n"
    )
    sql(
        "INSERT INTO pgqueue_finished_jobs (id, task, queue, finished_at, enqueued_at, run_at, first_started_at, "
        "started_at, worker_id, run_seconds, priority, attempts, lost, backend, args, kwargs, metadata, errors) "
        f"SELECT n, 'shop.task_' || n % 7, 'queue_' || n % 5, {now} + n % 3 * interval '1 day', {now}, {now}, {now}, "
        f"{now}, 1, 0.5, 0, 1, 0, '', '[]', '{{}}', '{{}}', '[]' FROM generate_series(1, 50000) AS n"
    )
    for table in ("pgqueue_jobs", "pgqueue_dead_jobs", "pgqueue_finished_jobs"):
        sql(f"ANALYZE {table}")


@pytest.fixture
def window() -> Iterator[pytest.MonkeyPatch]:
    """Look through fewer rows than there are, until it is undone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyset, "WINDOW", 5_000)
        yield patch


LISTS = [
    JOBS,
    f"{JOBS}?before=last",
    f'{JOBS}?after=["30000"]',
    f'{JOBS}?below=["30000"]',
    f"{JOBS}?status=queued",
    f"{JOBS}?status=scheduled",
    f"{JOBS}?status=running",
    f"{JOBS}?status=waiting",
    f"{JOBS}?status=reserved",
    f"{JOBS}?status=scheduled&queue=queue_1",
    f"{JOBS}?queue=queue_1",
    f"{JOBS}?status=queued&queue=queue_1&before=last",
    f"{JOBS}?status=running&queue=queue_1",
    f"{JOBS}?q=25000",
    f"{JOBS}?q=key:none",
    f"{JOBS}?q=shop.task_1",
    f"{JOBS}?q=arg:none",
    f"{JOBS}?q=label%3Dnone&status=queued",
    DEAD,
    f"{DEAD}?before=last",
    f"{DEAD}?reason=exhausted",
    f"{DEAD}?reason=killed",
    f"{DEAD}?queue=queue_1",
    f"{DEAD}?task=shop.task_1",
    f"{DEAD}?task=shop.task_1&reason=killed",
    f"{DEAD}?cause=17",
    f"{DEAD}?q=25000",
    f"{DEAD}?q=key:none",
    f"{DEAD}?q=arg:none",
    f"{DEAD}?q=shop.task",
    f"{DEAD}?q=shop.task_3",
    FINISHED,
    f"{FINISHED}?before=last",
    f"{FINISHED}?queue=queue_1",
    f"{FINISHED}?q=25000",
    f"{FINISHED}?q=shop.task_3",
    f"{FINISHED}?q=arg:none",
]


def queries_of(client: Client, url: str) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        assert client.get(url).status_code == 200
    return [query["sql"] for query in captured if "pgqueue_" in query["sql"]]


def test_lists_of_big_tables_cost_as_much_as_those_of_small_ones(viewer, staff, big, window, sql):
    """One table for all claims, and each page once for each state of its statistics."""
    for url in LISTS:
        queries = queries_of(viewer, url)
        they_are_few_and_leave_heavy_columns(queries, url)
        for query in queries:
            it_reads_along_an_index(sql, query, url)
            it_reads_a_bounded_number_of_rows(sql, query, url)
    # Statistics of the hot table, which is rarely analyzed: taken when most jobs were queued.
    sql("UPDATE pgqueue_jobs SET status = 'scheduled' WHERE status = 'queued'")
    for url in LISTS:
        for query in queries_of(viewer, url):
            it_reads_a_bounded_number_of_rows(sql, query, url)
    window.undo()
    count_is_capped_and_says_so(viewer)
    select_all_is_not_offered_beyond_what_one_action_takes(staff)


def it_reads_along_an_index(sql, query: str, url: str) -> None:
    plan = explain(sql, query)
    assert "Seq Scan on pgqueue" not in plan, f"{url}\n{query}\n{plan}"
    # The few jobs of one worker process may be sorted, as the index hands them out.
    sorts = re.findall(r"\bSort +\(.*\n(?:.*Presorted Key: ([\w.]+))?", re.sub(r"\n *Sort Key.*", "", plan))
    assert set(sorts) <= ({"worker_id", "pgqueue_jobs.worker_id"} if "status=running" in url else set()), (
        f"{url}\n{query}\n{plan}"
    )


def they_are_few_and_leave_heavy_columns(queries: list[str], url: str) -> None:
    assert len(queries) <= 9, "\n".join(queries)
    for query in queries:
        assert "DISTINCT" not in query
        assert '"args"' not in query or "q=arg:" in url or "label" in url
        if "COUNT(" in query:
            assert "LIMIT 10001" in query


def it_reads_a_bounded_number_of_rows(sql, query: str, url: str) -> None:
    plan = explain(sql, query, "ANALYZE, FORMAT JSON")
    assert rows_read(plan[0]["Plan"]) <= 12_000, f"{url}\n{query}\n{json.dumps(plan, indent=1)}"


def explain(sql, query: str, options: str = "COSTS"):
    with bounded("default"):
        rows = sql(f"EXPLAIN ({options}) {query.replace('%', '%%')}")
    return rows[0][0] if "JSON" in options else "\n".join(line for (line,) in rows)


def rows_read(node: dict) -> float:
    """Return how many rows of tables a plan has looked at."""
    below = sum(rows_read(child) for child in node.get("Plans", ()))
    if "Relation Name" not in node:
        return below
    return below + (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]


def count_is_capped_and_says_so(viewer: Client) -> None:
    for url in (JOBS, DEAD, FINISHED):
        assert re.search(r"<span>10,000\+ (dead |finished )?jobs</span>", viewer.get(url).content.decode())
    assert "<span>50 jobs</span>" in viewer.get(f"{JOBS}?status=running").content.decode()


def select_all_is_not_offered_beyond_what_one_action_takes(staff: Client) -> None:
    assert "Select all 1" not in staff.get(JOBS).content.decode()
    job_id = dead()
    DeadJob.objects.exclude(pk=job_id).filter(pk__gt=150).delete()
    assert re.search(r"Select all 15\d dead jobs", staff.get(DEAD).content.decode())


@pytest.mark.parametrize("count", [changelist.CAP - 1, changelist.CAP, changelist.CAP + 1])
def test_cap_is_exact_at_its_edge(count):
    enqueue_many(app.noop, [()] * count)
    paginator = changelist.CappedPaginator(Job.objects.order_by("-pk"), 100)
    assert (paginator.count, paginator.is_capped) == (min(count, changelist.CAP), count > changelist.CAP)


def test_filters_narrow_the_lists(viewer):
    ids = {
        "queued": queued(queue="mail"),
        "scheduled": scheduled(queue="mail"),
        "running": running(queue="mail"),
        "other": queued(),
    }

    def shown(query):
        return {job.pk for job in viewer.get(f"{JOBS}{query}").context["cl"].result_list}

    assert shown("?status=queued") == {ids["queued"], ids["other"]}
    assert shown("?status=scheduled") == {ids["scheduled"]}
    assert shown("?status=scheduled&queue=mail") == {ids["scheduled"]}
    assert shown("?status=scheduled&queue=none") == shown("?status=waiting") == set()
    assert shown("?status=running&queue=mail") == {ids["running"]}
    assert shown("?queue=mail") == {ids["queued"]}
    assert shown(f"?q={ids['other']}") == {ids["other"]}
    assert shown("?q=shop") == shown("?q=99999999999999999999") == shown("?q=9223372036854775807") == set()
    assert shown("?q=tests.app.tasks.rec") == {ids["queued"], ids["scheduled"], ids["other"]}
    assert shown("?q=tests&queue=mail") == {ids["queued"], ids["scheduled"], ids["running"]}
    page = viewer.get(f"{JOBS}?status=scheduled").content.decode()
    assert "?queue=mail&amp;status=scheduled" in page


def test_filters_of_dead_jobs_narrow_the_list(viewer):
    one, two = dead(queue="mail", task="shop.b", reason="lost"), dead(task="shop.a_1")

    def shown(query):
        return [job.pk for job in viewer.get(f"{DEAD}{query}").context["cl"].result_list]

    assert shown("") == [two, one]
    assert shown("?queue=mail") == shown("?reason=lost") == shown("?task=shop.b") == [one]
    assert shown("?q=shop") == [two, one]
    assert shown("?q=shop.a_") == [two]
    assert shown("?q=hop") == shown("?q=shop%25") == []
    assert shown(f"?q={one}") == [one]


@pytest.mark.parametrize(
    "query",
    [
        "args__contains=x",
        "errors__icontains=x",
        "task__contains=x",
        "id__in=1",
        "status__in=queued",
        "run_at__year=2026",
    ],
)
def test_address_bar_reaches_no_other_column(viewer, query):
    assert viewer.get(f"{JOBS}?{query}").status_code == 400


@pytest.mark.parametrize("query", [f"{JOBS}?status=x", f"{DEAD}?reason=x", f"{DEAD}?cause=x", f"{FINISHED}?day=x"])
def test_filter_that_cannot_be_is_dropped(viewer, query):
    assert viewer.get(query).status_code == 302


def test_address_bar_does_not_order_the_list(viewer):
    first, second = queued(), queued()
    for order in ("o=1", "o=-2.3", "o=5"):
        assert [job.pk for job in viewer.get(f"{JOBS}?{order}").context["cl"].result_list] == [second, first]


def test_choices_of_filters_are_few(sql):
    sql(
        "INSERT INTO pgqueue_jobs (task, queue) SELECT 't', 'q' || lpad(n::text, 4, '0') FROM generate_series(1, 500) n"
    )
    found = changelist.names("queued_queues")
    assert (found[0], len(found)) == ("q0001", 100)


# Purge


def test_dead_jobs_are_purged_by_those_who_may_and_the_log_keeps_their_names():
    purger, gone, stays = user_with("view_deadjob", "delete_deadjob"), dead(), dead()
    page = tick(purger, DEAD, "purge", gone).content.decode()
    assert "Remove 1 dead job for good?" in page
    assert "Nothing brings them back" in page
    assert "pgqueue-harmless" not in page
    response = confirm(purger, f"{DEAD}purge/", gone, 10**12)
    assert messages_of(response) == [
        "1 job was removed for good.",
        "Left alone: 1 (not here any more: finished, killed or removed).",
    ]
    assert [job.pk for job in DeadJob.objects.all()] == [stays]
    [entry] = LogEntry.objects.all()
    assert entry.is_deletion()
    assert (entry.object_repr, entry.change_message) == (f"tests.app.tasks.record #{gone}", "Purged.")


def test_who_may_retry_may_not_purge(staff):
    job_id = dead()
    assert "purge" not in staff.get(DEAD).content.decode()
    assert confirm(staff, f"{DEAD}purge/", job_id).status_code == 403
    assert DeadJob.objects.count() == 1


# Another database


@pytest.mark.django_db(databases=["default", "other"])
def test_queue_on_another_database_is_browsed_and_changed_there(staff, settings):
    settings.PGQUEUE = {"DATABASE": "other"}
    settings.DATABASE_ROUTERS = ["django_pgqueue.routers.PgQueueRouter"]
    call_command("migrate", "django_pgqueue", "zero", database="other", fake=True, verbosity=0)
    call_command("migrate", "django_pgqueue", database="other", verbosity=0)
    job_id = queued()
    assert "1 job" in staff.get(JOBS).content.decode()
    assert "1 job was killed." in messages_of(confirm(staff, f"{JOBS}kill/", job_id))[0]
    with connections["other"].cursor() as cursor:
        cursor.execute("SELECT id FROM pgqueue_dead_jobs")
        assert cursor.fetchall() == [(job_id,)]
    assert "1 job was retried." in messages_of(confirm(staff, f"{DEAD}retry/", job_id))[0]
    assert len(entries()) == 2


@pytest.mark.parametrize(
    ("progress", "shown"),
    [
        (None, "-"),
        (
            {"done": 3, "total": 12, "message": "<b>", "attempt": 2},
            '<progress max="12" value="3"></progress> 3 of 12 &lt;b&gt; <span class="pgqueue-quiet">attempt 2</span>',
        ),
        (
            {"done": 0.5, "total": None, "message": "", "attempt": 1},
            '0.5  <span class="pgqueue-quiet">attempt 1</span>',
        ),
        ({"done": 0, "total": 0, "attempt": 1}, '0  <span class="pgqueue-quiet">attempt 1</span>'),
        ({"steps": "of a third kind", "password": "x"}, "[redacted]"),
        ("text", "text"),
    ],
)
def test_progress_is_a_bar_and_words_whatever_is_in_it(progress, shown):
    assert shown in formatting.progress(progress)


def test_page_of_a_job_shows_its_progress_without_secrets(admin_client):
    job_id = app.log_in.enqueue("me", "hunter22").id
    Job.objects.update(progress={"done": 1, "total": 2, "message": "hunter22 tried", "attempt": 1})
    page = admin_client.get(f"{JOBS}{job_id}/change/").content.decode()
    assert '<progress max="2" value="1"></progress> 1 of 2 [redacted] tried' in page
    assert "hunter22" not in page
