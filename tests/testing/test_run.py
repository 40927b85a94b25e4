"""The helpers for users' tests. Each proves that it fails when it should."""

import contextlib
import datetime as dt
import itertools
from unittest import mock

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase, override_settings
from django.utils import timezone, translation

from django_pgqueue import enqueue_many, kill, limit_queue, pause_queue, periodic
from django_pgqueue.exceptions import ConfigurationError, JobFailed, UnknownTask
from django_pgqueue.models import DeadJob, Job
from django_pgqueue.schedules import periodic as timetable
from django_pgqueue.signals import job_finished, job_started
from django_pgqueue.testing import assert_enqueued, refute_enqueued, run_jobs
from django_pgqueue.testing.run import EndlessJobs
from tests.app import contract, helped
from tests.app.models import Mark

HOUR = dt.timedelta(hours=1)


def labels() -> list[str]:
    return list(Mark.objects.order_by("pk").values_list("label", flat=True))


class RunJobsTest(TestCase):
    """On one connection, whose transaction is rolled back."""

    def test_runs_what_is_due_and_leaves_what_is_not(self):
        done = helped.note.enqueue("now")
        later = helped.note.using(run_at=HOUR).enqueue("later")
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

    def test_queues_are_served_in_the_order_in_which_they_are_named(self):
        helped.note.using(queue="slow", priority=50).enqueue("slow")
        helped.note.using(queue="mail.in").enqueue("in")
        helped.note.using(queue="mail.out").enqueue("out")
        helped.note.enqueue("default")
        run_jobs(queue=["mail*", "-mail.in", "slow"])
        assert labels() == ["out", "slow"]
        run_jobs(queue="default")
        assert labels() == ["out", "slow", "default"]

    def test_only_jobs_of_the_task_are_run(self):
        helped.note.using(priority=9).enqueue("other")
        helped.one_by_one.enqueue("this")
        assert len(run_jobs(task=helped.one_by_one)) == 1
        assert labels() == ["this"]
        run_jobs(task=[helped.one_by_one, helped.note.name])
        assert labels() == ["this", "other"]

    def test_unknown_task_is_refused(self):
        with pytest.raises(UnknownTask, match=r"Did you mean 'tests\.app\.helped\.note'"):
            run_jobs(task="tests.app.helped.nota")
        with pytest.raises(TypeError, match="task is a task or the name of one"):
            run_jobs(task=print)

    def test_follow_ups_are_run_too(self):
        helped.family.enqueue(3)
        helped.family_on_commit.enqueue()
        assert len(run_jobs()) == 7
        assert labels() == ["3", "2", "by on_commit", "by enqueue_on_commit", "1", "0"]

    def test_limit_leaves_the_rest(self):
        enqueue_many(helped.note, [(str(number),) for number in range(5)])
        assert len(run_jobs(limit=2)) == 2
        assert labels() == ["0", "1"]

    def test_chain_without_an_end_is_found(self):
        helped.family.enqueue(10**6)
        with mock.patch("django_pgqueue.testing.run.MOST_RUNS", 20), pytest.raises(EndlessJobs) as raised:
            run_jobs()
        assert "helped.family 22 times" in str(raised.value)

    def test_many_jobs_are_no_chain(self):
        enqueue_many(helped.note, [("a",)] * 10)
        with mock.patch("django_pgqueue.testing.run.MOST_RUNS", 5):
            assert len(run_jobs()) == 10

    def test_unknown_arguments_are_refused(self):
        for wrong in ({"limit": 0}, {"limit": True}, {"errors": "ignore"}):
            with pytest.raises(ValueError, match=f"^{next(iter(wrong))} is"):
                run_jobs(**wrong)

    def test_async_task_writes_by_the_connection_of_the_test(self):
        helped.anote.enqueue("async")
        helped.enqueue_async.enqueue("follow-up")
        assert [run.result for run in run_jobs()] == ["async", None, "follow-up"]
        assert labels() == ["async", "follow-up"]

    def test_what_a_job_leaves_in_its_context_is_gone(self):
        handle = helped.tell.enqueue()
        with translation.override("en"):
            run_jobs()
            assert translation.get_language() == "en"
        assert helped.current_job() is None
        state = handle.state()
        assert (state.progress["message"], state.metadata) == ("half", {"seen": True})

    def test_signals_are_sent(self):
        heard = []

        def started(job, **_):
            heard.append(job.id)

        def finished(outcome, **_):
            heard.append(outcome.fate.name)

        job_started.connect(started)
        job_finished.connect(finished)
        self.addCleanup(job_started.disconnect, started)
        self.addCleanup(job_finished.disconnect, finished)
        handle = helped.note.enqueue("heard")
        run_jobs()
        assert heard == [handle.id, "SUCCEEDED"]

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
        once_an_hour = helped.note.using(unique_key="k", unique_for=HOUR)
        once_an_hour.enqueue("first")
        run_jobs()
        assert not once_an_hour.enqueue("second").created
        helped.enqueue_once_an_hour.using(run_at=2 * HOUR).enqueue("third")
        run_jobs(until=3 * HOUR)
        assert labels() == ["first", "third"]

    def test_tasks_of_the_framework_are_jobs_as_well(self):
        contract.add.enqueue(1, 2)
        contract.tell.enqueue("a")
        result = contract.aadd.enqueue(3, 4)
        assert_enqueued(contract.add, args=(1, 2))
        assert_enqueued(contract.tell, args=["a"], count=1)
        refute_enqueued(contract.echo)
        report = run_jobs(task=[contract.add, contract.tell])
        assert report[0].result == 3
        assert report[1].result["status"] == "RUNNING"
        run_jobs()
        result.refresh()
        assert result.return_value == 7

    async def test_async_test_runs_jobs_by_sync_to_async(self):
        await helped.anote.aenqueue("async")
        await sync_to_async(assert_enqueued)(helped.anote)
        report = await sync_to_async(run_jobs)(until=HOUR)
        assert [run.result for run in report] == ["async"]

    @override_settings(USE_TZ=False, TIME_ZONE="UTC")
    def test_naive_times_do_as_well(self):
        helped.note.enqueue("now")
        helped.note.using(run_at=timezone.now() + HOUR).enqueue("later")
        assert_enqueued(helped.note, args=("later",), run_at=timezone.now() + HOUR, tolerance=HOUR / 2)
        assert_enqueued(helped.note, args=("now",), run_at=dt.timedelta(0))
        refute_enqueued(helped.note, run_at=timezone.now() + 2 * HOUR, tolerance=HOUR / 2)
        assert len(run_jobs(task=helped.note)) == 1
        assert len(run_jobs(until=timezone.now() + 2 * HOUR)) == 1

    def test_tables_without_migrations_are_an_error(self):
        with connection.cursor() as cursor:
            cursor.execute("ALTER FUNCTION pgqueue_turns RENAME TO no_turns")
        with pytest.raises(ConfigurationError, match="Run tests without --no-migrations"):
            run_jobs()

    def test_lines_of_the_log_are_those_of_a_worker(self):
        helped.fail.enqueue("x")
        with self.assertLogs("django_pgqueue", "WARNING") as logged:
            run_jobs(errors="collect")
        assert "Failed: job" in logged.output[0]

    def test_paused_queue_is_left_alone(self):
        pause_queue("default", by="test")
        helped.note.enqueue("paused")
        assert not run_jobs()

    def test_limited_queue_lets_in_what_its_limits_lets_in(self):
        limit_queue("default", rate=2, period=60, burst=2)
        enqueue_many(helped.note, [("a",), ("b",), ("c",)])
        assert len(run_jobs()) == 2
        assert len(run_jobs(until=HOUR)) == 1

    def test_of_a_limited_queue_only_the_first_may_pass(self):
        limit_queue("default", max_running=1)
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

    def test_no_time_limit_is_left_behind_in_the_transaction(self):
        helped.note.enqueue("a")
        run_jobs(until=HOUR)
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('lock_timeout')")
            assert cursor.fetchone() == ("0",)

    def test_durable_blocks_may_be_opened_as_in_the_test_itself(self):
        helped.be_durable.enqueue()
        run_jobs()
        assert labels() == ["durable"]

    def test_handler_called_in_a_transaction_of_the_code_is_not_durable_either(self):
        helped.be_durable.enqueue()
        with transaction.atomic(), pytest.raises(RuntimeError, match="durable"):
            run_jobs()


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
        assert [(run.outcome, run.reason) for run in report] == [("died", "discarded"), ("released", "")]
        assert report.released[0].delay_seconds == 60
        assert DeadJob.objects.get().reason == "discarded"

    def test_job_dies_after_its_last_attempt(self):
        handle = helped.fail.using(max_attempts=1).enqueue("once")
        with pytest.raises(ValueError, match="no luck"):
            run_jobs()
        with pytest.raises(JobFailed, match="exhausted"):
            handle.result()

    def test_broken_transaction_is_rolled_back_to_the_job(self):
        helped.note.enqueue("kept")
        helped.break_transaction.enqueue()
        report = run_jobs(errors="collect")
        assert [run.outcome for run in report] == ["succeeded", "retried"]
        assert "division by zero" in str(report.errors[0])
        assert labels() == ["kept"]

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
        with pytest.raises(UnknownTask, match=r"gone\.task"):
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
        def spoil(outcome, **_):
            outcome.result = "no json"

        job_finished.connect(spoil)
        self.addCleanup(job_finished.disconnect, spoil)
        helped.note.enqueue("a")
        [run] = run_jobs(errors="collect")
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


