"""Run the task of a job in this process and roll back its writes, for ``pgqueue_jobs try``."""

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.core import mail
from django.core.management.base import CommandError
from django.db import Error, connections, transaction
from django.test import override_settings

from django_pgqueue import middleware, registry
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.errors import one_line
from django_pgqueue.db.notify import Notification
from django_pgqueue.exceptions import InvalidArguments, JobDoesNotExist, TaskDoesNotExist
from django_pgqueue.insights import explain
from django_pgqueue.jobs import lookup
from django_pgqueue.jobs.context import CurrentJob
from django_pgqueue.jobs.direct_run import call_here, make_job
from django_pgqueue.jobs.executor import find_task
from django_pgqueue.jobs.failure import trace_of
from django_pgqueue.jobs.lookup import JobState
from django_pgqueue.jobs.redaction import scrubber_of, shown_by_name
from django_pgqueue.jobs.serialization import encode
from django_pgqueue.middleware import NewJobs
from django_pgqueue.records import ClaimedJob
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.states import JobStatus
from django_pgqueue.stored_values import aware, is_whole, read

UNSENT = "django.core.mail.backends.locmem.EmailBackend"

OF_SAVEPOINTS = ("SAVEPOINT", "RELEASE SAVEPOINT", "ROLLBACK TO SAVEPOINT")

Debugger = Callable[[BaseException], None]


@dataclass(kw_only=True)
class Trial:
    """Result of a trial run; sensitive values are left out."""

    job: ClaimedJob = field(repr=False)
    result: Any = None  # as JSON has it
    error: str = ""  # the class of what the task has raised; empty: it has returned
    traceback: str = ""
    seconds: float = 0.0
    queries: int = 0
    emails: int = 0
    hooks: list[str] = field(default_factory=list)  # names of functions for ``on_commit``
    enqueued: Counter[str] = field(default_factory=Counter)  # numbers of jobs, by task

    def as_json(self) -> dict[str, Any]:
        job = self.job
        told = {name: value for name, value in vars(self).items() if name != "job"}
        return {"id": job.id, "task": job.task, "attempt": job.attempt, **told, "enqueued": dict(self.enqueued)}

    def lines(self) -> Iterator[str]:
        job = self.job
        yield f"Tried job {job.id} ({job.task}) as attempt {job.attempt} of {job.max_attempts}."
        if self.error:
            yield from self.traceback.splitlines() or [self.error]
        else:
            yield f"result: {json.dumps(self.result, ensure_ascii=False)}"
        yield f"duration: {self.seconds:.3f} s"
        yield f"queries: {self.queries}"
        if self.emails:
            yield f"e-mails not sent: {self.emails}"
        if self.hooks:
            yield f"on_commit hooks not run: {len(self.hooks)} ({', '.join(self.hooks)})"
        if self.enqueued:
            each = ", ".join(f"{number} of {task}" for task, number in self.enqueued.items())
            yield f"jobs not enqueued: {self.enqueued.total()} ({each})"
        yield "All that it has written to databases is rolled back."


def trial_of(job_id: int, database: str, debugger: Debugger | None = None) -> Trial:
    """Run the task of a live, dead or succeeded job in this process, and return the result or the error.

    Each database of the project has a transaction around the run, which is rolled back. Mails go nowhere, hooks of
    ``on_commit`` are not called, and the signals of a job are not sent. No row of the job is written.

    Args:
        database: the alias where the job is looked up.
        debugger: called with the exception of the task, before the rollback.

    Raises:
        CommandError: there is no such job or task, its arguments cannot be read, or a database cannot be reached.
    """
    try:
        state = lookup.find(CallerConnection(database), job_id)
        task = _task_of(state)
    except (JobDoesNotExist, TaskDoesNotExist) as error:
        raise CommandError(str(error)) from error
    job = _claimed(task, state, explain.find(job_id, database), database)
    current = CurrentJob(job)
    current.is_trial = True
    trial = Trial(job=job)
    with _rolled_back(), _counted(trial), _unsent(trial), _not_committed(trial), _noted(trial):
        begun = time.perf_counter()
        try:
            value = call_here(task, job, current)
            trial.result = shown_by_name(_kept(task, job, value))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - its exception is the result
            trial.seconds = time.perf_counter() - begun
            _tell(trial, task, error)
            if debugger:
                debugger(error)
        else:
            trial.seconds = time.perf_counter() - begun
    return trial


# The job


def _task_of(state: JobState) -> TaskDefinition:
    return find_task(state.task, state.backend) or registry.get(state.task)


