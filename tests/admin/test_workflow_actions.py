"""Actions of staff on workflows and on their stages: confirmed, permitted, done, logged."""

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_pgqueue import batch
from django_pgqueue.models import DeadJob, Job, Stage, Workflow
from django_pgqueue.testing import run_jobs
from tests.app.models import Mark
from tests.app.tasks import noop
from tests.support.staff import confirm, messages_of, tick, user_with
from tests.support.workflows import die, finish, look, plain, stage_of, stuck

pytestmark = pytest.mark.django_db

WORKFLOWS, STAGES = "/admin/pgqueue/workflow/", "/admin/pgqueue/stage/"
ALL = ("kill_workflow", "retry_workflow", "skip_stage", "seal_stage", "rerun_stage")


@pytest.fixture
def staff() -> Client:
    return user_with("view_workflow", *ALL, name="ann")


def page_of(handle) -> str:
    return f"{WORKFLOWS}{handle.id}/change/"


def log() -> list[tuple[str, str, str]]:
    entries = LogEntry.objects.order_by("pk").values_list("content_type__model", "object_id", "change_message")
    return list(entries)


def test_kill_is_confirmed_done_and_logged(staff):
    one, two = plain("a", "b"), plain("a")
    chosen = tick(staff, WORKFLOWS, "kill", one.id, two.id)
    assert b"Kill 2 workflows?" in chosen.content
    assert not log()
    done = confirm(staff, f"{WORKFLOWS}kill/", one.id, two.id)
    assert messages_of(done) == ["2 workflows were killed."]
    assert set(Workflow.objects.values_list("status", "ended_by")) == {("killed", "ann")}
    assert log() == [("workflow", str(one.id), "Killed."), ("workflow", str(two.id), "Killed.")]
    again = confirm(staff, f"{WORKFLOWS}kill/", one.id, 2**40)
    assert messages_of(again) == ["Left alone: 1 (ended already).", "Left alone: 1 (not here any more)."]


def test_retry_lets_dead_members_run_and_the_workflow_go_on(staff):
    handle = stuck()
    Mark.objects.create(label="c", job_id=0, attempt=1)
    done = confirm(staff, f"{WORKFLOWS}retry/", handle.id, page="1")
    assert messages_of(done) == ["Dead members of 1 workflow run again."]
    assert done.redirect_chain[-1][0] == page_of(handle)
    run_jobs()
    assert handle.state().status == "succeeded"
    assert log() == [("workflow", str(handle.id), "Dead members retried.")]
    again = confirm(staff, f"{WORKFLOWS}retry/", handle.id)
    assert messages_of(again) == ["Left alone: 1 (no dead members that can be retried)."]


@pytest.mark.parametrize("action", [WORKFLOWS, STAGES])
def test_more_dead_members_than_one_request_may_retry_are_left_to_a_bulk_action(staff, action, monkeypatch):
    handle = plain("a", "b")
    Job.objects.filter(stage_id=stage_of(handle, "b").pk).update(status="queued")
    die(handle, "a")
    die(handle, "b")
    monkeypatch.setattr("django_pgqueue.admin.workflow_actions.MOST_MEMBERS", 1 if action == WORKFLOWS else 0)
    row = handle.id if action == WORKFLOWS else stage_of(handle, "a").pk
    [told] = messages_of(confirm(staff, f"{action}retry/", row))
    assert told.startswith("Left alone: 1 (too many dead members for one request: in the list of the dead jobs")
    assert DeadJob.objects.count() == 2
    assert not log()


def test_stage_is_retried_alone(staff):
    handle = plain("a", "b")
    Job.objects.filter(stage_id=stage_of(handle, "b").pk).update(status="queued")
    die(handle, "a")
    die(handle, "b")
    done = confirm(staff, f"{STAGES}retry/", stage_of(handle, "a").pk)
    assert messages_of(done) == ["Dead members of 1 stage run again."]
    assert done.redirect_chain[-1][0] == page_of(handle)
    assert DeadJob.objects.get().stage_id == stage_of(handle, "b").pk
    assert log() == [("stage", str(stage_of(handle, "a").pk), "Dead members retried.")]


def test_stage_is_skipped_and_the_workflow_goes_on(staff):
    handle = stuck()
    stage = stage_of(handle, "members")
    asked = staff.post(f"{STAGES}skip/", {"ids": stage.pk})
    assert b"Skip 1 stage?" in asked.content
    assert f'href="{page_of(handle)}" class="button cancel-link"'.encode() in asked.content
    done = confirm(staff, f"{STAGES}skip/", stage.pk)
    assert messages_of(done) == ["1 stage was skipped."]
    run_jobs()
    assert handle.state().status == "succeeded"
    assert messages_of(confirm(staff, f"{STAGES}skip/", stage.pk)) == ["Left alone: 1 (over already)."]


def test_stage_is_killed_and_its_page_says_by_whom(staff):
    handle = plain("a", "b")
    stage = stage_of(handle, "a").pk
    assert b"Kill 1 stage?" in staff.post(f"{STAGES}kill/", {"ids": stage}).content
    done = confirm(staff, f"{STAGES}kill/", stage)
    assert messages_of(done) == ["1 stage was killed."]
    assert done.redirect_chain[-1][0] == page_of(handle)
    assert "killed by ann" in staff.get(page_of(handle)).content.decode()
    assert log() == [("stage", str(stage), "Killed.")]
    assert messages_of(confirm(staff, f"{STAGES}kill/", stage)) == ["Left alone: 1 (over, or killed already)."]


