"""Jobs run by the process that enqueues them, as soon as that is committed."""

import datetime as dt

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase, override_settings
from django.test.utils import CaptureQueriesContext

from django_pgqueue.exceptions import InvalidArguments, JobFailed
from django_pgqueue.models import DeadJob, Job, SucceededJob
from django_pgqueue.testing import assert_enqueued, assert_not_enqueued, run_jobs
from tests.app import contract, helped
from tests.app.models import Mark
from tests.conformance.compat import SIGNALS, TaskResultStatus
from tests.support.marks import labels

IMMEDIATE = override_settings(PGQUEUE={"IMMEDIATE": True})


class Checks:
    """What holds with and without a transaction around."""

    def test_job_has_run_when_enqueue_returns(self):
        handle = helped.note.enqueue("now")
        assert labels() == ["now"]
        assert handle.result() == "now"

    def test_arguments_go_through_json(self):
        with pytest.raises(InvalidArguments):
            helped.note.enqueue(object())
        assert helped.note.enqueue(("a", "b")).result() == ["a", "b"]

    def test_follow_ups_run_after_the_job(self):
        helped.family.enqueue(2)
        helped.family_on_commit.enqueue()
        helped.enqueue_async.enqueue("async")
        assert labels() == ["2", "1", "0", "by on_commit", "by enqueue_on_commit", "async"]

    def test_many_are_run_in_their_order(self):
        helped.note.enqueue_many([("a",), ("b",)])
        assert labels() == ["a", "b"]

    def test_other_jobs_are_left_alone(self):
        with override_settings(PGQUEUE={}):
            before = helped.note.enqueue("before")
        later = helped.note.using(delay=dt.timedelta(hours=1)).enqueue("later")
        helped.note.enqueue("now")
        assert labels() == ["now"]
        assert [before.state().status, later.state().status] == ["queued", "scheduled"]

    def test_error_is_raised_and_written_down(self):
        with pytest.raises(ValueError, match="no luck") as raised:
            helped.fail.enqueue("x")
        assert "It was raised by job" in raised.value.__notes__[0]
        assert Job.objects.get().errors[0]["message"] == "no luck with x"
        helped.discard.enqueue()
        assert DeadJob.objects.get().reason == "discarded"

    def test_error_is_only_logged_where_the_settings_say_so(self):
        with (
            override_settings(PGQUEUE={"IMMEDIATE": True, "IMMEDIATE_ERRORS": "log"}),
            self.assertLogs("django_pgqueue.jobs.failures", "WARNING") as log,
        ):
            with transaction.atomic():
                helped.fail.enqueue("x")
                helped.note.enqueue("behind it")
            failed = contract.fail.enqueue()
        assert [entry["message"] for entry in Job.objects.get().errors] == ["no luck with x"]
        assert labels() == ["x", "behind it"]
        assert (failed.status, failed.errors[0].exception_class) == (TaskResultStatus.FAILED, ValueError)
        assert len(log.output) == 2

    def test_jobs_run_after_the_outermost_block_in_their_order(self):
        with transaction.atomic():
            helped.note.enqueue("first")
            with transaction.atomic():
                helped.note.enqueue("second")
            assert_enqueued(helped.note, count=2)
            assert not labels()
        assert labels() == ["first", "second"]
        assert not connection.execute_wrappers

    def test_job_that_is_rolled_back_never_runs(self):
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            helped.note.enqueue("never")
            _ = 1 / 0
        with transaction.atomic():
            with pytest.raises(ZeroDivisionError), transaction.atomic():
                helped.note.enqueue("never")
                _ = 1 / 0
            helped.note.enqueue("once")
        assert labels() == ["once"]
        assert not connection.execute_wrappers

    def test_error_is_raised_at_the_end_of_the_block(self):
        Mark.objects.create(job_id=0, label="kept")
        with pytest.raises((ValueError, JobFailed), match="no luck"), transaction.atomic():
            Mark.objects.create(job_id=0, label="of the block")
            helped.fail.enqueue("failed")
        assert labels() == ["kept", "of the block", "failed"]

    def test_error_of_the_database_at_the_end_of_the_block_breaks_nothing(self):
        with pytest.raises(Exception, match="division by zero"), transaction.atomic():
            helped.break_transaction.enqueue()
        assert Job.objects.get().errors[0]["message"].startswith("division by zero")

    def test_with_a_unique_key_the_job_that_has_it_is_run(self):
        with transaction.atomic():
            first = helped.note.using(unique_key="k").enqueue("a")
            assert not helped.note.using(unique_key="k").enqueue("b").created
        assert first.result() == "a"

    def test_task_of_the_framework_has_its_result(self):
        heard = []

        def hear(signal, **_):
            heard.append(next(name for name, one in SIGNALS.items() if one is signal))

        for signal in SIGNALS.values():
            signal.connect(hear)
            self.addCleanup(signal.disconnect, hear)
        result = contract.add.enqueue(1, 2)
        assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 3)
        assert heard == ["task_enqueued", "task_started", "task_finished"]
        [many] = contract.add.get_backend().enqueue_many(contract.add, [(1, 2)])
        assert many.return_value == 3

    def test_run_jobs_decides_which_follow_ups_it_runs(self):
        with override_settings(PGQUEUE={}):
            helped.family_on_commit.enqueue()
        run_jobs(task=helped.family_on_commit)
        assert not labels()
        assert_enqueued(helped.note, count=2)


