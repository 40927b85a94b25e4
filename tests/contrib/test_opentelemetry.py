"""Spans of jobs, by OpenTelemetry's own SDK, exported in memory."""

import contextlib
import contextvars
import datetime as dt
import json

import pytest
from asgiref.sync import async_to_sync
from django.db import ProgrammingError, transaction
from django.test import Client
from django.utils import timezone
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import tests.app.tasks as app
from django_pgqueue import chain, current_job, enqueue_many, group, tasks
from django_pgqueue.jobs import retry
from django_pgqueue.jobs.claim import claim
from django_pgqueue.middleware import around_runs
from django_pgqueue.models import DeadJob, Job, Schedule
from django_pgqueue.outbox.models import OutboxCall
from django_pgqueue.schedules.enqueuer import fire_due
from django_pgqueue.testing import override_pgqueue
from tests.app import contract
from tests.support.running import run_claimed

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Spans(InMemorySpanExporter):
    """What was exported, by what the names of spans begin with."""

    def __call__(self, begin=""):
        return [span for span in self.get_finished_spans() if span.name.startswith(begin)]


@pytest.fixture
def provide(monkeypatch):
    """Set a provider up for one test: that of the process can be set only once."""

    def set_up(**options):
        spans, provider = Spans(), TracerProvider(shutdown_on_exit=False, **options)
        provider.add_span_processor(SimpleSpanProcessor(spans))
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
        return spans

    return set_up


@pytest.fixture
def spans(provide):
    return provide()


@pytest.fixture
def request_span(monkeypatch):
    """A view whose request has a span, as an instrumentation of Django makes one."""
    from tests import urls

    def ordered(request):
        with trace.get_tracer_provider().get_tracer("web").start_as_current_span("GET /order/", kind=SpanKind.SERVER):
            app.fail_until.enqueue(3)
            return urls.HttpResponse("ordered")

    monkeypatch.setattr(urls.urlpatterns[1], "callback", ordered)


def test_one_trace_from_the_request_over_two_failed_attempts_to_the_success(queue, spans, request_span):
    assert Client().get("/order/").content == b"ordered"
    job = Job.objects.get()
    for _ in range(3):
        run_claimed(queue)
    [request], [enqueued], runs = spans("GET"), spans("enqueue"), spans("run")
    assert len({span.context.trace_id for span in (request, enqueued, *runs)}) == 1
    assert enqueued.parent.span_id == request.context.span_id
    assert (enqueued.name, enqueued.kind) == ("enqueue tests.app.tasks.fail_until", SpanKind.PRODUCER)
    assert dict(enqueued.attributes) == {
        "messaging.system": "django_pgqueue",
        "messaging.destination.name": "default",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.message.id": str(job.id),
        "pgqueue.task": "tests.app.tasks.fail_until",
    }
    for attempt, run in enumerate(runs, start=1):
        assert (run.name, run.kind) == ("run tests.app.tasks.fail_until", SpanKind.CONSUMER)
        assert run.parent.span_id == enqueued.context.span_id
        assert [link.context.span_id for link in run.links] == [enqueued.context.span_id]
        assert run.attributes["pgqueue.attempt"] == attempt
        assert run.attributes["messaging.message.id"] == str(job.id)
        assert run.attributes["messaging.operation.type"] == "process"
    *failed, last = runs
    for run in failed:
        assert (run.status.status_code, run.attributes["pgqueue.outcome"]) == (StatusCode.ERROR, "retried")
        assert run.attributes["error.type"] == "ValueError"
        [event] = run.events
        assert event.name == "exception"
        assert event.attributes["exception.message"] == "not before attempt 3"
        assert "raise ValueError(" in event.attributes["exception.stacktrace"]
    assert (last.status.status_code, last.attributes["pgqueue.outcome"], last.events) == (
        StatusCode.UNSET,
        "succeeded",
        (),
    )


@pytest.mark.parametrize("task", [app.fail, contract.fail, contract.afail], ids=["native", "framework", "async"])
def test_death_is_an_error_with_its_reason(queue, spans, task):
    (task if task is not app.fail else task.using(max_attempts=1)).enqueue("bad luck")
    run_claimed(queue)
    [enqueued], [run] = spans("enqueue"), spans("run")
    assert run.parent.span_id == enqueued.context.span_id
    assert (run.status.status_code, run.status.description) == (StatusCode.ERROR, "ValueError: bad luck")
    assert (run.attributes["pgqueue.outcome"], run.attributes["pgqueue.reason"]) == ("died", "exhausted")


