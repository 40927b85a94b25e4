"""Log lines of jobs go to the job for which they are logged, and into the database with its outcome."""

import logging

import pytest

from django_pgqueue import Snooze, current_job, jobs
from django_pgqueue.jobs.context import CurrentJob, entered
from django_pgqueue.jobs.direct_run import make_job
from django_pgqueue.jobs.executor import run
from django_pgqueue.jobs.interrupts import ThreadInterrupts
from django_pgqueue.models import DeadJob, Job, SucceededJob
from django_pgqueue.worker import log_capture
from tests.support.consumers import cycle

pytestmark = pytest.mark.django_db(transaction=True)

shop = logging.getLogger("shop.tasks")


@pytest.fixture
def capture(caplog):
    """Install the handler, and take it away again."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    caplog.set_level(logging.INFO)
    yield log_capture.install
    root.handlers[:] = before
    root.setLevel(level)


@pytest.fixture
def run_one(consumer, capture, registry_of):
    """Run a job by the consumer's own steps, with lines of its task captured; return the run."""

    def begin(func, **options) -> CurrentJob:
        task = registry_of(func, capture_logs="INFO", **options)
        capture()
        task.enqueue()
        cycle(consumer)
        cell, job = consumer.slots.accepted[-1]
        current = CurrentJob(job, consumer.slots.news.tell)
        consumer.slots.mailbox.put((cell, run(task, job, current, ThreadInterrupts())))
        cycle(consumer)
        return current

    return begin


def chat():
    shop.info("order %d", 7)
    shop.debug("not this one")
    logging.getLogger("django_pgqueue.jobs").warning("nor this one")


def texts(log: str) -> list[str]:
    return [line.partition(": ")[2] for line in log.splitlines()]


def test_lines_of_a_job_that_succeeded_are_kept_with_it(run_one):
    run_one(chat)
    row = SucceededJob.objects.get()
    assert (texts(row.progress["log"]), row.progress["attempt"]) == (["order 7"], 1)
    assert jobs.get(row.pk).state().progress is None


def test_those_of_an_atomic_task_too(run_one):
    run_one(chat, atomic=True)
    assert texts(SucceededJob.objects.get().progress["log"]) == ["order 7"]


def test_progress_is_kept_beside_them(run_one):
    def slow():
        chat()
        current_job().set_progress(1, 2)

    run_one(slow)
    row = SucceededJob.objects.get()
    assert (texts(row.progress["log"]), row.progress["done"]) == (["order 7"], 1)
    assert jobs.get(row.pk).state().progress["done"] == 1
    assert "log" not in jobs.get(row.pk).state().progress


@pytest.mark.parametrize(("most", "model"), [(2, Job), (1, DeadJob)])
def test_lines_of_a_failed_attempt_are_in_its_entry(run_one, most, model):
    def fail():
        chat()
        raise ValueError("no luck")

    run_one(fail, max_attempts=most)
    [entry] = model.objects.get().errors
    assert texts(entry["log"]) == ["order 7"]


def test_lines_of_a_snoozed_run_stay_with_the_job(run_one):
    def snooze():
        chat()
        raise Snooze(60)

    run_one(snooze)
    assert texts(Job.objects.get().progress["log"]) == ["order 7"]


def test_lines_of_a_run_that_goes_on_are_written_meanwhile(run_one, consumer, monkeypatch):
    monkeypatch.setattr(log_capture, "TELL_AFTER_SECONDS", 0.0)
    seen = []

    def slow():
        chat()
        shop.info("goes on")
        cycle(consumer)
        seen.append(Job.objects.get().progress)

    run_one(slow)
    assert texts(seen[0]["log"]) == ["order 7", "goes on"]


def test_nothing_is_stored_of_jobs_that_are_not_kept(run_one):
    run_one(chat, keep_result=False)
    assert not SucceededJob.objects.exists()
    assert not Job.objects.exists()


def test_without_tasks_that_want_it_nothing_is_installed(capture, registry_of):
    before = logging.getLogger().handlers[:]
    registry_of(chat)
    capture()
    assert logging.getLogger().handlers == before


def test_each_line_goes_to_the_job_in_whose_context_it_is_logged(capture, registry_of):
    task = registry_of(chat, capture_logs="INFO")
    capture()
    shop.info("of no job")
    first, second = (CurrentJob(make_job(task, attempt=1, run_at=0.0)) for _ in range(2))
    with entered(first):
        shop.info("one")
        with entered(second):
            shop.info("two")
    assert [texts(one.log.text()) for one in (first, second)] == [["one"], ["two"]]


def test_a_line_that_cannot_be_printed_breaks_no_job(capture, registry_of, monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)
    task = registry_of(chat, capture_logs="INFO")
    capture()
    current = CurrentJob(make_job(task, attempt=1, run_at=0.0))
    with entered(current):
        shop.info("%d", "x")
        shop.info("after it")
    assert texts(current.log.text()) == ["after it"]


def test_a_project_without_handlers_gets_lines_from_that_level_on_and_prints_warnings_only(capture, registry_of):
    registry_of(chat, capture_logs="INFO")
    root = logging.getLogger()
    root.handlers[:] = []
    root.setLevel(logging.WARNING)
    capture()
    assert root.level == logging.INFO
    assert [one.level for one in root.handlers[:-1]] == [logging.WARNING]