class TimeTravelTest(TestCase):
    def test_jobs_that_are_due_by_then_are_run_in_order_of_time(self):
        start = helped.database_now()
        helped.note.using(run_at=2 * HOUR, priority=9).enqueue("second")
        helped.note.using(run_at=start + HOUR).enqueue("first")
        out_of_reach = helped.note.using(run_at=4 * HOUR).enqueue("out of reach")
        report = run_jobs(until=3 * HOUR)
        assert labels() == ["first", "second"]
        assert report[0].at == start + HOUR
        assert abs(report[1].at - start - 2 * HOUR) < dt.timedelta(minutes=1)
        assert out_of_reach.state().run_at > start + 4 * HOUR

    def test_until_is_an_instant_too(self):
        start = helped.database_now()
        helped.note.using(run_at=start + HOUR).enqueue("just")
        helped.note.using(run_at=start + HOUR + dt.timedelta(microseconds=1)).enqueue("not")
        run_jobs(until=start + HOUR)
        assert labels() == ["just"]
        with pytest.raises(ValueError, match="which is over"):
            run_jobs(until=start)
        with pytest.raises(ValueError, match="naive"):
            run_jobs(until=dt.datetime(2030, 1, 1))
        with pytest.raises(TypeError, match="until is a datetime"):
            run_jobs(until=60)

    def test_failed_attempts_are_made_again_after_their_backoff(self):
        helped.fail.enqueue("x")
        report = run_jobs(until=dt.timedelta(minutes=5), errors="collect")
        assert [(run.attempt, run.outcome) for run in report] == [(1, "retried"), (2, "retried"), (3, "died")]
        pauses = [(after.at - before.at).total_seconds() for before, after in itertools.pairwise(report)]
        assert all(54 <= pause <= 66 for pause in pauses)
        assert DeadJob.objects.get().attempts == 3

    def test_job_that_comes_back_later_is_run_again(self):
        helped.come_back.enqueue(3600)
        assert [run.outcome for run in run_jobs(until=2 * HOUR)] == ["released", "succeeded"]

    def test_job_that_repeats_is_run_as_often_as_it_is_due(self):
        helped.repeat_daily.enqueue()
        assert len(run_jobs(until=dt.timedelta(days=3))) == 4
        assert_enqueued(helped.repeat_daily, count=1)

    def test_time_is_not_moved_without_an_end(self):
        for minute in range(5):
            helped.note.using(run_at=HOUR + minute * HOUR / 60).enqueue("of another queue")
        with (
            mock.patch("django_pgqueue.testing.time.MOST_MOVES", 3),
            pytest.raises(EndlessJobs, match="has moved the time 3 times"),
        ):
            run_jobs(until=2 * HOUR, queue="empty")

    def test_time_goes_right_again_afterwards(self):
        before = helped.database_now()
        helped.note.using(run_at=HOUR).enqueue("a")
        run_jobs(until=2 * HOUR)
        assert before < helped.database_now() < before + HOUR
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('search_path'), to_regnamespace('pgqueue_testing')")
            assert cursor.fetchone() == ('"$user", public', None)

    def test_time_goes_right_again_after_an_error(self):
        before = helped.database_now()
        helped.fail.using(run_at=HOUR).enqueue("a")
        with pytest.raises(ValueError, match="no luck"):
            run_jobs(until=2 * HOUR)
        assert helped.database_now() < before + HOUR

    def test_clock_of_the_database_is_moved_and_that_of_python_if_it_is_given(self):
        start = helped.database_now()
        given = []

        @contextlib.contextmanager
        def clock(moment):
            given.append(moment)
            with mock.patch("django.utils.timezone.now", return_value=moment):
                yield

        helped.look_at_clocks.using(run_at=start + HOUR).enqueue()
        run_jobs(until=2 * HOUR, clock=clock)
        seen = Mark.objects.get()
        assert given == [start + HOUR]
        assert dt.datetime.fromisoformat(seen.label) == seen.at == start + HOUR
        assert timezone.now() < start + HOUR

    def test_paused_queue_goes_on_when_its_pause_ends(self):
        pause_queue("default", resume_at=HOUR, by="test")
        helped.note.enqueue("paused")
        assert not run_jobs(until=HOUR / 2)
        assert len(run_jobs(until=2 * HOUR)) == 1

    def test_jobs_expire_on_the_way(self):
        pause_queue("default", by="test")
        helped.note.using(expires=HOUR).enqueue("late")
        helped.note.using(queue="other", run_at=2 * HOUR).enqueue("moves the time")
        run_jobs(until=3 * HOUR)
        assert DeadJob.objects.get().reason == "expired"

    def test_chain_without_an_end_is_found(self):
        helped.repeat_daily.enqueue()
        with mock.patch("django_pgqueue.testing.run.MOST_RUNS", 20), pytest.raises(EndlessJobs):
            run_jobs(until=dt.timedelta(days=100))
        assert len(run_jobs(until=dt.timedelta(days=100), limit=30)) == 30