def test_task_that_asks_to_run_later_has_not_failed(queue, spans):
    app.snooze.enqueue(5)
    run_claimed(queue)
    [run] = spans("run")
    assert (run.status.status_code, run.events, run.attributes["pgqueue.outcome"]) == (StatusCode.UNSET, (), "snoozed")


def test_many_jobs_share_one_span_whose_context_is_in_each(queue, spans):
    app.record.enqueue_many([("a",), ("b",)])
    contract.add.enqueue_many([(1,), (2,), (3,)])
    app.record.using(unique_key="one").enqueue_many([("a",)])
    assert [span.attributes.get("messaging.batch.message_count") for span in spans("enqueue")] == [2, 3, None]
    carried = [span.context.span_id for span in spans("enqueue") for _ in range(span.attributes.get(COUNT, 1))]
    run_claimed(queue, limit=10)
    assert [span.parent.span_id for span in spans("run")] == carried


@pytest.mark.django_db
def test_spans_of_one_statement_are_beside_each_other(provide):
    spans = provide()
    with trace.get_tracer("tests").start_as_current_span("request") as request:
        enqueue_many([app.record.bind("a"), contract.add.bind(1), app.noop.bind()])
    assert [span.parent.span_id for span in spans("enqueue")] == [request.context.span_id] * 3


COUNT = "messaging.batch.message_count"


def test_code_of_the_task_has_the_run_for_its_parent(queue, spans, registry_of):
    def work():
        with trace.get_tracer_provider().get_tracer("user").start_as_current_span("work"):
            app.record.enqueue("follow-up")

    async def awork():
        with trace.get_tracer_provider().get_tracer("user").start_as_current_span("work"):
            await app.record.aenqueue("follow-up")

    for func in (work, awork):
        spans.clear()
        registry_of(func).enqueue()
        run_claimed(queue, limit=1)
        [run], [worked], [_, follow_up] = spans("run"), spans("work"), spans("enqueue")
        assert worked.parent.span_id == run.context.span_id
        assert follow_up.parent.span_id == worked.context.span_id
        assert trace.get_current_span() is trace.INVALID_SPAN, "nothing is left behind"
        Job.objects.all().delete()


def test_metadata_of_the_caller_stays(queue, spans):
    app.record.using(metadata={"tenant": 7}).enqueue("a")
    assert Job.objects.get().metadata["tenant"] == 7
    run_claimed(queue)
    [enqueued], [run] = spans("enqueue"), spans("run")
    assert run.parent.span_id == enqueued.context.span_id


def test_creation_context_that_the_caller_gives_is_not_replaced(queue, spans):
    app.record.using(metadata={"traceparent": PARENT}).enqueue("a")
    assert Job.objects.get().metadata == {"traceparent": PARENT}
    run_claimed(queue)
    for span in (*spans("enqueue"), *spans("run")):
        assert f"{span.links[0].context.trace_id:032x}" == PARENT.split("-")[1]


def test_job_that_sql_has_enqueued_with_a_context_goes_on_with_it(queue, spans, sql):
    for metadata in ({"traceparent": PARENT}, {"traceparent": "broken"}, {"traceparent": 5}, [1], {}):
        sql("INSERT INTO pgqueue_jobs (task, metadata) VALUES ('tests.app.tasks.noop', %s)", json.dumps(metadata))
    run_claimed(queue, limit=10)
    first, *others = spans("run")
    assert f"{first.parent.span_id:016x}" == PARENT.split("-")[2]
    assert [(span.parent, span.links) for span in others] == [(None, ())] * 4


def test_retried_job_goes_on_with_its_trace(queue, spans):
    app.fail.using(max_attempts=1).enqueue()
    run_claimed(queue)
    retry([DeadJob.objects.get().id], by="ann")
    run_claimed(queue)
    [enqueued], runs = spans("enqueue"), spans("run")
    assert [span.parent.span_id for span in runs] == [enqueued.context.span_id] * 2


def test_job_that_follows_by_repeat_begins_a_trace_of_its_own(queue, spans, registry_of, sql):
    def again():
        current_job().repeat()

    registry_of(again).using(metadata={"kept": True}).enqueue()
    run_claimed(queue)
    assert Job.objects.get().metadata == {"kept": True}