def _claimed(task: TaskDefinition, state: JobState, row: Any, alias: str) -> ClaimedJob:
    """Return the job as its next claim would; the last one, where it runs or has ended."""
    if state.status == JobStatus.RESERVED:
        raise CommandError(f"Job {state.id} has succeeded, and only its unique key is left of it.")
    if not (is_whole(state.args) and is_whole(state.kwargs)):
        raise CommandError(f"The arguments of job {state.id} are JSON that Python cannot hold.")
    # of succeeded jobs there are neither attempts nor keys in the row
    is_over = state.is_finished or state.status == JobStatus.RUNNING
    attempt = max(state.attempts + (not is_over), 1)
    return make_job(
        task,
        attempt=attempt,
        id=state.id,
        task=state.task,
        queue=state.queue,
        database=alias,
        rank=-state.priority,
        run_at=aware(state.run_at).timestamp(),
        args=json.dumps(state.args),
        kwargs=json.dumps(state.kwargs),
        max_attempts=max(getattr(row, "max_attempts", task.options.attempts_allowed), attempt),
        concurrency_key=getattr(row, "concurrency_key", None),
        lost=state.lost,
        rest=json.dumps(_rest(state)),
    )


def _rest(state: JobState) -> dict[str, Any]:
    times = {
        "enqueued_at": state.enqueued_at,
        "first_started_at": state.started_at,
        "started_at": state.last_attempted_at,
    }
    return {
        **{name: at and aware(at).isoformat() for name, at in times.items()},
        "backend": state.backend,
        "metadata": state.metadata,
        "worker_id": state.worker_id,
        "errors": state.errors,
    }


def _kept(task: TaskDefinition, job: ClaimedJob, value: Any) -> Any:
    """Return the result as it would be stored; raise as the worker would, if it cannot be."""
    if task.adapter:
        return read(task.adapter.begin(job).result(value))
    try:
        return read(encode(value, what="result"))
    except InvalidArguments as error:
        return f"(not kept: {scrubber_of(task, job)(str(error))})"


def _tell(trial: Trial, task: TaskDefinition, error: BaseException) -> None:
    frame = error.__traceback__
    while frame and frame.tb_frame.f_code is not getattr(task.func, "__code__", None):
        frame = frame.tb_next
    kind = type(error.with_traceback(frame or error.__traceback__))  # without the frames that are the same of each job
    trial.error = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    trial.traceback = scrubber_of(task, trial.job)(trace_of(error))


# The run


@contextlib.contextmanager
def _rolled_back() -> Iterator[None]:
    """Open a transaction on each database, and roll all of them back.

    Like those of a test case they count for none where code asks for a durable block.
    """
    with contextlib.ExitStack() as stack:
        for alias in connections:
            block: Any = transaction.atomic(using=alias)
            block._from_testcase = True  # noqa: SLF001 - there is no other way to say so
            try:
                stack.enter_context(block)
            except Error as error:
                raise CommandError(f"The database of alias {alias!r} cannot be reached: {one_line(error)}") from error
            stack.callback(transaction.set_rollback, True, using=alias)
        yield


@contextlib.contextmanager
def _counted(trial: Trial) -> Iterator[None]:
    """Count the statements on all connections, but for those of ``atomic()``."""

    def count(execute: Callable[..., Any], sql: str, *args: Any) -> Any:
        trial.queries += not str(sql).startswith(OF_SAVEPOINTS)
        return execute(sql, *args)

    with contextlib.ExitStack() as stack:
        for connection in connections.all():
            stack.enter_context(connection.execute_wrapper(count))
        yield


@contextlib.contextmanager
def _unsent(trial: Trial) -> Iterator[None]:
    """Keep mails in memory, as Django does for tests."""
    has_mailers = hasattr(mail, "mailers") and hasattr(settings, "MAILERS")  # from Django 6.1 on
    mailers = {alias: {"BACKEND": UNSENT} for alias in settings.MAILERS} if has_mailers else {}
    before = vars(mail).get("outbox")
    outbox: list[Any] = []
    vars(mail)["outbox"] = outbox
    try:
        with override_settings(**{"MAILERS": mailers} if has_mailers else {"EMAIL_BACKEND": UNSENT}):
            yield
    finally:
        trial.emails = len(outbox)
        vars(mail).pop("outbox", None)
        if before is not None:
            vars(mail)["outbox"] = before


@contextlib.contextmanager
def _not_committed(trial: Trial) -> Iterator[None]:
    """Record the hooks that wait for a commit, and drop them."""
    before = {connection.alias: len(connection.run_on_commit) for connection in connections.all()}
    try:
        yield
    finally:
        for connection in connections.all():
            left: list[Any] = connection.run_on_commit[before[connection.alias] :]
            del connection.run_on_commit[before[connection.alias] :]
            trial.hooks += [_name_of(hook) for _, hook, *_ in left if not isinstance(hook, Notification)]


def _name_of(hook: Any) -> str:
    inner = getattr(hook, "func", hook)  # of a partial
    name: str = getattr(inner, "__qualname__", type(inner).__qualname__)
    return name


@contextlib.contextmanager
def _noted(trial: Trial) -> Iterator[None]:
    """Count the jobs that the task enqueues; no integration sees them."""

    @contextlib.contextmanager
    def counting(jobs: NewJobs) -> Iterator[None]:
        yield
        trial.enqueued[jobs.task] += len(jobs.ids)

    others = middleware.around_inserts[:]
    middleware.around_inserts[:] = [counting]
    try:
        yield
    finally:
        middleware.around_inserts[:] = others
