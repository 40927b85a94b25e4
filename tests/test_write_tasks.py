"""The pieces of code of docs/how-to/write-tasks.md, and a retry of failures.md, do what the pages say of them."""

import datetime as dt
import json
import unittest
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from zoneinfo import ZoneInfo

import pytest
from asgiref.sync import async_to_sync
from django.db import connections, transaction
from django.test import RequestFactory

from django_pgqueue import registry
from django_pgqueue.exceptions import JobDied, JobDoesNotExist, JobNotFinished
from django_pgqueue.flow.concurrency import admit
from django_pgqueue.jobs import purge
from django_pgqueue.jobs.claim import claim
from django_pgqueue.maintenance.promoter import promote
from django_pgqueue.models import DeadJob, Job, SucceededJob
from django_pgqueue.schedules import periodic as declared
from django_pgqueue.states import DeathReason
from django_pgqueue.testing import assert_enqueued, assert_not_enqueued, override_pgqueue, run_jobs
from tests.app import stand_ins
from tests.support.pages import DOCS
from tests.support.pieces import left_out, pieces
from tests.support.waiting import PATIENCE_SECONDS, eventually

PIECES = pieces(DOCS / "how-to" / "write-tasks.md")
OF_FAILURES = pieces(DOCS / "how-to" / "failures.md")
BERLIN = ZoneInfo("Europe/Berlin")

HEADINGS = [
    "Hello world",
    "Retry",
    "Later, sooner, many",
    "Run at times of day",
    "Limit each tenant",
    "Test",
    "Wait in an async view",
    "Share options",
    "Use the result",
]

PAGES = {"sorry.html": "sorry", "patience.html": "patience"}
LOADER = ("django.template.loaders.locmem.Loader", PAGES)
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "OPTIONS": {"loaders": [LOADER]}}]


@pytest.fixture
def run(registry_of, code):
    """Run the piece below a heading in a module of its own, with stand-ins for what it leaves out."""

    def execute(heading: str, found: dict[str, str] = PIECES) -> ModuleType:
        module = ModuleType("tests.app.a_piece")
        module.__dict__.update({name: getattr(stand_ins, name) for name in left_out(found[heading])})
        exec(compile(found[heading], heading, "exec"), module.__dict__)
        registry._late.clear()  # as tasks that workers load
        return module

    return execute


def test_page_has_a_piece_below_each_heading():
    assert list(PIECES) == HEADINGS


@pytest.mark.django_db
def test_hello_world(run):
    with transaction.atomic():
        run("Hello world")
        transaction.set_rollback(True)
    assert_not_enqueued()
    module = run("Hello world")
    assert_enqueued(module.send_receipt.bind(stand_ins.order.pk))
    assert len(run_jobs().succeeded) == 1


class TestRetry:
    pytestmark = pytest.mark.django_db

    @pytest.fixture
    def warehouse(self, monkeypatch):
        monkeypatch.setattr(stand_ins, "warehouse", found := stand_ins.Warehouse())
        return found

    def test_errors_are_tried_again_after_waits_that_grow(self, run, warehouse):
        warehouse.is_closed = True
        run("Retry").send_to_warehouse.enqueue(stand_ins.Order.objects.create(job_id=0).pk)
        report = run_jobs(until=dt.timedelta(hours=1), errors="collect")
        assert [attempt.delay_seconds for attempt in report][:7] == pytest.approx([2, 4, 8, 16, 32, 64, 128], rel=0.11)
        assert [attempt.reason for attempt in report][7:] == [DeathReason.EXHAUSTED]

    def test_order_that_is_gone_is_not_tried_again(self, run, warehouse):
        run("Retry").send_to_warehouse.enqueue(0)
        run_jobs(errors="collect")
        assert DeadJob.objects.get().reason == DeathReason.DISCARDED
        assert not warehouse.sent

    def test_delay_is_that_of_the_reply_and_the_attempt_counts(self, run, monkeypatch):
        monkeypatch.setattr(stand_ins, "provider", provider := stand_ins.Provider())
        provider.reply.status_code = 429
        provider.reply.headers["Retry-After"] = "1800"
        run("Retry or discard", OF_FAILURES).charge.enqueue(stand_ins.Order.objects.create(job_id=0).pk)
        [attempt] = run_jobs()
        assert (attempt.outcome, attempt.delay_seconds) == ("retried", 1800)
        job = Job.objects.get()
        assert (job.status, job.attempts, job.max_attempts) == ("scheduled", 1, 8)


