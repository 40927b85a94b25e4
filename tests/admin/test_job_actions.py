"""Actions of staff on jobs: what becomes of the jobs, what is said of it, and what stands in the log."""

import pytest
from django.contrib.admin.models import LogEntry
from django.utils import timezone

from django_pgqueue.admin.job_actions import WORDS
from django_pgqueue.insights.history import title_of
from django_pgqueue.jobs.actions import SkipReason
from django_pgqueue.models import DeadJob, Job
from tests.support.admin_jobs import DEAD, JOBS, dead, entries, queued, running, scheduled
from tests.support.staff import confirm, messages_of, tick, user_with

pytestmark = pytest.mark.django_db


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
