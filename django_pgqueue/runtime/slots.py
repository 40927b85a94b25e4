"""Where user code runs: threads for plain tasks, lanes of one event loop for ``async def``.

A slot takes a job from the inbox, runs it, and puts the outcome into the outbox. It writes nothing to the database.
"""

import asyncio
import contextlib
import contextvars
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async

from django_pgqueue import tasks
from django_pgqueue.base.records import ClaimedJob, Ended, Fate, Outcome
from django_pgqueue.lifecycle.context import CurrentJob
from django_pgqueue.lifecycle.run import arun, failure, run, unknown_task
from django_pgqueue.runtime.marks import Marks
from django_pgqueue.runtime.tidy import check_connections, is_tidy, opened, own_caches, tidy

logger = logging.getLogger("django_pgqueue.worker")

Work = tuple[int, ClaimedJob, "tasks.Task[..., Any]"]

IDLE_SECONDS = 5.0
"""A slot that has been idle for longer looks whether its connections still work before it runs user code on them."""


class Slots:
    """All slots of one child.

    Args:
        concurrency: how many plain tasks run at once in threads, and how many ``async def`` tasks in the event loop.
        marks: where a job is marked as started.
        outbox: where outcomes go.
    """

    def __init__(self, concurrency: int, marks: Marks, outbox: "queue.SimpleQueue[Ended | None]") -> None:
        self.concurrency = concurrency
        self.outbox = outbox
        self._running: dict[int, CurrentJob] = {}  # by cell
        self._marks = marks
        self._inbox: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._threads = 0
        self._lanes = Lanes(self)

    def accept(self, cell: int, job: ClaimedJob) -> None:
        """Hand a claimed job over; at once an outcome if its task is unknown."""
        task = tasks.find(job.task)
        if task is None:
            self.outbox.put((cell, unknown_task(job)))
        elif task.is_async:
            self._lanes.accept((cell, job, task))
        else:
            self._inbox.put((cell, job, task))
            if self._threads < self.concurrency:
                self._threads += 1
                threading.Thread(target=self._work, name=f"pgqueue-slot-{self._threads}", daemon=True).start()

    def waiting(self) -> int:
        """Return how many jobs no slot has begun."""
        return self._inbox.qsize() + self._lanes.waiting()

    def withdraw(self) -> list[tuple[int, ClaimedJob]]:
        """Take back all jobs that no slot has begun, with their cells."""
        unrun = self._lanes.withdraw()
        try:
            while True:
                unrun.append(self._inbox.get_nowait())
        except queue.Empty:
            return [(cell, job) for cell, job, _ in unrun]

    def cancel(self, job_id: int) -> None:
        """Ask a running job to stop, once: cancel an async one, tell a sync one."""
        for cell, current in list(self._running.items()):
            if current.id == job_id and not current.is_cancelled:
                current.is_cancelled = True
                self._lanes.cancel(cell)

    def begin(self, cell: int, job: ClaimedJob) -> CurrentJob | None:
        """Mark a job as started, unless the process's lease has passed meanwhile: then it goes back unrun."""
        if not self._marks.may_start():
            self.outbox.put((cell, Outcome(job, Fate.RELEASED)))
            return None
        self._marks.start(cell)
        current = self._running[cell] = CurrentJob(job)
        return current

    def end(self, cell: int, outcome: Outcome) -> None:
        del self._running[cell]
        self.outbox.put((cell, outcome))

    def _work(self) -> None:
        ended, caches = time.monotonic(), own_caches()
        while True:
            cell, job, task = self._inbox.get()
            current = self.begin(cell, job)
            if current is None:
                continue
            if time.monotonic() - ended > IDLE_SECONDS:
                check_connections()
            try:
                outcome = run(task, job, current)
            except BaseException as error:  # noqa: BLE001 - a slot must outlive whatever a job brings
                outcome = failure(task, job, error, current)
            tidy(caches)
            ended = time.monotonic()
            self.end(cell, outcome)