@IMMEDIATE
class InTestCaseTest(Checks, TestCase):
    def test_what_waits_for_the_commit_waits_for_it(self):
        transaction.on_commit(lambda: helped.note.enqueue("after"))
        assert not labels()
        with self.captureOnCommitCallbacks(execute=True):
            transaction.on_commit(lambda: helped.note.enqueue("captured"))
        assert labels() == ["captured"]

    def test_wrapper_of_statements_inside_the_block_takes_away_nothing(self):
        seen = []

        def see(execute, *given):
            seen.append(given[0])
            return execute(*given)

        with transaction.atomic():
            with connection.execute_wrapper(see):
                helped.note.enqueue("a")
            number = len(seen)
        assert labels() == ["a"]
        assert len(seen) == number

    def test_block_without_a_savepoint_ends_with_the_next_statement(self):
        with transaction.atomic(savepoint=False):
            helped.note.enqueue("a")
        Job.objects.exists()
        assert labels() == ["a"]


@IMMEDIATE
class CommittedTest(Checks, TransactionTestCase):
    def test_job_that_another_connection_commits_stays_in_the_queue(self):
        connection.set_autocommit(False)
        try:
            helped.note.enqueue("a")
            connection.commit()
        finally:
            connection.set_autocommit(True)
        assert not labels()
        assert_enqueued(helped.note, count=1)


@pytest.mark.django_db(transaction=True)
def test_async_code_enqueues_too():
    async def enqueue():
        handle = await helped.note.aenqueue("a")
        result = await contract.aadd.aenqueue(1, 2)
        return await handle.aresult(), result.return_value

    with IMMEDIATE:
        assert async_to_sync(enqueue)() == ("a", 3)


def test_it_is_off_unless_the_setting_says_so(db):
    helped.note.enqueue("a")
    assert not labels()
    assert_enqueued(helped.note)
    assert_not_enqueued(helped.fail)
    assert not SucceededJob.objects.exists()


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_follow_up_on_another_database_runs_too(shard, settings, registry_of):
    settings.PGQUEUE = settings.PGQUEUE | {"IMMEDIATE": True}

    def hand_over():
        helped.note.using(database=shard).enqueue("far")

    registry_of(hand_over).enqueue()
    assert labels() == ["far"]


@pytest.mark.django_db(transaction=True)
def test_statements_of_later_tests_run_no_jobs_of_one_that_is_over():
    test = transaction.atomic()
    test._from_testcase = True
    with IMMEDIATE, test:
        with transaction.atomic(savepoint=False):
            helped.note.enqueue("left")
        transaction.set_rollback(True)
    with CaptureQueriesContext(connection) as caught:
        assert not Mark.objects.exists()
    assert len(caught) == 1
    assert not connection.execute_wrappers
