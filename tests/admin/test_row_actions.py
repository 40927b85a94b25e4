"""Actions on queues and schedules: confirmed, done, logged, and what was left alone."""

import datetime as dt

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_pgqueue.models import Job, Queue, Schedule
from tests.support.admin_queues import ODD, QUEUES
from tests.support.admin_schedules import LIST
from tests.support.schedules import START, make
from tests.support.staff import confirm, messages_of, tick, user_with

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(db) -> Client:
    verbs = ("view", "add", "change", "delete", "pause", "run")
    return user_with("view_queue", "pause_queue", *(f"{verb}_schedule" for verb in verbs))


@pytest.mark.parametrize("names", [["mail"], ["mail", ODD]])
def test_queues_are_paused_with_a_reason_and_resumed(staff, queues, names):
    asked = tick(staff, QUEUES, "pause", *names)
    assert asked.status_code == 200
    assert Queue.objects.filter(paused_at=None).count() == 3
    done = confirm(staff, f"{QUEUES}pause/", asked.context["ids"], reason="lunch", minutes="30")
    paused = Queue.objects.filter(paused_at__isnull=False)
    assert set(paused.values_list("name", "paused_by", "pause_reason")) == {(name, "ann 8", "lunch") for name in names}
    assert all(queue.resume_at - queue.paused_at == dt.timedelta(minutes=30) for queue in paused)
    assert f"{len(names)} queue" in done.content.decode()
    assert set(LogEntry.objects.values_list("object_id", "change_message")) == {
        (name, "Paused: lunch") for name in names
    }
    told = confirm(staff, f"{QUEUES}resume/", tick(staff, QUEUES, "resume", *queues).context["ids"]).content.decode()
    assert f"Left alone: {3 - len(names)} (not paused)." in told
    assert not paused.all().exists()


def test_pause_with_a_time_that_cannot_be_is_asked_for_again(staff, queues):
    again = confirm(
        staff, f"{QUEUES}pause/", tick(staff, QUEUES, "pause", "mail").context["ids"], reason="x", minutes="0"
    )
    assert "greater than or equal to 1" in again.content.decode()
    assert not Queue.objects.filter(paused_at__isnull=False).exists()


def test_unknown_queue_is_not_made(staff, queues):
    page = confirm(staff, f"{QUEUES}pause/", "typo,mail", reason="", minutes="")
    assert "Left alone: 1 (not here any more)." in page.content.decode()
    assert set(Queue.objects.values_list("name", flat=True)) == set(queues)


def test_schedules_are_paused_resumed_and_run_after_a_confirmation(staff):
    row, other = make(), make("other", is_enabled=False)
    assert b"They miss their ticks" in tick(staff, LIST, "pause", row.pk, other.pk).content
    assert messages_of(confirm(staff, f"{LIST}pause/", row.pk, other.pk)) == [
        "1 schedule was paused.",
        "Left alone: 1 (paused already).",
    ]
    assert not Schedule.objects.filter(is_enabled=True).exists()
    assert messages_of(confirm(staff, f"{LIST}resume/", row.pk, other.pk)) == ["2 schedules were resumed."]
    assert Schedule.objects.get(pk=row.pk).next_at > START
    assert messages_of(confirm(staff, f"{LIST}run/", row.pk)) == ["A job of 1 schedule was enqueued."]
    assert Job.objects.get().schedule_id == row.pk
    entries = LogEntry.objects.filter(object_id=row.pk).order_by("pk")
    assert [entry.change_message for entry in entries] == ["Paused.", "Resumed.", "Run now."]
    assert {entry.object_repr for entry in entries} == {"hourly"}


def test_schedule_that_cannot_be_run_says_why_and_the_others_are(staff):
    good, strange = make("good"), make("strange", task="shop.tasks.not_here")
    said = messages_of(confirm(staff, f"{LIST}run/", good.pk, strange.pk))
    assert said[0] == "A job of 1 schedule was enqueued."
    assert said[1].startswith("Left alone: 1 (No task is called 'shop.tasks.not_here'.")
    assert Job.objects.count() == 1