class Lanes:
    """The event loop's slots: as many at once as there are threads. Each job is an asyncio task of its own.

    A lane lends its jobs one thread for the sync code that ``async def`` tasks call. Lanes do not share theirs: the
    ORM's async methods run there, and would wait for each other.
    """

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._pending: deque[Work] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._free: list[Lane] = []
        self._opened = 0
        self._tasks: dict[int, asyncio.Task[None]] = {}  # by cell
        self._calling: set[int] = set()  # the cells whose tasks are in user code: only there they may be cancelled
        self._is_called = False  # the loop has been told that there is something pending, and has not looked yet

    def accept(self, work: Work) -> None:
        loop = self._loop or self._start()
        self._pending.append(work)
        if not self._is_called:
            self._is_called = True
            loop.call_soon_threadsafe(self._arrive)

    def waiting(self) -> int:
        return len(self._pending)

    def withdraw(self) -> list[Work]:
        works: list[Work] = []
        try:
            while True:
                works.append(self._pending.popleft())
        except IndexError:
            return works

    def cancel(self, cell: int) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel, cell)

    def _cancel(self, cell: int) -> None:
        if cell in self._calling:
            self._tasks[cell].cancel()

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._serve, args=(loop,), name="pgqueue-event-loop", daemon=True).start()
        return loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the loop for ever; SystemExit in some task of a job ends it, and must not end the others."""
        while True:
            try:
                loop.run_forever()
            except BaseException:
                logger.exception("A job has stopped the event loop; it goes on")

    def _arrive(self) -> None:
        """Fill free lanes, and open new ones, for all that has arrived; called once for many."""
        self._is_called = False  # before looking: what arrives from here on calls again
        while self._pending and (lane := self._free_lane()):
            self._fill(lane)

    def _free_lane(self) -> "Lane | None":
        if self._free:
            return self._free.pop()
        if self._opened >= self._slots.concurrency:
            return None
        self._opened += 1
        return Lane()

    def _fill(self, lane: "Lane") -> None:
        """Start the next job in a lane; without one it is free."""
        try:
            cell, job, task = self._pending.popleft()
        except IndexError:  # none, or the pump has withdrawn it
            self._free.append(lane)
        else:
            coroutine = self._run(lane, cell, job, task)
            self._tasks[cell] = asyncio.get_running_loop().create_task(coroutine, context=lane.context.copy())

    async def _run(self, lane: "Lane", cell: int, job: ClaimedJob, task: "tasks.Task[..., Any]") -> None:
        """Run one job, which may be cancelled; then tidy up, which may not; then go on with the next."""
        try:
            if current := self._slots.begin(cell, job):
                if lane.is_stale():
                    await lane.call(check_connections)
                outcome = await self._outcome(cell, job, task, current)
                if not await lane.is_tidy():
                    await lane.call(tidy)
                self._slots.end(cell, outcome)
        finally:
            del self._tasks[cell]
            self._fill(lane)

    async def _outcome(self, cell: int, job: ClaimedJob, task: "tasks.Task[..., Any]", current: CurrentJob) -> Outcome:
        self._calling.add(cell)
        try:
            if current.is_cancelled:  # before it was in user code
                raise asyncio.CancelledError  # noqa: TRY301 - as if it had been
            return await arun(task, job, current)
        except BaseException as error:  # noqa: BLE001 - a lane must outlive whatever a job brings
            return failure(task, job, error, current)
        finally:
            self._calling.remove(cell)


class Lane:
    """One place in the event loop, with a context and a thread for sync code of its own."""

    def __init__(self) -> None:
        self.context = contextvars.copy_context()
        self._sensitive = ThreadSensitiveContext()
        self.context.run(SyncToAsync.thread_sensitive_context.set, self._sensitive)  # as entering it does
        self.context.run(own_caches)
        self._connections: list[Any] | None = None  # those of its thread, once it has one
        self._ended = time.monotonic()

    def is_stale(self) -> bool:
        """Whether the lane has been idle for so long that its connections may have died."""
        return bool(self._connections) and time.monotonic() - self._ended > IDLE_SECONDS

    async def is_tidy(self) -> bool:
        """Whether the last job has left nothing behind; asks the lane's thread only once, because that takes long."""
        if self._sensitive not in SyncToAsync.context_to_thread_executor:
            return True
        if self._connections is None:
            await self.call(self._meet)
        self._ended = time.monotonic()
        return all(is_tidy(connection) for connection in self._connections or ())

    async def call(self, function: Callable[[], None]) -> None:
        """Call what is ours in the lane's thread, in a task that no cancel left behind by user code can reach."""
        calling = asyncio.ensure_future(sync_to_async(function)())
        while not calling.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([calling])
        if error := calling.exception():
            logger.error("A lane of the event loop cannot be tidied up", exc_info=error)

    def _meet(self) -> None:
        self._connections = opened()
