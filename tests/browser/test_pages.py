"""Every page, as it is shown: nothing in the console, nothing against the policy, nothing that axe finds serious."""

import datetime as dt
import itertools

import pytest
from django.contrib.admin.utils import quote
from django.utils import timezone
from django.utils.http import urlencode

import tests.app.tasks as app
from django_pgqueue import batch, queues
from django_pgqueue.jobs import kill
from django_pgqueue.jobs.actions import MOVE, RETRY
from django_pgqueue.jobs.bulk_actions import begin
from django_pgqueue.jobs.search import Filter
from django_pgqueue.models import BulkAction, DeadJob, Job, OnceKey, Schedule, Stat, SucceededJob, Worker, Workflow
from tests.browser.tab import DESKTOP, PHONE
from tests.support.schedules import make
from tests.support.worker_rows import worker
from tests.support.workflows import die, finish

ADMIN = "/admin/"
APP = f"{ADMIN}pgqueue/"


@pytest.fixture
def life(live_server) -> None:
    """Some of everything."""
    app.record.enqueue("first")
    app.record.using(queue="mail", delay=dt.timedelta(hours=1)).enqueue("later")
    queues.pause("mail", by="eve", reason="the mail server moves")
    dead = app.fail.enqueue("no luck").id
    kill([dead], by="eve")
    error = {"kind": "failed", "error": "ValueError", "message": "no luck", "traceback": "Traceback: x", "attempt": 1}
    DeadJob.objects.update(errors=[{**error, "at": "2026-01-02T03:04:05+00:00"}], reason="exhausted")
    succeeded(queue="mail", task=app.record.name, args=["one"], result="recorded one")
    make("hourly")
    handle = batch([app.record.bind("a")] * 3, then=app.record.bind("b"), died=app.record.bind("c")).enqueue()
    finish(handle, "members", 1)
    die(handle, "members")
    OnceKey.objects.create(key="paid:evt_1PgQ")
    begun = begin(RETRY, Filter(queues=("default",)), by="eve", rate=5, expected=20)
    BulkAction.objects.filter(pk=begun).update(
        done=8, outcome={"retried": 8}, skipped={"key_held": 2}, started_at=timezone.now()
    )
    holds = worker(memory_bytes=80 * 2**20, queues=["mail", "default"]).pk
    Job.objects.create(task=app.record.name, status="running", lease_token=1, worker_id=holds)


def succeeded(**values) -> SucceededJob:
    now = timezone.now()
    times = dict.fromkeys(("succeeded_at", "enqueued_at", "run_at", "first_started_at", "started_at"), now)
    plain = {"worker_id": 1, "run_seconds": 1, "priority": 0, "attempts": 1, "lost": 0, "backend": ""}
    said = {"args": [], "kwargs": {}, "metadata": {}, "errors": []}
    return SucceededJob.objects.create(id=2 * 10**9, **times, **plain, **{**said, **values})


def page_of(row) -> str:
    return f"{APP}{row._meta.model_name}/{row.pk}/change/"


PAGES = {
    "index": lambda: ADMIN,
    "overview": lambda: f"{APP}overview/",
    "jobs": lambda: f"{APP}job/",
    "job": lambda: page_of(Job.objects.first()),
    "enqueue": lambda: f"{APP}job/enqueue/",
    "enqueue a job of a task": lambda: f"{APP}job/enqueue/?task={app.record.name}",
    "dead jobs": lambda: f"{APP}deadjob/",
    "dead job": lambda: page_of(DeadJob.objects.first()),
    "retry with changed arguments": lambda: page_of(DeadJob.objects.first()).replace("change", "retry"),
    "succeeded jobs": lambda: f"{APP}succeededjob/",
    "succeeded job": lambda: page_of(SucceededJob.objects.first()),
    "dead jobs by cause": lambda: f"{APP}deadjob/causes/",
    "queues": lambda: f"{APP}queue/",
    "queue": lambda: f"{APP}queue/mail/change/",
    "schedules": lambda: f"{APP}schedule/",
    "schedule": lambda: page_of(Schedule.objects.first()),
    "bulk_actions": lambda: f"{APP}bulkaction/",
    "bulk_action": lambda: page_of(BulkAction.objects.first()),
    "workers": lambda: f"{APP}worker/",
    "worker": lambda: page_of(Worker.objects.first()),
    "workflows": lambda: f"{APP}workflow/",
    "workflow": lambda: page_of(Workflow.objects.first()),
    "once keys": lambda: f"{APP}oncekey/",
    "new schedule": lambda: f"{APP}schedule/add/",
    "everything that matches": lambda: f"{APP}deadjob/retry/matching/?reason=exhausted",
    "move everything that matches": lambda: f"{APP}job/move/matching/",
}


