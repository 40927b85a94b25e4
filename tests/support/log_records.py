"""Lines of the log about jobs, and their fields."""

import logging

from django_pgqueue import logs
from tests.support.running import run_claimed


def attempt(queue):
    outcomes = run_claimed(queue)
    logs.report_all(outcomes, stale=())
    return outcomes


def fields_of(record):
    return {name: value for name, value in vars(record).items() if name not in OF_ANY_RECORD}


OF_ANY_RECORD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
