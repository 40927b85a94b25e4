"""Lines of the log have fields, stay lines, and quote no row."""

import json
import logging
import traceback

import pytest
from django.db import IntegrityError, transaction

from django_pgqueue import logs
from django_pgqueue.log_lines import LOGGERS
from django_pgqueue.records import Fate, Outcome
from tests.support.claimed import job


def test_fields_that_the_records_of_a_project_have_already_are_left_out(caplog):
    before = logging.getLogRecordFactory()

    def with_task(*args, **named):
        record = before(*args, **named)
        record.task = "the project's own"
        return record

    logging.setLogRecordFactory(with_task)
    try:
        logs.report_all([Outcome(job(), Fate.RETRIED)], stale=())
    finally:
        logging.setLogRecordFactory(before)
    [record] = caplog.records
    assert (record.task, record.job, record.outcome) == ("the project's own", job().id, "retried")


@pytest.mark.parametrize("value", ["evil\n2026-11-23 00:00:00 CRITICAL forged", "\x1b[2J\r", "a\u2028b", "\u202eback"])
def test_value_in_a_line_makes_no_other_line_and_no_colours(value, caplog):
    """A role that may insert a row names tasks and queues, and chooses texts of exceptions."""
    for name in LOGGERS:
        logging.getLogger(name).warning("Unknown task %s: %s", value, ValueError(value))
    assert len(caplog.messages) == len(LOGGERS)
    assert all(message.isprintable() for message in caplog.messages)


def test_values_that_are_given_by_name_make_no_other_line_either(caplog):
    logging.getLogger("django_pgqueue.jobs").error("Job of %(task)s, %(number)d", {"task": "a\nforged", "number": 1})
    assert [record.getMessage() for record in caplog.records] == ["Job of a?forged, 1"]


def test_text_that_people_read_is_left_as_it_is(caplog):
    """A no-break space, a joined emoji, a soft hyphen, a private sign."""
    value = "5\u00a0€ \U0001f469\u200d\U0001f680 co\u00adop \ue000"
    logging.getLogger("django_pgqueue").warning("%s\t%s", value, "a\tb")
    assert caplog.messages == [f"{value}\ta b"]


def test_value_in_a_line_is_no_longer_than_people_read(caplog):
    logging.getLogger("django_pgqueue").warning("Unknown task %s", "x" * 1_000_000)
    [message] = caplog.messages
    assert len(message) < 3000


def test_row_that_a_check_refuses_is_not_quoted_in_a_line(db, sql, caplog):
    with pytest.raises(IntegrityError) as refused, transaction.atomic():
        sql("""INSERT INTO pgqueue_jobs (task, priority, args) VALUES ('x', 1000, '["hunter2"]')""")
    assert "hunter2" in str(refused.value)
    logging.getLogger("django_pgqueue.worker").warning("What is left is not settled: %s", refused.value)
    [message] = caplog.messages
    assert "pgqueue_jobs_priority" in message
    assert "hunter2" not in message


class Wrapped(Exception):
    """Of a project, around one of the database."""


@pytest.mark.parametrize("wraps", [False, True])
def test_row_that_a_check_refuses_is_not_quoted_in_a_traceback(db, sql, caplog, wraps):
    secret = "hunter" + str(2)  # lines of code stand in a traceback as well

    def insert():
        sql("INSERT INTO pgqueue_jobs (task, priority, args) VALUES ('x', 1000, %s)", json.dumps([secret]))

    def insert_wrapped():
        try:
            insert()
        except IntegrityError as error:
            raise Wrapped(str(error)) from error

    for name in LOGGERS:
        with pytest.raises((IntegrityError, Wrapped)) as refused, transaction.atomic():
            insert_wrapped() if wraps else insert()
        logging.getLogger(name).error("It failed", exc_info=refused.value)
        record = caplog.records[-1]
        assert "pgqueue_jobs_priority" in caplog.text
        assert "line " in caplog.text
        assert secret not in caplog.text
        assert secret not in "".join(traceback.format_exception(record.exc_info[1]))
        assert type(record.exc_info[1]) is type(refused.value)
        driver = record.exc_info[1].__cause__.__cause__ or record.exc_info[1].__cause__
        assert (driver.sqlstate, driver.diag.message_detail) == ("23514", None)
        assert secret in str(refused.value)  # the error itself is as it was
        caplog.clear()


def test_exception_that_cannot_be_printed_does_not_cost_the_line(caplog):
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    logging.getLogger("django_pgqueue").warning("It failed: %s", Odd())
    assert caplog.messages == [f"It failed: {Odd.__qualname__}"]
