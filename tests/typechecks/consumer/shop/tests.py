"""A project's own tests."""

from typing import assert_type

from django.test import TestCase

from django_pgqueue.testing import JobRun, RunReport, assert_enqueued, assert_not_enqueued, run_jobs
from shop.tasks import pack


class Packing(TestCase):
    def test_order_is_packed(self) -> None:
        pack.enqueue(7)
        assert_enqueued(pack, args=(7,))
        report = run_jobs(queue="default", errors="collect")
        assert_type(report, RunReport)
        assert_type(report[0], JobRun)
        assert_type(report.succeeded, list[JobRun])
        assert_type(report.errors, list[BaseException])
        assert_not_enqueued(pack)
        run_jobs(errors="ignore")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
