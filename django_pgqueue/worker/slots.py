"""Slots, in which user code runs: threads for plain tasks, lanes of one event loop for ``async def``.

A slot takes a job from the inbox, runs it, and puts the outcome into the consumer's mailbox. It writes nothing to the
database.
"""

import asyncio
import contextlib
import contextvars
import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async

from django_pgqueue.jobs.context import CurrentJob
from django_pgqueue.jobs.executor import arun, run, task_of
from django_pgqueue.jobs.failure import failure, unknown_task
from django_pgqueue.jobs.interrupts import Interrupts, LaneInterrupts, ThreadInterrupts, break_off
from django_pgqueue.records import ClaimedJob, Fate, Outcome
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.worker.cleanup import check_connections, drop_connections, is_tidy, opened, own_caches, tidy
from django_pgqueue.worker.mailbox import Mailbox
from django_pgqueue.worker.progress import PendingUpdates
from django_pgqueue.worker.shared_state import SharedState
from django_pgqueue.worker.timeouts import Run, Timeouts

logger = logging.getLogger("django_pgqueue.worker")

Work = tuple[int, ClaimedJob, TaskDefinition]

T = TypeVar("T")

IDLE_SECONDS = 5.0
"""A slot that has been idle for longer looks whether its connections still work before it runs user code on them."""

ANSWER_SECONDS = 3.0
"""Timeout of a lane's wait for its thread: above that of a check, and below the patience with jobs that do not stop."""


