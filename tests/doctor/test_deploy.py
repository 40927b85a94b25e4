"""Changes by a deployment of this code are named before it, and nothing is changed by that."""

import datetime as dt
import json

import pytest
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import periodic, queues
from django_pgqueue.doctor.deploy import changes
from django_pgqueue.flow.declared_queues import DeclaredLimits
from django_pgqueue.models import Job, Queue, Schedule, Stat
from django_pgqueue.schedules.sync import sync_schedules
from tests.support.doctor import say
from tests.support.worker_rows import worker

pytestmark = pytest.mark.django_db(transaction=True)


def told(kind: str) -> dict[str, str]:
    return {one.name: one.what for one in changes("default") if one.kind == kind}


def test_tasks_without_an_attempt_in_the_counts_are_new(registry_of):
    def renamed():
        pass

    task = registry_of(renamed, name="shop.new", aliases=["shop.old"])
    assert "shop.new" in told("task-new")
    Stat.objects.create(minute=timezone.now(), queue="q", task="shop.old", succeeded=1)
    assert task.name not in told("task-new")
    assert app.noop.name in told("task-new")


def test_tasks_of_the_counts_that_this_code_lacks_are_gone(registry_of):
    Stat.objects.create(minute=timezone.now(), queue="q", task="shop.gone", succeeded=1)
    Stat.objects.create(minute=timezone.now(), queue="q", task=app.noop.name, succeeded=1)
    assert [*told("task-gone")] == ["shop.gone"]

    def renamed():
        pass

    registry_of(renamed, name="shop.new", aliases=["shop.gone"])
    assert not told("task-gone")


def test_new_queues_are_named_with_whether_a_worker_serves_them(registry_of):
    def one():
        pass

    registry_of(one, queue="letters")
    assert told("queue-new")["letters"] == "no live worker serves it"
    worker(queues=["let*"])
    assert told("queue-new")["letters"] == "served by a live worker"
    Queue.objects.create(name="letters")
    assert "letters" not in told("queue-new")


def test_schedules_are_compared_as_workers_do(queue, recode):
    def counts():
        return {kind: told(f"schedule-{kind}") for kind in ("new", "changed", "gone", "taken")}

    recode(periodic("0 9 * * *", name="daily"))
    assert counts()["new"] == {"daily": "runs by 0 9 * * *"}
    assert not Schedule.objects.exists()
    sync_schedules(queue)
    assert not any(counts().values())
    Schedule.objects.filter(name="daily").update(cron="0 8 * * *")
    assert counts()["changed"] == {"daily": "cron"}
    Schedule.objects.filter(name="daily").update(edited_at=timezone.now())
    assert counts()["changed"] == {"daily": "cron; it was edited in the admin, and stays as it is"}
    Schedule.objects.filter(name="daily").update(source="admin")
    assert list(counts()["taken"]) == ["daily"]
    Schedule.objects.filter(name="daily").update(source="code", name="weekly")
    assert list(counts()["gone"]) == ["weekly"]


def test_limits_are_those_that_workers_will_set(queue, settings):
    settings.PGQUEUE = {**settings.PGQUEUE, "QUEUES": {"mail": {"max_running": 4}, "default": {}}}
    assert told("limits-changed") == {"mail": "no limit → max_running 4"}
    DeclaredLimits(queue).apply()
    assert told("limits-changed") == {}
    queues.limit("mail", max_running=5, by="eve")
    assert told("limits-changed") == {"mail": "max_running 5 → max_running 4; set by hand, and stays as it is"}


def test_command_shows_changes_and_findings_about_the_code_alone(sql):
    Job.objects.create(task="shop.gone", run_at=timezone.now() - dt.timedelta(hours=2))
    text, complaint, code = say("--deploy")
    assert f"task-new {app.noop.name}: " in text
    assert "WARNING unknown-tasks\n" in text
    assert "no-workers" not in text
    assert (complaint, code) == ("", 0)
    assert say("--deploy", "--fail-level", "warning")[2] == 1
    answer = json.loads(say("--deploy", "--json")[0])
    assert {"database", "kind", "name", "what"} == set(answer["changes"][0])
    assert [one["name"] for one in answer["findings"]] == ["unknown-tasks"]
