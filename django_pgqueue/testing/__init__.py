"""Helpers for the tests of projects that enqueue jobs.

They work on the test's own connection: in a ``TestCase``, whose transaction is rolled back, as well as in a
``TransactionTestCase``. Jobs run in the test's thread, by the statements by which workers claim and acknowledge them.
"""

from django_pgqueue.testing.assertions import assert_enqueued, refute_enqueued
from django_pgqueue.testing.draining import run_jobs
from django_pgqueue.testing.run import EndlessJobs, Report, Run

__all__ = ["EndlessJobs", "Report", "Run", "assert_enqueued", "refute_enqueued", "run_jobs"]
