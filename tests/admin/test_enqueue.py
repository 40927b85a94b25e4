"""The form that enqueues a job of a chosen task."""

import datetime as dt

import pytest
from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.test import Client
from django.utils import translation

import tests.app.tasks as app
from django_pgqueue.exceptions import InvalidOption
from django_pgqueue.models import Job
from django_pgqueue.registry import known
from tests.support.admin_jobs import JOBS, queued
from tests.support.staff import messages_of, user_with

pytestmark = pytest.mark.django_db

RECORD, LOG_IN = app.record.name, app.log_in.name
ADDRESS = f"{JOBS}enqueue/"


@pytest.fixture
def staff(db) -> Client:
    return user_with("view_job", "enqueue_job")


def form_of(client: Client, task: str) -> dict[str, str]:
    """Return what the form holds, as a browser would send it."""
    form = client.get(ADDRESS, {"task": task}).context["form"]
    return {name: form.initial[name] for name in ("queue", "priority", "form")}


def send(client: Client, task: str, **entered):
    data = {**form_of(client, task), **entered}
    return client.post(f"{ADDRESS}?task={task}", data, follow=True)


def problems(client: Client, task: str = RECORD, **entered) -> dict[str, list[str]]:
    """Send what cannot be; return the errors by field."""
    response = send(client, task, **entered)
    assert response.status_code == 200
    assert not Job.objects.exists()
    assert not LogEntry.objects.exists()
    return response.context["form"].errors


def test_form_is_offered_and_answers_with_its_permission_alone(viewer, staff, admin_client):
    for client in (staff, admin_client):
        assert f'href="{ADDRESS}"' in client.get(JOBS).content.decode()
        assert client.get(ADDRESS).status_code == 200
    for stranger in (viewer, user_with("enqueue_job"), user_with("view_job", "add_job", "change_deadjob", name="eve")):
        assert f'href="{ADDRESS}"' not in stranger.get(JOBS).content.decode()
        assert stranger.get(ADDRESS).status_code == 403
        assert stranger.post(f"{ADDRESS}?task={RECORD}", {"queue": "q", "priority": 0, "form": "x"}).status_code == 403
    assert not Job.objects.exists()


def test_tasks_are_offered_by_name(staff):
    page = staff.get(ADDRESS)
    assert [*page.context["tasks"]] == [*known()]
    assert f"<option>{RECORD}</option>" in page.content.decode()


def test_unknown_task_is_named(staff):
    page = staff.get(ADDRESS, {"task": "shop.<b>"}).content.decode()
    assert "This code has no task shop.&lt;b&gt;." in page
    assert "<select" in page


def test_job_is_enqueued_as_entered_and_logged(staff):
    entered = {"args": '["ü"]', "queue": "bulk", "priority": "7", "delay": "3600"}
    response = send(staff, RECORD, **entered)
    job = Job.objects.get()
    assert (job.task, job.args, job.kwargs, job.queue, job.priority) == (RECORD, ["ü"], {}, "bulk", 7)
    assert job.run_at - job.enqueued_at == dt.timedelta(hours=1)
    assert response.redirect_chain == [(f"{JOBS}{job.pk}/change/", 302)]
    assert f'Job <a href="{JOBS}{job.pk}/change/">{job.pk}</a> was enqueued.' in messages_of(response)
    [logged] = LogEntry.objects.values_list("object_id", "action_flag", "change_message")
    assert logged == (str(job.pk), ADDITION, "Enqueued by the form.")


def test_options_of_the_task_hold_for_what_is_not_entered(staff):
    send(staff, app.fail.name, kwargs='{"message": "x"}')
    job = Job.objects.get()
    assert (job.kwargs, job.queue, job.priority, job.max_attempts) == ({"message": "x"}, "default", 0, 3)


