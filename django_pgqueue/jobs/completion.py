"""Wait for many jobs at once: ``wait_all``, ``as_completed``. All share the thread of ``waiter.py``."""

import asyncio
import datetime as dt
import functools
import queue
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, overload

from asgiref.sync import sync_to_async
from django.utils.asyncio import async_unsafe

from django_pgqueue.conf import conf
from django_pgqueue.exceptions import JobDoesNotExist, NoResult
from django_pgqueue.jobs.handle import SLICE_SECONDS, JobHandle, ended_for_the_caller, result_of, seconds_to_wait
from django_pgqueue.jobs.lookup import JobState
from django_pgqueue.jobs.waiter import Waiter, waiter_for

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

Timeout = float | dt.timedelta


@dataclass(frozen=True, slots=True)
class EndedJob(Generic[R_co]):
    """A job that has ended, as ``as_completed`` returns it.

    Attributes:
        handle: the handle that was waited for.
        state: the state of the job when it ended, either way.
    """

    handle: JobHandle[R_co]
    state: JobState

    def result(self) -> R_co:
        """Return what the task returned, without a query.

        Raises:
            JobDied: it is dead: JobFailed, JobWasKilled, JobExpired, JobLost or JobSuperseded.
            ResultNotKept: it has succeeded, and its result is not there.
        """
        returned: R_co = result_of(self.state)
        return returned


def as_completed(handles: Iterable[JobHandle[R]], timeout: Timeout) -> "Completion[R]":
    """Loop over jobs in the order in which they end, retries included: by ``for``, or by ``async for``.

    Waits as ``JobHandle.result`` does, for all at once: one connection listens, and one statement looks at up to 500.
    Leaving the loop early ends the wait; the jobs go on.

    Args:
        handles: of jobs on any databases. A handle that is there twice is returned twice.
        timeout: seconds above 0, or a timedelta, for the whole loop, from its first step.

    Raises:
        TimeoutError: some have not ended by then.
        JobNotCommitted: one was enqueued in the transaction that the caller is in.
        JobDoesNotExist: one was never committed, or nothing is kept of it any more.
        InvalidOption: the timeout is not above 0.
    """
    return Completion(list(handles), seconds_to_wait(timeout))


@overload
def wait_all(
    handles: Iterable[JobHandle[R]], timeout: Timeout, *, return_exceptions: Literal[False] = False
) -> list[R]: ...
@overload
def wait_all(
    handles: Iterable[JobHandle[R]], timeout: Timeout, *, return_exceptions: Literal[True]
) -> list[R | NoResult]: ...
def wait_all(handles: Iterable[JobHandle[Any]], timeout: Timeout, *, return_exceptions: bool = False) -> list[Any]:
    """Wait until all jobs have ended; return their results in the order of the handles.

    Args:
        handles: as ``as_completed``.
        timeout: seconds above 0, or a timedelta, for all together.
        return_exceptions: put the exception of a job that has no result in its place, in place of raising the first.

    Raises:
        TimeoutError: some have not ended by then. They go on.
        JobDied, ResultNotKept, JobDoesNotExist: one has no result; the first in the order of the handles, once all
            have ended.
        JobNotCommitted, InvalidOption: as ``as_completed``.
    """
    completion = as_completed(handles, timeout)
    return _results(completion.by_place(), return_exceptions=return_exceptions)


@overload
async def await_all(
    handles: Iterable[JobHandle[R]],
    timeout: Timeout,  # noqa: ASYNC109 - as wait_all()
    *,
    return_exceptions: Literal[False] = False,
) -> list[R]: ...
@overload
async def await_all(
    handles: Iterable[JobHandle[R]],
    timeout: Timeout,  # noqa: ASYNC109 - the same
    *,
    return_exceptions: Literal[True],
) -> list[R | NoResult]: ...
async def await_all(
    handles: Iterable[JobHandle[Any]],
    timeout: Timeout,  # noqa: ASYNC109 - the same
    *,
    return_exceptions: bool = False,
) -> list[Any]:
    """Do what ``wait_all`` does from async code; waiting keeps no thread busy."""
    completion = as_completed(handles, timeout)
    return _results(await completion.aby_place(), return_exceptions=return_exceptions)


def _results(ended: Sequence[EndedJob[Any] | JobDoesNotExist], *, return_exceptions: bool) -> list[Any]:
    results: list[Any] = []
    for one in ended:
        try:
            results.append(_raised(one).result())
        except NoResult as error:
            if not return_exceptions:
                raise
            results.append(error)
    return results


def _raised(ended: EndedJob[R] | JobDoesNotExist) -> EndedJob[R]:
    """Return a job that has ended; raise that there is none."""
    if isinstance(ended, JobDoesNotExist):
        raise ended
    return ended


