"""Jobs run on the connection of the test, whose transaction stays as it was."""

import contextlib
import datetime as dt
import itertools
from unittest import mock

import pytest
from django.db import connection, transaction
from django.test import TestCase
from django.utils import timezone

from django_pgqueue import periodic, queues
from django_pgqueue.exceptions import ConfigurationError
from django_pgqueue.models import DeadJob
from django_pgqueue.schedules import periodic as timetable
from django_pgqueue.testing import assert_enqueued, assert_not_enqueued, run_jobs
from django_pgqueue.testing.run import EndlessJobs
from tests.app import helped
from tests.app.models import Mark
from tests.support.marks import labels
from tests.support.schedules import HOUR


class ConnectionTest(TestCase):
    def test_async_task_writes_by_the_connection_of_the_test(self):
        helped.anote.enqueue("async")
        helped.enqueue_async.enqueue("follow-up")
        assert [run.result for run in run_jobs()] == ["async", None, "follow-up"]
        assert labels() == ["async", "follow-up"]

    def test_tables_without_migrations_are_an_error(self):
        with connection.cursor() as cursor:
            cursor.execute("ALTER FUNCTION pgqueue_turns RENAME TO no_turns")
        with pytest.raises(ConfigurationError, match="Run tests without --no-migrations"):
            run_jobs()

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

    def test_broken_transaction_is_rolled_back_to_the_job(self):
        helped.note.enqueue("kept")
        helped.break_transaction.enqueue()
        report = run_jobs(errors="collect")
        assert [run.outcome for run in report] == ["succeeded", "retried"]
        assert "division by zero" in str(report.errors[0])
        assert labels() == ["kept"]


class TimeTravelTest(TestCase):
    def test_jobs_that_are_due_by_then_are_run_in_order_of_time(self):
        start = helped.database_now()
        helped.note.using(delay=2 * HOUR, priority=9).enqueue("second")
        helped.note.using(run_at=start + HOUR).enqueue("first")
        out_of_reach = helped.note.using(delay=4 * HOUR).enqueue("out of reach")
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
        assert [run.outcome for run in run_jobs(until=2 * HOUR)] == ["snoozed", "succeeded"]

    def test_job_that_repeats_is_run_as_often_as_it_is_due(self):
        helped.repeat_daily.enqueue()
        assert len(run_jobs(until=dt.timedelta(days=3))) == 4
        assert_enqueued(helped.repeat_daily, count=1)

    def test_time_is_not_moved_without_an_end(self):
        for minute in range(5):
            helped.note.using(delay=HOUR + minute * HOUR / 60).enqueue("of another queue")
        with (
            mock.patch("django_pgqueue.testing.draining.MOST_MOVES", 3),
            pytest.raises(EndlessJobs, match="has moved the time 3 times"),
        ):
            run_jobs(until=2 * HOUR, queue="empty")

    def test_time_goes_right_again_afterwards(self):
        before = helped.database_now()
        helped.note.using(delay=HOUR).enqueue("a")
        run_jobs(until=2 * HOUR)
        assert before < helped.database_now() < before + HOUR
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('search_path'), to_regnamespace('pgqueue_testing')")
            assert cursor.fetchone() == ('"$user", public', None)

    def test_time_goes_right_again_after_an_error(self):
        before = helped.database_now()
        helped.fail.using(delay=HOUR).enqueue("a")
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
        queues.pause("default", resume_at=HOUR, by="test")
        helped.note.enqueue("paused")
        assert not run_jobs(until=HOUR / 2)
        assert len(run_jobs(until=2 * HOUR)) == 1

    def test_jobs_expire_on_the_way(self):
        queues.pause("default", by="test")
        helped.note.using(expires=HOUR).enqueue("late")
        helped.note.using(queue="other", delay=2 * HOUR).enqueue("moves the time")
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
    return lambda cron="", task=helped.note, **timing: periodic(cron, **timing)(task.bind("tick"))


def test_schedules_tick_when_the_time_comes(db, schedules):
    begun = helped.database_now()
    hour = (begun.hour + 6) % 24
    schedules(f"0 {hour} * * *", timezone="UTC")
    report = run_jobs(until=begun + dt.timedelta(days=3))
    assert [(run.at.hour, run.at.minute, run.at.second) for run in report] == [(hour, 0, 0)] * 3
    assert len({run.at.date() for run in report}) == 3
    assert len(run_jobs(until=begun + dt.timedelta(days=5))) == 2  # time went back: only later ticks are new


def test_only_schedules_of_the_task_tick(db, schedules):
    schedules(every=HOUR, name="this")
    schedules(task=helped.one_by_one, every=HOUR, name="other")
    assert {run.task for run in run_jobs(until=3 * HOUR, task=helped.note)} == {helped.note.name}
    assert_not_enqueued(helped.one_by_one)


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
