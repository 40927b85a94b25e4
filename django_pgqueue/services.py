"""Background services: bounded passes that a thread repeats, each with its interval, and one rule for errors."""

import contextlib
import contextvars
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple, Self

from django.db import Error

from django_pgqueue.db.errors import is_of_one_statement, is_too_much, is_too_slow, is_transient, one_line
from django_pgqueue.retry_policy import reconnect_delay

logger = logging.getLogger("django_pgqueue.worker")

LONGEST_SLEEP_SECONDS = 1.0

EARLY_SHARE = 0.1
EARLY_SECONDS = 0.5
"""Maximum time, and share of its pause, by which a service runs early, in a pass that is made for another one."""

SPELL_SECONDS = 0.25
"""Maximum time that one service takes of a pass, but for the slice under way: the other services wait meanwhile."""

LOCKED_SECONDS = 0.2  # pause where due work is locked: another worker is at it, or staff edit it

LARGEST_SLICE = 1000

LOOK_SHARE = 20
"""Minimum interval between looks, as a multiple of their own duration, where an old snapshot makes them slow."""


def repeat_slices(do_slice: Callable[[], bool]) -> float:
    """Do slices of due work until there is none or ``SPELL_SECONDS`` are over.

    Returns:
        The seconds until the service goes on: 0, in the next pass, after all others; or a pause where nothing that is
        due could be taken.
    """
    until = time.monotonic() + SPELL_SECONDS
    if not do_slice():
        return LOCKED_SECONDS
    while time.monotonic() < until and do_slice():
        pass
    return 0.0


