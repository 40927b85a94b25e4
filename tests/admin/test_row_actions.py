"""Actions on jobs, queues and schedules: confirmed, done, logged, and what was skipped."""

import datetime as dt

import pytest
from django.contrib.admin import site
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.utils import timezone, translation

from django_pgqueue.insights.history import title_of
from django_pgqueue.jobs.actions import SkipReason
from django_pgqueue.models import DeadJob, Job, Queue, Schedule
from tests.support.admin_jobs import DEAD, JOBS, dead, entries, queued, running, scheduled
from tests.support.admin_queues import ODD, QUEUES
from tests.support.admin_schedules import LIST
from tests.support.schedules import START, make
from tests.support.staff import confirm, messages_of, tick, user_with

pytestmark = pytest.mark.django_db


# Jobs


def test_viewer_sees_but_cannot_act(viewer):
    live, parked = [queued(), scheduled()], dead()
    for url, job_id, actions in ((JOBS, live[1], ["kill", "run_now", "set_priority"]), (DEAD, parked, ["retry"])):
        page = viewer.get(url).content.decode() + viewer.get(f"{url}{job_id}/change/").content.decode()
        assert "Select all" not in page
        for action in actions:
            assert f'"{action}"' not in page
            assert f"{action}/" not in page
            assert viewer.post(f"{url}{action}/", {"ids": job_id}).status_code == 403
            assert confirm(viewer, f"{url}{action}/", job_id).status_code == 403
            tick(viewer, url, action, job_id)
    assert set(Job.objects.values_list("pk", "status")) == {(live[0], "queued"), (live[1], "scheduled")}
    assert DeadJob.objects.count() == 1
    assert entries() == []


@pytest.mark.parametrize(
    ("permission", "offered", "refused"),
    [
        ("move_job", "move", "set_priority"),
        ("set_priority_job", "set_priority", "move"),
        ("run_now_job", "run_now", "kill"),
        ("kill_job", "kill", "move"),
    ],
)
def test_each_action_has_a_permission_of_its_own(permission, offered, refused):
    client, job_id = user_with("view_job", permission), scheduled()
    assert tick(client, JOBS, offered, job_id).status_code == 200
    assert tick(client, JOBS, refused, job_id).status_code == 302
    page = client.get(f"{JOBS}{job_id}/change/").content.decode()
    assert f"{JOBS}{offered}/" in page
    assert f"{JOBS}{refused}/" not in page
    assert confirm(client, f"{JOBS}{refused}/", job_id).status_code == 403
    assert confirm(client, f"{JOBS}{offered}/", job_id, queue="new", priority=1).status_code == 200


def test_kill_moves_what_waits_and_asks_what_runs(staff):
    waiting, later, active = queued(), scheduled(), running()
    response = confirm(staff, f"{JOBS}kill/", waiting, later, active)
    buried = DeadJob.objects.get(pk=waiting)
    assert (buried.reason, buried.killed_by) == ("killed", "ann 5")
    assert set(DeadJob.objects.values_list("pk", flat=True)) == {waiting, later}
    job = Job.objects.get()
    assert (job.pk, job.status, job.killed_by) == (active, "running", "ann 5")
    assert job.kill_requested_at is not None
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
        "Left alone: 1 (not here: succeeded, killed or removed, or there was never such a job).",
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
    ("action", "params", "question", "entry", "message"),
    [
        ("move", {"queue": "mail"}, "Move 2 jobs to another queue?", "Moved to queue mail.", "1 job was moved."),
        (
            *("set_priority", {"priority": -7}, "Change the priority of 2 jobs?"),
            *("Given priority -7.", "The priority of 1 job was changed."),
        ),
    ],
)
def test_queue_or_priority_is_asked_for_and_changed(action, params, question, entry, message):
    mover, waiting, active = user_with("view_job", "move_job", "set_priority_job"), queued(), running()
    page = tick(mover, JOBS, action, waiting, active).content.decode()
    assert question in page
    assert f'name="{next(iter(params))}"' in page
    response = confirm(mover, f"{JOBS}{action}/", waiting, active, **params)
    assert Job.objects.filter(pk=waiting, **params).exists()
    assert Job.objects.filter(pk=active, queue="default", priority=0).exists()
    assert messages_of(response) == [message, "Left alone: 1 (running already)."]
    assert entries() == [(str(waiting), "job", entry, "ann 3")]