class Completion(Generic[R]):
    """Jobs in the order in which they end; made by ``as_completed``."""

    def __init__(self, handles: Sequence[JobHandle[R]], seconds: float) -> None:
        self._handles = handles
        self._seconds = seconds

    @async_unsafe("as_completed() would block the event loop. Loop by async for, or use await_all().")
    def __iter__(self) -> Iterator[EndedJob[R]]:
        return (_raised(ended) for _, ended in self._loop())

    async def __aiter__(self) -> AsyncIterator[EndedJob[R]]:
        async for _, ended in self._aloop():
            yield _raised(ended)

    @async_unsafe("wait_all() would block the event loop. Use await_all().")
    def by_place(self) -> list[EndedJob[R] | JobDoesNotExist]:
        """Wait for all; return them in the order of the handles, an error in place of each that is not there."""
        return _in_order(dict(self._loop()))

    async def aby_place(self) -> list[EndedJob[R] | JobDoesNotExist]:
        """Do what ``by_place`` does from async code."""
        return _in_order({place: ended async for place, ended in self._aloop()})

    def _loop(self) -> Iterator[tuple[int, EndedJob[R] | JobDoesNotExist]]:
        done: queue.SimpleQueue[int] = queue.SimpleQueue()
        deadline = time.monotonic() + self._seconds
        waiters = self._waiters(done.put)
        number = 0
        again: set[int] = set()  # places that were looked at, and are waited for once more
        try:
            while number < len(waiters):
                place = _next_of(done, deadline)
                if place is None:
                    raise self._too_late(number, waiters)
                if place in again and time.monotonic() > deadline:
                    continue
                if (ended := self._ended(place, waiters[place])) is None:
                    again.add(place)
                    waiters[place] = self._wait_again(place, done.put)
                    continue
                number += 1
                yield place, ended
        finally:
            _forget(waiters)

    async def _aloop(self) -> AsyncIterator[tuple[int, EndedJob[R] | JobDoesNotExist]]:
        loop, done = asyncio.get_running_loop(), asyncio.Queue[int]()
        deadline = time.monotonic() + self._seconds

        def tell(place: int) -> None:
            loop.call_soon_threadsafe(done.put_nowait, place)

        waiters = self._waiters(tell)
        number = 0
        again: set[int] = set()  # places that were looked at, and are waited for once more
        try:
            while number < len(waiters):
                place = await _anext_of(done, deadline)
                if place is None:
                    raise self._too_late(number, waiters)
                if place in again and time.monotonic() > deadline:
                    continue
                if (ended := await self._aended(place, waiters[place])) is None:
                    again.add(place)
                    waiters[place] = self._wait_again(place, tell)
                    continue
                number += 1
                yield place, ended
        finally:
            _forget(waiters)

    def _waiters(self, tell: Callable[[int], object]) -> list[Waiter]:
        """Begin to wait for all; ``tell`` is called with the place of each that has ended, from another thread."""
        waiters: list[Waiter] = []
        try:
            waiters.extend(waiter_for(handle.database, handle.id) for handle in self._handles)
        except BaseException:  # of the alias of one: the others are not waited for then
            _forget(waiters)
            raise
        for place, waiter in enumerate(waiters):
            waiter.add_done_callback(functools.partial(_at_end, tell, place))
        return waiters

    def _wait_again(self, place: int, tell: Callable[[int], object]) -> Waiter:
        handle = self._handles[place]
        waiter = waiter_for(handle.database, handle.id, pause=conf.poll_seconds)
        waiter.add_done_callback(functools.partial(_at_end, tell, place))
        return waiter

    def _ended(self, place: int, waiter: Waiter) -> EndedJob[R] | JobDoesNotExist | None:
        """Return the job that has ended, or that there is none; None: it is on its way, wait again."""
        handle = self._handles[place]
        try:
            return EndedJob(handle, waiter.result())
        except JobDoesNotExist:
            pass
        try:
            state = ended_for_the_caller(handle)
        except JobDoesNotExist as error:
            return error
        return None if state is None else EndedJob(handle, state)

    async def _aended(self, place: int, waiter: Waiter) -> EndedJob[R] | JobDoesNotExist | None:
        if waiter.exception() is None:
            return EndedJob(self._handles[place], waiter.result())
        return await sync_to_async(self._ended, thread_sensitive=True)(place, waiter)

    def _too_late(self, number: int, waiters: Sequence[Waiter]) -> TimeoutError:
        late = next((waiter for waiter in waiters if not waiter.done() or waiter.exception()), waiters[-1])
        return TimeoutError(
            f"{len(waiters) - number} of {len(waiters)} jobs have not ended within {self._seconds:g} s. The first, job "
            f"{late.job_id}, was {late.status} when last looked at."
        )


def _at_end(tell: Callable[[int], object], place: int, _waiter: Waiter) -> None:
    tell(place)


def _next_of(done: "queue.SimpleQueue[int]", deadline: float) -> int | None:
    """Return the place of the next one, which may have ended long ago; None: there is none by the deadline."""
    while True:
        left = deadline - time.monotonic()
        try:
            return done.get(timeout=min(max(left, 0.0), SLICE_SECONDS))
        except queue.Empty:
            if left <= 0:
                return None


async def _anext_of(done: "asyncio.Queue[int]", deadline: float) -> int | None:
    """Do the same from async code."""
    try:
        if (left := deadline - time.monotonic()) > 0:
            return await asyncio.wait_for(done.get(), left)
        await asyncio.sleep(0)  # those that have ended may be on their way to this loop
        return done.get_nowait()
    except (TimeoutError, asyncio.QueueEmpty):
        return None


def _in_order(by_place: dict[int, T]) -> list[T]:
    return [by_place[place] for place in range(len(by_place))]


def _forget(waiters: Iterable[Waiter]) -> None:
    for waiter in waiters:
        waiter.cancel()
