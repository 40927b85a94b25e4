"""run_jobs runs what is due, with real transactions too."""

import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from django.test import TestCase, TransactionTestCase

from django_pgqueue import batch
from django_pgqueue.testing import assert_enqueued, run_jobs
from tests.app import helped
from tests.support.marks import labels
from tests.support.schedules import HOUR


class RunJobsTest(TestCase):
    """On one connection, whose transaction is rolled back."""

    def test_runs_what_is_due_and_leaves_what_is_not(self):
        done = helped.note.enqueue("now")
        later = helped.note.using(delay=HOUR).enqueue("later")
        report = run_jobs()
        assert labels() == ["now"]
        assert [(run.id, run.task, run.queue, run.attempt, run.outcome, run.result) for run in report] == [
            (done.id, helped.note.name, "default", 1, "succeeded", "now")
        ]
        assert done.result() == "now"
        assert later.state().status == "scheduled"
        assert not run_jobs()

    def test_order_is_that_of_a_worker(self):
        helped.note.using(priority=-1).enqueue("last")
        helped.note.using(queue="other").enqueue("first")
        helped.note.enqueue("second")
        helped.note.using(priority=5, queue="third").enqueue("before all")
        run_jobs()
        assert labels() == ["before all", "first", "second", "last"]

    def test_follow_ups_are_run_too(self):
        helped.family.enqueue(3)
        helped.family_on_commit.enqueue()
        assert len(run_jobs()) == 7
        assert labels() == ["3", "2", "by on_commit", "by enqueue_on_commit", "1", "0"]

    def test_time_is_moved_to_the_deadline_of_a_workflow(self):
        late = batch([], then=helped.note.bind("late"), sealed=False, deadline=HOUR).enqueue()
        run_jobs(until=HOUR / 2)
        assert late.status() == "open"
        run_jobs(until=HOUR)
        assert late.status() == "failed"

    def test_limit_leaves_the_rest(self):
        helped.note.enqueue_many([(str(number),) for number in range(5)])
        assert len(run_jobs(limit=2)) == 2
        assert labels() == ["0", "1"]

    def test_unknown_arguments_are_refused(self):
        for wrong in ({"limit": 0}, {"limit": True}, {"errors": "ignore"}):
            with pytest.raises(ValueError, match=f"^{next(iter(wrong))} is"):
                run_jobs(**wrong)

    async def test_async_test_runs_jobs_by_sync_to_async(self):
        await helped.anote.aenqueue("async")
        await sync_to_async(assert_enqueued)(helped.anote)
        report = await sync_to_async(run_jobs)(until=HOUR)
        assert [run.result for run in report] == ["async"]


class CommittedTest(TransactionTestCase):
    """Without a transaction around: each job's own are real ones."""

    databases = {"default"}

    def test_jobs_are_run(self):
        helped.family.enqueue(2)
        helped.family_on_commit.enqueue()
        helped.note_atomic.enqueue("undone", fails=True)
        helped.anote.enqueue("async")
        report = run_jobs(errors="collect", until=HOUR)
        assert [run.outcome for run in report].count("succeeded") == 7
        assert len(report.failed) == 2
        assert "undone" not in labels()
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('search_path'), to_regnamespace('pgqueue_testing')")
            assert cursor.fetchone() == ('"$user", public', None)

    def test_error_of_the_database_breaks_nothing(self):
        helped.break_transaction.enqueue()
        with pytest.raises(Exception, match="division by zero"):
            run_jobs()
        assert labels() == ["before"]
