"""The running job as its task sees it: ``current_job()``, progress, metadata, kills."""

import contextlib
import contextvars
import datetime as dt
import functools
import json
import math
import secrets
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from django_pgqueue import registry
from django_pgqueue.conf import conf, running
from django_pgqueue.db.connections import Database, PendingResult, QueueConnection, fence
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import InvalidArguments, InvalidOption, NoCurrentJob, delay_seconds
from django_pgqueue.jobs.captured_log import LOG, CapturedLog
from django_pgqueue.jobs.serialization import encode
from django_pgqueue.options import Options, check_instant
from django_pgqueue.records import ClaimedJob, Outcome
from django_pgqueue.stored_values import read_object
from django_pgqueue.validation import is_text

MOST_DONE = 10**18
LONGEST_MESSAGE = 500  # characters

T = TypeVar("T")

TRIES, PAUSE_SECONDS = 100, 0.01  # of an atomic task: another session may be writing to the same row


class Update(NamedTuple):
    """Latest progress and metadata that a run has set, as JSON text; None: nothing."""

    progress: str | None
    metadata: str | None


class CurrentJob:
    """The job of a running task, as the task may see it."""

    is_kill_requested = False
    """Whether this job was asked to stop. Check it in long loops."""

    is_timed_out = False
    """Whether its time limit has passed, and it was interrupted for that."""

    is_trial = False
    """Whether ``pgqueue_jobs try`` runs it, and its writes to databases are rolled back."""

    again: Options | None = None
    """When the next job like it is to run, if the task has asked for one."""

    # For finish_job().
    interrupts: Any = None  # the ThreadInterrupts of the thread that runs it; None: it is ``async def``
    run_adapter: Any = None  # of a task of the Tasks framework
    begun_at: float = 0.0  # by time.perf_counter()
    ended: Outcome | None = None  # as finish_job() has written down

    # For the threads that interrupt it, monotonic.
    stop_at: float = math.inf  # when to do so next
    interrupted_at: float = 0.0  # when they first did

    # For the consumer, which writes its reports.
    log: CapturedLog | None = None  # lines that were captured
    has_told: bool = False  # anything at all
    written_at: float = -math.inf  # the last time, monotonic
    _has_news = False  # since the last look
    _progress: dict[str, Any] | None = None
    _metadata: str | None = None  # JSON

    def __init__(self, job: ClaimedJob, tell: Callable[["CurrentJob"], None] | None = None) -> None:
        self.tell = tell  # called when there are news; None: they are not wanted
        self.claimed = job

    @property
    def id(self) -> int:
        """The job's id, the same for life."""
        return self.claimed.id

    @functools.cached_property
    def idempotency_key(self) -> str:
        """A key for calls to other systems, the same for all attempts and retries of this job, and of no other.

        ``PGQUEUE["IDEMPOTENCY_PREFIX"]`` and the id. Of a job that is in no table, as in tests, a random number.
        """
        return conf.idempotency_prefix + (str(self.id) if self.id else secrets.token_hex(16))

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self.claimed.attempt

    @property
    def max_attempts(self) -> int:
        """The bound on attempts."""
        return self.claimed.max_attempts

    @property
    def task(self) -> str:
        """The name it was enqueued under."""
        return self.claimed.task

    @property
    def queue(self) -> str:
        """The name of its queue."""
        return self.claimed.queue

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments of the task by the names of its parameters, defaults included. Read-only.

        Of a task that is not registered there are the keyword arguments alone.

        Raises:
            InvalidArguments: they do not fit the signature, so that the run is going to fail.
        """
        args, kwargs = json.loads(self.claimed.args), json.loads(self.claimed.kwargs)
        task = registry.find(self.claimed.task)
        if task is None:
            return MappingProxyType(kwargs)
        try:
            bound = task.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArguments(f"{task.name} takes {task.signature}: {error}.") from error
        bound.apply_defaults()
        return MappingProxyType(bound.arguments)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata that ``using(metadata=…)`` gave and ``update_metadata`` has added. Read-only.

        Of a job that plain SQL has given something other than a JSON object, it is empty.
        """
        if self._metadata is not None:
            return MappingProxyType(json.loads(self._metadata))
        given = read_object(self.claimed.rest).get("metadata")
        return MappingProxyType(given if isinstance(given, dict) else {})

    @property
    def progress(self) -> Mapping[str, Any] | None:
        """The ``done``, ``total`` and ``message`` of the latest ``set_progress``; None: no call yet. Read-only."""
        return None if self._progress is None else MappingProxyType(self._progress)

    @property
    def slot(self) -> int | None:
        """Its number among the running jobs of its limit, from 1 to the limit. None: it has no ``limit``.

        No two running jobs of a key have the same; free numbers are given out from the lowest. A later attempt may have
        another, except of a ``strict`` limit.
        """
        return self.claimed.slot

    @property
    def database(self) -> str:
        """The alias of the database whose queue it is from; jobs that it enqueues are put there unless they say."""
        return self.claimed.database

    @property
    def lease_token(self) -> int:
        """The lease token: proves the right to run it. New for each claim."""
        return self.claimed.lease_token

    @property
    def run_id(self) -> int:
        """One number for this run: of id and lease token."""
        return self.claimed.run_id

    def set_progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Report the progress of the job. Others see it while the job runs, even inside a transaction.

        May be called as often as you like: it waits for nothing. The first is written at once, the latest once a
        second, and the last of all before the outcome.

        Args:
            done: number of units that are done, 0 to 10¹⁸; any unit.
            total: number of all units, 0 to 10¹⁸. None: not known.
            message: of 500 characters at most.

        Raises:
            InvalidOption: a value is out of range or of the wrong type. Nothing is reported.
        """
        _check_number("done", done)
        if total is not None:
            _check_number("total", total)
        if message != "":
            _check_message(message)
        self._progress = {"done": done, "total": total, "message": message}
        if not self._has_news:
            self._tell()

    def update_metadata(self, **items: Any) -> None:
        """Add items to the job's metadata, or replace those of the same names. Others see them like the progress.

        It stays with the job: the next attempt has it, and the job that follows by ``repeat``.

        Raises:
            InvalidArguments: with these it is no JSON, or larger than ``PGQUEUE["MAX_PAYLOAD_BYTES"]``.
        """
        self._metadata = encode({**self.metadata, **items}, what="metadata")
        if not self._has_news:
            self._tell()

    def news(self) -> Update:
        """Return the latest report of the run, and note that it is being written."""
        self._has_news = False  # before looking
        progress: Mapping[str, Any] | None = self._progress
        if self.log:
            progress = {**(progress or {}), LOG: self.log.text()}
        return Update(None if progress is None else json.dumps(progress), self._metadata)

    def tell_log(self) -> None:
        """Announce captured lines, which are written with the next report, and at the latest before the outcome."""
        if not self._has_news:
            self._tell()

    def _tell(self) -> None:
        self._has_news = self.has_told = True
        if self.tell is not None:
            self.tell(self)

    def repeat(self, *, delay: float | dt.timedelta | None = None, at: dt.datetime | None = None) -> None:
        """Let another job like this one follow when it has succeeded: same task, arguments, options and keys.

        The job that follows has an id of its own and this one for its parent. It is inserted by the statement that
        writes down the success: both, or neither. If this run fails, or the job was asked to stop, none
        follows. Of several calls the last counts. One that is due at once starts within about a second.

        Args:
            delay: seconds (0 to 100 years), or a timedelta, after the end of this run. Default: 0.
            at: in place of ``delay``, an aware datetime.

        Raises:
            InvalidOption: it is negative, more than 100 years away, naive while USE_TZ is on, or of another type; or
                both are given.
        """
        if delay is not None and at is not None:
            raise InvalidOption("repeat() takes either delay or at, not both.")
        if at is None:
            self.again = Options(delay=delay_seconds("The delay of repeat()", 0 if delay is None else delay))
        else:
            check_instant("at of repeat()", at)
            self.again = Options(run_at=at)


def _check_number(name: str, value: Any) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= MOST_DONE:
        raise InvalidOption(f"The {name} of set_progress is a number from 0 to 10¹⁸, not {value!r}.")


def _check_message(message: Any) -> None:
    if not isinstance(message, str) or len(message) > LONGEST_MESSAGE:
        raise InvalidOption(f"The message of set_progress is a text of {LONGEST_MESSAGE} characters at most.")
    if not is_text(message):
        raise InvalidOption("The message of set_progress contains NUL or a lone surrogate, which is not text.")


@dataclass(frozen=True, slots=True)
class JobContext:
    """The first argument of a task that is declared with ``takes_context=True``.

    Attributes:
        job: the running job.
    """

    job: CurrentJob

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self.job.attempt


_current: contextvars.ContextVar[CurrentJob | None] = running  # type: ignore[assignment]  # nothing else is put there


def current_job() -> CurrentJob:
    """Return the job that the calling code runs for.

    Raises:
        NoCurrentJob: it runs for none, as in a view, in a test that calls the task's function, or in a thread that the
            task has started.
    """
    current = _current.get()
    if current is None:
        raise NoCurrentJob
    return current


def is_in_job() -> bool:
    """Whether the calling code runs for a job, so that ``current_job()`` returns it."""
    return _current.get() is not None


def find_current() -> CurrentJob | None:
    """Return the job that the calling code runs for, or None."""
    return _current.get()


def enter(job: CurrentJob) -> None:
    """Make ``job`` the current one of this context, which is made for one job and left with it."""
    _current.set(job)


@contextlib.contextmanager
def entered(job: CurrentJob) -> Iterator[None]:
    """Make ``job`` the current one in this block."""
    token = _current.set(job)
    try:
        yield
    finally:
        _current.reset(token)


# Progress of a loop


def track(rows: Iterable[T] | AsyncIterable[T], total: float | None = None, message: str = "") -> "Tracked[T]":
    """Loop over ``rows``, and report the number done by ``set_progress`` after each.

    ``for row in track(rows):``, or ``async for`` where ``rows`` allows it. Outside of a job nothing is reported.

    Args:
        rows: anything that can be looped over.
        total: how many rows there are, 0 to 10¹⁸. None: in a plain loop ``len(rows)``, where they have a length;
            otherwise not known.
        message: of 500 characters at most.

    Raises:
        InvalidOption: as ``set_progress``, when the first row is done.
    """
    return Tracked(rows, total, message)


class Tracked(Generic[T]):
    """Rows whose progress is reported while they are looped over; made by ``track``."""

    def __init__(self, rows: Any, total: float | None, message: str) -> None:
        self._rows = rows
        self._total = total
        self._message = message

    def __iter__(self) -> Iterator[T]:
        current, total = _current.get(), self._total
        if total is None and isinstance(self._rows, Sized):
            total = len(self._rows)
        for done, row in enumerate(self._rows, 1):
            yield row
            if current is not None:
                current.set_progress(done, total, self._message)

    async def __aiter__(self) -> AsyncIterator[T]:
        current, done = _current.get(), 0
        async for row in self._rows:
            yield row
            done += 1
            if current is not None:
                current.set_progress(done, self._total, self._message)


# Writing progress and metadata


def send_updates(database: QueueConnection, runs: Sequence[CurrentJob]) -> PendingResult:
    """Send the news of these runs in the transaction that is open on ``database``; the answer has the ids written."""
    return database.send(statement("write_progress"), _parameters(runs))


def write_alone(database: Database, current: CurrentJob) -> None:
    """Write the last report of a run in the transaction that removes its job, so that the archived row has it."""
    if not current.has_told:
        return
    parameters = _parameters([current])
    for _ in range(TRIES):
        if database.rows(statement("write_progress"), parameters):
            return
        time.sleep(PAUSE_SECONDS)


def _parameters(runs: Sequence[CurrentJob]) -> dict[str, Any]:
    news = [current.news() for current in runs]
    return fence(runs) | {
        "progress": [update.progress for update in news],
        "metadata": [update.metadata for update in news],
    }