LOOKS = [(DESKTOP, "light"), (PHONE, "dark")]
MORE_LOOKS = {
    "overview": [(DESKTOP, "dark"), (PHONE, "light")],
    "job": [(DESKTOP, "dark"), (PHONE, "light")],
    "workflow": [(DESKTOP, "dark"), (PHONE, "light")],
}
"""Colours and widths hardly depend on each other, so not every page is looked at in all four ways."""


@pytest.mark.parametrize("name", PAGES)
def test_page_is_sound_light_and_dark_wide_and_narrow(life, tab_of, superuser, name):
    tab = tab_of(superuser)
    for size, colours in LOOKS + MORE_LOOKS.get(name, []):
        tab.page.set_viewport_size(size)
        tab.page.emulate_media(color_scheme=colours)
        tab.open(PAGES[name]())  # anew: the admin fades from one colour to the other
        tab.must_be_sound()


OF_A_DATABASE = [
    "overview/?database=other",
    "job/?database=other",
    "queue/abroad/change/?database=other",
    "queue/abroad/history/?database=other",
    "oncekey/?database=other",
]


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_pages_of_another_database_are_sound(live_server, filled, tab_of, superuser):
    tab = tab_of(superuser)
    for (size, colours), address in itertools.product(LOOKS, OF_A_DATABASE):
        tab.page.set_viewport_size(size)
        tab.page.emulate_media(color_scheme=colours)
        tab.open(f"{APP}{address}")
        tab.must_be_sound()


@pytest.fixture
def busy(live_server) -> None:
    """A site with large numbers and names of a usual length."""
    task, now = "notifications.tasks.send_receipt", timezone.now()
    holder = worker(queues=[], host="worker-7f9c4d", pid=104_711).pk
    rows = {"task": task, "queue": "notifications", "max_attempts": 10}
    last = 2_000_000
    Job.objects.bulk_create(
        [
            Job(pk=last, **rows, status="running", lease_token=1, worker_id=holder, attempts=3, started_at=now),
            Job(pk=last + 1, **rows, status="scheduled", run_at=now + dt.timedelta(hours=30), attempts=2),
            Job(pk=last + 2, **rows, status="queued", run_at=now - dt.timedelta(minutes=217), priority=-50),
        ]
    )
    gone = Job.objects.create(pk=last + 3, **rows)
    kill([gone.pk], by="eve")
    error = {
        "kind": "failed",
        "error": "requests.exceptions.ConnectionError",
        "message": "HTTPSConnectionPool(host='mail'): refused",
    }
    DeadJob.objects.update(errors=[error], reason="exhausted", attempts=10, died_at=now - dt.timedelta(hours=26))
    minute = now.replace(second=0, microsecond=0) - dt.timedelta(minutes=20)
    Stat.objects.create(minute=minute, queue="notifications", task=task, succeeded=1_160_000, failed=40_000)
    succeeded(queue="notifications", task=task)
    queues.limit("notifications", max_running=40, rate="600/m", burst=20)
    queues.pause("notifications", by="eve", reason="the mail server moves")


@pytest.mark.parametrize("name", ["overview", "jobs", "dead jobs", "succeeded jobs", "queues", "workers"])
def test_no_column_is_cut_off_on_a_small_laptop(busy, tab_of, superuser, name):
    page = tab_of(superuser).open(PAGES[name]())
    assert page.evaluate(CUT_OFF) == []


CUT_OFF = """[...document.querySelectorAll(".pgqueue-scroll, #changelist .results")].filter(
    place => place.scrollWidth > place.clientWidth
).map(place => `${place.className} by ${place.scrollWidth - place.clientWidth} pixels`)"""


def test_dark_is_dark(life, tab_of, superuser):
    """The admin's own colours are followed: what is drawn on the page is bright where the page is dark."""
    bright = {}
    for dark in (False, True):
        page = tab_of(superuser, dark=dark).open(f"{APP}job/")
        bright[dark] = page.evaluate(
            "[document.body, document.querySelector('#result_list td')].map(" + BRIGHTNESS + ")"
        )
    assert all(back > front for back, front in (bright[False][0], bright[False][1]))
    assert all(back < front for back, front in (bright[True][0], bright[True][1]))


