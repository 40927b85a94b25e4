"""Rows that any language inserts are valid jobs, and what cannot be is refused by the database."""

import pytest
from django.db import IntegrityError

from django_pgqueue.models import Job
from django_pgqueue.states import NEVER
from tests.support.schedules import make

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "values",
    [
        {"cron": "@daily", "every_seconds": 60},
        {"every_seconds": None},
        {"every_seconds": 0},
        {"catch_up": "some"},
        {"catch_up_limit": 0},
        {"jitter_seconds": -1},
        {"name": ""},
        {"task": ""},
    ],
)
def test_database_refuses_what_no_schedule_is(values):
    with pytest.raises(IntegrityError):
        make(**{"name": "odd", **values})


def test_plain_insert_is_a_valid_enqueue(sql):
    [(job_id,)] = sql("INSERT INTO pgqueue_jobs (task, args) VALUES ('shop.send', '[1]') RETURNING id")
    job = Job.objects.get(pk=job_id)
    assert (job.queue, job.status, job.priority, job.attempts, job.max_attempts) == ("default", "queued", 0, 0, 10)
    assert (job.args, job.kwargs, job.errors, job.lease_token) == ([1], {}, [], 0)
    assert job.started_at == NEVER


@pytest.mark.parametrize(
    "values",
    [
        {"status": "'asleep'"},
        {"status": "'running'"},
        {"lease_token": "7"},
        {"priority": "101"},
        {"queue": "''"},
        {"task": "''"},
        {"attempts": "-1"},
        {"max_attempts": "0"},
        {"lease_seconds": "0"},
        {"run_at": "'infinity'"},
        {"run_at": "'-infinity'"},
        {"errors": "'{}'"},
        {"unique_key": "'k'"},
        {"unique_until": "'end'"},
        {"unique_key": "'k'", "unique_until": "'ever'"},
        {"concurrency_key": "'k'", "concurrency_limit": "1"},
        {"concurrency_key": "'k'", "concurrency_limit": "1", "status": "'running'", "lease_token": "7"},
        {"concurrency_key": "'k'", "status": "'limited'"},
        {"concurrency_key": "'k'", "concurrency_limit": "0", "status": "'limited'"},
        {"concurrency_slot": "1"},
    ],
    ids=str,
)
def test_database_refuses_what_cannot_be(sql, values):
    columns = {"task": "'shop.send'", **values}
    with pytest.raises(IntegrityError):
        sql(f"INSERT INTO pgqueue_jobs ({', '.join(columns)}) VALUES ({', '.join(columns.values())})")