@pytest.fixture
def schedules(monkeypatch):
    """Declare schedules for one test."""
    monkeypatch.setattr(timetable, "_declared", {})
    return lambda task=helped.note, **options: periodic(**{"args": ("tick",), **options})(task)


def test_schedules_tick_when_the_time_comes(db, schedules):
    schedules(cron="0 18 * * *", timezone="UTC")
    report = run_jobs(until=dt.timedelta(days=3))
    assert [(run.at.hour, run.at.minute, run.at.second) for run in report] == [(18, 0, 0)] * 3
    assert len({run.at.date() for run in report}) == 3
    assert len(run_jobs(until=dt.timedelta(days=5))) == 2  # time went back: only the ticks after the third are new


def test_only_schedules_of_the_task_tick(db, schedules):
    schedules(every=HOUR, name="this")
    schedules(helped.one_by_one, every=HOUR, name="other")
    assert {run.task for run in run_jobs(until=3 * HOUR, task=helped.note)} == {helped.note.name}
    refute_enqueued(helped.one_by_one)


def test_schedules_do_not_tick_where_they_are_not_wanted(db, schedules):
    schedules(every=HOUR)
    assert not run_jobs(until=3 * HOUR, schedules=False)
    assert not run_jobs()


def test_clock_that_cannot_be_moved_is_an_error(db):
    def reset(execute, sql, params, many, context):
        """Do as those who have a schema for each tenant."""
        context["cursor"].cursor.execute("SET search_path = public")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(reset), pytest.raises(ConfigurationError, match="something sets search_path"):
        run_jobs(until=HOUR)


