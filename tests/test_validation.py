"""The user of an action: a name, a user of Django, or one who is not named."""

import logging

import pytest
from django.contrib.auth.models import AnonymousUser, User

import tests.app.tasks as app
from django_pgqueue import jobs, queues, schedules, workers
from django_pgqueue.exceptions import InvalidOption
from django_pgqueue.insights.overview import pause_of
from django_pgqueue.models import Queue
from django_pgqueue.validation import name_of
from tests.support.stories import steps, told

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("by", "name"), [("night shift", "night shift"), (User(username="ann"), "ann"), (AnonymousUser(), ""), ("", "")]
)
def test_name_is_that_of_a_text_or_of_a_user(by, name):
    assert name_of(by) == name


@pytest.mark.parametrize("by", [None, 7, b"ann", "a\0b", "\ud800"])
def test_what_is_no_name_is_refused(by):
    with pytest.raises(InvalidOption, match="by is a text without NUL or a user, not"):
        name_of(by)


def test_history_names_the_user_who_has_acted():
    job_id = app.noop.enqueue().id
    jobs.move([job_id], queue="bulk", by=User(username="ann"))
    jobs.kill([job_id], by=User(username="ben"))
    assert [entry["by"] for entry in jobs.get(job_id).state().errors] == ["ann", "ben"]


def test_history_says_a_user_of_one_who_is_not_named():
    job_id = app.noop.enqueue().id
    jobs.set_priority([job_id], priority=5)
    jobs.move([job_id], queue="bulk")
    assert jobs.kill([job_id]).dead == jobs.retry([job_id]).ids == [job_id]
    assert jobs.kill([job_id]).dead == [job_id]
    history = [entry["error"] for entry in jobs.get(job_id).state().errors if "error" in entry]
    assert history == ["killed by a user"] * 2
    assert "It was killed by a user." in told(job_id)
    assert "moved from default to bulk by a user" in steps(job_id)
    assert jobs.purge([job_id]) == [job_id]


def test_all_actions_take_no_name_at_all(caplog):
    caplog.set_level(logging.INFO, logger="django_pgqueue")
    assert queues.pause("default")
    assert pause_of(Queue.objects.get(pk="default")).startswith("by a user since ")
    assert queues.resume("default")
    queues.limit("default", max_running=3)
    assert schedules.pause(["missing"]) == schedules.resume(["missing"]) == schedules.restore(["missing"]) == []
    assert schedules.run(["missing"]) == {}
    assert jobs.run_now([1]) == workers.stop([1]) == []
    assert "Queue default limited by a user: max_running 3, rate unchanged" in caplog.text
