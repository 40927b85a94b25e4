"""Run one job, sync or async, and return its outcome. Writes nothing, but for an atomic task's own transaction."""

import asyncio
import contextlib
import contextvars
import json
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.db import connections, transaction
from django.dispatch import Signal

from django_pgqueue import middleware, registry
from django_pgqueue.conf import conf
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.errors import is_conflict, is_transient
from django_pgqueue.exceptions import ConfigurationError, InvalidArguments, LeaseLost, Redacted
from django_pgqueue.jobs import ack
from django_pgqueue.jobs.captured_log import LOG
from django_pgqueue.jobs.context import CurrentJob, JobContext, enter, write_alone
from django_pgqueue.jobs.failure import LONGEST_TEXT, NotCharged, failure, trace_of
from django_pgqueue.jobs.interrupts import LaneInterrupts, ThreadInterrupts
from django_pgqueue.jobs.redaction import scrub_end, scrubber_of
from django_pgqueue.jobs.serialization import encode
from django_pgqueue.log_lines import fields
from django_pgqueue.middleware import acall_inside, around_runs, call_inside
from django_pgqueue.records import COLLECT_RESULT, KEEP_RESULT, ClaimedJob, Fate, Outcome
from django_pgqueue.registry import RunAdapter, TaskDefinition
from django_pgqueue.signals import attempt_started, end_signals, event_of
from django_pgqueue.stored_values import read_object

logger = logging.getLogger("django_pgqueue.jobs")

UNBEGUN_DELAY_SECONDS = 2.0  # of a job whose transaction cannot begin: the database may be away for this slot alone

CHARGED_CONFLICTS = 10
"""Number of the first conflict in a row, at the end of runs of one job in one process, that is an attempt."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 2.0
"""Bounds of the pause after a conflict that is none. The first one in a row has no pause; each later one doubles it."""

REMEMBERED_CONFLICTS = 1000  # maximum number of jobs whose conflicts are counted; the oldest is forgotten


@contextlib.contextmanager
def without_harm(job: ClaimedJob) -> Iterator[None]:
    """Catch and log all exceptions of receivers of signals: none changes the outcome of a job."""
    try:
        yield
    except BaseException as error:  # noqa: BLE001 - as it says
        log_harm(job, error)


def log_harm(job: ClaimedJob, error: BaseException) -> None:
    """Log what receivers or hooks have raised, while it is being handled."""
    error.__suppress_context__ = True  # what the task has raised, which may hold sensitive arguments
    logger.exception(  # noqa: LOG004 - called while one is
        "Receivers of a signal failed, or were cut short; job %s (%s) goes on", job.id, job.task, extra=fields(job)
    )


def _send(signals: Iterable[Signal], task: TaskDefinition, outcome: Outcome) -> None:
    with without_harm(outcome.job):
        event = event_of(outcome.job, outcome)
        for signal in signals:
            signal.send_robust(task, event=event)


async def _asend(signals: Iterable[Signal], task: TaskDefinition, outcome: Outcome) -> None:
    with without_harm(outcome.job):
        event = event_of(outcome.job, outcome)
        for signal in signals:
            await signal.asend_robust(task, event=event)


def _report_failure(run_adapter: RunAdapter, task: TaskDefinition, outcome: Outcome, error: BaseException) -> None:
    """Send the framework's signal while the exception that receivers may see is being handled."""
    try:
        _redact(task, outcome, error)
    except Redacted:
        run_adapter.tell_ended(outcome)
    else:
        run_adapter.tell_ended(outcome)


async def _areport_failure(
    run_adapter: RunAdapter, task: TaskDefinition, outcome: Outcome, error: BaseException
) -> None:
    try:
        _redact(task, outcome, error)
    except Redacted:
        await run_adapter.atell_ended(outcome)
    else:
        await run_adapter.atell_ended(outcome)


def _redact(task: TaskDefinition, outcome: Outcome, error: BaseException) -> None:
    """Raise an error for receivers of the framework's signal in place of one that has sensitive values."""
    if outcome.fate is Fate.DIED and (shown := _redacted(task, outcome.job, error)) is not error:
        raise shown from None