def test_form_that_is_sent_twice_makes_one_job(staff):
    data = form_of(staff, RECORD)
    told = [staff.post(f"{ADDRESS}?task={RECORD}", data, follow=True) for _ in range(2)]
    assert Job.objects.count() == LogEntry.objects.count() == 1
    assert messages_of(told[1]) == ["This form was sent before. Nothing was enqueued."]


def test_job_that_has_the_unique_key_is_named(staff, monkeypatch):
    monkeypatch.setattr(app.record, "given", {"unique_key": "one"})
    monkeypatch.setattr(app.record, "_options", app.record.using(unique_key="one").options)
    other = queued(unique_key="one")
    response = send(staff, RECORD)
    assert f">{other}</a> has the unique key. No job was added." in messages_of(response)[0]
    assert (Job.objects.count(), LogEntry.objects.get().action_flag) == (1, CHANGE)


@pytest.mark.parametrize(
    ("field", "entered", "words"),
    [
        ("args", '["a"', "It is no JSON: Expecting ',' delimiter at line 1, column 5."),
        ("args", '{"a": 1}', 'It must be a JSON array, as in [17, "x"].'),
        ("kwargs", "[1]", 'It must be a JSON object, as in {"order_id": 17}.'),
        ("kwargs", '{"lable": "x"}', "got an unexpected keyword argument 'lable'"),
        ("args", "[1, 2]", "too many positional arguments"),
        ("args", "[NaN]", "JSON"),
        ("args", "[" * 100_000, "nested too deeply"),
        ("queue", "", "This field is required."),
        ("queue", "q" * 200, "at most 128 characters"),
        ("priority", "101", "less than or equal to 100"),
        ("delay", "-1", "greater than or equal to 0"),
        ("delay", "1e300", "less than or equal to"),
        ("form", "", "This field is required."),
    ],
)
def test_bad_input_is_answered_at_its_field(staff, field, entered, words):
    errors = problems(staff, **{field: entered})
    assert list(errors) == [field]
    assert words in errors[field][0]


class Refusing:
    def enqueue(self, jobs):
        raise InvalidOption(f"{jobs.task} has no tenant.")


def test_job_that_is_refused_as_it_is_enqueued_is_answered_on_the_form(staff, settings):
    settings.PGQUEUE = {**settings.PGQUEUE, "MIDDLEWARE": [Refusing]}
    assert problems(staff)["__all__"] == [f"{RECORD} has no tenant."]


class Failing:
    def enqueue(self, jobs):
        raise PermissionError("hunter2")


def test_error_of_code_of_the_project_is_answered_on_the_form_by_its_name(staff, settings):
    settings.PGQUEUE = {**settings.PGQUEUE, "MIDDLEWARE": [Failing]}
    assert problems(staff)["__all__"] == ["Code of the project raised PermissionError."]


def test_sensitive_values_are_in_no_error(staff):
    errors = problems(staff, LOG_IN, args='["ann"]', kwargs='{"password": "open-sesame", "x": 1}')
    assert "unexpected keyword argument 'x'" in errors["kwargs"][0]
    assert "sesame" not in str(errors)


def test_form_speaks_german(staff):
    with translation.override("de"):
        page = staff.get(ADDRESS, {"task": RECORD}, headers={"accept-language": "de"}).content.decode()
    for words in ("Job einreihen", "Verzögerung", 'value="Einreihen"'):
        assert words in page


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
@pytest.mark.filterwarnings("ignore:A job is enqueued on")
def test_job_on_another_database_is_shown_there(far, staff, settings):
    settings.PGQUEUE = settings.PGQUEUE | {"SHARDS": {far: {"number": 1, "queues": ["spread"]}}}
    response = send(staff, RECORD, queue="spread")
    [job] = Job.objects.using(far).all()
    address = f"/admin/pgqueue/job/{job.id}/change/?database=other"
    assert messages_of(response) == [f'Job <a href="{address}">{job.id}</a> was enqueued.']
    assert response.redirect_chain == [(address, 302)]
    assert response.status_code == 200
