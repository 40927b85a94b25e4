"""Jobs run in a test as they would in a worker, and the report tells what became of each."""

import contextlib
import datetime as dt
from unittest import mock

import pytest
from django.db import connection
from django.test import TestCase, override_settings
from django.utils import timezone, translation

from django_pgqueue import Retry, Snooze, Unique, is_in_job, queues
from django_pgqueue.exceptions import JobFailed, TaskDoesNotExist
from django_pgqueue.jobs import kill
from django_pgqueue.models import DeadJob, Job
from django_pgqueue.signals import attempt_ended, attempt_started, job_died
from django_pgqueue.testing import assert_enqueued, assert_not_enqueued, override_pgqueue, run_jobs
from django_pgqueue.testing.run import EndlessJobs
from tests.app import contract, helped
from tests.support.marks import labels
from tests.support.schedules import HOUR


class RunJobsTest(TestCase):
    """On one connection, whose transaction is rolled back."""

    def test_chain_without_an_end_is_found(self):
        helped.family.enqueue(10**6)
        with mock.patch("django_pgqueue.testing.run.MOST_RUNS", 20), pytest.raises(EndlessJobs) as raised:
            run_jobs()
        assert "helped.family 22 times" in str(raised.value)

    def test_many_jobs_are_no_chain(self):
        helped.note.enqueue_many([("a",)] * 10)
        with mock.patch("django_pgqueue.testing.run.MOST_RUNS", 5):
            assert len(run_jobs()) == 10

    def test_what_a_job_leaves_in_its_context_is_gone(self):
        handle = helped.tell.enqueue()
        with translation.override("en"):
            run_jobs()
            assert translation.get_language() == "en"
        assert not is_in_job()
        state = handle.state()
        assert (state.progress["message"], state.metadata) == ("half", {"seen": True})

    def test_tasks_get_their_context(self):
        handles = [helped.note_context.enqueue("a"), helped.anote_context.enqueue("b")]
        run_jobs()
        assert [handle.result() for handle in handles] == [[1, "a"], [1, "b"]]

    def test_context_managers_of_the_settings_are_around(self):
        helped.note.enqueue("x")
        contract.tell.enqueue("y")
        seen = []
        with override_pgqueue(MIDDLEWARE=[lambda job: contextlib.nullcontext(seen.append(job.arguments))]):
            run_jobs()
        assert seen == [{"label": "x", "times": 1, "password": ""}, {"args": ("y",)}]

    def test_signals_are_sent(self):
        heard = []

        def started(event, **_):
            heard.append(event.id)

        def finished(event, **_):
            heard.append(str(event.outcome))

        attempt_started.connect(started)
        attempt_ended.connect(finished)
        self.addCleanup(attempt_started.disconnect, started)
        self.addCleanup(attempt_ended.disconnect, finished)
        handle = helped.note.enqueue("heard")
        run_jobs()
        assert heard == [handle.id, "succeeded"]

    def test_concurrency_keys_let_in_one_after_the_other(self):
        for label in "abc":
            helped.one_by_one.enqueue(label)
        run_jobs()
        assert labels() == ["a", "b", "c"]

    def test_unique_key_is_free_afterwards(self):
        once = helped.note.using(unique_key="once")
        assert once.enqueue("first").created
        assert not once.enqueue("second").created
        run_jobs()
        assert once.enqueue("third").created
        run_jobs()
        assert labels() == ["first", "third"]

    def test_job_that_comes_back_finds_its_key_taken(self):
        first = helped.fail_beside_another.enqueue()
        report = run_jobs(errors="collect", until=HOUR)
        assert [run.outcome for run in report] == ["retried", "succeeded"]
        assert report[0].id == first.id
        assert DeadJob.objects.get(pk=first.id).reason == "superseded"

    def test_key_is_held_for_as_long_as_the_task_says(self):
        once_an_hour = helped.note.using(unique_key="k", unique=Unique(hold=HOUR))
        once_an_hour.enqueue("first")
        run_jobs()
        assert not once_an_hour.enqueue("second").created
        helped.enqueue_once_an_hour.using(delay=2 * HOUR).enqueue("third")
        run_jobs(until=3 * HOUR)
        assert labels() == ["first", "third"]

    def test_tasks_of_the_framework_are_jobs_as_well(self):
        contract.add.enqueue(1, 2)
        contract.tell.enqueue("a")
        result = contract.aadd.enqueue(3, 4)
        assert_enqueued(contract.add, args=(1, 2))
        assert_enqueued(contract.tell, args=["a"], count=1)
        assert_not_enqueued(contract.echo)
        report = run_jobs(task=[contract.add, contract.tell])
        assert report[0].result == 3
        assert report[1].result["status"] == "RUNNING"
        run_jobs()
        result.refresh()
        assert result.return_value == 7

    def test_exception_of_discard_on_is_no_error(self):
        helped.give_up.enqueue()
        [died] = run_jobs()
        assert (died.outcome, died.reason, type(died.error)) == ("died", "discarded", LookupError)

    @override_settings(USE_TZ=False, TIME_ZONE="UTC")
    def test_naive_times_do_as_well(self):
        helped.note.enqueue("now")
        helped.note.using(run_at=timezone.now() + HOUR).enqueue("later")
        assert_enqueued(helped.note, args=("later",), run_at=timezone.now() + HOUR, tolerance=HOUR / 2)
        assert_enqueued(helped.note, args=("now",), delay=dt.timedelta(0))
        assert_not_enqueued(helped.note, run_at=timezone.now() + 2 * HOUR, tolerance=HOUR / 2)
        assert len(run_jobs(task=helped.note)) == 1
        assert len(run_jobs(until=timezone.now() + 2 * HOUR)) == 1

    def test_lines_of_the_log_are_those_of_a_worker(self):
        helped.fail.enqueue("x")
        with self.assertLogs("django_pgqueue", "WARNING") as logged:
            run_jobs(errors="collect")
        assert "Failed: job" in logged.output[0]

    def test_paused_queue_is_left_alone(self):
        queues.pause("default", by="test")
        helped.note.enqueue("paused")
        assert not run_jobs()

    def test_limited_queue_lets_in_what_its_limits_lets_in(self):
        queues.limit("default", rate="2/h", burst=2)
        helped.note.enqueue_many([("a",), ("b",), ("c",)])
        assert len(run_jobs()) == 2
        assert len(run_jobs(until=2 * HOUR)) == 1

    def test_of_a_limited_queue_only_the_first_may_pass(self):
        queues.limit("default", max_running=1)
        helped.note.enqueue("first")
        helped.one_by_one.enqueue("second")
        assert not run_jobs(task=helped.one_by_one)
        assert len(run_jobs()) == 2

    def test_killed_and_expired_jobs_die_without_a_run(self):
        helped.note.using(expires=dt.timedelta(milliseconds=1)).enqueue("late")
        while helped.database_now() < Job.objects.get().expires_at:
            pass
        report = run_jobs()
        assert [(run.outcome, run.reason) for run in report] == [("died", "expired")]
        assert not labels()