@pytest.mark.parametrize(
    ("action", "field", "value", "complaint"),
    [
        ("move", "queue", "", "This field is required"),
        ("move", "queue", "q" * 129, "at most 128 characters"),
        ("set_priority", "priority", "101", "less than or equal to 100"),
        ("set_priority", "priority", "high", "Enter a whole number"),
    ],
)
def test_queue_or_priority_that_cannot_be_is_asked_for_again(action, field, value, complaint):
    mover, job_id = user_with("view_job", "move_job", "set_priority_job"), queued()
    page = confirm(mover, f"{JOBS}{action}/", job_id, **{field: value}).content.decode()
    assert complaint in page
    assert f'name="ids" value="{job_id}"' in page
    assert Job.objects.filter(pk=job_id, queue="default", priority=0).exists()
    assert entries() == []


def test_reasons_for_skipping_are_said_in_the_language_of_the_user():
    english = {reason: str(reason.label) for reason in SkipReason}
    with translation.override("de"):
        assert not [reason for reason in SkipReason if str(reason.label) == english[reason]]


def test_dead_job_whose_unique_key_is_held_stays_dead(staff):
    blocked, free, doubled = (
        dead(unique_key="k", unique_until="end"),
        dead(unique_key="free", unique_until="end"),
        dead(),
    )
    Job.objects.create(task="t", unique_key="k", unique_until="end")
    Job.objects.create(pk=doubled, task="t")
    response = confirm(staff, f"{DEAD}retry/", blocked, free, doubled, 10**12)
    assert sorted(messages_of(response)) == [
        f'1 job was retried. <a href="{JOBS}{free}/change/">Show job {free}</a>',
        "Left alone: 1 (a live job has the same id; they stay dead).",
        "Left alone: 1 (a live job holds the unique key; they stay dead).",
        "Left alone: 1 (not here: succeeded, killed or removed, or there was never such a job).",
    ]
    assert set(DeadJob.objects.values_list("pk", flat=True)) == {blocked, doubled}
    assert [entry[0] for entry in entries()] == [str(free)]


@pytest.mark.django_db(transaction=True)
def test_jobs_that_another_session_is_changing_are_skipped(staff, other_queue):
    job_id, dead_id = scheduled(), dead()
    with other_queue.transaction():
        other_queue.rows("SELECT id FROM pgqueue_jobs FOR UPDATE", {})
        other_queue.rows("SELECT id FROM pgqueue_dead_jobs FOR UPDATE", {})
        for url, locked in ((f"{JOBS}kill/", job_id), (f"{JOBS}run_now/", job_id), (f"{DEAD}retry/", dead_id)):
            response = confirm(staff, url, locked)
            assert messages_of(response) == ["Left alone: 1 (just being changed by another session; try again)."]
    assert entries() == []


def test_each_action_has_one_button_on_the_page_of_a_job(admin_client):
    """Whatever Django is installed: from 6.1 on, actions could be located there too."""
    waiting, parked = scheduled(), dead()
    for url, job_id, actions in (
        (JOBS, waiting, ("run_now", "move", "set_priority", "kill")),
        (DEAD, parked, ("retry", "purge")),
    ):
        page = admin_client.get(f"{url}{job_id}/change/").content.decode()
        for action in actions:
            assert page.count(f'action="{url}{action}/"') == 1
        assert 'name="action"' not in page


@pytest.mark.parametrize(
    ("status", "offered"),
    [
        ("scheduled", {"run_now", "move", "set_priority", "kill"}),
        ("queued", {"move", "set_priority", "kill"}),
        ("limited", {"move", "set_priority", "kill"}),
        ("running", {"kill"}),
        ("reserved", set()),
    ],
)
def test_page_of_a_job_offers_what_can_be_done_to_its_status(status, offered):
    admin = site.get_model_admin(Job)
    assert {action.name for action in admin.actions if admin.offers(action, Job(status=status))} == offered


