"""Handle of a job, returned by ``enqueue()`` or made of its id: its state, its result, actions on it."""

import asyncio
import datetime as dt
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, overload

from asgiref.sync import sync_to_async
from django.db import connections
from django.utils.asyncio import async_unsafe

from django_pgqueue import registry
from django_pgqueue.conf import conf
from django_pgqueue.db.connections import CallerConnection, has_transaction
from django_pgqueue.exceptions import (
    OF_REASON,
    InvalidOption,
    JobDied,
    JobDoesNotExist,
    JobNotCommitted,
    JobNotFinished,
    ResultNotKept,
)
from django_pgqueue.jobs.dead_letter import retry
from django_pgqueue.jobs.lookup import JobState, find, find_holder
from django_pgqueue.jobs.manage import kill
from django_pgqueue.jobs.redaction import scrub_json, scrubber
from django_pgqueue.jobs.unique import InsertResult
from django_pgqueue.jobs.waiter import waiter_for
from django_pgqueue.outbox.writing import Origin
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.states import DEAD, LONGEST_KEY, JobStatus
from django_pgqueue.validation import By, check_name, number_of, seconds_of

R_co = TypeVar("R_co", covariant=True)

SLICE_SECONDS = 0.5  # maximum wait outside of Python code: an interruption of the job is raised only there


@dataclass(frozen=True, slots=True)
class JobHandle(Generic[R_co]):
    """A job that was enqueued, or whose id is known; two are equal if id and database are.

    For type checkers it knows what the task returns. At run time that is what JSON makes of it: a tuple is a list.

    Attributes:
        id: its id for life, whichever table it is in.
        task: the task's name; "" where only the id is known. Of a call that met its conflicting job, that of the call;
            ``state()`` has that of the job.
        queue: the queue it was put on; "" where only the id is known. The same holds.
        database: the alias it was put on.
        created: whether it is a new job; False: the one that had the unique key already, or only the id is known.
    """

    id: int
    task: str = field(compare=False)
    queue: str = field(compare=False)
    database: str
    created: bool = field(default=True, compare=False)

    def state(self) -> JobState:
        """Return the table of the job and its data, as the caller's connection sees them, by one query.

        Raises:
            JobDoesNotExist: it was never committed, or nothing is kept of it any more.
        """
        return find(CallerConnection(self.database), self.id)

    async def astate(self) -> JobState:
        """Do what ``state`` does from async code."""
        return await sync_to_async(self.state, thread_sensitive=True)()

    def status(self) -> JobStatus:
        """Return the status of the job, by one query.

        Raises:
            JobDoesNotExist: as ``state``.
        """
        return self.state().status

    async def astatus(self) -> JobStatus:
        """Do what ``status`` does from async code."""
        return (await self.astate()).status

    def result(self, timeout: float | dt.timedelta | None = None) -> R_co:
        """Return what the job's task returned; with a timeout, wait until the job has ended.

        Without a timeout it is one query. Waiting takes a connection of this process's own, in any transaction of
        the caller; but while that is open, its locks are held. The process listens while a caller waits,
        so that a job's end is known within milliseconds; where that cannot be, it polls every
        ``PGQUEUE["POLL_SECONDS"]``. Inside a job waiting keeps a slot busy: where no other is free for the job waited
        for, it ends with the timeout.

        Args:
            timeout: seconds above 0, or a timedelta. None: do not wait.

        Raises:
            JobNotFinished: it has not ended yet, and there is no timeout.
            TimeoutError: it has not ended by then. It goes on.
            JobNotCommitted: it was enqueued in the transaction that the caller is in, before whose commit none starts,
                and has not been run there by ``run_jobs()``, in a test.
            JobDied: it is dead: JobFailed, JobWasKilled, JobExpired, JobLost or JobSuperseded.
            ResultNotKept: it has succeeded, and its result is not there.
            JobDoesNotExist: it was never committed, or nothing is kept of it any more.
            InvalidOption: the timeout is not above 0.
        """
        returned: R_co = result_of(self.state() if timeout is None else self._ended(seconds_to_wait(timeout)))
        return returned

    async def aresult(self, timeout: float | dt.timedelta | None = None) -> R_co:  # noqa: ASYNC109 - as result()
        """Do what ``result`` does from async code; waiting keeps no thread busy."""
        returned: R_co = result_of(await (self.astate() if timeout is None else self._aended(seconds_to_wait(timeout))))
        return returned

    def kill(self, *, by: By = "") -> bool:
        """Kill the job, as ``jobs.kill`` does.

        Args:
            by: user who does it, or the username.

        Returns:
            Whether it is dead now, or runs and was asked to stop. False: it was over, or another transaction has locked
            it.
        """
        killed = kill([self.id], by=by, database=self.database)
        return bool(killed.dead or killed.requested)

    def retry(self, *, by: By = "") -> bool:
        """Send the job back to be run, as ``jobs.retry`` does.

        Args:
            by: user who does it, or the username.

        Returns:
            Whether it will run again. False: it was not dead, a live job has its unique key, or another transaction
            has locked it.
        """
        return bool(retry([self.id], by=by, database=self.database).ids)

    @async_unsafe("result() would block the event loop. Use aresult().")
    def _ended(self, seconds: float) -> JobState:
        deadline = time.monotonic() + seconds
        waiter = waiter_for(self.database, self.id)
        try:
            while (left := deadline - time.monotonic()) > 0:
                try:
                    return waiter.result(min(left, SLICE_SECONDS))
                except TimeoutError:
                    continue
                except JobDoesNotExist:
                    if (state := ended_for_the_caller(self)) is not None:
                        return state
                    waiter = waiter_for(self.database, self.id, pause=conf.poll_seconds)
        finally:
            waiter.cancel()
        raise self._too_late(seconds, waiter.status)

    async def _aended(self, seconds: float) -> JobState:
        deadline = time.monotonic() + seconds
        waiter = waiter_for(self.database, self.id)
        try:
            while True:
                try:
                    return await asyncio.wait_for(asyncio.wrap_future(waiter), deadline - time.monotonic())
                except TimeoutError:
                    raise self._too_late(seconds, waiter.status) from None
                except JobDoesNotExist:
                    state = await sync_to_async(ended_for_the_caller, thread_sensitive=True)(self)
                    if state is not None:
                        return state
                    waiter = waiter_for(self.database, self.id, pause=conf.poll_seconds)
        finally:
            waiter.cancel()

    def _too_late(self, seconds: float, status: str) -> TimeoutError:
        return TimeoutError(f"Job {self.id} has not ended within {seconds:g} s. When last looked at it was {status}.")