def _redacted(task: TaskDefinition, job: ClaimedJob, error: BaseException) -> BaseException:
    """Return an error as it may be logged: another one in place of one that has sensitive values."""
    trace = trace_of(error)
    kept = scrub_end(scrubber_of(task, job), trace, LONGEST_TEXT)
    return error if kept == trace else Redacted(f"\n{kept}")


# Hooks around a run


def add_hook(task: TaskDefinition, job: ClaimedJob) -> "HookedRun | None":
    """Return the hooks of a run; None where those of ``middleware.around_runs`` have nothing to do.

    Called where the run begins, in its context, and for each job: so without a context manager.
    """
    runs = []
    for hook in middleware.around_runs:
        try:
            run = hook(task, job)
        except BaseException as error:  # noqa: BLE001 - as with receivers of signals
            log_harm(job, error)
        else:
            if run is not None:
                runs.append(run)
    return HookedRun(job, runs) if runs else None


class HookedRun:
    def __init__(self, job: ClaimedJob, runs: Sequence[middleware.RunHook]) -> None:
        self._job = job
        self._runs = runs

    def failed(self, error: BaseException, outcome: Outcome) -> None:
        for run in self._runs:
            with without_harm(self._job):
                run.failed(error, outcome)

    def ended(self, outcome: Outcome | None) -> None:
        for run in reversed(self._runs):
            with without_harm(self._job):
                run.ended(outcome)


# Run


def run(task: TaskDefinition, job: ClaimedJob, current: CurrentJob, interrupts: ThreadInterrupts) -> Outcome:
    """Run a plain task in this thread, interruptible by ``interrupts``; return the outcome, also of an exception.

    It gets a copy of this thread's context, which is dropped with the context variables that it sets: a translation.
    """
    return contextvars.copy_context().run(_watched if around_runs else _run, task, job, current, interrupts)


async def arun(task: TaskDefinition, job: ClaimedJob, current: CurrentJob, interrupts: LaneInterrupts) -> Outcome:
    """Run an ``async def`` task in this asyncio task, whose context is its own, and return the outcome."""
    watched, outcome = add_hook(task, job) if around_runs else None, None
    try:
        outcome = await _arun(task, job, current, interrupts, watched)
    finally:
        if watched:
            watched.ended(outcome)
    return outcome


def _watched(task: TaskDefinition, job: ClaimedJob, current: CurrentJob, interrupts: ThreadInterrupts) -> Outcome:
    watched, outcome = add_hook(task, job), None
    try:
        outcome = _run(task, job, current, interrupts, watched)
    finally:
        if watched:
            watched.ended(outcome)
    return outcome


async def _arun(
    task: TaskDefinition,
    job: ClaimedJob,
    current: CurrentJob,
    interrupts: LaneInterrupts,
    watched: HookedRun | None = None,
) -> Outcome:
    enter(current)
    if attempt_started.receivers:
        with without_harm(job):
            await attempt_started.asend_robust(task, event=event_of(job))
    run_adapter = task.adapter.begin(job) if task.adapter else None
    if run_adapter:
        current.run_adapter = run_adapter
        with without_harm(job):
            await run_adapter.atell_started()
    begun = current.begun_at = time.perf_counter()
    try:
        outcome = success(current, await acall_function(task, job, current, interrupts, run_adapter))
    except BaseException as error:  # noqa: BLE001 - the boundary: any exception is an outcome of the job
        outcome = failure(task, job, error, current) if current.ended is None else _after_end(task, current, error)
        outcome.run_seconds = time.perf_counter() - begun
        await _take_cancels()
        if watched:
            watched.failed(error, outcome)
        if run_adapter:  # in here, so that the framework's log has the traceback
            with without_harm(job):
                await _areport_failure(run_adapter, task, outcome, error)
    else:
        outcome.run_seconds = time.perf_counter() - begun
        await _take_cancels()
        if run_adapter:
            with without_harm(job):
                await run_adapter.atell_ended(outcome)
    _keep_log(outcome, current)
    if signals := end_signals(outcome):
        await _asend(signals, task, outcome)
    return outcome


