"""Forms of schedules and queues: what they take, and what they say at which field."""

import datetime as dt
import re

import pytest
from django.test import Client
from django.utils import timezone

from django_pgqueue.models import Queue, Schedule
from tests.support.admin_queues import ODD, change
from tests.support.admin_schedules import LIST, entered, page
from tests.support.schedules import HOUR, RECORD, make
from tests.support.staff import user_with

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(db) -> Client:
    rights = ("view", "add", "change", "delete", "pause", "run")
    return user_with("view_queue", "limit_queue", *(f"{right}_schedule" for right in rights))


def test_labels_of_forms_begin_as_those_of_django(admin_client):
    Queue.objects.create(name="mail")
    for url in ("schedule/add/", "queue/mail/change/"):
        page = admin_client.get(f"/admin/pgqueue/{url}").content.decode()
        labels = re.findall(r"<label[^>]*for=\"id_[^>]*>\s*([^<]+?)\s*</label>", page)
        assert len(labels) >= 4
        assert [label for label in labels if label[0].islower()] == []


def test_limits_are_edited(staff, queues):
    change(staff, ODD, max_running="5", rate_limit="100")
    row = Queue.objects.get(pk=ODD)
    assert (row.max_running, row.rate_limit, row.rate_period_seconds, row.rate_burst, row.tokens) == (5, 100, 1, 20, 20)
    Queue.objects.filter(pk=ODD).update(tokens=3)
    change(staff, ODD, max_running="6", rate_limit="100", rate_period_seconds="1.0", rate_burst="20")
    row = Queue.objects.get(pk=ODD)
    assert (row.max_running, row.tokens) == (6, 3)
    change(staff, ODD)
    row = Queue.objects.get(pk=ODD)
    assert (row.max_running, row.rate_limit, row.rate_period_seconds, row.rate_burst) == (None, None, None, None)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"max_running": "0"}, "greater than or equal to 1"),
        ({"rate_limit": "2000000"}, "less than or equal to 1000000"),
        ({"rate_burst": "5"}, "This belongs to a rate, and there is none."),
        ({"rate_period_seconds": "5"}, "This belongs to a rate, and there is none."),
        ({"rate_limit": "5", "rate_period_seconds": "0"}, "greater than or equal to 0.001"),
    ],
)
def test_limits_that_cannot_be_are_refused_at_their_fields(staff, queues, data, words):
    assert words in change(staff, "mail", **data).content.decode()
    assert not Queue.objects.exclude(max_running=None, rate_limit=None).exists()


def errors_of(response) -> dict[str, list[str]]:
    return {field: list(errors) for field, errors in response.context["adminform"].form.errors.items()}


def test_form_of_a_new_schedule_begins_with_the_defaults(staff):
    form = staff.get(f"{LIST}add/").context["adminform"].form
    shown = {name: form[name].value() for name in ("args", "kwargs", "options", "jitter_seconds", "catch_up_limit")}
    assert shown == {"args": "[]", "kwargs": "{}", "options": "{}", "jitter_seconds": 0, "catch_up_limit": 100}
    assert (form["catch_up"].value(), form["timezone"].value(), form["cron"].value()) == ("last", "Europe/Berlin", "")


def test_schedule_is_added_with_its_next_tick(staff):
    values = entered(args='["x"]', options='{"queue": "slow", "timeout": 60}', jitter_seconds="5", catch_up="all")
    assert staff.post(f"{LIST}add/", values).status_code == 302
    row = Schedule.objects.get()
    assert (row.name, row.task, row.source, row.every_seconds, row.cron) == ("hourly", RECORD, "admin", 3600, "")
    assert (row.args, row.kwargs, row.options) == (["x"], {}, {"queue": "slow", "timeout": 60})
    assert (row.jitter_seconds, row.catch_up, row.edited_at) == (5, "all", None)
    assert dt.timedelta(0) < row.next_at - timezone.now() <= HOUR


@pytest.mark.parametrize(
    ("values", "field", "message"),
    [
        ({"cron": "61 * * * *", "every_seconds": ""}, "cron", "cron is '61 * * * *': bad minute."),
        ({"cron": "0 0 30 2 *", "every_seconds": ""}, "cron", "bad day-of-month"),
        ({"cron": "0 * * * *", "every_seconds": "", "timezone": "Mars"}, "cron", "timezone is 'Mars'"),
        ({"every_seconds": "0"}, "every_seconds", "of 1 second to 36500 days"),
        ({"every_seconds": "1e300"}, "every_seconds", "which is no time"),
        ({"every_seconds": ""}, "cron", "either a cron entry"),
        ({"cron": "@daily"}, "every_seconds", "either a cron entry"),
        ({"args": "["}, "args", "Enter a valid JSON."),
        ({"args": "{}"}, "args", "This is not a JSON array."),
        ({"kwargs": "[1]"}, "kwargs", "This is not a JSON object."),
        ({"args": '["a", "b"]'}, "args", "too many positional arguments"),
        ({"kwargs": '{"colour": 1}'}, "args", "unexpected keyword argument 'colour'"),
        ({"args": '["\\u0000"]'}, "args", "NUL"),
        ({"options": '{"priority": 1000}'}, "options", "priority is a whole number"),
        ({"options": '{"colour": 1}'}, "options", "There is no option colour"),
        ({"options": '{"run_at": 1}'}, "options", "run_at cannot be given to a schedule"),
        ({"task": "shop.tasks.not_here"}, "task", "Select a valid choice"),
        ({"jitter_seconds": "-1"}, "jitter_seconds", "greater than or equal to 0"),
        ({"catch_up_limit": "0"}, "catch_up_limit", "greater than or equal to 1"),
        ({"name": ""}, "name", "required"),
    ],
)
def test_form_says_at_the_field_what_cannot_work(staff, values, field, message):
    errors = errors_of(staff.post(f"{LIST}add/", entered(**values)))
    assert list(errors) == [field]
    assert message in errors[field][0]
    assert Schedule.objects.count() == 0


def test_saving_without_a_change_is_no_edit(staff):
    row = make(source="code")
    staff.post(page(row), entered())
    assert Schedule.objects.get().edited_at is None


def test_sensitive_arguments_are_neither_shown_nor_edited(staff):
    row = make(task="tests.app.tasks.log_in", args=["ann", "hunter2"])
    text = staff.get(page(row)).content.decode()
    assert "hunter2" not in text
    assert "[redacted]" in text
    staff.post(page(row), entered(task="tests.app.tasks.log_in", args='["eve", "x"]', every_seconds="60"))
    assert (Schedule.objects.get().args, Schedule.objects.get().every_seconds) == (["ann", "hunter2"], 60)
    answer = staff.post(page(row), entered(task="tests.app.tasks.record", every_seconds="90"))
    assert answer.status_code == 302, errors_of(answer)
    assert (Schedule.objects.get().task, Schedule.objects.get().every_seconds) == ("tests.app.tasks.log_in", 90)
    assert "hunter2" not in staff.get(page(row)).content.decode()
