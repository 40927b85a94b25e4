"""The job that pgqueue_jobs enqueues: its arguments, options and keys."""

import datetime as dt
import io

import pytest
from django.utils import timezone

from django_pgqueue.models import Job
from tests.support.jobs_command import jobs

pytestmark = pytest.mark.django_db


def test_enqueue_prints_the_id_and_takes_arguments_and_options():
    printed = jobs(
        *("enqueue", "tests.app.tasks.record", "--args", '["ü"]', "--queue", "mail", "--priority", "-7"),
        *("--max-attempts", "2", "--timeout", "90s", "--delay", "2h", "--metadata", '{"by": "cron"}'),
    )
    job = Job.objects.get()
    assert printed == f"{job.pk}\n"
    assert (job.args, job.queue, job.priority, job.max_attempts, job.timeout_seconds) == (["ü"], "mail", -7, 2, 90)
    assert (job.metadata, job.status) == ({"by": "cron"}, "scheduled")
    assert dt.timedelta(hours=1) < job.run_at - timezone.now() <= dt.timedelta(hours=2)


def test_enqueue_takes_arguments_by_name_and_a_time_in_the_zone_of_the_settings():
    jobs("enqueue", "tests.app.tasks.record", "--kwargs", '{"label": "a"}', "--run-at", "2031-05-01T09:00")
    job = Job.objects.get()
    assert (job.kwargs, job.run_at) == ({"label": "a"}, dt.datetime(2031, 5, 1, 7, tzinfo=dt.UTC))


def test_enqueue_prints_the_id_of_the_conflict_and_says_so():
    words = ("enqueue", "tests.app.tasks.noop", "--unique-key", "k", "--unique-for", "1h", "--expires", "1d")
    first, errors = jobs(*words), io.StringIO()
    assert jobs(*words, stderr=errors) == first
    assert errors.getvalue() == "This job had the unique key already.\n"
    job = Job.objects.get()
    assert (job.unique_key, job.unique_for_seconds) == ("k", 3600)


def test_enqueue_takes_concurrency_and_fair_keys():
    jobs("enqueue", "tests.app.tasks.noop", "--concurrency-key", "k", "--concurrency-limit", "3", "--fair-key", "f")
    job = Job.objects.get()
    assert (job.concurrency_key, job.concurrency_limit, job.fair_key, job.status) == ("k", 3, "f", "waiting")