def _run(
    task: TaskDefinition,
    job: ClaimedJob,
    current: CurrentJob,
    interrupts: ThreadInterrupts,
    watched: HookedRun | None = None,
) -> Outcome:
    enter(current)
    if attempt_started.receivers:
        with without_harm(job):
            attempt_started.send_robust(task, event=event_of(job))
    run_adapter = task.adapter.begin(job) if task.adapter else None
    if run_adapter:
        current.run_adapter = run_adapter
        with without_harm(job):
            run_adapter.tell_started()
    begun = current.begun_at = time.perf_counter()
    try:
        if task.atomic:
            outcome = _call_atomic(task, job, current, interrupts, run_adapter)
        else:
            outcome = success(current, call_function(task, job, current, interrupts, run_adapter))
    except BaseException as error:  # noqa: BLE001 - the boundary: any exception is an outcome of the job
        interrupts.leave()
        outcome = failure(task, job, error, current) if current.ended is None else _after_end(task, current, error)
        outcome.run_seconds = time.perf_counter() - begun
        if watched:
            watched.failed(error, outcome)
        if run_adapter:  # in here, so that the framework's log has the traceback
            with without_harm(job):
                _report_failure(run_adapter, task, outcome, error)
    else:
        outcome.run_seconds = outcome.run_seconds or time.perf_counter() - begun
        if run_adapter:
            with without_harm(job):
                run_adapter.tell_ended(outcome)
    _keep_log(outcome, current)
    if signals := end_signals(outcome):
        _send(signals, task, outcome)
    return outcome


def _keep_log(outcome: Outcome, current: CurrentJob) -> None:
    """Put the captured lines where the job will be: into the entry of a failed attempt, or into its progress."""
    if not current.log:
        return
    if outcome.error is not None:
        outcome.error[LOG] = current.log.text()
    elif outcome.fate is Fate.SNOOZED or (current.has_told and outcome.fate in SUCCESSES):
        current.tell_log()
    elif outcome.fate in SUCCESSES and _is_kept(outcome.job):
        outcome.progress = json.dumps({LOG: current.log.text(), "attempt": outcome.job.attempt})


SUCCESSES = {Fate.SUCCEEDED, Fate.REPEATED}


def _is_kept(job: ClaimedJob) -> bool:
    return bool(job.flags & KEEP_RESULT and conf.retention_days)


async def _take_cancels() -> None:
    """Take the cancels that user code has left behind, which the next ``await`` would raise, although it is ours."""
    running = asyncio.current_task()
    if running is not None and running.cancelling():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        while running.uncancel():
            pass


def success(current: CurrentJob, value: Any) -> Outcome:
    """Return the outcome of a run that has returned a value: the one that ``finish_job()`` has written, if it has."""
    if current.ended is not None:
        return current.ended
    outcome = Outcome(current.claimed, Fate.SUCCEEDED, result=_result(current.claimed, value, current.run_adapter))
    if current.again is not None:
        _repeat(outcome, current)
    return outcome


def _after_end(task: TaskDefinition, current: CurrentJob, error: BaseException) -> Outcome:
    """Return the outcome that ``finish_job()`` has written, and log the error that was raised after it."""
    job, ended = current.claimed, current.ended
    logger.error(
        "Job %s (%s) has succeeded, but its task failed after finish_job()",
        *(job.id, job.task),
        exc_info=_redacted(task, job, error),
        extra=fields(job),
    )
    assert ended is not None  # noqa: S101 - of the callers
    return ended


def write_success(outcome: Outcome, current: CurrentJob) -> None:
    """Write the success of a job in the transaction that is open, with its last report; its fate is RECORDED then.

    Raises:
        LeaseLost: another worker has the job. The transaction must be rolled back.
    """
    _keep_log(outcome, current)
    database = CallerConnection(outcome.job.database)
    if current.has_told:
        write_alone(database, current)
    if not ack.finish_alone(database, outcome):
        job = outcome.job
        raise LeaseLost(
            f"Job {job.id} ({job.task}) cannot be completed: its lease is gone, or its row is being held. "
            "Its transaction is rolled back."
        )