def test_clock_that_may_not_be_moved_is_an_error(db, sql):
    sql("CREATE ROLE lesser_tester")
    sql("GRANT ALL ON ALL TABLES IN SCHEMA public TO lesser_tester")
    sql("SET LOCAL ROLE lesser_tester")
    with pytest.raises(ConfigurationError, match=r"permission denied .* needs the right to make a schema"):
        run_jobs(until=HOUR)


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


class AssertEnqueuedTest(TestCase):
    @classmethod
    def setUpTestData(cls):
        cls.before = helped.note.using(queue="early").enqueue("before")

    def test_job_is_found_and_returned(self):
        handle = helped.note.enqueue("a", times=2)
        assert assert_enqueued(helped.note, args=("a",), kwargs={"times": 2}).pk == handle.id
        assert assert_enqueued(helped.note.name, queue="default").pk == handle.id
        assert assert_enqueued(queue="default", priority=0).pk == handle.id

    def test_jobs_enqueued_before_the_test_count(self):
        assert assert_enqueued(helped.note).pk == self.before.id
        helped.note.enqueue("a")
        assert [job.args for job in assert_enqueued(helped.note, count=2)] == [["before"], ["a"]]
        with pytest.raises(AssertionError, match=r"^2 jobs are to run, not 1, that is of tests\.app\.helped\.note"):
            assert_enqueued(helped.note, count=1)

    def test_count_of_none_is_that_of_refute(self):
        assert assert_enqueued(helped.fail, count=0) == []
        refute_enqueued(helped.fail)

    def test_same_call_is_the_same_however_it_is_written(self):
        helped.note.enqueue(label="a", times=1)
        assert_enqueued(helped.note, args=("a",))
        assert_enqueued(helped.note, kwargs={"label": "a"})
        assert_enqueued(helped.note, args=["a"], kwargs={"password": ""})
        assert_enqueued(helped.note, args=(mock.ANY,), kwargs={"times": mock.ANY}, count=2)

    def test_call_is_compared_as_a_whole(self):
        helped.note.enqueue("a", times=2)
        for call in (
            {"args": ("a",)},
            {"args": ("b",), "kwargs": {"times": 2}},
            {"kwargs": {"times": 2}},
            {"args": ()},
        ):
            refute_enqueued(helped.note, **call)

    def test_values_are_compared_as_json_has_them(self):
        helped.note.enqueue(("a", {1: [None]}))
        assert_enqueued(helped.note, args=(("a", {1: (None,)}),))
        assert_enqueued(args=(["a", {"1": [None]}],))
        with override_settings(PGQUEUE={"ENCODER": "django.core.serializers.json.DjangoJSONEncoder"}):
            helped.note.enqueue(dt.date(2030, 1, 1))
            assert_enqueued(helped.note, args=(dt.date(2030, 1, 1),))
            assert_enqueued(helped.note, args=("2030-01-01",))

    def test_due_time_is_compared(self):
        moment = timezone.now() + HOUR
        helped.note.using(run_at=moment).enqueue("at")
        helped.note.using(run_at=3 * HOUR).enqueue("after")
        assert_enqueued(helped.note, args=("at",), run_at=moment, tolerance=0)
        assert_enqueued(args=("at",), run_at=moment + dt.timedelta(seconds=1))
        assert_enqueued(args=("after",), run_at=3 * HOUR, tolerance=0)
        assert_enqueued(args=("before",), run_at=dt.timedelta())
        refute_enqueued(args=("at",), run_at=moment + dt.timedelta(seconds=1.001))
        assert_enqueued(args=("at",), run_at=moment + dt.timedelta(minutes=1), tolerance=dt.timedelta(minutes=1))
        with pytest.raises(AssertionError, match=r"but due 3:00:00 after it was enqueued"):
            assert_enqueued(args=("after",), run_at=2 * HOUR)
        with pytest.raises(ValueError, match="naive"):
            assert_enqueued(run_at=dt.datetime(2030, 1, 1))

    def test_other_options_are_compared(self):
        helped.note.using(queue="q", priority=3, unique_key="k").enqueue("a")
        assert_enqueued(helped.note, queue="q", priority=3, unique_key="k")
        for other in ({"queue": "default"}, {"priority": 0}, {"unique_key": "other"}):
            refute_enqueued(args=("a",), **other)

    def test_job_that_is_run_is_not_to_run_any_more(self):
        run_jobs()
        with pytest.raises(AssertionError) as raised:
            assert_enqueued(helped.note)
        assert str(raised.value).splitlines() == [
            "No job is to run that is of tests.app.helped.note.",
            "No job is to run at all.",
            "Of this task are not to run any more: 1 finished.",
        ]

    def test_failure_lists_what_is_there_with_the_nearest_first(self):
        far = helped.fail.enqueue("a")
        near = helped.note.using(queue="mail", priority=5).enqueue("a")
        with pytest.raises(AssertionError) as raised:
            assert_enqueued(helped.note, args=("a",), queue="mail", priority=4)
        assert str(raised.value).splitlines() == [
            "No job is to run that is of tests.app.helped.note, called with ('a'), on 'mail', with priority 4.",
            "To run are, the nearest first:",
            f"  job {near.id}: tests.app.helped.note('a') on 'mail', priority 5, queued, due at once",
            "    but with priority=5",
            f"  job {self.before.id}: tests.app.helped.note('before') on 'early', queued, due at once",
            "    but with other arguments, and with queue='early', and with priority=0",
            f"  job {far.id}: tests.app.helped.fail('a') on 'default', queued, due at once",
            "    but of another task, and with queue='default', and with priority=0",
        ]

    def test_failure_does_not_list_without_an_end(self):
        enqueue_many(helped.note, [(str(number),) for number in range(30)])
        with pytest.raises(AssertionError, match=r"\.\.\. and 21 more$"):
            assert_enqueued(queue="nowhere")
        with pytest.raises(AssertionError, match=r"\.\.\. and 21 more$"):
            refute_enqueued()

    def test_failure_says_what_waits_for_a_commit(self):
        transaction.on_commit(lambda: helped.fail.enqueue())
        with pytest.raises(AssertionError, match=r"A callback of on_commit\(\) waits for a commit"):
            assert_enqueued(helped.fail)
        with self.captureOnCommitCallbacks(execute=True):
            transaction.on_commit(lambda: helped.fail.enqueue())
        assert_enqueued(helped.fail)

    def test_failure_leaves_out_sensitive_arguments(self):
        helped.pay.using(unique_key="4111-1111").enqueue("4111-1111", 3)
        with pytest.raises(AssertionError) as raised:
            assert_enqueued(helped.pay, args=("4222-2222", 3))
        assert "4111" not in str(raised.value)
        assert "4222" not in str(raised.value)
        assert "called with ('[redacted]', 3)" in str(raised.value)
        assert "pay('[redacted]', 3) on 'default', unique key '[redacted]'" in str(raised.value)
        with pytest.raises(AssertionError) as raised:
            refute_enqueued(helped.pay)
        assert "4111" not in str(raised.value)

    def test_refute_lists_what_should_not_be_there(self):
        with pytest.raises(AssertionError) as raised:
            refute_enqueued(helped.note)
        assert str(raised.value).splitlines() == [
            "A job is to run that should not be: of tests.app.helped.note.",
            f"  job {self.before.id}: tests.app.helped.note('before') on 'early', queued, due at once",
        ]

    def test_unknown_name_is_refused(self):
        for helper in (assert_enqueued, refute_enqueued):
            with pytest.raises(UnknownTask):
                helper("tests.app.helped.nota")
            with pytest.raises(TypeError, match="args is a tuple"):
                helper(helped.note, args="a")

    def test_database_must_be_one_of_the_test(self):
        with pytest.raises(Exception, match="not allowed"):
            assert_enqueued(database="other")
