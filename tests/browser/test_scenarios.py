"""What staff does in the admin, by the names that buttons have; and what a user who may only look cannot do."""

import re

import pytest
from django.contrib.admin.models import LogEntry

import tests.app.tasks as app
from django_pgqueue.models import DeadJob, Job, Queue, Schedule
from tests.app.models import Mark
from tests.test_schedules import make
from tests.workers import eventually

APP = "/admin/django_pgqueue/"
WORKER = ("--processes=1", "--concurrency=2")


def press(page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def choose(page, action: str) -> None:
    """Take an action of a list to its confirmation."""
    page.get_by_label("Action").select_option(label=action)
    page.get_by_role("button", name=re.compile("^(Go|Run)")).click()


@pytest.fixture
def mail(live_server) -> Queue:
    app.record.using(queue="mail").enqueue("one")
    return Queue.objects.create(name="mail")


def test_queue_is_paused_with_a_reason_and_resumed(mail, tab_of, superuser, expect):
    tab = tab_of(superuser)
    page = tab.open(f"{APP}queue/mail/change/")
    press(page, "Pause")
    tab.must_be_sound()
    page.get_by_label("Reason").fill("the mail server <b>moves</b>")
    press(page, "Pause")
    expect(page.get_by_text("the mail server <b>moves</b>").first).to_be_visible()
    tab.must_be_sound()
    mail.refresh_from_db()
    assert (mail.paused_by, mail.pause_reason) == ("zoe", "the mail server <b>moves</b>")
    press(page, "Resume")
    tab.must_be_sound()
    press(page, "Resume")
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()
    mail.refresh_from_db()
    assert mail.paused_at is None
    assert LogEntry.objects.filter(user=superuser).count() == 2


def test_schedule_is_made_and_run_at_once(tab_of, superuser, expect, start_worker):
    tab = tab_of(superuser)
    page = tab.open(f"{APP}schedule/add/")
    page.get_by_label("Name:").fill("every night ☾")
    page.get_by_label("Task:").select_option("tests.app.tasks.record")
    page.get_by_label("Cron:").fill("30 2 * * *")
    page.get_by_role("textbox", name="args:", exact=True).fill('["by night"]')
    press(page, "Save and continue editing")
    expect(page.get_by_text("was added successfully")).to_be_visible()
    tab.must_be_sound()
    assert Schedule.objects.get().name == "every night ☾"
    press(page, "Run now")
    tab.must_be_sound()
    press(page, "Run now")
    job = eventually(Job.objects.first)
    assert job.schedule_id == Schedule.objects.get().pk
    start_worker(*WORKER)
    eventually(lambda: list(Mark.objects.values_list("job_id", "label")) == [(job.pk, "by night")])


def test_running_job_is_killed(tab_of, superuser, expect, start_worker):
    job_id = app.until_cancelled.using(max_attempts=1).enqueue(100_000).id
    start_worker(*WORKER)
    eventually(Mark.objects.exists)
    tab = tab_of(superuser)
    page = tab.open(f"{APP}job/{job_id}/change/")
    tab.must_be_sound()
    press(page, "Kill")
    tab.must_be_sound()
    press(page, "Kill")
    eventually(DeadJob.objects.exists)
    page = tab.open(f"{APP}deadjob/{job_id}/change/")
    expect(page.get_by_text("killed").first).to_be_visible()
    tab.must_be_sound()
    assert DeadJob.objects.get().cancelled_by == "zoe"


# Who may only look

VIEWS = (
    "view_job",
    "view_deadjob",
    "view_finishedjob",
    "view_queue",
    "view_schedule",
    "view_worker",
    "view_operation",
    "view_overview",
)
VERBS = re.compile("kill|requeue|run|pause|resume|move|priority|purge|delete|retry|stop|save|limit", re.IGNORECASE)


@pytest.fixture
def rows(mail, start_worker) -> dict[str, str]:
    """One row of each table, by the model's name."""
    job = app.record.enqueue("one")
    dead = app.record.enqueue("two")
    from django_pgqueue.lifecycle.kill import kill

    kill([dead.id], by="eve")
    schedule = make("hourly")
    return {"job": job.id, "deadjob": dead.id, "queue": "mail", "schedule": schedule.pk}


def test_who_may_only_look_sees_no_button(rows, tab_of, staff_with):
    tab = tab_of(staff_with(*VIEWS))
    for model, key in rows.items():
        page = tab.open(f"{APP}{model}/{key}/change/")
        assert "403" not in page.title()
        names = [button.inner_text() for button in page.get_by_role("button").all()]
        assert not [name for name in names if VERBS.search(name)]
        page = tab.open(f"{APP}{model}/")
        assert page.get_by_label("Action").count() == 0


def posts(rows) -> list[tuple[str, dict]]:
    """Every address that changes something, with what would be sent to it."""
    from django.contrib import admin as django_admin

    found = []
    for model, admin in django_admin.site._registry.items():
        if (key := rows.get(model._meta.model_name)) is not None and hasattr(admin, "verbs"):
            confirmed = {
                "ids": str(key),
                "confirmed": "yes",
                "filters": "",
                "reason": "x",
                "queue": "x",
                "priority": "1",
            }
            found += [(f"{APP}{model._meta.model_name}/{verb.name}/", confirmed) for verb in admin.verbs]
            found += [
                (f"{APP}{model._meta.model_name}/", {"action": name, "_selected_action": str(key), "index": "0"})
                for name in admin.actions or ()
                if isinstance(name, str)
            ]
            found.append((f"{APP}{model._meta.model_name}/{key}/delete/", {"post": "yes"}))
            found.append((f"{APP}{model._meta.model_name}/{key}/change/", {"name": "changed", "max_running": "1"}))
    return found


FORGE = """async ([path, fields]) => {
    const token = document.querySelector("[name=csrfmiddlewaretoken]").value;
    const answer = await fetch(path, {
        method: "POST", body: new URLSearchParams({...fields, csrfmiddlewaretoken: token}), redirect: "manual",
    });
    return answer.status;
}"""


def test_who_may_only_look_changes_nothing_by_forged_requests(rows, tab_of, staff_with, sql):
    tab = tab_of(staff_with(*VIEWS))
    tab.may_be_refused = True
    page = tab.open("/admin/password_change/")  # has a valid token
    before = everything(sql)
    sent = posts(rows)
    assert len(sent) > 12
    for path, fields in sent:
        status = page.evaluate(FORGE, [path, fields])
        assert everything(sql) == before, f"{path} {fields} changed something, and answered {status}."
    assert not LogEntry.objects.exists()


def everything(sql) -> list[str]:
    tables = ("jobs", "dead_jobs", "finished_jobs", "queues", "schedules", "operations")
    return [row for table in tables for (row,) in sql(f"SELECT {table}::text FROM pgqueue_{table} AS {table}")]