class JobHandles(Sequence[JobHandle[R_co]]):
    """The handles of jobs that were enqueued together, in the order of the calls; equal to a list of the same.

    Each is made when it is asked for: most callers of a bulk insert do not look at them.
    """

    def __init__(self, inserted: InsertResult, tasks: Sequence[TaskDefinition]) -> None:
        """Take over the result of an insert. ``tasks``: of each job."""
        self._inserted = inserted
        self._tasks = tasks
        self._places = {task: (task.name, task.options.queue, task.database) for task in set(tasks)}

    def __len__(self) -> int:
        return len(self._inserted.ids)

    @overload
    def __getitem__(self, position: int) -> JobHandle[R_co]: ...
    @overload
    def __getitem__(self, position: slice) -> list[JobHandle[R_co]]: ...
    def __getitem__(self, position: int | slice) -> JobHandle[R_co] | list[JobHandle[R_co]]:
        if isinstance(position, slice):
            return list(map(self._handle, range(len(self))[position]))
        return self._handle(range(len(self))[position])

    def __iter__(self) -> Iterator[JobHandle[R_co]]:
        return map(self._handle, range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as of lists

    def __repr__(self) -> str:
        return repr(list(self))

    def _handle(self, position: int) -> JobHandle[R_co]:
        place = self._places[self._tasks[position]]
        return JobHandle(self._inserted.ids[position], *place, self._inserted.created[position])


def get(
    job_id: int | str | None = None, *, unique_key: str | None = None, database: str | None = None
) -> JobHandle[Any]:
    """Return the handle of the job with this id, or of the live one that holds a unique key.

    By its id it sends no query, so there may be no such job. By the key it is one query; a job that has succeeded
    holds its key for ``hold``. For a key that a task computes see ``Call.find``.

    Args:
        job_id: a whole number, or the text of one, such as the id of a ``TaskResult``.
        unique_key: in place of the id; as ``using(unique_key=…)`` has given it.
        database: the alias it was put on. None: the one that its id names; without shards, and for a key, that of
            the running job, else ``PGQUEUE["DATABASE"]``.

    Raises:
        InvalidOption: the id is no whole number, or both id and key are given.
        JobDoesNotExist: no job holds the key, or the id begins with the number of no database.
    """
    if unique_key is not None:
        if job_id is not None:
            raise InvalidOption("A job is found by its id or by its unique key: give one of them.")
        if (handle := holder_of(unique_key, database)) is None:
            raise JobDoesNotExist(f"No live job holds the unique key {unique_key!r}.")
        return handle
    if (number := number_of(job_id)) is None:
        raise InvalidOption(f"The id of a job is a whole number, not {job_id!r}.")
    return JobHandle(number, "", "", database or conf.database_of(number), created=False)


async def aget(
    job_id: int | str | None = None, *, unique_key: str | None = None, database: str | None = None
) -> JobHandle[Any]:
    """Do what ``get`` does from async code."""
    return await sync_to_async(get, thread_sensitive=True)(job_id, unique_key=unique_key, database=database)


def holder_of(unique_key: str, database: str | None) -> JobHandle[Any] | None:
    """Return the handle of the live job that holds a unique key; None: there is none."""
    check_name("unique_key", unique_key, LONGEST_KEY)
    caller = CallerConnection(database)
    holder = find_holder(caller, unique_key)
    return holder and JobHandle(holder.id, holder.task, holder.queue, caller.alias, created=False)


def ended_for_the_caller(handle: JobHandle[Any]) -> JobState | None:
    """Return a job that a waiter has not found; None: wait again, it is committed, or comes by an outbox.

    In a test it may have ended in the transaction that enqueued it.
    """
    state = handle.state()
    if state.is_finished:
        return state
    origin = Origin.of(handle.id) if conf.outboxes else None
    if origin and origin.alias:  # whose calls go into the outbox only inside atomic()
        alias, is_open = origin.alias, connections[origin.alias].in_atomic_block
    else:
        alias, is_open = handle.database, has_transaction(connections[handle.database])
    if not is_open:
        return None
    raise JobNotCommitted(
        f"Job {handle.id} was enqueued in the transaction that is still open on {alias!r}: it cannot start "
        "before the commit, for which this would wait forever. Wait after the transaction; in a TestCase run it by "
        "run_jobs() first."
    )


def result_of(state: JobState) -> Any:
    """Return the result of a job, or raise what says why there is none."""
    if not state.is_finished:
        raise JobNotFinished(f"Job {state.id} ({state.task}) has not ended yet: it is {state.status}.", state.status)
    if state.status == DEAD:
        raise _death(state)
    if not state.keeps_result:
        raise ResultNotKept(
            f"Job {state.id} ({state.task}) has succeeded, and its result is not kept: it is not JSON or too large, as "
            "the worker's log says, or its task has keep_result=False."
        )
    return state.result


def _death(state: JobState) -> JobDied:
    last = state.errors[-1] if isinstance(state.errors, list) and state.errors else {}
    error = last if isinstance(last, dict) else {}
    told = ": ".join(str(error[key]) for key in ("error", "message") if error.get(key))
    scrub = scrubber(registry.find(state.task), state.args, state.kwargs)
    message = f"Job {state.id} ({state.task}) is dead, {state.reason} after attempt {state.attempts}: {scrub(told)}"
    return OF_REASON.get(state.reason or "", JobDied)(message, state.reason or "", scrub_json(error, scrub))


def seconds_to_wait(timeout: float | dt.timedelta) -> float:
    """Return a timeout in seconds; raise InvalidOption unless it is above 0."""
    seconds = seconds_of(timeout)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise InvalidOption(f"The timeout is a number of seconds above 0, or a timedelta, not {timeout!r}.")
    return float(seconds)
