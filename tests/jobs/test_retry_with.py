"""Retry a dead job with changed arguments: what is kept, and what becomes of both jobs."""

import json
import re

import pytest

import tests.app.tasks as app
from django_pgqueue import Limit, Unique, registry, tasks
from django_pgqueue.backend.results import errors_of
from django_pgqueue.exceptions import InvalidArguments, InvalidOption
from django_pgqueue.insights.history import title_of
from django_pgqueue.jobs import retry
from django_pgqueue.jobs.redaction import REDACTED
from django_pgqueue.jobs.retry_with import Misplaced, RetryRefused, keys_of, masked, retry_with, unmasked
from django_pgqueue.keys import Keys
from django_pgqueue.models import DeadJob, Job
from django_pgqueue.signals import job_enqueued
from tests.support.retrying import dead

pytestmark = pytest.mark.django_db


def again(job_id, task=app.record, args=("new",), kwargs=None, form="f", **values):
    row = DeadJob.objects.filter(pk=job_id).first() or Job.objects.get(pk=job_id)
    keys = Keys(row.unique_key, row.concurrency_key, row.fair_key)
    values = {"keys": keys, "queue": "default", "priority": 0, "by": "ann", **values}
    return retry_with(job_id, task, args, kwargs or {}, form=form, **values)


def test_new_job_is_like_the_dead_one_and_both_know_of_each_other():
    task = app.record.using(
        timeout=60, max_attempts=4, lease=90, keep_for=3600, metadata={"order": 17}, unique_key="u",
        unique=Unique(hold=60), fair_key="f", expires=60,
    )  # fmt: skip
    old = dead(task, "x", errors=[{"kind": "failed", "error": "ValueError", "attempt": 4, "worker_id": 1}])
    cause = DeadJob.objects.get(pk=old).cause
    new = Job.objects.get(pk=again(old, queue="bulk", priority=7).id)
    gone = DeadJob.objects.get(pk=old)
    assert new.pk != old
    assert (new.args, new.queue, new.priority, new.parent_id, new.status) == (["new"], "bulk", 7, old, "queued")
    for column in (
        "timeout_seconds", "lease_seconds", "max_attempts", "keep", "keep_seconds", "unique_key", "unique_until",
        "unique_hold_seconds", "fair_key", "metadata", "backend",
    ):  # fmt: skip
        assert getattr(new, column) == getattr(gone, column), column
    assert (new.attempts, new.expires_at) == (0, None)
    [note] = new.errors
    assert title_of(note) == f"retried with changed arguments from job {old} by ann"
    assert note["retried_from"] == old
    assert [title_of(entry) for entry in gone.errors] == [
        f"retried with changed arguments as job {new.pk} by ann",
        "ValueError",
    ]
    assert gone.cause == cause, "it died of the same"
    assert errors_of(new.errors) == [], "a note is no failure"


def test_job_with_a_concurrency_key_waits_to_be_admitted():
    old = dead(app.record.using(limit_key="k", limit=Limit(running=2)))
    new = Job.objects.get(pk=again(old).id)
    assert (new.status, new.concurrency_key, new.concurrency_limit) == ("limited", "k", 2)


def made(**options) -> tasks.Task:
    return tasks.make(app.log_in.func, name="tests.made", **options)


def test_keys_that_the_task_computes_are_computed_anew():
    task = made(unique="user", limit=Limit(lambda user, password: user[0]), fair=lambda user, password: None)
    old = Keys('tests.made:user="ann"', "tests.made:a", "given")
    new = Keys('tests.made:user="bob"', "tests.made:b", "given")
    assert task.keys_of(("ann", "x"), {}) == old._replace(fair=None)
    assert keys_of(task, old, (("ann", "x"), {}), (("bob", "x"), {})) == new
    assert keys_of(task, old, (("ann",), {}), (("bob", "x"), {})) == old, "it is unknown what it had computed"
    with pytest.raises(IndexError):
        keys_of(task, old, (("ann", "x"), {}), (("", "x"), {}))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"unique": "u", "concurrency": "c", "fair": "f"}),
        ({"unique_key": "u", "limit_key": "c", "fair_key": "f"}, {}),
        ({"unique_key": "u", "unique": Unique(until="start")}, {"unique": "v"}),
    ],
)
def test_keys_come_and_go_with_the_arguments(before, after):
    keys = Keys(**after)
    new = Job.objects.get(pk=again(dead(app.record.using(**before)), keys=keys).id)
    assert Keys(new.unique_key, new.concurrency_key, new.fair_key) == keys
    assert new.unique_until == (before.get("unique", Unique()).until if keys.unique else None)
    assert (new.concurrency_limit, new.status) == ((1, "limited") if keys.concurrency else (None, "queued"))


def test_same_form_makes_one_job():
    old = dead()
    first = again(old)
    assert again(old) == (None, RetryRefused.ALREADY, first.id)
    assert again(old, form="another").id is not None
    assert Job.objects.count() == 2


