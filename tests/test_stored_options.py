"""Options that are stored with a job: each statement that inserts one writes them, and none that moves it loses one."""

import dataclasses
import datetime as dt
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from django_pgqueue.db.queries import statement
from django_pgqueue.jobs import ack, kill, retry
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.handle import JobHandle
from django_pgqueue.jobs.retry_with import retry_with
from django_pgqueue.keys import Keys
from django_pgqueue.models import DeadJob, Job
from django_pgqueue.options import Options
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.tasks import Task
from tests.support.every_option import ALL_BUT_THOSE_THAT_EXCLUDE_OTHERS, DAY, NOT_STORED, STORED, differing, row_of

CONTROLLED = {"expires": dt.timedelta(days=1)}  # for a statement that inserts jobs with keys


class Way(NamedTuple):
    """How a job comes into the table, and the statement that inserts it."""

    statement: str
    enqueue: Callable[[Task], JobHandle]
    options: dict[str, Any]

    def row(self, options: dict[str, Any]) -> dict[str, Any]:
        """Enqueue a job; return its row."""
        task = app.record.using(**self.options | options)
        with CaptureQueriesContext(connection) as captured:
            handle = self.enqueue(task)
        assert any(statement(self.statement)[:80] in query["sql"] for query in captured), self.statement
        return row_of(handle.id)

    def takes(self, option: str) -> bool:
        """Return whether a job with the option is still inserted by this statement."""
        return bool(self.options) or not app.record.using(**{option: STORED[option]}).needs_control


def alone(task: Task) -> JobHandle:
    return task.enqueue("x")


def with_others(task: Task) -> JobHandle:
    return task.enqueue_many([("x",), ("y",)])[0]


def with_others_of_another_task(task: Task) -> JobHandle:
    return enqueue_many([task.bind("x"), app.noop.bind()])[0]


WAYS = [
    Way("enqueue", alone, {}),
    Way("enqueue_many", with_others, {}),
    Way("enqueue_calls", with_others_of_another_task, {}),
    Way("enqueue_keyed", alone, CONTROLLED),
    Way("enqueue_keyed", with_others, CONTROLLED),
    Way("enqueue_keyed_calls", with_others_of_another_task, CONTROLLED),
]


def test_every_option_is_tried_or_is_not_stored():
    assert STORED.keys() | NOT_STORED == {option.name for option in dataclasses.fields(Options)}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("way", "option"),
    [
        pytest.param(way, option, id=f"{way.statement}-{way.enqueue.__name__}-{option}")
        for way in WAYS
        for option in STORED
        if way.takes(option)
    ],
)
def test_option_is_written_by_each_statement_that_inserts(way, option):
    assert differing(way.row({}), way.row({option: STORED[option]}))


@pytest.mark.django_db
@pytest.mark.parametrize("options", ALL_BUT_THOSE_THAT_EXCLUDE_OTHERS)
def test_row_is_the_same_whichever_statement_inserts_it(options, sql):
    """Those for plain jobs, and those for jobs with keys."""
    for ways in (WAYS[:3], WAYS[3:]):
        taken = {option: value for option, value in options.items() if ways[0].takes(option)}
        rows = []
        for way in ways:
            rows.append(way.row(taken))
            sql("DELETE FROM pgqueue_jobs")  # and with it the unique key
        assert [differing(rows[0], row) for row in rows[1:]] == [set()] * (len(ways) - 1)


@pytest.mark.django_db
@pytest.mark.parametrize("options", ALL_BUT_THOSE_THAT_EXCLUDE_OTHERS)
def test_dead_job_keeps_what_it_was_enqueued_with_and_so_does_its_retry(options):
    job_id = app.record.using(**options).enqueue("x").id
    before = row_of(job_id)
    kill([job_id], by="ann")
    assert differing(before, row_of(job_id, DeadJob)) == {"errors", "killed_by"}
    retry([job_id], by="ann")
    assert differing(before, row_of(job_id)) == {"errors", "run_at", "expires_at", "status"}  # it runs now, at any time


@pytest.mark.django_db
@pytest.mark.parametrize("options", ALL_BUT_THOSE_THAT_EXCLUDE_OTHERS)
def test_retry_with_other_arguments_keeps_all_but_them(options):
    job_id = app.record.using(**options).enqueue("x").id
    before = row_of(job_id)
    kill([job_id], by="ann")
    keys = Keys(before["unique_key"], before["concurrency_key"], before["fair_key"])
    same = {"queue": before["queue"], "priority": before["priority"]}
    retried = retry_with(job_id, app.record, ("y",), {}, keys=keys, form="f", by="ann", **same)
    changed = {"errors", "run_at", "expires_at", "status"}
    assert differing(before, row_of(retried.id)) == {*changed, "args", "parent_id"}


@pytest.mark.parametrize("options", ALL_BUT_THOSE_THAT_EXCLUDE_OTHERS)
def test_next_job_of_one_that_repeats_has_all_that_it_had(options, queue, sql):
    job_id = app.record.using(**options).enqueue("x").id
    before = row_of(job_id)
    sql(
        "UPDATE pgqueue_jobs SET status = 'queued', concurrency_slot = 1, run_at = enqueued_at, "
        "expires_at = enqueued_at + (expires_at - run_at)"
    )
    [job] = claim(queue, before["queue"], limit=1, worker_id=1)
    in_time = (2 * DAY).total_seconds()
    ack.write(queue, [Outcome(job, Fate.REPEATED, result="null", delay_seconds=in_time)])
    assert differing(before, row_of(Job.objects.get().id)) == {"parent_id"}