def test_tick_of_a_schedule_begins_a_trace(queue, spans):
    due = timezone.now() - dt.timedelta(seconds=1)
    Schedule.objects.create(name="hourly", task="tests.app.tasks.noop", every_seconds=3600, next_at=due)
    assert fire_due(queue).jobs == 1
    run_claimed(queue)
    [enqueued], [run] = spans("enqueue"), spans("run")
    assert (enqueued.parent, run.parent.span_id) == (None, enqueued.context.span_id)


def test_insert_that_fails_is_an_error_without_its_text(queue, spans, sql):
    sql("ALTER TABLE pgqueue_jobs RENAME COLUMN metadata TO meta")
    try:
        with pytest.raises(ProgrammingError, match="metadata"), transaction.atomic():
            app.record.enqueue("a")
    finally:
        sql("ALTER TABLE pgqueue_jobs RENAME COLUMN meta TO metadata")
    [failed] = spans("enqueue")
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, "ProgrammingError")
    assert trace.get_current_span() is trace.INVALID_SPAN


class Refusing:
    """Refuses the jobs of one task, before the insert or after it."""

    def __init__(self, task, *, after=False):
        self.task, self.after = task, after

    @contextlib.contextmanager
    def enqueue(self, jobs):
        if self.after:
            yield
        if jobs.task == self.task.name:
            raise PermissionError("not for you")
        if not self.after:
            yield


@pytest.fixture
def begun(provide):
    """Names of all spans, also of those that do not end."""

    class Noting(SpanProcessor):
        def on_start(self, span, parent_context=None):
            names.append(span.name)

    names: list[str] = []
    provide()
    trace.get_tracer_provider().add_span_processor(Noting())
    return names


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    "enqueue",
    [
        lambda call, _: call.enqueue(),
        lambda call, _: async_to_sync(call.aenqueue)(),
        lambda call, _: call.task.enqueue_many([call.args] * 2),
        lambda call, _: call.task.using(unique_key="k").enqueue(*call.args),
        lambda _, calls: enqueue_many(calls),
        lambda _, calls: group(calls).enqueue(),
        lambda _, calls: chain(*calls).enqueue(),
    ],
    ids=["one", "async", "many", "keyed", "calls", "group", "chain"],
)
def test_calls_that_a_middleware_refuses_have_no_span(transactional_db, begun, enqueue, place):
    calls = [app.record.bind("a"), contract.add.bind(1), app.noop.bind()]
    with override_pgqueue(MIDDLEWARE=[Refusing(calls[place].task)]), pytest.raises(PermissionError):
        enqueue(calls[place], calls)
    assert begun == []
    assert trace.get_current_span() is trace.INVALID_SPAN
    assert not Job.objects.exists()


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
@pytest.mark.parametrize("place", [0, 1])
def test_calls_that_a_middleware_keeps_out_of_an_outbox_have_no_span(outbox, begun, place):
    calls = [app.record.bind("a"), app.noop.bind()]
    with override_pgqueue(MIDDLEWARE=[Refusing(calls[place].task)]), transaction.atomic(using=outbox):
        for enqueue in (calls[place].enqueue, lambda: enqueue_many(calls)):
            with pytest.raises(PermissionError):
                enqueue()
        assert begun == []
        assert not OutboxCall.objects.using(outbox).exists()
        calls[1 - place].enqueue()
        assert begun == [f"enqueue {calls[1 - place].task.name}"]
        assert "traceparent" in OutboxCall.objects.using(outbox).get().call["options"]["metadata"]


@pytest.mark.django_db
def test_span_of_jobs_that_are_in_is_no_error_where_a_middleware_fails_afterwards(spans):
    with override_pgqueue(MIDDLEWARE=[Refusing(app.noop, after=True)]), pytest.raises(PermissionError):
        enqueue_many([app.record.bind("a"), app.noop.bind()])
    assert [span.status.status_code for span in spans("enqueue")] == [StatusCode.UNSET] * 2
    assert trace.get_current_span() is trace.INVALID_SPAN
    carried = [metadata["traceparent"].split("-")[2] for metadata in Job.objects.values_list("metadata", flat=True)]
    assert sorted(carried) == sorted(f"{span.context.span_id:016x}" for span in spans("enqueue"))


@pytest.mark.django_db
def test_spans_within_a_middleware_are_beside_each_other_too(spans):
    with (
        override_pgqueue(MIDDLEWARE=[Refusing(app.fail_until)]),
        trace.get_tracer("tests").start_as_current_span("request") as request,
    ):
        enqueue_many([app.record.bind("a"), contract.add.bind(1), app.noop.bind()])
    assert [span.parent.span_id for span in spans("enqueue")] == [request.context.span_id] * 3


