"""Where user code runs: threads for plain tasks, lanes of one event loop for ``async def``.

A slot takes a job from the inbox, runs it, and puts the outcome into the outbox. It writes nothing to the database.
"""

import asyncio
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
from django_pgqueue.base.records import ClaimedJob, Fate, Fence, Outcome
from django_pgqueue.lifecycle.context import CurrentJob
from django_pgqueue.lifecycle.run import arun, failure, run, unknown_task
from django_pgqueue.runtime.marks import Marks
from django_pgqueue.runtime.tidy import check_connections, own_caches, tidy

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

    def __init__(self, concurrency: int, marks: Marks, outbox: "queue.SimpleQueue[Any]") -> None:
        self.concurrency = concurrency
        self.running: dict[Fence, tuple[CurrentJob, asyncio.Task[Any] | None]] = {}
        self.outbox = outbox
        self._marks = marks
        self._inbox: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._threads = 0
        self._lanes = Lanes(self)

    def accept(self, cell: int, job: ClaimedJob) -> None:
        """Hand a claimed job over; at once an outcome if its task is unknown."""
        task = tasks.find(job.task)
        if task is None:
            self.outbox.put(unknown_task(job))
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

    def withdraw(self) -> list[ClaimedJob]:
        """Take back all jobs that no slot has begun."""
        unrun = [job for _, job, _ in self._lanes.withdraw()]
        try:
            while True:
                unrun.append(self._inbox.get_nowait()[1])
        except queue.Empty:
            return unrun

    def cancel(self, job_id: int) -> None:
        """Ask a running job to stop, once: cancel an async one, tell a sync one."""
        for fence, (current, call) in list(self.running.items()):
            if fence[0] == job_id and not current.is_cancelled:
                current.is_cancelled = True
                if call is not None:
                    self._lanes.cancel(call)

    def begin(self, cell: int, job: ClaimedJob) -> CurrentJob | None:
        """Mark a job as started, unless the process's lease has passed meanwhile: then it goes back unrun."""
        if not self._marks.may_start():
            self.outbox.put(Outcome(job, Fate.RELEASED))
            return None
        self._marks.start(cell)
        current = CurrentJob.of(job)
        self.running[job.fence] = (current, None)
        return current

    def end(self, outcome: Outcome) -> None:
        self.running.pop(outcome.job.fence, None)
        self.outbox.put(outcome)

    def _work(self) -> None:
        ended, caches = time.monotonic(), own_caches()
        while True:
            cell, job, task = self._inbox.get()
            current = self.begin(cell, job)
            if current is not None:
                if time.monotonic() - ended > IDLE_SECONDS:
                    check_connections()
                try:
                    outcome = contextvars.copy_context().run(run, task, job, current)
                except BaseException as error:  # noqa: BLE001 - a slot must outlive whatever a job brings
                    outcome = failure(task, job, error, current)
                tidy(caches)
                ended = time.monotonic()
                self.end(outcome)


class Lanes:
    """The event loop's slots: as many at once as there are threads, each with a context and a sync thread of its own.

    One thread for sync code called by ``async def`` tasks is not shared between lanes: the ORM's async methods run
    there, and would wait for each other.
    """

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._pending: deque[Work] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lanes: list[asyncio.Task[None]] = []
        self._idle: list[asyncio.Future[None]] = []  # what lanes without work wait for
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

    def cancel(self, call: "asyncio.Task[Any]") -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(call.cancel)

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
        """Wake idle lanes, and open new ones, for all that has arrived; called once for many."""
        self._is_called = False  # before looking: what arrives from here on calls again
        loop, arrived = asyncio.get_running_loop(), len(self._pending)
        while arrived and self._idle:
            self._idle.pop().set_result(None)
            arrived -= 1
        for _ in range(min(arrived, self._slots.concurrency - len(self._lanes))):
            self._lanes.append(loop.create_task(self._lane()))

    async def _lane(self) -> None:
        own_caches()
        async with ThreadSensitiveContext() as context:
            ended = time.monotonic()
            while True:
                while (work := self._next()) is not None:
                    if time.monotonic() - ended > IDLE_SECONDS:
                        await self._in_its_thread(context, check_connections)
                    await self._run(context, *work)
                    ended = time.monotonic()
                self._idle.append(asyncio.get_running_loop().create_future())
                await self._idle[-1]

    def _next(self) -> Work | None:
        try:
            return self._pending.popleft()
        except IndexError:  # the pump may have withdrawn it
            return None

    async def _run(
        self, context: ThreadSensitiveContext, cell: int, job: ClaimedJob, task: "tasks.Task[..., Any]"
    ) -> None:
        """Run the task in an asyncio task of its own, which may be cancelled; then tidy up, which may not."""
        current = self._slots.begin(cell, job)
        if current is None:
            return
        call = asyncio.create_task(arun(task, job, current))
        self._slots.running[job.fence] = (current, call)
        try:
            outcome = await call
        except BaseException as error:  # noqa: BLE001 - a lane must outlive whatever a job brings
            outcome = failure(task, job, error, current)
        await self._in_its_thread(context, tidy)
        self._slots.end(outcome)

    async def _in_its_thread(self, context: ThreadSensitiveContext, function: Callable[[], None]) -> None:
        """Call a function in the thread where the lane's sync code runs, if it has had any."""
        if context in SyncToAsync.context_to_thread_executor:
            await sync_to_async(function)()
