"""Fields of log lines about jobs, which ``extra`` makes attributes of the record; and lines safe for a terminal.

The text of a line is constant, its values are its arguments; what a machine may want to know is in the fields, of which
none is called as an attribute that every record has.
"""

import functools
import logging
import os
import re
import socket
from typing import Any, Protocol

FAILURES = "django_pgqueue.jobs.failures"  # of attempts that raised: others, as Sentry, know of these by themselves


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


LONGEST_VALUE = 2000  # characters of a value in a line


def plain(value: Any) -> str:
    """Return text that does nothing to a terminal and begins no other line: names in rows may be anything."""
    text = str(value)
    return text if text.isprintable() else HARMFUL.sub("?", text.replace("\t", " "))


# Control characters, separators of lines and paragraphs, what turns the direction of text, and lone surrogates, which
# no terminal can be sent. Everything else that Python does not call printable is text: a no-break space, a joiner.
HARMFUL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


DETAIL = "\nDETAIL:"


class MultiLine(str):
    """Text that may be of several lines, as a traceback while developing."""

    __slots__ = ()


class OneLine(logging.Filter):
    """Make every value a part of its line: text of a row could make lines of its own. ``MultiLine`` ones are left.

    A traceback has lines of its own, but errors in it do not quote a row either.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(_in_line, record.args))
        elif isinstance(record.args, dict):  # values by name
            record.args = {name: _in_line(value) for name, value in record.args.items()}
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and any(DETAIL in _text(one) for one in _chain(error)):
            copy = _unquoted(error, {})
            record.exc_info = type(copy), copy, copy.__traceback__
        return True


def _in_line(value: Any) -> Any:
    if isinstance(value, MultiLine):
        return "\n".join(map(plain, value.split("\n")))
    if isinstance(value, str):
        return plain(value) if len(value) <= LONGEST_VALUE else f"{plain(value[:LONGEST_VALUE])}…"
    if isinstance(value, BaseException):
        return _in_line(without_detail(_text(value, type(value).__qualname__)))
    return value


def without_detail(text: str) -> str:
    """Return what the database says of an error, without the values that it quotes: a row that a check refused."""
    return text.partition(DETAIL)[0]


def _chain(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = [error]
    for one in found:
        behind = (one.__cause__, one.__context__)
        found += [other for other in behind if other is not None and not any(other is known for known in found)]
    return found


def _unquoted(error: BaseException, made: dict[int, BaseException]) -> BaseException:
    """Return a copy of an error and of those behind it, without details; the code that raised it still has it whole."""
    if id(error) in made:
        return made[id(error)]
    args = tuple(without_detail(one) if isinstance(one, str) else one for one in error.args)
    kind = type(error)
    try:
        copy = kind.__new__(kind, *args)
        copy.args = args
        vars(copy).update(vars(error))
        if "_info" in vars(copy):  # the driver's: what the server has answered, detail included
            vars(copy)["_info"] = None
        is_whole = DETAIL not in str(copy)
    except Exception:  # noqa: BLE001 - a class of a project may want anything
        is_whole = False
    if not is_whole:
        copy = Exception(f"{kind.__qualname__}: {without_detail(_text(error))}")
    made[id(error)] = copy
    copy.__traceback__ = error.__traceback__
    copy.__cause__ = error.__cause__ and _unquoted(error.__cause__, made)
    copy.__context__ = error.__context__ and _unquoted(error.__context__, made)
    copy.__suppress_context__ = error.__suppress_context__
    return copy


def _text(error: BaseException, unprintable: str = "") -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - one that cannot even be printed
        return unprintable


LOGGERS = ("django_pgqueue", "django_pgqueue.worker", "django_pgqueue.jobs", FAILURES)

for _name in LOGGERS:
    logging.getLogger(_name).addFilter(OneLine())

FIELDS = ("job", "task", "queue", "attempt", "max_attempts", "worker")  # of every line about one job, in their order


def fields(job: Running, **more: Any) -> dict[str, Any]:
    """Return the fields of a line about one job.

    Those that a factory of the project's own gives to each record are left out: ``logging`` refuses to replace them.
    """
    about = (job.id, job.task, job.queue, job.attempt, job.max_attempts, this_worker())
    given = dict(zip(FIELDS, about, strict=True)) | more
    if (factory := logging.getLogRecordFactory()) is not logging.LogRecord:
        taken = vars(factory("django_pgqueue", logging.INFO, "", 0, "", (), None))
        return {name: value for name, value in given.items() if name not in taken}
    return given


def this_worker() -> str:
    """Return host and pid of this process, as in the history of jobs."""
    return _named(os.getpid())


@functools.lru_cache(maxsize=1)
def _named(pid: int) -> str:
    return f"{socket.gethostname()} pid {pid}"