class AdaptiveBatch:
    """The rows that a pass takes at once: half as many after one that took too long, more again after it did not."""

    def __init__(self) -> None:
        self.size = LARGEST_SLICE

    @contextlib.contextmanager
    def taken(self) -> Iterator[int]:
        """Take a slice of the size that is yielded; learn from how it goes."""
        try:
            yield self.size
        except Error as error:
            if is_too_much(error):
                self.size = max(self.size // 2, 1)
            raise
        self.size = min(self.size * 2, LARGEST_SLICE)


@dataclass(frozen=True)
class Service:
    """A bounded piece of work that is repeated; ``Services`` knows when each is due.

    Args:
        name: in the log, and as a label of metrics.
        run: does the due work, for a spell at most; returns the seconds until it is due again, 0 if there is more to
            do, None for its interval.
        when: whether there is anything to do at all; cheap, because it is called in each pass.
        every: interval in seconds; 0: it is run in each pass, and the seconds that it returns limit the pause before.
        share: minimum interval, as a multiple of its own duration; see ``LOOK_SHARE``.
    """

    name: str
    run: Callable[[], float | None]
    _: KW_ONLY
    when: Callable[[], bool] = lambda: True
    every: float = 0.0
    share: float = 0.0


class Turn(NamedTuple):
    """When a service is due again."""

    due_at: float  # monotonic
    early_seconds: float

    @classmethod
    def after(cls, pause: float) -> Self:
        return cls(time.monotonic() + pause, min(EARLY_SHARE * pause, EARLY_SECONDS))

    def may_begin(self) -> bool:
        return self.seconds_left() <= self.early_seconds

    def seconds_left(self) -> float:
        return max(self.due_at - time.monotonic(), 0.0)


class Services:
    """Runs services in turn, in one thread. One that fails is tried again and does not keep the others from running.

    Each is due at the start. One that fails is due again after a second, later if it took long, but within its
    interval. One that has nothing to do keeps its due time, and one that has more to do than fits into a pass is run
    again in the next one, which begins at once.

    Attributes:
        done_at: when each was last done without an error, had nothing to do or was not due, monotonic; of one that has
            failed it stays until a run without an error.
        doing: the name of the one that is under way, or was the last.
    """

    def __init__(self, *services: Service) -> None:
        self.done_at: dict[str, float] = {}
        self._services = services
        self._turns: dict[str, Turn] = {}  # those that are not in it are due
        self.doing = ""
        self._begun_at = math.inf  # the one that is under way, monotonic
        self._complaints: dict[str, str] = {}  # the last log line of each service that fails
        self._is_stopping = False

    def stop(self) -> None:
        """End the pass after the service that is under way, and do none in any other; may be called from any thread."""
        self._is_stopping = True

    def reschedule(self, name: str, seconds: float) -> None:
        """Let a service be due in some seconds, 0 for the next pass; may be called from any thread.

        If the service is under way, this overrides its own result.

        Raises:
            KeyError: there is no such service with an interval.
        """
        if not any(service.every for service in self._services if service.name == name):
            raise KeyError(name)
        self._turns[name] = Turn.after(seconds)

    def pass_once(self) -> float:
        """Run those that are due; return the seconds until the next pass, a second at most.

        Raises:
            Exception: a transient one: where the database is away, all wait together. A statement that took too long,
                or needs more locks than there are, is the trouble of that service alone.
        """
        try:
            delays = [self._guarded(service) for service in self._services if not self._is_stopping]
        finally:
            self._begun_at = math.inf
        return max(min([*delays, LONGEST_SLEEP_SECONDS]), 0.0)

    def doing_seconds(self) -> float:
        """Return for how long the service that is under way has been so; 0 between passes. From any thread."""
        return max(time.monotonic() - self._begun_at, 0.0)

    def _guarded(self, service: Service) -> float:
        """Return the seconds until the next pass, as far as this service knows."""
        self.doing, self._begun_at = service.name, time.monotonic()
        try:
            if not service.when():
                delay = LONGEST_SLEEP_SECONDS
            elif (turn := self._turns.get(service.name)) is None or turn.may_begin():
                delay = self._run(service)
            else:
                delay = turn.seconds_left()
                if service.name in self._complaints:  # it has failed, and has not run since
                    return delay
        except Exception as error:
            if is_transient(error) and not is_of_one_statement(error):
                raise
            self._complain(service.name, error)
            return self._put_off(service)
        self._complaints.pop(service.name, None)
        self.done_at[service.name] = time.monotonic()
        return delay

    def _run(self, service: Service) -> float:
        begun = time.monotonic()
        self._turns.pop(service.name, None)
        pause = service.run()
        if not service.every:
            return LONGEST_SLEEP_SECONDS if pause is None else pause
        pause = service.every if pause is None else pause
        if pause > 0:
            pause = max(pause, service.share * (time.monotonic() - begun))
        return self._turns.setdefault(service.name, Turn.after(pause)).seconds_left()  # unless rescheduled meanwhile

    def _put_off(self, service: Service) -> float:
        """Let one that has failed wait: what takes long to fail waits long, but never longer than its interval."""
        if not service.every:
            return LONGEST_SLEEP_SECONDS
        pause = min(max(LONGEST_SLEEP_SECONDS, LOOK_SHARE * self.doing_seconds()), service.every)
        return self._turns.setdefault(service.name, Turn.after(pause)).seconds_left()  # unless it rescheduled itself

    def _complain(self, name: str, error: Exception) -> None:
        is_new = self._complaints.get(name) != str(error)
        self._complaints[name] = str(error)
        if is_new and is_too_slow(error):  # as behind a lock: no error of this package
            logger.warning(
                "The service %s took too long; will retry, repeats are not logged: %s", name, one_line(error)
            )
        elif is_new:
            logger.error("The service %s failed; will retry, repeats are not logged", name, exc_info=error)


class ServiceRunner(threading.Thread):
    """The thread that calls ``pass_once`` again and again.

    Args:
        service: what the thread is for, for its name and the log.
        pass_once: one bounded pass; returns the seconds until the next one.
        longest_pause: between a pass that has failed and the next, in seconds.
        stop: called when the loop is to end, from another thread, so that the pass under way ends soon.

    Attributes:
        failures: how many passes in a row have failed.
        done_at: when the last pass ended well, monotonic; None: none has.
    """

    def __init__(
        self,
        service: str,
        pass_once: Callable[[], float],
        *,
        longest_pause: float = math.inf,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name=f"pgqueue-{service}", daemon=True)
        self.service = service
        self._pass_once = pass_once
        self._longest_pause = longest_pause
        self._stop_pass = stop
        self.failures = 0
        self.done_at: float | None = None
        self._reason = ""  # of the last failure
        self._due_at = time.monotonic()  # the next pass, or the one that is under way
        self._woken = threading.Event()
        self._stopping = False
        self._context = contextvars.copy_context()

    def run(self) -> None:
        self._context.run(self._loop)

    def _loop(self) -> None:
        while not self._stopping:
            delay = self._guarded_pass()
            self._due_at = time.monotonic() + delay
            self._woken.wait(delay)
            self._woken.clear()

    def wake(self) -> None:
        self._woken.set()

    def stop(self) -> None:
        self._stopping = True
        self._woken.set()
        self._stop_pass()

    def pass_seconds(self) -> float:
        """Return for how long a pass has been under way, or should have been; 0 while the loop sleeps."""
        return max(time.monotonic() - self._due_at, 0.0)

    def _guarded_pass(self) -> float:
        try:
            delay = self._pass_once()
        except Exception as error:  # noqa: BLE001 - a service must survive all errors of a pass
            self.failures += 1
            self._complain(error)
            return min(reconnect_delay(self.failures), self._longest_pause)
        if self.failures:
            logger.warning("The %s works again after %d failures", self.service, self.failures)
            self.failures = 0
        self.done_at = time.monotonic()
        return delay

    def _complain(self, error: Exception) -> None:
        reason = one_line(error)
        if self.failures % 10 == 1 or reason != self._reason:
            unexpected = None if is_transient(error) else error
            logger.warning(
                "The %s failed and is tried again (failure %d): %s",
                self.service,
                self.failures,
                reason,
                exc_info=unexpected,
            )
        self._reason = reason