def test_dead_jobs_are_purged_by_those_who_may_and_the_log_keeps_their_names():
    purger, gone, stays = user_with("view_deadjob", "delete_deadjob"), dead(), dead()
    page = tick(purger, DEAD, "purge", gone).content.decode()
    assert "Remove 1 dead job for good?" in page
    assert "Nothing brings them back" in page
    assert "pgqueue-harmless" not in page
    response = confirm(purger, f"{DEAD}purge/", gone, 10**12)
    assert messages_of(response) == [
        "1 job was removed for good.",
        "Left alone: 1 (not here: succeeded, killed or removed, or there was never such a job).",
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


# Queues and schedules


@pytest.fixture
def keeper(db) -> Client:
    rights = ("view", "add", "change", "delete", "pause", "run")
    return user_with("view_queue", "pause_queue", *(f"{right}_schedule" for right in rights))


@pytest.mark.parametrize("names", [["mail"], ["mail", ODD]])
def test_queues_are_paused_with_a_reason_and_resumed(keeper, queues, names):
    asked = tick(keeper, QUEUES, "pause", *names)
    assert asked.status_code == 200
    assert Queue.objects.filter(paused_at=None).count() == 3
    done = confirm(keeper, f"{QUEUES}pause/", asked.context["ids"], reason="lunch", minutes="30")
    paused = Queue.objects.filter(paused_at__isnull=False)
    assert set(paused.values_list("name", "paused_by", "pause_reason")) == {(name, "ann 8", "lunch") for name in names}
    assert all(queue.resume_at - queue.paused_at == dt.timedelta(minutes=30) for queue in paused)
    assert f"{len(names)} queue" in done.content.decode()
    assert set(LogEntry.objects.values_list("object_id", "change_message")) == {
        (name, "Paused: lunch") for name in names
    }
    told = confirm(keeper, f"{QUEUES}resume/", tick(keeper, QUEUES, "resume", *queues).context["ids"]).content.decode()
    assert f"Left alone: {3 - len(names)} (not paused)." in told
    assert not paused.all().exists()


def test_pause_with_a_time_that_cannot_be_is_asked_for_again(keeper, queues):
    again = confirm(
        keeper, f"{QUEUES}pause/", tick(keeper, QUEUES, "pause", "mail").context["ids"], reason="x", minutes="0"
    )
    assert "greater than or equal to 1" in again.content.decode()
    assert not Queue.objects.filter(paused_at__isnull=False).exists()


def test_unknown_queue_is_not_made(keeper, queues):
    page = confirm(keeper, f"{QUEUES}pause/", "typo,mail", reason="", minutes="")
    assert "Left alone: 1 (not here any more)." in page.content.decode()
    assert set(Queue.objects.values_list("name", flat=True)) == set(queues)


def test_schedules_are_paused_resumed_and_run_after_a_confirmation(keeper):
    row, other = make(), make("other", is_enabled=False)
    assert b"They miss their ticks" in tick(keeper, LIST, "pause", row.pk, other.pk).content
    assert messages_of(confirm(keeper, f"{LIST}pause/", row.pk, other.pk)) == [
        "1 schedule was paused.",
        "Left alone: 1 (paused already).",
    ]
    assert not Schedule.objects.filter(is_enabled=True).exists()
    assert messages_of(confirm(keeper, f"{LIST}resume/", row.pk, other.pk)) == ["2 schedules were resumed."]
    assert Schedule.objects.get(pk=row.pk).next_at > START
    assert messages_of(confirm(keeper, f"{LIST}run/", row.pk)) == ["A job of 1 schedule was enqueued."]
    assert Job.objects.get().schedule_id == row.pk
    logged = LogEntry.objects.filter(object_id=row.pk).order_by("pk")
    assert [entry.change_message for entry in logged] == ["Paused.", "Resumed.", "Run now."]
    assert {entry.object_repr for entry in logged} == {"hourly"}


def test_schedule_that_cannot_be_run_says_why_and_the_others_are(keeper):
    good, strange = make("good"), make("strange", task="shop.tasks.not_here")
    told = messages_of(confirm(keeper, f"{LIST}run/", good.pk, strange.pk))
    assert told[0] == "A job of 1 schedule was enqueued."
    assert told[1].startswith("Left alone: 1 (No task is called 'shop.tasks.not_here'.")
    assert Job.objects.count() == 1
