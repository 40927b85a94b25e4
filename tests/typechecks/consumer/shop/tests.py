"""A project's own tests."""

from typing import assert_type

from django.test import TestCase

from django_pgqueue import CurrentJob, track
from django_pgqueue.testing import (
    JobRun,
    RunReport,
    as_job,
    assert_enqueued,
    assert_not_enqueued,
    immediate,
    override_pgqueue,
    run_job,
    run_jobs,
)
from shop.tasks import pack, write


class Packing(TestCase):
    def test_order_is_packed(self) -> None:
        pack.enqueue(7)
        assert_enqueued(pack, args=(7,))
        assert_enqueued(pack.using(priority=10).bind(7), priority=10)
        report = run_jobs(queue="default", errors="collect")
        assert_type(report, RunReport)
        assert_type(report[0], JobRun)
        assert_type(report.succeeded, list[JobRun])
        assert_type(report.errors, list[BaseException])
        assert_not_enqueued(pack)
        with as_job(pack, attempt=2) as job:
            assert_type(job, CurrentJob)
        job.metadata["a"] = 1  # type: ignore[index]  # pyright: ignore[reportIndexIssue]
        assert_type(run_job(pack.bind(7), attempt=3), str)
        assert_type(run_job(write.bind(7)), None)
        run_job(pack)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        for row in track([1, 2]):
            assert_type(row, int)
        run_jobs(errors="ignore")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@immediate(errors="log")
class Immediately(TestCase):
    @override_pgqueue(RETENTION_DAYS=0)
    def test_order_is_packed(self) -> None:
        immediate(errors="ignore")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


assert_type(Immediately("test_order_is_packed"), Immediately)
