"""The overview: its numbers, and that they cost the same whatever the backlog."""

import datetime as dt

import pytest
from django.test import Client
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue.db.queries import statement
from django_pgqueue.insights import overview
from django_pgqueue.insights.overview import BoundedCount
from django_pgqueue.jobs import kill
from django_pgqueue.models import Job, Queue
from tests.support.plans import explain, fill
from tests.support.staff import user_with
from tests.support.worker_rows import worker

pytestmark = pytest.mark.django_db

AGED = "run_at = now() - make_interval(mins => %s), enqueued_at = now() - make_interval(mins => %s)"

PAGE = "/admin/pgqueue/overview/"
BIG = {"pgqueue_jobs", "pgqueue_dead_jobs", "pgqueue_succeeded_jobs"}


@pytest.fixture
def viewer() -> Client:
    return user_with("view_overview")


def lines() -> dict[str, overview.QueueLine]:
    return {line.name: line for line in overview.lines("default")}


def test_each_status_of_each_queue_is_counted(sql):
    app.noop.enqueue_many([()] * 3)
    app.noop.using(queue="mail", delay=dt.timedelta(hours=1)).enqueue_many([()] * 2)
    app.noop.using(queue="mail", limit_key="k").enqueue_many([()] * 4)
    kill([app.noop.using(queue="gone").enqueue().id], by="eve")
    sql("UPDATE pgqueue_jobs SET status = 'running', lease_token = 1 WHERE id = (SELECT min(id) FROM pgqueue_jobs)")
    Queue.objects.create(name="mail")
    found = lines()
    assert list(found) == ["default", "gone", "mail"]
    numbers = ("queued", "scheduled", "limited", "running", "dead")
    shown = {name: [getattr(line, number).value for number in numbers] for name, line in found.items()}
    assert shown == {"default": [2, 0, 0, 1, 0], "gone": [0, 0, 0, 0, 1], "mail": [0, 2, 4, 0, 0]}


def test_numbers_beyond_the_cap_say_that_there_are_more(monkeypatch):
    monkeypatch.setattr(overview, "CAPS", (3,))
    monkeypatch.setattr(overview, "MOST_LOOKED_AT", 3)
    app.noop.enqueue_many([()] * 3)
    app.noop.using(delay=dt.timedelta(hours=1)).enqueue_many([()] * 2)
    assert lines()["default"].queued == BoundedCount(3, is_short=False)
    assert str(lines()["default"].scheduled) == "2"
    app.noop.enqueue_many([()])
    app.noop.using(delay=dt.timedelta(hours=1)).enqueue_many([()] * 2)
    assert lines()["default"].queued == BoundedCount(3, is_short=True)
    assert str(lines()["default"].scheduled) == "3+"


def test_number_that_was_not_counted_at_all_is_no_zero(viewer, monkeypatch):
    """Scheduled jobs are looked at in the order in which they are due, over all queues."""
    monkeypatch.setattr(overview, "MOST_LOOKED_AT", 3)
    app.noop.using(queue="first", delay=dt.timedelta(hours=1)).enqueue_many([()] * 4)
    app.noop.using(queue="later", delay=dt.timedelta(hours=2)).enqueue_many([()] * 4)
    Queue.objects.bulk_create(Queue(name=name) for name in ("first", "later"))
    assert {name: str(line.scheduled) for name, line in lines().items()} == {"first": "3+", "later": "?"}
    assert "0+" not in viewer.get(PAGE).content.decode()


def test_counting_stops_earlier_where_there_are_many_queues():
    app.noop.enqueue_many([()] * 101)
    few, many = ["default"], ["default", *(f"q{number}" for number in range(500))]
    assert overview.numbers_of(few, "default")["default"]["queued"] == BoundedCount(101)
    assert overview.numbers_of(many, "default")["default"]["queued"] == BoundedCount(100, is_short=True)


def test_oldest_job_that_could_run_is_found_at_any_priority(sql):
    for priority, minutes in ((5, 1), (0, 90), (-5, 3)):
        job = app.noop.using(priority=priority).enqueue()
        sql(f"UPDATE pgqueue_jobs SET {AGED} WHERE id = %s", minutes, minutes, job.id)
    assert 90 * 60 <= lines()["default"].oldest_seconds < 91 * 60 + 120


