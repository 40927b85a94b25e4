"""Capture log lines of running jobs, of which those with ``capture_logs`` are stored with the job."""

import logging

from django_pgqueue import registry
from django_pgqueue.jobs.captured_log import CapturedLog, level_of
from django_pgqueue.jobs.context import find_current

TELL_AFTER_SECONDS = 1.0
"""Age of the first line from which on the lines of a run that goes on are written, once a second."""

OURS = "django_pgqueue"


class CaptureHandler(logging.Handler):
    """Handler of the root logger that gives each line to the job for which it is logged."""

    def handle(self, record: logging.LogRecord) -> bool:
        """Give a line to its job. Takes no lock: two threads share nothing."""
        current = find_current()
        if current is None:
            return True
        log = current.log
        if log is None:
            log = current.log = CapturedLog(current.claimed)
        if record.levelno < log.level or record.name.startswith(OURS):
            return True
        try:
            log.add(record)
        except Exception:  # noqa: BLE001 - values that cannot be printed; as all handlers do
            self.handleError(record)
            return True
        if record.created - log.since > TELL_AFTER_SECONDS:
            current.tell_log()
        return True


def install() -> None:
    """Capture lines in this process, if any task that is registered wants it.

    Where the project has no handler of its own, lines from the level of the tasks on are let through, and only
    warnings are printed, as without this.
    """
    levels = [level for name in registry.known() if (task := registry.find(name)) and (level := level_of(task))]
    if not levels:
        return
    root = logging.getLogger()
    if not root.handlers:
        if logging.lastResort:
            root.addHandler(logging.lastResort)
        root.setLevel(min(levels))
    root.addHandler(CaptureHandler(min(levels)))