class ErrorsTest(TestCase):
    def test_first_error_is_raised_and_says_which_job_it_was(self):
        first = helped.fail.enqueue("first")
        helped.fail.enqueue("second")
        with pytest.raises(ValueError, match="no luck with first") as raised:
            run_jobs()
        [note] = raised.value.__notes__
        assert f"job {first.id} (tests.app.helped.fail) attempt 1: retried, due again in" in note
        assert first.state().errors[0]["message"] == "no luck with first"
        assert labels() == ["first"]  # what it has written stays, as without a transaction

    def test_errors_are_collected(self):
        helped.fail.enqueue("one")
        helped.afail.enqueue("two")
        helped.discard.enqueue()
        helped.note.enqueue("three")
        report = run_jobs(errors="collect")
        assert [run.outcome for run in report] == ["retried", "retried", "died", "succeeded"]
        assert list(map(str, report.errors)) == ["no luck with one", "no luck with two", "no such order"]
        assert len(report.failed) == 3
        assert (len(report.retried), len(report.died), len(report.succeeded)) == (2, 1, 1)
        assert str(report).startswith("2 retried, 1 died, 1 succeeded\njob ")

    def test_error_of_an_async_task_is_raised(self):
        helped.afail.enqueue("it")
        with pytest.raises(ValueError, match="no luck with it"):
            run_jobs()

    def test_what_a_job_decides_itself_is_no_error(self):
        helped.discard.enqueue()
        helped.come_back.enqueue(60)
        report = run_jobs()
        assert [(run.outcome, run.reason) for run in report] == [("died", "discarded"), ("snoozed", "")]
        assert report.snoozed[0].delay_seconds == 60
        assert DeadJob.objects.get().reason == "discarded"

    def test_retry_is_an_error_where_no_attempt_is_left(self):
        helped.ask_again.enqueue(60)
        [run] = run_jobs()
        assert (run.outcome, run.delay_seconds, type(run.error)) == ("retried", 60, Retry)
        with pytest.raises(Retry, match="busy"):
            run_jobs(until=HOUR)
        assert DeadJob.objects.get().reason == "exhausted"

    def test_snooze_is_an_error_where_it_is_one_too_many(self):
        helped.snooze_once.enqueue()
        assert [run.outcome for run in run_jobs()] == ["snoozed"]
        with pytest.raises(Snooze, match="not yet"):
            run_jobs(until=HOUR)
        assert DeadJob.objects.get().snoozes == 1

    def test_job_dies_after_its_last_attempt(self):
        handle = helped.fail.using(max_attempts=1).enqueue("once")
        with pytest.raises(ValueError, match="no luck"):
            run_jobs()
        with pytest.raises(JobFailed, match="exhausted"):
            handle.result()

    def test_atomic_task_that_fails_takes_back_what_it_has_written(self):
        helped.note_atomic.enqueue("kept")
        helped.note_atomic.enqueue("undone", fails=True)
        report = run_jobs(errors="collect", until=HOUR)
        assert [run.outcome for run in report] == ["succeeded", "retried", "died"]
        assert labels() == ["kept"]

    def test_error_after_the_commit_of_a_job_is_one_of_the_job(self):
        handle = helped.break_after_commit.enqueue()
        report = run_jobs(errors="collect")
        assert [(run.outcome, type(run.error)) for run in report] == [("retried", ZeroDivisionError)]
        assert labels() == ["written"]
        assert handle.state().errors[0]["error"] == "ZeroDivisionError"

    def test_unknown_task_is_an_error(self):
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO pgqueue_jobs (task) VALUES ('gone.task')")
        with pytest.raises(TaskDoesNotExist, match=r"gone\.task"):
            run_jobs()
        Job.objects.update(status="queued", run_at=timezone.now() - HOUR)
        assert [run.outcome for run in run_jobs(errors="collect")] == ["released"]

    def test_arguments_that_no_longer_fit_are_an_error(self):
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO pgqueue_jobs (task, args) VALUES (%s, '[1, 2, 3]')", [helped.anote.name])
        with pytest.raises(TypeError, match="takes 1 positional argument"):
            run_jobs()

    def test_arguments_that_are_no_arguments_are_an_error_of_async_tasks_too(self):
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO pgqueue_jobs (task, args) VALUES (%s, '{}')", [helped.anote.name])
        with pytest.raises(JobFailed, match="args must be a JSON array"):
            run_jobs()

    def test_outcome_that_the_database_refuses_is_buried(self):
        died = []

        def tell(event, **_):
            died.append((event.id, event.reason))

        job_died.connect(tell, sender=helped.note)
        self.addCleanup(job_died.disconnect, tell, sender=helped.note)
        handle = helped.note.enqueue("a")
        with mock.patch("django_pgqueue.jobs.executor._result", return_value="no json"):
            [run] = run_jobs(errors="collect")
        assert died == [(handle.id, "discarded")]
        assert (run.outcome, run.reason) == ("died", "discarded")
        assert DeadJob.objects.get().errors[0]["refused"] == "succeeded"

    def test_robust_callback_that_fails_harms_nothing(self):
        helped.break_robustly.enqueue()
        with self.assertLogs("django_pgqueue.jobs", "ERROR") as logged:
            report = run_jobs()
        assert "ZeroDivisionError" in logged.output[0]
        assert [run.outcome for run in report] == ["succeeded", "succeeded"]

    def test_what_ends_the_test_is_not_collected(self):
        with mock.patch.object(helped.note, "func", side_effect=pytest.skip.Exception("not today")):
            helped.note.enqueue("a")
            with pytest.raises(pytest.skip.Exception):
                run_jobs(errors="collect")

    def test_ctrl_c_is_not_collected(self):
        helped.stop_the_tests.enqueue()
        with pytest.raises(KeyboardInterrupt):
            run_jobs(errors="collect")

    def test_killed_job_is_no_error(self):
        handle = helped.note.enqueue("killed")
        kill([handle.id], by="test")
        assert not run_jobs()
        assert DeadJob.objects.get().reason == "killed"