@pytest.mark.django_db
def test_middleware_sees_the_span_of_the_caller_before_the_insert_and_the_traceparent_after_it(spans):
    seen = []

    class Seeing:
        @contextlib.contextmanager
        def enqueue(self, jobs):
            seen.append(trace.get_current_span())
            jobs.metadata = {"tenant": 7}  # another object: the job is traced all the same
            yield
            seen.append(jobs.metadata["traceparent"])

    with (
        override_pgqueue(MIDDLEWARE=[Seeing()]),
        trace.get_tracer("tests").start_as_current_span("request") as request,
    ):
        app.noop.enqueue()
    carried = Job.objects.get().metadata["traceparent"]
    assert seen == [request, carried]
    assert carried.split("-")[2] == f"{spans('enqueue')[0].context.span_id:016x}"


@pytest.mark.django_db
def test_context_that_a_middleware_gives_is_not_replaced(spans):
    class Giving:
        @contextlib.contextmanager
        def enqueue(self, jobs):
            jobs.metadata["traceparent"] = PARENT
            yield

    with override_pgqueue(MIDDLEWARE=[Giving()]):
        app.noop.enqueue()
    assert Job.objects.get().metadata["traceparent"] == PARENT
    [link] = spans("enqueue")[0].links
    assert f"{link.context.span_id:016x}" == PARENT.split("-")[2]


def test_sensitive_arguments_are_in_no_span(queue, spans):
    contract.refuse.enqueue("open-sesame")
    run_claimed(queue)
    text = "".join(span.to_json() for span in spans())
    assert "[redacted] is not the password" in text
    assert "open-sesame" not in text


def test_run_that_breaks_off_ends_its_span(spans):
    [hook] = [hook for hook in around_runs if hook.__module__ == "django_pgqueue.contrib.opentelemetry"]
    from tests.support.claimed import job

    task = tasks.make(len, name="t")
    contextvars.Context().run(lambda: hook(task, job()).ended(None))  # the run's own, which the span is left in
    [run] = spans("run")
    assert run.status.status_code is StatusCode.ERROR


def test_what_is_not_sampled_is_told_to_the_worker(queue, provide):
    provide(sampler=ALWAYS_OFF)
    app.record.enqueue("a")
    assert not int(Job.objects.get().metadata["traceparent"].rpartition("-")[2], 16) & TraceFlags.SAMPLED
    spans = provide()
    run_claimed(queue)
    assert spans() == []


@pytest.mark.parametrize("how", ["no SDK", "off"])
def test_nothing_travels_where_nothing_is_traced(queue, how, request, settings):
    if how == "off":
        spans = request.getfixturevalue("spans")
        settings.PGQUEUE = settings.PGQUEUE | {"TRACING": False}
    app.record.enqueue("a")
    assert Job.objects.get().metadata == {}
    [job] = claim(queue, "default", limit=1, worker_id=1)
    assert job.rest is None
    if how == "off":
        assert spans() == []


def test_span_that_cannot_be_made_does_not_keep_a_job_from_running(queue, provide, monkeypatch, caplog):
    app.record.enqueue("a")
    provide()

    def fail(*_):
        raise RuntimeError("a broken SDK")

    monkeypatch.setattr(TraceContextTextMapPropagator, "extract", fail)
    monkeypatch.setattr("django_pgqueue.contrib.opentelemetry.trace.set_span_in_context", fail)
    assert run_claimed(queue)[0].fate.word == "succeeded"
    assert "a broken SDK" in caplog.text


def test_span_that_cannot_be_made_does_not_keep_a_job_from_being_enqueued(db, provide, monkeypatch, caplog):
    provide()

    def fail(*_):
        raise RuntimeError("a broken SDK")

    monkeypatch.setattr("django_pgqueue.contrib.opentelemetry.trace.set_span_in_context", fail)
    app.record.enqueue("a")
    assert Job.objects.get().metadata == {}
    assert "a broken SDK" in caplog.text


def test_span_that_cannot_be_ended_does_not_keep_a_job_from_being_enqueued(db, provide, caplog):
    class Broken(SpanProcessor):
        def on_end(self, span):
            raise RuntimeError("a broken processor")

    provide()
    trace.get_tracer_provider().add_span_processor(Broken())
    assert app.record.enqueue("a").id == Job.objects.get().id
    assert "a broken processor" in caplog.text
