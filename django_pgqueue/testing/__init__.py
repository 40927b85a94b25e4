"""Helpers for the tests of projects that enqueue jobs.

They work on the test's own connection: in a ``TestCase``, whose transaction is rolled back, as well as in a
``TransactionTestCase``. Jobs run in the test's thread, by the statements by which workers claim and acknowledge them.
"""

from django_pgqueue.testing.assertions import assert_enqueued, assert_not_enqueued, enqueued
from django_pgqueue.testing.draining import run_jobs
from django_pgqueue.testing.run import EndlessJobs, JobRun, RunReport
from django_pgqueue.testing.settings import immediate, override_pgqueue
from django_pgqueue.testing.single_job import as_job, run_job

__all__ = [
    "EndlessJobs",
    "JobRun",
    "RunReport",
    "as_job",
    "assert_enqueued",
    "assert_not_enqueued",
    "enqueued",
    "immediate",
    "override_pgqueue",
    "run_job",
    "run_jobs",
]