def test_live_holder_of_the_unique_key_is_named():
    old = dead(app.record.using(unique_key="u"))
    holder = app.record.using(unique_key="u").enqueue().id
    assert again(old) == (None, RetryRefused.KEY_HELD, holder)
    assert DeadJob.objects.get(pk=old).errors[-1]["error"] == "killed by eve"


def test_job_that_is_not_dead_any_more_is_left_alone():
    old = dead()
    retry([old], by="eve")
    assert again(old) == (None, RetryRefused.GONE, None)


def test_locked_row_is_not_waited_for(queue, sql):
    old = dead()
    with queue.transaction():
        queue.rows("SELECT id FROM pgqueue_dead_jobs WHERE id = %(id)s FOR UPDATE", {"id": old})
        assert again(old).refused is RetryRefused.CHANGING
    assert again(old).id is not None


def test_arguments_that_cannot_be_are_refused_without_secrets():
    old = dead(app.log_in, "ann", "open-sesame")
    with pytest.raises(InvalidArguments, match="do not fit") as raised:
        again(old, app.log_in, ("ann",), {"passwort": "x"})
    assert "sesame" not in str(raised.value)
    with pytest.raises(InvalidArguments, match="NUL"):
        again(old, app.log_in, ("ann", "a\0b"))
    with pytest.raises(InvalidOption):
        again(old, app.log_in, ("ann", "b"), priority=101)
    assert not Job.objects.exists()


def test_receivers_are_told_of_the_new_job():
    told = []

    def receiver(**values):
        told.append(values["ids"])

    job_enqueued.connect(receiver)
    try:
        new = again(dead()).id
    finally:
        job_enqueued.disconnect(receiver)
    assert told[-1] == [new]


def test_history_that_is_full_and_one_that_is_empty_take_the_note():
    full = [{"kind": "failed", "error": f"E{number}", "attempt": number} for number in range(20)]
    old, bare = dead(errors=full), dead(errors=[])
    again(old)
    again(bare)
    errors = DeadJob.objects.get(pk=old).errors
    assert errors[0]["error"] == "E0"
    assert errors[-1]["error"] == "E19"
    assert len(errors) == 20
    assert errors[-2]["kind"] == "retried_with"
    assert len(DeadJob.objects.get(pk=bare).errors) == 1


# Arguments to be edited


def test_placeholders_stand_for_what_is_sensitive_and_give_it_back():
    task = registry.get("tests.app.tasks.log_in")
    args, kwargs = ["ann", "open-sesame"], {"payload": {"list": [{"token": {"a": 1}}, {"token": "t2", "n": 2**70}]}}
    seen = masked(task, args, kwargs)
    assert "sesame" not in json.dumps([seen.args, seen.kwargs])
    assert seen.args == ["ann", "[redacted 1]"]
    assert [one["token"] for one in seen.kwargs["payload"]["list"]] == ["[redacted 2]", "[redacted 3]"]
    assert unmasked(task, seen.args, seen.kwargs, seen.kept) == (args, kwargs)
    fewer = {"payload": {"list": seen.kwargs["payload"]["list"][1:]}}
    assert unmasked(task, seen.args, fewer, seen.kept)[1]["payload"]["list"] == [{"token": "t2", "n": 2**70}]


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (["[redacted 1]", "x"], {}),
        (["ann", "x"], {"payload": {"note": "[redacted 1]"}}),
        (["ann", "x"], {"payload": ["[redacted 1]"]}),
        (["ann", "the [redacted 1]"], {}),
    ],
)
def test_placeholder_cannot_be_moved_to_where_its_value_would_be_seen(args, kwargs):
    task = registry.get("tests.app.tasks.log_in")
    seen = masked(task, ["ann", "open-sesame"], {})
    with pytest.raises(Misplaced, match=re.escape("[redacted 1]")) as raised:
        unmasked(task, args, kwargs, seen.kept)
    assert "sesame" not in str(raised.value)


@pytest.mark.parametrize(
    ("args", "kwargs"), [("[redacted 1]", {}), ([1], "[redacted 2]"), ([1, "[redacted 2]"], "[redacted 2]")]
)
def test_placeholder_cannot_be_moved_to_where_the_parts_of_its_value_would_be_seen(registry_of, args, kwargs):
    def pay(names, card=None, note="", **rest): ...

    task = registry_of(pay, sensitive_parameters=["names", "card"])
    seen = masked(task, [["ann", "sesame"]], {"card": {"other": "sesame"}})
    assert (seen.args, seen.kwargs) == (["[redacted 1]"], {"card": "[redacted 2]"})
    with pytest.raises(Misplaced, match="is where its value would be seen"):
        unmasked(task, args, kwargs, seen.kept)


def test_placeholder_is_none_of_the_texts_in_the_arguments():
    task = registry.get("tests.app.tasks.log_in")
    seen = masked(task, ["[redacted 1]", "open-sesame"], {"payload": {"x": REDACTED}})
    assert seen.args == ["[redacted 1]", "[redacted 2]"]
    assert unmasked(task, seen.args, seen.kwargs, seen.kept)[0] == ["[redacted 1]", "open-sesame"]
