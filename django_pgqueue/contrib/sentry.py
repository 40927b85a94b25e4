"""Failed attempts as events in Sentry: one each, with the job, and without sensitive arguments.

Nothing is done unless ``sentry_sdk.init()`` was called in the process. Sentry's own integrations see jobs too: the one
for logging makes events of lines at ERROR. So the lines about attempts that were reported from here are kept from it,
and so is the framework's line about the same error.
"""

import contextlib
import logging
from typing import Any

import sentry_sdk
from sentry_sdk import Scope
from sentry_sdk.integrations.logging import ignore_logger
from sentry_sdk.utils import event_from_exception

from django_pgqueue import middleware
from django_pgqueue.exceptions import Redacted
from django_pgqueue.jobs.redaction import REDACTED, Scrub, scrubber_of, shown
from django_pgqueue.log_lines import FAILURES, fields
from django_pgqueue.records import ClaimedJob, Fate, Outcome
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.states import DeathReason
from django_pgqueue.stored_values import read

failures = logging.getLogger(FAILURES)

LEVELS = {Fate.RETRIED: "warning", Fate.DIED: "error"}  # an attempt that is followed by another is no alarm yet

TEXTS = ("message", "logentry", "breadcrumbs", "extra", "contexts")  # parts that may hold texts of the task


def install() -> None:
    """Have failed attempts reported from here on; called when apps are loaded."""
    middleware.add(reporting_run, middleware.around_runs)
    ignore_logger(FAILURES)


def reporting_run(task: TaskDefinition, job: ClaimedJob) -> "ReportedRun | None":
    """Give a run a scope of its own; None where Sentry is not in use.

    Asked for each job: the client of ``sentry_sdk.init()`` is found in a sixth of the time of ``get_client()``.
    """
    return ReportedRun(task, job) if Scope.get_global_scope().client.is_active() else None


class ReportedRun:
    """One attempt. Its breadcrumbs and tags in Sentry's scope are gone with it."""

    def __init__(self, task: TaskDefinition, job: ClaimedJob) -> None:
        self._task = task
        self._job = job
        self._reported: BaseException | None = None
        self._scopes = contextlib.ExitStack()
        scope = self._scopes.enter_context(sentry_sdk.isolation_scope())
        scope.clear_breadcrumbs()
        scope.set_new_propagation_context()  # else all jobs of a process would be one trace
        scope.set_transaction_name(task.name, source="task")
        for name in ("id", "task", "queue", "attempt"):
            scope.set_tag(f"job.{name}", str(getattr(job, name)))
        scope.add_event_processor(self._cleaned)

    def failed(self, error: BaseException, outcome: Outcome) -> None:
        if outcome.fate not in LEVELS or outcome.reason is DeathReason.KILLED:
            return
        event, hint = event_from_exception(
            error,
            client_options=sentry_sdk.get_client().options,
            mechanism={"type": "django_pgqueue", "handled": False},
        )
        event["level"] = LEVELS[outcome.fate]  # type: ignore[typeddict-item]
        event.setdefault("contexts", {})["outcome"] = {
            "fate": outcome.fate.word,
            "reason": outcome.reason and outcome.reason.value,
            "delay_seconds": round(outcome.delay_seconds, 3) if outcome.fate is Fate.RETRIED else None,
        }
        sentry_sdk.capture_event(event, hint=hint)
        self._reported = error

    def ended(self, outcome: Outcome | None) -> None:  # noqa: ARG002 - the message has it by then
        self._reported = None  # it holds this run's frames
        self._scopes.close()

    def _cleaned(self, event: Any, hint: dict[str, Any]) -> Any:
        try:
            return self._clean(event, hint)
        except Exception as error:  # noqa: BLE001 - Sentry would pass over it, and send the event as it is
            error.__suppress_context__ = True  # what the task has raised
            failures.exception(
                "An event of job %s (%s) is kept from Sentry: it cannot be cleaned",
                *(self._job.id, self._job.task),
                extra=fields(self._job),
            )
            return None

    def _clean(self, event: Any, hint: dict[str, Any]) -> Any:
        """Return the event without sensitive values; None for one that repeats the reported error."""
        error = (hint.get("exc_info") or (None, None))[1]
        if event.get("logger") and error is not None and (error is self._reported or _is_of_framework(event, error)):
            return None
        scrub = scrubber_of(self._task, self._job)
        for part in ("exception", "threads"):
            if part in event:
                event[part] = _without_secrets(self._with_frames_cleaned(event[part]), scrub)
        for part in TEXTS:
            if part in event:
                event[part] = _without_secrets(event[part], scrub)
        event.setdefault("contexts", {})["job"] = self._described()
        return event

    def _with_frames_cleaned(self, part: Any) -> Any:
        for value in part.get("values", ()) if isinstance(part, dict) else ():
            for frame in (value.get("stacktrace") or {}).get("frames", ()):
                if str(frame.get("module", "")).startswith("django_pgqueue."):
                    frame.pop("vars", None)
                elif isinstance(frame.get("vars"), dict):
                    named = shown(self._task, (), frame["vars"])[1]
                    frame["vars"] = named if isinstance(named, dict) else {}
        return part

    def _described(self) -> dict[str, Any]:
        job = self._job
        args, kwargs = shown(self._task, read(job.args), read(job.kwargs))
        return {
            "id": job.id,
            "task": job.task,
            "queue": job.queue,
            "attempt": job.attempt,
            "max_attempts": job.max_attempts,
            "args": args,
            "kwargs": kwargs,
        }


def _is_of_framework(event: Any, error: BaseException) -> bool:
    """Whether Django's Tasks framework has logged what stands for an error that is reported as it is."""
    return isinstance(error, Redacted) and not event["logger"].startswith("django_pgqueue.")


def _without_secrets(value: Any, scrub: Scrub) -> Any:
    match value:
        case str():
            return scrub(value)
        case bool():
            return value
        case int() | float():
            return value if scrub(str(value)) == str(value) else REDACTED
        case dict():
            return {key: _without_secrets(item, scrub) for key, item in value.items()}
        case list() | tuple():
            return [_without_secrets(item, scrub) for item in value]
        case _:
            return value
