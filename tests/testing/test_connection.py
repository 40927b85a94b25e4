"""Jobs run on the connection of the test, whose transaction stays as it was."""

import pytest
from django.db import connection, transaction
from django.test import TestCase

from django_pgqueue.exceptions import ConfigurationError
from django_pgqueue.testing import run_jobs
from tests.app import helped
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