def test_p99_is_the_age_that_one_job_in_a_hundred_exceeds(sql):
    app.noop.using(queue="a").enqueue_many([()] * 200)
    app.noop.using(queue="later").enqueue()
    sql("UPDATE pgqueue_jobs SET run_at = now() + interval '1 h' WHERE queue = 'later'")
    ids = [job_id for (job_id,) in sql("SELECT id FROM pgqueue_jobs WHERE queue = 'a' ORDER BY id")]
    sql(f"UPDATE pgqueue_jobs SET {AGED} WHERE id = %s", 10, 10, ids[0])
    assert lines()["a"].p99_seconds < 300
    sql(f"UPDATE pgqueue_jobs SET {AGED} WHERE id = ANY (%s)", 10, 10, ids[:3])
    assert lines()["a"].p99_seconds >= 600
    assert lines()["later"].p99_seconds is None


@pytest.mark.parametrize("options", [{"fair_key": "k"}, {"head_start": 60}])
def test_run_at_before_a_job_was_there_is_not_its_age(sql, options):
    app.noop.using(**options).enqueue()
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '1 day'")
    assert lines()["default"].p99_seconds < 300


def test_workers_serve_what_their_patterns_match():
    worker(queues=["m*", "-music"])
    worker(queues=[])
    worker(queues=["music"], lease_until=timezone.now() - dt.timedelta(seconds=1))
    for name in ("mail", "music"):
        Queue.objects.create(name=name)
    assert {name: line.workers for name, line in lines().items()} == {"mail": 2, "music": 1}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["queue_overview", "oldest_runnable", "all_queues", "next_tasks", "waiting_ages"])
def test_counting_reads_indexes_up_to_its_limit(queue, name):
    fill(queue, 3000, "queued", "running", "scheduled")
    queue.autocommit().execute("ANALYZE pgqueue_jobs")
    parameters = {"names": ["default"], "limit": 100, "most": 100}
    nodes = explain(queue, statement(name), parameters)
    assert not [node for node in nodes if node["Node Type"] == "Seq Scan" and node["Relation Name"] in BIG]
    read = sum(node["Actual Rows"] for node in nodes if "Index Name" in node)
    assert read <= 10 * 100 + 400


def oldest(name: str) -> float | None:
    return lines()[name].oldest_seconds


def test_a_look_tells_queues_and_workers():
    worker(queues=["mail"])
    Queue.objects.create(name="mail")
    app.noop.enqueue_many([()] * 3)
    assert {name: (line.queued.value, line.workers) for name, line in lines().items()} == {
        "default": (3, 0),
        "mail": (0, 1),
    }


def test_age_counts_from_run_at_by_the_clock_of_the_database(sql):
    """What this machine thinks of the time does not count."""
    hour = dt.timedelta(hours=1)
    Job.objects.create(task="x", queue="a", run_at=timezone.now() - hour, enqueued_at=timezone.now() - 2 * hour)
    Job.objects.create(task="x", queue="a", run_at=timezone.now() + dt.timedelta(hours=1), priority=5)
    true = "SELECT extract(epoch FROM statement_timestamp() - min(run_at))::float FROM pgqueue_jobs"
    [(before,)], found, [(after,)] = sql(true), oldest("a"), sql(true)
    assert before <= found <= after


def test_job_that_is_due_ages_although_no_worker_is_there_to_promote_it(sql):
    job = app.noop.using(queue="a", delay=dt.timedelta(hours=1)).enqueue()
    Queue.objects.create(name="a")
    assert oldest("a") is None
    sql("UPDATE pgqueue_jobs SET run_at = statement_timestamp() - interval '7 min' WHERE id = %s", job.id)
    assert oldest("a") >= 420


def test_reserved_does_not_age(sql):
    Queue.objects.create(name="a")
    app.noop.using(queue="a", delay=dt.timedelta(hours=1)).enqueue()
    sql("UPDATE pgqueue_jobs SET run_at = statement_timestamp() - interval '7 min', status = 'reserved'")
    assert oldest("a") is None