def _repeat(outcome: Outcome, current: CurrentJob) -> None:
    if current.again is not None and not current.is_kill_requested:
        outcome.fate = Fate.REPEATED
        outcome.delay_seconds, outcome.next_at = max(current.again.delay_seconds, 0.0), current.again.due_at


def _call_atomic(
    task: TaskDefinition,
    job: ClaimedJob,
    current: CurrentJob,
    interrupts: ThreadInterrupts,
    run_adapter: RunAdapter | None,
) -> Outcome:
    """Run the task and remove its job in one transaction: both take effect, or neither.

    Nothing can interrupt the removal and the commit, after which the job is done.

    Raises:
        NotCharged: what failed was the queue's part, for a reason that passes. Everything is rolled back. From the
            tenth conflict in a row on, the conflict itself is raised.
        LeaseLost: another worker has the job. Everything is rolled back.
    """
    has_begun = has_returned = is_committed = False  # how far it has come, in this order

    def committed() -> None:
        nonlocal is_committed
        is_committed = True

    begun = time.perf_counter()
    try:
        connection = connections[job.database]
        is_outermost = not connection.in_atomic_block
        with transaction.atomic(using=job.database):
            has_begun = True
            if is_outermost:
                connection.on_commit(committed)  # the first hook: one that raises keeps later ones from being called
            outcome = success(current, call_function(task, job, current, interrupts, run_adapter))
            outcome.run_seconds = time.perf_counter() - begun
            has_returned = True
            write_success(outcome, current)
    except BaseException as error:
        if not is_committed:
            if excuse := _excuse(error, job, current, has_begun=has_begun, has_returned=has_returned):
                raise excuse from error
            raise
        logger.error(  # noqa: TRY400 - without sensitive values
            "Job %s (%s) has succeeded, but an on_commit hook of it failed",
            *(job.id, job.task),
            exc_info=_redacted(task, job, error),
            extra=fields(job),
        )
    conflicts.forget(job)
    outcome.fate = Fate.RECORDED
    return outcome


def _excuse(
    error: BaseException, job: ClaimedJob, current: CurrentJob, *, has_begun: bool, has_returned: bool
) -> NotCharged | None:
    """Return what to raise in place of an error that was the queue's part; None: it is the job's own."""
    if not has_begun and is_transient(error):
        return NotCharged("its transaction cannot begin", delay_seconds=UNBEGUN_DELAY_SECONDS)
    if not (has_returned and is_conflict(error) and _may_run_again(job, current)):
        conflicts.forget(job)
        return None
    number = conflicts.add(job)
    if number >= CHARGED_CONFLICTS:
        return None
    why = "its transaction was in conflict with another one when it ended"
    return NotCharged(why, delay_seconds=_pause_after(number))


class ConflictCounts:
    """Numbers of conflicts in a row, by job, at the end of runs in this process. Safe for all threads."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}  # by job id; the latest last
        self._lock = threading.Lock()

    def add(self, job: ClaimedJob) -> int:
        """Count one more, and return how many that makes; a job that dies of it starts from 0 if it is sent back."""
        with self._lock:
            number = self._numbers.pop(job.id, 0) + 1
            if number < CHARGED_CONFLICTS or job.attempt < job.max_attempts:
                self._numbers[job.id] = number
            if len(self._numbers) > REMEMBERED_CONFLICTS:
                del self._numbers[next(iter(self._numbers))]
        return number

    def forget(self, job: ClaimedJob) -> None:
        """Take note that a run has ended in another way; takes no lock while nothing is counted, as almost always."""
        if self._numbers:
            with self._lock:
                self._numbers.pop(job.id, None)


conflicts = ConflictCounts()


def _pause_after(number: int) -> float:
    return 0.0 if number == 1 else min(FIRST_PAUSE_SECONDS * 2.0 ** (number - 2), LONGEST_PAUSE_SECONDS)


def _may_run_again(job: ClaimedJob, current: CurrentJob) -> bool:
    """Whether a run that has ended in a conflict may be repeated without being counted.

    One that has reported progress has changed its own row: above READ COMMITTED that is a conflict each time.
    """
    return job.max_attempts > 1 and not current.has_told


# The call of the function


def call_function(
    task: TaskDefinition,
    job: ClaimedJob,
    current: CurrentJob,
    interrupts: ThreadInterrupts,
    run_adapter: RunAdapter | None,
) -> Any:
    """Call the function of a plain task with the job's arguments; return its result, or raise its exception."""
    args, kwargs = _arguments(task, job, current, run_adapter)
    if chain := conf.middleware.run:
        return interrupts.call(current, call_inside, [chain, current, task.func, *args], kwargs)
    return interrupts.call(current, task.func, args, kwargs)