@pytest.mark.django_db
def test_jobs_are_due_later_start_sooner_or_are_many(run):
    run("Later, sooner, many")
    waits = [(job.run_at - job.enqueued_at).total_seconds() for job in Job.objects.order_by("id")]
    assert waits == pytest.approx([60, 24 * 3600, 0, 0], abs=PATIENCE_SECONDS)
    rows = Job.objects.order_by("id").values_list("args", "priority")
    assert [*rows] == [([16], 0), ([16], 10), ([17], 0), ([18], 0)]


@pytest.mark.django_db
def test_schedules(run):
    module = run("Run at times of day")
    assert {*declared._declared} == {module.send_sales_report.name, "weekly report"}
    run_jobs(until=dt.timedelta(days=8), queue="reports")  # a week also where the clocks are changed meanwhile
    made = SucceededJob.objects.values_list("args", "priority", "run_at")
    assert {(*args, priority, f"{at.astimezone(BERLIN):%a %H:%M}") for args, priority, at in made} == {
        ("week", -10, "Sun 00:00"),
        *((0, f"{day} 09:00") for day in ("Mon", "Tue", "Wed", "Thu", "Fri")),
    }


@pytest.mark.django_db(transaction=True)
def test_tenants_have_four_jobs_each_and_take_turns(run, queue):
    module = run("Limit each tenant")
    module.call_api.enqueue_many([(1, "/a")] * 6 + [(2, "/a")] * 2)
    promote(queue)
    admit(queue, set(Job.objects.values_list("concurrency_key", flat=True)))
    tenants = [json.loads(job.args)[0] for job in claim(queue, "default", limit=8, worker_id=1)]
    assert tenants == [1, 2, 1, 2, 1, 1]
    assert Job.objects.filter(status="limited").count() == 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.urls("tests.app.stand_ins")
def test_tests_pass(run):
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(run("Test").CheckoutTest)
    result = unittest.TestResult()
    suite.run(result)
    assert (result.testsRun, result.errors, result.failures) == (2, [], [])


@pytest.mark.django_db(transaction=True)
def test_async_view_waits(run):
    view = run("Wait in an async view").report

    def answer():
        try:
            return async_to_sync(view)(RequestFactory().get("/"), 7)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        answered = pool.submit(answer)
        eventually(lambda: Job.objects.filter(has_waiters=True).exists())
        run_jobs()
        assert answered.result(PATIENCE_SECONDS).url == "/reports/7/"


@pytest.mark.django_db
def test_options_are_shared(run):
    module = run("Share options")
    with override_pgqueue(**module.PGQUEUE):
        module.send_receipt.enqueue(1)
        module.send_newsletter.enqueue(1)
    rows = Job.objects.order_by("id").values_list("queue", "max_attempts", "timeout_seconds")
    assert [*rows] == [("mails", 8, 300), ("mails", 8, 900)]


class TestResult:
    pytestmark = pytest.mark.django_db

    @pytest.fixture
    def request_with_a_session(self, settings):
        settings.TEMPLATES = TEMPLATES
        request = RequestFactory().get("/")
        request.session = {}
        return request

    def test_page_shows_the_result_once_it_is_there(self, run, request_with_a_session):
        module = run("Use the result")
        module.order_report(request_with_a_session, 7)
        assert module.show_report(request_with_a_session).content == b"patience"
        with pytest.raises(JobNotFinished):
            module.jobs.get(request_with_a_session.session["report"]).result()
        run_jobs()
        assert module.show_report(request_with_a_session).url == "/reports/7/"

    def test_page_says_sorry_for_a_dead_job(self, run, request_with_a_session):
        module = run("Use the result")
        module.order_report(request_with_a_session, 7)
        handle = module.jobs.get(request_with_a_session.session["report"])
        assert handle.kill()
        assert module.show_report(request_with_a_session).content == b"sorry"
        with pytest.raises(JobDied):
            handle.result()
        purge([handle.id])
        with pytest.raises(JobDoesNotExist):
            handle.status()
