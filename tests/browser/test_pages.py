"""Every page, as it is shown: nothing in the console, nothing against the policy, nothing that axe finds serious."""

import datetime as dt

import pytest

import tests.app.tasks as app
from django_pgqueue import pause_queue
from django_pgqueue.lifecycle.kill import kill
from django_pgqueue.models import DeadJob, Job, Schedule
from tests.test_schedules import make

ADMIN = "/admin/"
APP = f"{ADMIN}django_pgqueue/"
LOOKS = [
    pytest.param({"dark": dark, "phone": phone}, id=f"{'dark' if dark else 'light'} {'phone' if phone else 'desktop'}")
    for dark in (False, True)
    for phone in (False, True)
]


@pytest.fixture
def life(live_server) -> None:
    """Some of everything."""
    app.record.enqueue("first")
    app.record.using(queue="mail", run_at=dt.timedelta(hours=1)).enqueue("later")
    pause_queue("mail", by="eve", reason="the mail server moves")
    dead = app.fail.enqueue("no luck").id
    kill([dead], by="eve")
    error = {"error": "ValueError", "message": "no luck", "traceback": "Traceback: x", "attempt": 1}
    DeadJob.objects.update(errors=[{**error, "at": "2026-01-02T03:04:05+00:00"}], reason="exhausted")
    make("hourly")


def page_of(row) -> str:
    return f"{APP}{row._meta.model_name}/{row.pk}/change/"


PAGES = {
    "index": lambda: ADMIN,
    "overview": lambda: f"{APP}overview/",
    "jobs": lambda: f"{APP}job/",
    "job": lambda: page_of(Job.objects.first()),
    "dead jobs": lambda: f"{APP}deadjob/",
    "dead job": lambda: page_of(DeadJob.objects.first()),
    "queues": lambda: f"{APP}queue/",
    "queue": lambda: f"{APP}queue/mail/change/",
    "schedules": lambda: f"{APP}schedule/",
    "schedule": lambda: page_of(Schedule.objects.first()),
    "new schedule": lambda: f"{APP}schedule/add/",
}


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("look", LOOKS)
def test_page_is_sound(life, tab_of, superuser, name, look):
    tab = tab_of(superuser, **look)
    tab.open(PAGES[name]())
    tab.must_be_sound()