# Behind the element, and of its letters.
BRIGHTNESS = """element => {
    const sum = colour => (colour.match(/[0-9.]+/g) || []).slice(0, 3).reduce((all, one) => all + Number(one), 0);
    return [sum(getComputedStyle(document.body).backgroundColor), sum(getComputedStyle(element).color)];
}"""


# Whatever jobs hold is text

MARKUP = (
    """"'><i class=evil>x</i><img src=x onerror=alert(1)><script>alert(2)</script>&amp; {{ 7|add:1 }} \u202e ☾ 💥 é"""
)
EVIL = ".evil, [onerror], img[src='x'], script:not([src]):not([type='application/json'])"


@pytest.fixture
def evil(live_server) -> None:
    """Markup wherever a job, a queue, a schedule or a worker can hold a text."""
    error = {
        "kind": "failed",
        "error": MARKUP,
        "message": MARKUP,
        "traceback": MARKUP,
        "attempt": 1,
        "worker": MARKUP,
        "by": MARKUP,
    }
    said = {
        "task": MARKUP,
        "queue": MARKUP,
        "args": [MARKUP],
        "kwargs": {MARKUP: MARKUP},
        "metadata": {MARKUP: MARKUP},
        "progress": {"done": 1, "total": 2, "message": MARKUP},
        "errors": [error],
        "concurrency_key": MARKUP,
        "concurrency_limit": 1,
        "fair_key": MARKUP,
    }
    worker = Worker.objects.create(
        supervisor_id=1, lease_until=timezone.now() + dt.timedelta(1), pid=1, concurrency=1, host=MARKUP, version=MARKUP
    )
    Job.objects.create(**said, unique_key=MARKUP, unique_until="end", run_at=timezone.now(), status="limited")
    now = timezone.now()
    running = {"status": "running", "lease_token": 7, "worker_id": worker.pk, "started_at": now, "concurrency_slot": 1}
    Job.objects.create(**said, **running)
    DeadJob.objects.create(**said, id=10**9, died_at=now, run_at=now, enqueued_at=now, reason="exhausted")
    kept = ("task", "queue", "args", "kwargs", "metadata", "progress", "errors")
    succeeded(**{name: said[name] for name in kept}, result={MARKUP: MARKUP})
    queues.pause(MARKUP, by=MARKUP, reason=MARKUP)
    make(MARKUP, last_error=MARKUP)
    Schedule.objects.update(task=MARKUP, args=[MARKUP], kwargs={MARKUP: MARKUP})
    begin(MOVE, Filter(queues=(MARKUP,), tasks=(MARKUP,)), by=MARKUP, params={"queue": MARKUP[:128]})
    BulkAction.objects.update(last_error=MARKUP)


SHOWN = {
    "overview": lambda: f"{APP}overview/",
    "jobs": lambda: f"{APP}job/",
    "limited job": lambda: page_of(Job.objects.get(status="limited")),
    "running job": lambda: page_of(Job.objects.get(status="running")),
    "dead jobs": lambda: f"{APP}deadjob/",
    "dead job": lambda: page_of(DeadJob.objects.first()),
    "succeeded jobs": lambda: f"{APP}succeededjob/",
    "succeeded job": lambda: page_of(SucceededJob.objects.first()),
    "workers": lambda: f"{APP}worker/",
    "dead jobs by cause": lambda: f"{APP}deadjob/causes/",
    "queues": lambda: f"{APP}queue/",
    "queue": lambda: f"{APP}queue/{quote(MARKUP)}/change/",
    "schedules": lambda: f"{APP}schedule/",
    "schedule": lambda: page_of(Schedule.objects.first()),
    "bulk_actions": lambda: f"{APP}bulkaction/",
    "bulk_action": lambda: page_of(BulkAction.objects.first()),
    "everything that matches": lambda: f"{APP}deadjob/retry/matching/?{urlencode({'queue': MARKUP})}",
}


@pytest.mark.parametrize("name", SHOWN)
def test_markup_is_shown_as_text(evil, tab_of, superuser, name):
    tab = tab_of(superuser)
    page = tab.open(SHOWN[name]())
    assert page.locator(EVIL).count() == 0
    text = page.locator("#content").inner_text() + " ".join(page.evaluate(VALUES))
    assert "<script>alert(2)</script>&amp; {{ 7|add:1 }}" in text.replace('\\"', '"')
    assert tab.problems == []


VALUES = "Array.from(document.querySelectorAll('#content input, #content textarea')).map(field => field.value)"
