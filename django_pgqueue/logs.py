"""Filter for the project's own log, which adds the running job to each line."""

import logging

from django_pgqueue.jobs.context import find_current
from django_pgqueue.log_lines import fields

__all__ = ["JobFields"]


class JobFields(logging.Filter):
    """Gives each record that is made while a job runs the fields of that job, as lines of the queue's own have them.

    Stands in ``filters`` of a handler in ``LOGGING``. Fields that a record has already stay as they are; records that
    no job makes get none.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if job := find_current():
            for name, value in fields(job).items():
                vars(record).setdefault(name, value)
        return True
