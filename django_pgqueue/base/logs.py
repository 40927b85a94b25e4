"""What log lines about jobs have besides their text: fields, which ``extra`` makes attributes of the record.

The text of a line is constant, its values are its arguments; what a machine may want to know is in the fields, of which
none is called as an attribute that every record has.
"""

import functools
import logging
import os
import socket
from typing import Any, Protocol

FAILURES = "django_pgqueue.jobs.failures"
"""The logger of lines about attempts that have raised: others, as Sentry, know of these by themselves."""


class Running(Protocol):
    """A job that runs, or has just ended."""

    @property
    def id(self) -> int: ...
    @property
    def task(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def max_attempts(self) -> int: ...


LONGEST_VALUE = 2000
"""Maximum number of characters of a value in a line."""


def plain(value: Any) -> str:
    """Return text that does nothing to a terminal and begins no other line: whoever inserts a row chooses names."""
    text = str(value)
    return text if text.isprintable() else "".join(one if one.isprintable() else "?" for one in text)


class Lines(str):
    """Text that may be of several lines, as a traceback while developing."""

    __slots__ = ()


class OneLine(logging.Filter):
    """Make every value a part of its line: text of a row could make lines of its own. ``Lines`` are left as lines."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(_in_line, record.args))
        return True


def _in_line(value: Any) -> Any:
    if isinstance(value, Lines):
        return "\n".join(map(plain, value.split("\n")))
    if isinstance(value, str):
        return plain(value) if len(value) <= LONGEST_VALUE else f"{plain(value[:LONGEST_VALUE])}…"
    if isinstance(value, BaseException):
        try:
            return _in_line(without_detail(str(value)))
        except Exception:  # noqa: BLE001 - one that cannot even be printed
            return type(value).__qualname__
    return value


def without_detail(text: str) -> str:
    """Return what the database says of an error, without the values that it quotes: a row that a check refused."""
    return text.partition("\nDETAIL:")[0]


LOGGERS = ("django_pgqueue", "django_pgqueue.worker", "django_pgqueue.jobs", FAILURES)

for _name in LOGGERS:
    logging.getLogger(_name).addFilter(OneLine())

FIELDS = ("job", "task", "queue", "attempt", "max_attempts", "worker")
"""Fields of every line about one job, in their order."""


def fields(job: Running, **more: Any) -> dict[str, Any]:
    """Return the fields of a line about one job.

    Those that a factory of the project's own gives to each record are left out: ``logging`` refuses to replace them.

    Args:
        more: others, of this line only.
    """
    about = (job.id, job.task, job.queue, job.attempt, job.max_attempts, this_worker())
    given = dict(zip(FIELDS, about, strict=True)) | more
    if (factory := logging.getLogRecordFactory()) is not logging.LogRecord:
        taken = vars(factory("django_pgqueue", logging.INFO, "", 0, "", (), None))
        return {name: value for name, value in given.items() if name not in taken}
    return given


def this_worker() -> str:
    """Return host and pid of this process, as they stand in the history of jobs."""
    return _named(os.getpid())


@functools.lru_cache(maxsize=1)
def _named(pid: int) -> str:
    return f"{socket.gethostname()} pid {pid}"