class Slots:
    """All slots of one child: ``concurrency`` threads for plain tasks, and as many lanes for ``async def`` tasks."""

    def __init__(self, concurrency: int, shared: SharedState, mailbox: Mailbox) -> None:
        self.concurrency = concurrency
        self.mailbox = mailbox
        self._running: dict[int, Run] = {}  # by cell
        self._doomed: set[int] = set()  # run ids of jobs that were killed before a slot began them
        self._refused: set[int] = set()  # run ids of jobs that were not begun when the process's lease lapsed
        self._limits = Timeouts(self._running)
        self._shared = shared
        self._inbox: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._put_back: deque[Work] = deque()  # by slots that check their connections first
        self._checking: set[object] = set()  # slots that check their connections, and can begin nothing meanwhile
        self._threads = 0
        self._lanes = Lanes(self)
        self.news = PendingUpdates(lambda: mailbox.put(None), shared)
        self._tell = self.news.tell

    def accept(self, cell: int, job: ClaimedJob) -> None:
        """Hand a claimed job over; at once an outcome if its task is unknown.

        Called by the consumer, which must not end because of any value in a row.
        """
        task = task_of(job)
        if task is None:
            self.mailbox.put((cell, unknown_task(job)))
        elif task.is_async:
            self._lanes.accept((cell, job, task))
        else:
            self._inbox.put((cell, job, task))
            if self._threads < self.concurrency:
                self._add_thread()

    def _add_thread(self) -> None:
        thread = threading.Thread(target=self._work, name=f"pgqueue-slot-{self._threads + 1}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system allows no more threads: other slots take the job, or it goes back
            logger.exception("A slot has no thread; the next job tries again")
        else:
            self._threads += 1

    def waiting(self) -> int:
        return self._inbox.qsize() + len(self._put_back) + len(self._lanes.pending)

    def checking(self) -> int:
        return max(len(self._checking) - self.waiting(), 0) if self._checking else 0

    @contextlib.contextmanager
    def check(self, slot: object) -> Iterator[None]:
        """Count a slot as one that checks its connections; when it has done so, the consumer may claim for it."""
        self._checking.add(slot)
        try:
            yield
        finally:
            self._checking.discard(slot)
            if not self.waiting():
                self.mailbox.put(None)

    def withdraw(self) -> list[tuple[int, ClaimedJob]]:
        unrun = [*_emptied(self._put_back), *_emptied(self._lanes.pending)]
        try:
            while True:
                unrun.append(self._inbox.get_nowait())
        except queue.Empty:
            return [(cell, job) for cell, job, _ in unrun]

    def kill(self, run_id: int) -> None:
        """Stop the job of this run_id, which was killed; repeating it does nothing. One not begun will not run."""
        self._doomed.add(run_id)  # before looking who runs: a slot that begins looks the other way round
        for job, current, interrupts in self._running.copy().values():
            if job.run_id == run_id and not current.is_kill_requested:
                current.is_kill_requested = True
                current.stop_at = time.monotonic() + interrupts.courtesy_seconds
                self._limits.mind(current)
        self._doomed &= self._shared.held()

    def refuse(self, run_ids: set[int]) -> None:
        """Begin none of these jobs any more: a slot may just have taken one, and others may have run it by now."""
        self._refused = run_ids

    def begin(self, cell: int, job: ClaimedJob, interrupts: Interrupts) -> CurrentJob | None:
        if not self._shared.is_lease_valid() or (self._refused and job.run_id in self._refused):
            self.mailbox.put((cell, Outcome(job, Fate.RELEASED)))
            return None
        self._shared.start(cell)
        current = CurrentJob(job, self._tell)
        self._running[cell] = job, current, interrupts
        if job.timeout_seconds or self._doomed:
            self._limit(cell, job, current)
        return current

    def end(self, cell: int, outcome: Outcome) -> None:
        del self._running[cell]
        self._shared.end(cell)
        self.mailbox.put((cell, outcome))

    def note_abandoned_threads(self, number: int) -> None:
        self._shared.note_abandoned_threads(number)

    def disown(self) -> None:
        """End all work on jobs, in a copy of this process that a job has made by fork.

        A copy that comes back from the job instead of ending would hand in an outcome, and take other jobs.
        """
        vars(self)["end"] = lambda *_: os._exit(os.EX_SOFTWARE)

    def _limit(self, cell: int, job: ClaimedJob, current: CurrentJob) -> None:
        """Set the time of a job that has just begun; one that was killed gets none, and dies before it runs."""
        if job.was_killed or job.run_id in self._doomed:
            current.is_kill_requested = True
        elif job.timeout_seconds:
            current.stop_at = time.monotonic() + job.timeout_seconds
            self._shared.limit(cell, job.run_id, current.stop_at)
            self._limits.mind(current)

    def _work(self) -> None:
        ended, caches, interrupts = time.monotonic(), own_caches(), ThreadInterrupts(opened())
        while True:
            work = (self._put_back and _popped(self._put_back)) or self._inbox.get()
            if time.monotonic() - ended > IDLE_SECONDS and opened():
                checked = self._check(work)
                ended = time.monotonic()
                if checked is None:
                    continue
                work = checked
            cell, job, task = work
            current = self.begin(cell, job, interrupts)
            if current is None:
                continue
            try:
                outcome = run(task, job, current, interrupts)
            except BaseException as error:  # noqa: BLE001 - a slot must survive all exceptions of a job
                interrupts.leave()
                outcome = failure(task, job, error, current)
            try:
                if interrupts.was_hit:
                    interrupts.was_hit = False
                    drop_connections()
                tidy(caches)
            except Exception:
                logger.exception("A slot cannot be tidied up; it goes on")
            ended = time.monotonic()
            self.end(cell, outcome)

    def _check(self, work: Work) -> Work | None:
        """Check this thread's connections, and return the job to begin then; None: the consumer has withdrawn it.

        A server that does not answer may keep the check waiting. So the job is put back for that time: a job
        that a slot has taken and not begun can be neither given back nor killed, and its time limit has not begun.
        """
        self._put_back.append(work)
        with self.check(threading.get_ident()):
            check_connections()
        return _popped(self._put_back)


def _popped(works: deque[Work]) -> Work | None:
    """Return the first, which may be gone: several threads take from these."""
    try:
        return works.popleft()
    except IndexError:
        return None


def _emptied(works: deque[Work]) -> list[Work]:
    return list(iter(lambda: _popped(works), None))


class Lanes:
    """The event loop's slots: as many at once as there are threads. Each job is an asyncio task of its own.

    A lane lends its jobs one thread for the sync code that ``async def`` tasks call. Lanes do not share theirs: the
    ORM's async methods run there, and would wait for each other.
    """

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.pending: deque[Work] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lanes: list[Lane] = []
        self._free: list[Lane] = []
        self._abandoned: list[LaneThread] = []  # those that have not answered yet
        self._opening = 0  # lanes that are about to take a job each
        self._unbegun: set[object] = set()  # those whose tasks have not run yet
        self._is_called = False  # the loop has been called for pending jobs, and has not looked yet

    def accept(self, work: Work) -> None:
        self.pending.append(work)
        loop = self._loop or self._start()
        if loop and not self._is_called:
            self._is_called = True
            loop.call_soon_threadsafe(self._arrive)

    def _start(self) -> asyncio.AbstractEventLoop | None:
        loop = asyncio.new_event_loop()
        try:
            threading.Thread(target=self._serve, args=(loop,), name="pgqueue-event-loop", daemon=True).start()
        except RuntimeError:  # the system allows no more threads: the job goes back
            logger.exception("A slot has no thread; the next job tries again")
            loop.close()
        else:
            self._loop = loop
        return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the loop without end; SystemExit in some task of a job stops it, and must not end the others."""
        while True:
            try:
                loop.run_forever()
            except BaseException:
                logger.exception("A job has stopped the event loop; it goes on")

    def _arrive(self) -> None:
        self._is_called = False  # before looking: what arrives from here on calls again
        while len(self.pending) > self._opening and (lane := self._free_lane()):
            self._open(lane)

    def _free_lane(self) -> "Lane | None":
        if self._free:
            return self._free.pop()
        if len(self._lanes) >= self._slots.concurrency:
            return None
        self._lanes.append(Lane(asyncio.get_running_loop(), self._abandon))
        return self._lanes[-1]

    def _abandon(self, thread: "LaneThread | None") -> None:
        """Count the threads that do not answer: with too many of them, the process is replaced."""
        self._abandoned = [one for one in (*self._abandoned, thread) if one is not None and one.pending]
        self._slots.note_abandoned_threads(len(self._abandoned))

    def _open(self, lane: "Lane") -> None:
        self._opening += 1
        opening = object()
        self._unbegun.add(opening)
        task = asyncio.get_running_loop().create_task(self._run(lane, opening), context=lane.context.copy())
        lane.interrupts.task = task
        task.add_done_callback(lambda _: self._open_again(lane, opening))

    def _open_again(self, lane: "Lane", opening: object) -> None:
        """Go on where a job has cancelled all tasks of the loop, and with them one that has not run yet."""
        if opening in self._unbegun:
            self._unbegun.discard(opening)
            self._opening -= 1
            self._free.append(lane)
            self._arrive()

    async def _run(self, lane: "Lane", opening: object) -> None:
        """Run the next job, which may be cancelled; then tidy up, which may not; then go on with the one after it.

        A job is taken when the lane can begin it, and begun at once, for the reason why slots put theirs back.
        """
        self._unbegun.discard(opening)
        try:
            if lane.is_stale():
                with self._slots.check(lane):
                    await lane.call(check_connections)
            work = _popped(self.pending)
        finally:
            self._opening -= 1
        if work is None:  # the consumer has withdrawn it
            self._free.append(lane)
            return
        cell, job, task = work
        try:
            if current := self._slots.begin(cell, job, lane.interrupts):
                try:
                    outcome = await arun(task, job, current, lane.interrupts)
                except BaseException as error:  # noqa: BLE001 - a lane must survive all exceptions of a job
                    outcome = failure(task, job, error, current)
                try:
                    if not await lane.is_tidy():
                        await lane.call(tidy)
                finally:
                    self._slots.end(cell, outcome)
        finally:
            if len(self.pending) > self._opening:
                self._open(lane)
            else:
                self._free.append(lane)


class LaneThread(ThreadPoolExecutor):
    """One thread for sync code, begun with its first call, which knows the calls that have not ended."""

    def __init__(self) -> None:
        super().__init__(max_workers=1, initializer=self._note_connections)
        self.connections: list[Any] = []  # those that it has opened
        self.pending: set[Future[Any]] = set()  # the call that is running included
        self.is_used = False  # there was a call

    def _note_connections(self) -> None:
        self.connections = opened()

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        self.is_used = True
        call = super().submit(function, *args, **kwargs)
        self.pending.add(call)
        call.add_done_callback(self.pending.discard)  # before that of the event loop, which comes later
        return call


class Lane:
    """One place in the event loop, with a context and a thread for sync code of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, abandon: Callable[[LaneThread | None], None]) -> None:
        self.interrupts = LaneInterrupts(loop)
        self._loop = loop
        self._abandon = abandon  # called with a thread that does not answer; None: one has answered
        self.context = contextvars.copy_context()
        self._sensitive = ThreadSensitiveContext()
        self.context.run(SyncToAsync.thread_sensitive_context.set, self._sensitive)  # as entering it does
        self.context.run(own_caches)
        self._connections: list[Any] | None = None  # those of its thread, once it has one
        self._ended = time.monotonic()
        self._take_thread()

    def is_stale(self) -> bool:
        if self._thread.pending:  # by what an earlier job has left behind
            return True
        return bool(self._connections) and time.monotonic() - self._ended > IDLE_SECONDS

    async def is_tidy(self) -> bool:
        """Ask the lane's thread only if there is no other way: that takes long."""
        if not self._thread.is_used:
            return True
        if self._connections is None or self._thread.pending:
            self._connections = await self.call(opened)
        self._ended = time.monotonic()
        return all(is_tidy(connection) for connection in self._connections or ())

    async def call(self, function: Callable[[], T]) -> T | None:
        """Call a function in the lane's thread, in a task that no cancel left behind by user code can reach.

        A thread that does not answer still runs what a job has left behind, or waits for a server that is silent. The
        lane goes on with another one. None: it did not answer, or the function failed.
        """
        calling, until = asyncio.ensure_future(sync_to_async(function)()), time.monotonic() + ANSWER_SECONDS
        while not calling.done() and (left := until - time.monotonic()) > 0:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([calling], timeout=left)
        if not calling.done():
            self._leave_thread()
            return None
        if calling.cancelled():  # by a job that cancels all tasks of the loop
            return None
        if error := calling.exception():
            logger.error("A lane of the event loop cannot be tidied up", exc_info=error)
            return None
        return calling.result()

    def _leave_thread(self) -> None:
        """Give sync code a new thread and connections; the old thread closes its own once it answers, and ends.

        If it waits for a server, the query is cancelled: nothing else would end it.
        """
        logger.warning("A thread of the event loop does not answer for %g s: it gets a successor", ANSWER_SECONDS)
        self._connections = None
        left = self._thread
        self._take_thread()
        for connection in list(left.connections):
            if not getattr(
                connection, "pool", None
            ):  # which may have lent it to another job by the time it is cancelled
                break_off(connection.connection)
        left.submit(drop_connections).add_done_callback(self._answered)
        left.shutdown(wait=False)
        self._abandon(left)

    def _answered(self, _: Future[Any]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._abandon, None)

    def _take_thread(self) -> None:
        """Give sync code a new thread; asgiref looks here for it."""
        self._thread = SyncToAsync.context_to_thread_executor[self._sensitive] = LaneThread()