async def acall_function(
    task: TaskDefinition,
    job: ClaimedJob,
    current: CurrentJob,
    interrupts: LaneInterrupts,
    run_adapter: RunAdapter | None,
) -> Any:
    """Do the same for an ``async def`` task."""
    args, kwargs = _arguments(task, job, current, run_adapter)
    interrupts.enter(current)
    try:
        if chain := conf.middleware.run:
            return await acall_inside(chain, current, task.func, *args, **kwargs)
        return await task.func(*args, **kwargs)
    finally:
        interrupts.leave()


def _arguments(
    task: TaskDefinition, job: ClaimedJob, current: CurrentJob, run_adapter: RunAdapter | None
) -> tuple[list[Any], dict[str, Any]]:
    args = json.loads(job.args) if job.args != "[]" else []
    kwargs = json.loads(job.kwargs) if job.kwargs != "{}" else {}
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        kinds = f"{type(args).__name__} and {type(kwargs).__name__}"
        raise InvalidArguments(f"args must be a JSON array and kwargs a JSON object, not {kinds}.")
    if run_adapter:
        args = run_adapter.arguments(args)
    elif task.takes_context:
        args.insert(0, JobContext(current))
    return args, kwargs


def _result(job: ClaimedJob, value: Any, run_adapter: RunAdapter | None) -> str | None:
    """Return the result as JSON; None, and a warning, where it cannot be stored: the work is done all the same.

    Of a task of the Tasks framework, ResultRefused is raised instead.
    """
    if run_adapter:
        return run_adapter.result(value)
    if value is None or not (_is_kept(job) or job.flags & COLLECT_RESULT):
        return "null"
    try:
        return encode(value, what="result")
    except InvalidArguments as error:
        why = scrubber_of(registry.find(job.task), job)(str(error))
        logger.warning(
            "Job %s (%s) succeeded, but its result is not kept: %s", job.id, job.task, why, extra=fields(job)
        )
        return None


# The task of a job


def task_of(job: ClaimedJob) -> TaskDefinition | None:
    """Return the task of a claimed job, as ``find_task``; None also where its backend raises, which is logged.

    Called by the consumer, which must survive any value in a row.
    """
    known = registry.find(job.task)
    if known or not job.rest:
        return known
    alias = read_object(job.rest).get("backend")
    try:
        return find_task(job.task, alias)
    except (Exception, SystemExit):  # as of a module that it imports
        logger.exception("The backend %s cannot find the task %s of job %s", alias, job.task, job.id, extra=fields(job))
        return None


def find_task(name: str, alias: str | None) -> TaskDefinition | None:
    """Return the registered task of this name, or as the backend with this alias in ``TASKS`` finds it; else None."""
    return registry.find(name) or (_find_in_backend(name, alias) if alias else None)


def _find_in_backend(name: str, alias: str) -> TaskDefinition | None:
    try:
        from django_pgqueue.framework import InvalidTaskBackend, task_backends  # noqa: PLC0415 - may be missing
    except ConfigurationError:
        return None
    try:
        backend = task_backends[alias]
    except InvalidTaskBackend:
        return None
    find_task = getattr(backend, "find_task", None)  # other people's backends have none
    return find_task(name) if find_task else None
