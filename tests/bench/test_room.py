"""A bench comes in only where nothing is in its way, and leaves the rows of others alone."""

import datetime as dt
import io

import pytest
from django.core.management import CommandError, call_command

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from django_pgqueue.bench.load import QUEUE
from django_pgqueue.bench.room import alone, check_others
from django_pgqueue.models import DeadJob, FinishedJob
from tests.support.benches import everything, of_the_bench, real


@real
def test_bench_refuses_to_start_beside_jobs_of_others():
    app.noop.enqueue()
    before = everything()
    with pytest.raises(CommandError, match=r"There are 1 jobs in pgqueue_jobs of 'test_.*With --yes the bench runs"):
        call_command("pgqueue_bench", jobs=10)
    assert everything() == before


@real
def test_with_yes_the_bench_leaves_the_rows_of_others_alone(few_pick_ups):
    enqueue_many(app.noop, [()] * 5)
    app.noop.using(queue="other", run_at=dt.timedelta(hours=1)).enqueue()
    FinishedJob.objects.create(
        id=10**9,
        worker_id=1,
        run_seconds=0,
        priority=0,
        attempts=1,
        lost=0,
        queue="default",
        **dict.fromkeys(("enqueued_at", "run_at", "first_started_at", "started_at"), "2024-01-01T00:00Z"),
        task="x",
        backend="",
        args=[],
        kwargs={},
        metadata={},
        errors=[],
    )
    DeadJob.objects.create(
        id=10**9 + 1,
        run_at="2024-01-01T00:00Z",
        enqueued_at="2024-01-01T00:00Z",
        reason="exhausted",
        queue="default",
        task="x",
    )
    before = everything()
    out = io.StringIO()
    call_command("pgqueue_bench", jobs=50, history=True, yes=True, stdout=out, verbosity=0)
    assert everything() == before
    assert "Measured beside jobs of other queues" in out.getvalue()


@real
def test_bench_refuses_to_start_beside_workers_that_would_take_its_jobs(register):
    register()  # all queues
    with pytest.raises(CommandError, match=r"Workers that serve all queues would take .*Stop them, or start them with"):
        call_command("pgqueue_bench", jobs=10, yes=True)
    assert of_the_bench() == [0, 0, 0, 0]


@real
def test_one_bench_at_a_time():
    with alone("default"), pytest.raises(CommandError, match="Another pgqueue_bench measures this database"):
        call_command("pgqueue_bench", jobs=10)


def test_jobs_of_the_bench_alone_are_no_jobs_of_others(sql):
    sql("INSERT INTO pgqueue_jobs (task, queue) VALUES ('x', %s)", QUEUE)
    assert check_others("default", beside_others=False) is False
    sql("INSERT INTO pgqueue_jobs (task, queue) VALUES ('x', 'y')")
    assert check_others("default", beside_others=True) is True
