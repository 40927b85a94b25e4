"""A user who may look at all pages and do nothing: finds no button, and gets nothing done without one either."""

import datetime as dt
import re
from collections.abc import Iterator

import pytest
from django.contrib.admin import site
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.urls import NoReverseMatch, reverse
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue.jobs import kill
from django_pgqueue.jobs.actions import KILL
from django_pgqueue.jobs.bulk_actions import begin
from django_pgqueue.jobs.search import Filter
from django_pgqueue.models import Queue, SucceededJob, Worker
from tests.browser.admin_actions import APP, actions
from tests.support.schedules import make
from tests.support.workflows import stuck

VIEWS = (
    "view_job",
    "view_deadjob",
    "view_succeededjob",
    "view_queue",
    "view_schedule",
    "view_worker",
    "view_bulkaction",
    "view_overview",
    "view_workflow",
)
ACTIONS = re.compile(
    "skip|seal|kill|retry|run|pause|resume|move|priority|purge|delete|retry|stop|save|limit", re.IGNORECASE
)


@pytest.fixture
def rows(live_server) -> dict[str, str]:
    """One row of each table, by the model's name."""
    Queue.objects.create(name="mail")
    job, dead = app.record.enqueue("one"), app.record.enqueue("two")
    kill([dead.id], by="eve")
    now = timezone.now()
    times = dict.fromkeys(("enqueued_at", "run_at", "first_started_at", "started_at"), now)
    plain = {"run_seconds": 1, "priority": 0, "attempts": 1, "lost": 0, "queue": "mail", "task": "x", "backend": ""}
    said = {"args": [], "kwargs": {}, "metadata": {}, "errors": [], "worker_id": 1}
    succeeded = SucceededJob.objects.create(id=10**9, succeeded_at=now, **times, **plain, **said)
    worker = Worker.objects.create(supervisor_id=1, lease_until=now + dt.timedelta(1), pid=1, concurrency=1, host="x")
    return {
        "job": job.id,
        "deadjob": dead.id,
        "succeededjob": succeeded.pk,
        "workflow": stuck(sealed=False).id,
        "queue": "mail",
        "schedule": make("hourly").pk,
        "worker": worker.pk,
        "bulkaction": begin(KILL, Filter(queues=("none",)), by="eve", rate=0.1),
    }


def test_who_may_only_look_sees_no_button(rows, tab_of, staff_with):
    tab = tab_of(staff_with(*VIEWS))
    for model, key in rows.items():
        if model not in {shown._meta.model_name for shown in site._registry}:
            continue
        page = tab.open(f"{APP}{model}/{key}/change/")
        assert not page.title().startswith("403")
        names = [button.inner_text() for button in page.get_by_role("button").all()]
        assert not [name for name in names if ACTIONS.search(name)]
        page = tab.open(f"{APP}{model}/")
        assert actions(page).count() == 0


SENT = {
    "confirmed": "yes",
    "filters": "",
    "reason": "x",
    "queue": "x",
    "priority": "1",
    "name": "changed",
    "max_running": "1",
    "rate": "1",
    "task": "tests.app.tasks.record",
    "cron": "* * * * *",
    "timezone": "UTC",
    "jitter_seconds": "0",
    "catch_up": "last",
    "catch_up_limit": "1",
    "args": "[]",
    "kwargs": "{}",
    "post": "yes",
    "index": "0",
    "select_across": "0",
}


def posts(rows) -> list[tuple[str, dict]]:
    """Every address of the app in the admin, with all that a form there could send; lists with each action."""
    found = []
    for model, admin in site._registry.items():
        if (key := rows.get(model._meta.model_name)) is None:
            continue
        fields = {**SENT, "ids": str(key), "_selected_action": str(key)}
        found += [(address(url.name, key), fields) for url in admin.get_urls() if url.name]
        actions = [name if isinstance(name, str) else name.__name__ for name in admin.actions or ()]
        listed = address(f"pgqueue_{model._meta.model_name}_changelist", key)
        found += [(listed, {**fields, "action": name, "select_across": all_}) for name in actions for all_ in "01"]
    return found


def address(name: str, key) -> str:
    try:
        return reverse(f"admin:{name}")
    except NoReverseMatch:
        return reverse(f"admin:{name}", args=[quote(str(key))])


FORGE = """async ([path, fields]) => {
    const token = document.querySelector("[name=csrfmiddlewaretoken]").value;
    const answer = await fetch(path, {
        method: "POST", body: new URLSearchParams({...fields, csrfmiddlewaretoken: token}), redirect: "manual",
    });
    return answer.status;
}"""


def test_who_may_only_look_changes_nothing_by_forged_requests(rows, tab_of, staff_with, sql):
    assert list(forged(tab_of(staff_with(*VIEWS)), rows, sql)) == []
    assert not LogEntry.objects.exists()


def test_the_same_requests_do_change_things_for_one_who_may(rows, tab_of, superuser, sql):
    changed = " ".join(forged(tab_of(superuser), rows, sql))
    for path in ("job/kill/", "deadjob/retry/", "queue/pause/", "schedule/resume/", "schedule/add/"):
        assert path in changed


def forged(tab, rows, sql) -> Iterator[str]:
    """Send everything, with a token that is valid; yield the addresses that have changed something."""
    tab.may_be_refused = True
    page = tab.open("/admin/password_change/")
    before = everything(sql)
    for path, fields in posts(rows):
        page.evaluate(FORGE, [path, fields])
        if (now := everything(sql)) != before:
            yield path
        before = now


def everything(sql) -> list[str]:
    tables = ("jobs", "dead_jobs", "succeeded_jobs", "queues", "schedules", "bulk_actions", "workers")
    return [row for table in tables for (row,) in sql(f"SELECT {table}::text FROM pgqueue_{table} AS {table}")]
