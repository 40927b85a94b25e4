"""Scrapes agree with what has happened: the handlers' own count and the tables agree with it."""

import datetime as dt
import json
import os
import re
import signal

import pytest
from django.db.models import Sum
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue.models import DeadJob, Job, Queue, Stat, SucceededJob
from tests.app.models import Mark
from tests.support.many import enqueued_ids
from tests.support.scraping import OPENMETRICS, Scraped, Sheet, must_lint
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)


def attempts(sheet: Sheet, task, outcome: str) -> float:
    return sheet.total("pgqueue_attempts_total", task=task.name, outcome=outcome)


def scrape_until(scraped: Scraped, is_over) -> Sheet:
    """Scrape until ``is_over`` is true of a sheet; no sum may go down meanwhile. Return the last sheet."""
    last: dict = {}

    def look() -> Sheet | None:
        nonlocal last
        sheet = scraped.scrape()
        sums = sheet.sums()
        fallen = {key: (value, sums.get(key)) for key, value in last.items() if not sums.get(key, -1.0) >= value}
        assert not fallen
        last = sums
        return sheet if is_over(sheet) else None

    return eventually(look)


def test_four_processes_tell_what_the_handlers_and_the_tables_tell(start_worker, tmp_path):
    """One of them is killed meanwhile, in the middle of its jobs."""
    limits = tmp_path / "limits"
    app.until_exists.enqueue_many([(str(limits),)] * 16)
    scraped = Scraped(start_worker, "--processes", "4", "--concurrency", "4")
    scrape_until(
        scraped,
        lambda sheet: sheet.of("pgqueue_slots_busy") == 16 and sheet.total("pgqueue_claimed_jobs_sum") >= 16,
    )
    assert scraped.scrape().of("pgqueue_slots") == 16
    os.kill(scraped.worker.children()[0], signal.SIGKILL)
    scrape_until(scraped, lambda sheet: attempts(sheet, app.until_exists, "lost") == 4)
    app.record.enqueue_many([("x",)] * 600)
    app.arecord.enqueue_many([("y",)] * 100)
    app.fail.enqueue_many([()] * 30)
    app.fail_until.enqueue_many([(2,)] * 30)
    app.parent.enqueue_many([()] * 20)
    limits.touch()
    scrape_until(
        scraped,
        lambda sheet: sheet.of("pgqueue_jobs", queue="default", status="dead") == 30 and not Job.objects.exists(),
    )
    ended = 600 + 100 + 90 + 60 + 40 + 16
    sheet = scrape_until(
        scraped,
        lambda sheet: (
            sheet.total("pgqueue_attempts_total") == ended + 4 and sheet.total("pgqueue_job_run_seconds_count") == ended
        ),
    )

    ran = {task: Mark.objects.filter(label=label).count() for task, label in ((app.record, "x"), (app.arecord, "y"))}
    assert ran == {app.record: 600, app.arecord: 100}
    for task, number in {**ran, app.parent: 20, app.noop: 20, app.until_exists: 16}.items():
        assert attempts(sheet, task, "succeeded") == number == SucceededJob.objects.filter(task=task.name).count()
    assert attempts(sheet, app.fail, "failed") == 90 == Mark.objects.filter(label="no luck").count()
    assert attempts(sheet, app.fail, "succeeded") == 0
    assert [attempts(sheet, app.fail_until, what) for what in ("failed", "succeeded", "lost")] == [30, 30, 0]
    assert attempts(sheet, app.until_exists, "lost") == 4
    assert {task: sheet.total("pgqueue_jobs_retried_total", task=task.name) for task in (app.fail, app.fail_until)} == {
        app.fail: 60,
        app.fail_until: 30,
    }
    assert sheet.total("pgqueue_jobs_died_total") == sheet.total("pgqueue_jobs_died_total", task=app.fail.name) == 30
    assert DeadJob.objects.count() == 30
    assert (
        sheet.total("pgqueue_jobs_enqueued_total")
        == sheet.total("pgqueue_jobs_enqueued_total", task=app.noop.name)
        == 20
    )
    for seconds in ("wait", "run"):
        assert sheet.total(f"pgqueue_job_{seconds}_seconds_count") == ended
        assert sheet.total(f"pgqueue_job_{seconds}_seconds_bucket", le="+Inf") == ended
    assert sheet.total("pgqueue_acked_jobs_sum") >= ended
    assert sheet.total("pgqueue_claimed_jobs_sum") >= ended + 4
    assert sheet.total("pgqueue_worker_cycle_seconds_count") >= sheet.total("pgqueue_acked_jobs_count") > 0

    scraped.worker.signal(signal.SIGTERM)
    assert scraped.worker.wait() == 0
    table = Stat.objects.aggregate(**{name: Sum(name) for name in ("succeeded", "failed", "lost", "retried", "died")})
    outcomes = {name: sheet.total("pgqueue_attempts_total", outcome=name) for name in ("succeeded", "failed", "lost")}
    assert table == {**outcomes, "retried": sheet.total("pgqueue_jobs_retried_total"), "died": 30}


