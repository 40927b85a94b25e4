"""Spans of jobs, by OpenTelemetry: one where they are enqueued, one for each attempt to run one.

The span of the enqueuer is the job's creation context, as the conventions for messaging call it. It travels in the
metadata, in the two fields of W3C Trace Context, and outlives all attempts and retries. Each run links to it, as the
conventions want; and is its child, which they allow where a span handles one message: the whole story is one trace.

Nothing is done, and nothing travels, unless the project has set up a tracer provider. Arguments are in no span.
"""

import functools
import logging
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.environment_variables import OTEL_PYTHON_TRACER_PROVIDER
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from django_pgqueue import middleware
from django_pgqueue.conf import conf
from django_pgqueue.log_lines import this_worker
from django_pgqueue.records import ClaimedJob, Fate, Outcome
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.stored_values import read_object
from django_pgqueue.version import VERSION

logger = logging.getLogger("django_pgqueue")

SCHEMA = "https://opentelemetry.io/schemas/1.30.0"

IS_NAMED = OTEL_PYTHON_TRACER_PROVIDER in os.environ  # the provider to be made when one is asked for

propagator = TraceContextTextMapPropagator()


def install() -> None:
    """Have spans made from here on; called when apps are loaded."""
    middleware.add(tracing_insert, middleware.around_inserts)
    middleware.add(tracing_run, middleware.around_runs)


def tracing_insert(jobs: middleware.NewJobs) -> "TracedInsertion | None":
    """Return the span that surrounds the insert of jobs; None where nothing is traced."""
    tracer = _tracer()
    return TracedInsertion(tracer, jobs) if tracer else None


def tracing_run(task: TaskDefinition, job: ClaimedJob) -> "TracedRun | None":
    """Return the span of one attempt, as the current one of this context; None where nothing is traced."""
    tracer = _tracer()
    return TracedRun(tracer, task, job) if tracer else None


class TracedInsertion:
    """The span around one statement that inserts jobs. Many jobs share it: each carries its context."""

    def __init__(self, tracer: trace.Tracer, jobs: middleware.NewJobs) -> None:
        given, number = _creation_context(jobs.metadata), len(jobs.calls)  # the caller's own, which stays as it is
        self._jobs = jobs
        self._span = tracer.start_span(
            f"enqueue {jobs.task}",
            kind=SpanKind.PRODUCER,
            attributes=_attributes(jobs.task, jobs.options.queue, name="enqueue", kind="send")
            | ({"messaging.batch.message_count": number} if number > 1 else {}),
            links=[Link(given)] if given else None,
        )
        self._context = trace.set_span_in_context(self._span)
        if not given:
            carried: dict[str, str] = {}
            propagator.inject(carried, self._context)
            jobs.metadata.update({**carried, **jobs.metadata})

    def __enter__(self) -> Self:
        self._token = contexts.attach(self._context)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        contexts.detach(self._token)
        try:
            if len(self._jobs.ids) == 1:
                self._span.set_attribute("messaging.message.id", str(self._jobs.ids[0]))
            if kind is not None:
                _note_failure(self._span, kind.__qualname__)  # its text may hold what the statement was given
            self._span.end()
        except Exception as failure:  # of a processor of the project's own: the jobs are there
            failure.__suppress_context__ = True
            logger.exception("The span of an insert is lost")


class TracedRun:
    """The span of one attempt. It is never detached: the context is the run's own."""

    def __init__(self, tracer: trace.Tracer, task: TaskDefinition, job: ClaimedJob) -> None:
        creation = _creation_context(read_object(job.rest).get("metadata"))
        around = contexts.Context()
        if creation:
            around = trace.set_span_in_context(trace.NonRecordingSpan(creation), around)
        self._span = tracer.start_span(
            f"run {task.name}",
            context=around,
            kind=SpanKind.CONSUMER,
            attributes=_attributes(task.name, job.queue, name="run", kind="process")
            | {
                "messaging.message.id": str(job.id),
                "messaging.client.id": this_worker(),
                "pgqueue.attempt": job.attempt,
                "pgqueue.max_attempts": job.max_attempts,
            },
            links=[Link(creation)] if creation else None,
        )
        contexts.attach(trace.set_span_in_context(self._span))

    def failed(self, error: BaseException, outcome: Outcome) -> None:
        """Do nothing: the outcome has the error without sensitive values."""

    def ended(self, outcome: Outcome | None) -> None:
        if outcome is None:
            _note_failure(self._span, "interrupted")
        elif self._span.is_recording():
            self._note(outcome)
        self._span.end()

    def _note(self, outcome: Outcome) -> None:
        self._span.set_attribute("pgqueue.outcome", outcome.fate.word)
        if outcome.fate in (Fate.RETRIED, Fate.SNOOZED, Fate.RELEASED):
            self._span.set_attribute("pgqueue.delay_seconds", outcome.delay_seconds)
        if outcome.reason:
            self._span.set_attribute("pgqueue.reason", outcome.reason.value)
        if outcome.fate in (Fate.RETRIED, Fate.DIED):
            error: dict[str, str] = outcome.error or {}
            kind, message = error.get("error", ""), error.get("message", "")
            self._span.add_event(
                "exception",
                {
                    "exception.type": kind,
                    "exception.message": message,
                    "exception.stacktrace": error.get("traceback", ""),
                },
            )
            _note_failure(self._span, kind, message)


def _tracer() -> trace.Tracer | None:
    """Return the tracer to use; None where there is no SDK, or where nothing is traced.

    Asked for each job. The first look is that of ``get_tracer_provider``, which goes on to the environment each time.
    """
    if getattr(trace, "_TRACER_PROVIDER", trace) is None and not IS_NAMED:
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider) or not conf.tracing:
        return None
    return _tracer_of(provider)


@functools.lru_cache(maxsize=1)
def _tracer_of(provider: trace.TracerProvider) -> trace.Tracer:
    return provider.get_tracer("django_pgqueue", VERSION, schema_url=SCHEMA)


def _creation_context(metadata: Any) -> SpanContext | None:
    """Return the span context in a job's metadata; None where there is none, as in jobs that SQL has enqueued."""
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("traceparent"), str):
        return None
    carried = {key: metadata[key] for key in propagator.fields if isinstance(metadata.get(key), str)}
    found = trace.get_current_span(propagator.extract(carried, contexts.Context())).get_span_context()
    return found if found.is_valid else None


def _attributes(task: str, queue: str, *, name: str, kind: str) -> dict[str, Any]:
    return {
        "messaging.system": "django_pgqueue",
        "messaging.destination.name": queue,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "pgqueue.task": task,
    }


def _note_failure(span: Span, kind: str, message: str = "") -> None:
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, f"{kind}: {message}" if message else kind))