def test_stage_is_run_again_with_those_after_it(staff):
    handle = stuck(keep_calls=True)
    stage = stage_of(handle, "members").pk
    Mark.objects.create(label="c", job_id=0, attempt=1)
    assert b"Run 1 stage again, and all after it?" in staff.post(f"{STAGES}rerun/", {"ids": stage}).content
    done = confirm(staff, f"{STAGES}rerun/", stage)
    assert messages_of(done) == ["1 stage runs again."]
    assert done.redirect_chain[-1][0] == page_of(handle)
    assert handle.state().stage("then").rerun_by == "ann"
    assert log() == [("stage", str(stage), "Run again.")]
    [why] = messages_of(confirm(staff, f"{STAGES}rerun/", stage))
    assert why.startswith("Left alone: 1 (no kept calls, members alive")
    run_jobs()
    assert handle.status() == "succeeded"


def test_stage_is_sealed(staff):
    handle = batch([noop.bind()], sealed=False).enqueue()
    stage = stage_of(handle, "members").pk
    assert messages_of(confirm(staff, f"{STAGES}seal/", stage)) == ["1 stage was sealed."]
    assert Stage.objects.get().is_sealed
    assert messages_of(confirm(staff, f"{STAGES}seal/", stage)) == ["Left alone: 1 (sealed already, or over)."]


def test_history_has_what_was_done_to_stages(staff):
    handle, other = stuck(), stuck()
    confirm(staff, f"{STAGES}skip/", stage_of(handle, "members").pk)
    confirm(staff, f"{STAGES}skip/", stage_of(other, "then").pk)
    confirm(staff, f"{WORKFLOWS}kill/", handle.id)
    page = staff.get(f"{WORKFLOWS}{handle.id}/history/").content.decode()
    assert page.count("Skipped.") == 1
    assert page.count("Killed.") == 1


# Buttons


def buttons(client, handle) -> set[str]:
    page = client.get(page_of(handle)).content.decode()
    return {
        address.removeprefix("/admin/pgqueue/")
        for address in (
            f"{WORKFLOWS}kill/",
            f"{WORKFLOWS}retry/",
            f"{STAGES}retry/",
            f"{STAGES}skip/",
            f"{STAGES}kill/",
            f"{STAGES}seal/",
            f"{STAGES}rerun/",
        )
        if f'action="{address}"' in page
    }


def test_buttons_are_there_only_where_they_can_do_anything(staff):
    assert buttons(staff, plain("a")) == {"workflow/kill/", "stage/skip/", "stage/kill/"}
    handle = stuck()
    assert buttons(staff, handle) == {"workflow/kill/", "workflow/retry/", "stage/retry/", "stage/skip/", "stage/kill/"}
    assert buttons(staff, batch([noop.bind()], sealed=False).enqueue()) == {
        "workflow/kill/",
        "stage/skip/",
        "stage/kill/",
        "stage/seal/",
    }
    done = plain("a")
    finish(done, "a", 1)
    look(done, "a")
    assert buttons(staff, done) == set()
    handle.kill()
    assert buttons(staff, handle) == {"stage/retry/"}
    kept = batch([noop.bind()], keep_calls=True).enqueue()
    assert buttons(staff, kept) == {"workflow/kill/", "stage/skip/", "stage/kill/"}
    run_jobs()
    assert buttons(staff, kept) == {"stage/rerun/"}


@pytest.mark.parametrize(
    ("permission", "address", "model"),
    [
        ("kill_workflow", f"{WORKFLOWS}kill/", "workflow"),
        ("retry_workflow", f"{WORKFLOWS}retry/", "workflow"),
        ("retry_workflow", f"{STAGES}retry/", "stage"),
        ("skip_stage", f"{STAGES}skip/", "stage"),
        ("kill_workflow", f"{STAGES}kill/", "stage"),
        ("seal_stage", f"{STAGES}seal/", "stage"),
        ("rerun_stage", f"{STAGES}rerun/", "stage"),
    ],
)
def test_each_action_needs_its_permission(permission, address, model):
    handle = stuck(sealed=False, keep_calls=True)
    key = handle.id if model == "workflow" else stage_of(handle, "members").pk
    others = user_with("view_workflow", *(one for one in ALL if one != permission), name="others")
    assert confirm(others, address, key).status_code == 403
    assert address not in others.get(page_of(handle)).content.decode()
    blind = user_with(*ALL, name="blind")
    assert confirm(blind, address, key).status_code == 403
    assert not log()
    alone = user_with("view_workflow", permission, name="alone")
    assert address in alone.get(page_of(handle)).content.decode()
    assert confirm(alone, address, key).status_code == 200
    assert len(log()) == 1


# Addresses of stages


def test_addresses_of_stages_lead_to_their_workflow(staff):
    handle = stuck()
    stage = stage_of(handle, "members").pk
    assert staff.get(f"{STAGES}{stage}/change/").url == page_of(handle)
    assert staff.get(STAGES).url == WORKFLOWS
    assert staff.get(f"{STAGES}x/change/").url == WORKFLOWS
    assert "stage" not in {
        model["object_name"].lower() for app in staff.get("/admin/").context["app_list"] for model in app["models"]
    }
    assert user_with("view_job").get(f"{STAGES}{stage}/change/").status_code == 302


@pytest.mark.parametrize("ids", ["x", str(2**70)])
def test_keys_that_cannot_be_are_refused(staff, ids):
    assert confirm(staff, f"{STAGES}skip/", ids).status_code == 400