def test_sums_stay_when_processes_are_recycled(start_worker):
    scraped = Scraped(start_worker, "--processes", "2", "--max-jobs", "100")
    first, enqueued = set(scraped.worker.children()), 0

    def are_all_replaced(_: Sheet) -> bool:
        nonlocal enqueued
        if Job.objects.count() < 50:
            enqueued += len(enqueued_ids(app.noop, [()] * 50))
        return not first & set(scraped.worker.children())

    scrape_until(scraped, are_all_replaced)
    told = ("pgqueue_attempts_total", "pgqueue_job_run_seconds_count")
    sheet = scrape_until(scraped, lambda sheet: min(map(sheet.total, told)) >= enqueued)
    assert attempts(sheet, app.noop, "succeeded") == enqueued == sheet.total("pgqueue_job_run_seconds_count")
    assert sheet.total("pgqueue_acked_jobs_sum") >= enqueued


def test_tables_are_told_by_the_clock_of_the_database(start_worker, sql):
    """The job is in a queue that no worker serves; another is due, and the rest is to come."""
    hour_ago = timezone.now() - dt.timedelta(hours=1)
    Job.objects.create(task="x", queue="left", run_at=hour_ago, enqueued_at=hour_ago)
    app.noop.using(queue="left", delay=dt.timedelta(hours=2)).enqueue()
    Queue.objects.create(name="idle", paused_at=timezone.now(), max_running=1)
    scraped = Scraped(start_worker, "--queue", "default")
    age = "SELECT extract(epoch FROM statement_timestamp() - min(run_at))::float FROM pgqueue_jobs"
    eventually(lambda: scraped.scrape().of("pgqueue_workers", queue="left") is not None)
    [(before,)] = sql(age)
    sheet = eventually(
        lambda: (sheet := scraped.scrape()).of("pgqueue_oldest_runnable_seconds", queue="left") >= before and sheet
    )
    [(after,)] = sql(age)
    assert before <= sheet.of("pgqueue_oldest_runnable_seconds", queue="left") <= after
    assert sheet.of("pgqueue_oldest_runnable_seconds", queue="idle") == 0
    assert sheet.of("pgqueue_jobs", queue="left", status="queued") == 1
    assert sheet.of("pgqueue_jobs", queue="left", status="scheduled") == 1
    assert sheet.of("pgqueue_workers", queue="left") == 0
    assert [sheet.of("pgqueue_queue_paused", queue=queue) for queue in ("left", "idle")] == [0, 1]
    assert [sheet.of("pgqueue_queue_limited", queue=queue) for queue in ("left", "idle")] == [0, 1]


@pytest.mark.parametrize("way", ["away", "silent"])
def test_without_the_database_a_worker_tells_what_it_knows_itself(start_worker, proxy, way):
    app.noop.enqueue()
    scraped = Scraped(
        start_worker, DATABASE_URL=proxy.url(), LEASE_SECONDS="3", PGQUEUE=json.dumps({"READ_TIMEOUT_SECONDS": 1})
    )
    scrape_until(scraped, lambda sheet: attempts(sheet, app.noop, "succeeded") == 1 and sheet.of("pgqueue_up"))
    proxy.go_away() if way == "away" else proxy.stall()
    sheet = scrape_until(scraped, lambda sheet: sheet.of("pgqueue_up") == 0)
    assert not [name for name, _ in sheet.samples if name in ("pgqueue_jobs", "pgqueue_oldest_runnable_seconds")]
    assert attempts(sheet, app.noop, "succeeded") == 1
    assert sheet.of("pgqueue_processes") == 1
    proxy.come_back() if way == "away" else proxy.flow()
    sheet = scrape_until(scraped, lambda sheet: sheet.of("pgqueue_up") == 1)
    assert sheet.of("pgqueue_jobs", queue="default", status="queued") == 0


def test_one_port_answers_probes_and_scrapers_in_the_format_they_want(start_worker, project):
    app.noop.enqueue()
    scraped = Scraped(start_worker, probes=True)
    scrape_until(scraped, lambda sheet: attempts(sheet, app.noop, "succeeded") == 1)
    eventually(lambda: scraped.get("/ready")[0] == 200)
    plain, opened = scraped.scrape(), scraped.scrape(Accept=OPENMETRICS)
    assert opened.kinds.keys() == plain.kinds.keys()
    assert attempts(opened, app.noop, "succeeded") == 1
    for headers, kind, encoding in (
        ({}, "text/plain; version=0.0.4", None),
        ({"Accept": OPENMETRICS}, "application/openmetrics-text; version=1.0.0", None),
        ({"Accept-Encoding": "gzip"}, "text/plain; version=0.0.4", "gzip"),
        ({"accept": OPENMETRICS, "accept-encoding": "gzip"}, "application/openmetrics-text; version=1.0.0", "gzip"),
    ):
        status, told, _ = scraped.get(**headers)
        assert (status, told["Content-Encoding"]) == (200, encoding)
        assert told["Content-Type"].startswith(kind)
    services = {
        dict(labels)["service"] for name, labels in plain.samples if name == "pgqueue_last_pass_timestamp_seconds"
    }
    page = (project / "docs" / "internals" / "services.md").read_text()
    listed = set(re.findall(r"`([\w-]+)`", page))
    assert services <= listed - {"LEASE_SECONDS"}
    must_lint(scraped.get()[2])
