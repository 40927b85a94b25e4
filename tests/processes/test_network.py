"""The way to the database: away, silent, cut in the worst moment. Workers reach it by a proxy on a loopback port."""

import datetime as dt
import json

import pytest
from django.db import models
from django.db.models.functions import Now

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from django_pgqueue.models import FinishedJob, Job, Worker
from tests.app.models import Mark
from tests.proxy import Detour
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def proxy(transactional_db):
    opened = Detour()
    yield opened
    opened.close()


def marks(label: str | None = None) -> list[int]:
    found = Mark.objects.filter(label=label) if label else Mark.objects.all()
    return sorted(found.values_list("job_id", flat=True))


def test_answers_lost_at_commit_let_nothing_run_twice_and_nothing_be_lost(start_worker, proxy):
    """The pump does not learn that its outcomes and claims were committed, nor a task that its transaction was."""
    for _ in range(3):
        proxy.lose_answer("pgqueue pump", to=b"INSERT INTO pgqueue_finished_jobs")
        proxy.lose_answer("", to=b"COMMIT")
    worker = start_worker(
        *("--concurrency", "4"),
        DATABASE_URL=proxy.url(),
        LEASE_SECONDS="3",
        PGQUEUE=json.dumps(
            {"PREPARED_STATEMENTS": False, "STATEMENT_TIMEOUT_SECONDS": 2}
        ),  # so that the proxy sees what is sent
    ).wait_until_ready()
    ids = []
    while proxy.is_losing:
        ids += [*enqueue_many(app.record, [("x",)] * 20), *enqueue_many(app.record_atomic, [("x",)] * 20)]
        eventually(lambda ids=ids: FinishedJob.objects.count() >= len(ids) - 100)
    eventually(lambda: not Job.objects.exists())
    assert marks() == sorted(ids)
    assert set(FinishedJob.objects.values_list("attempts", "lost")) == {(1, 0)}
    eventually(lambda: worker.text().count("Stale result dropped") >= 3)
    assert worker.text().count("Stale result dropped") == 3, "those of the tasks that were told of an error"
    assert "The pump cannot work with the database" in worker.text()


def test_connections_that_fall_silent_are_given_up(start_worker, proxy):
    """Nothing comes and nothing is closed, as behind a firewall that has forgotten them; the kernel notices nothing."""
    worker = start_worker(
        *("--concurrency", "2"),
        DATABASE_URL=proxy.url(),
        LEASE_SECONDS="6",
        PGQUEUE=json.dumps({"STATEMENT_TIMEOUT_SECONDS": 1}),
    ).wait_until_ready()
    ids = enqueue_many(app.record, [("before",)] * 20)
    eventually(lambda: FinishedJob.objects.count() == 20)
    assert proxy.stall("pgqueue") >= 4
    ids += enqueue_many(app.record, [("after",)] * 20)
    eventually(lambda: FinishedJob.objects.count() == 40)
    assert marks() == ids
    for duty in ("The pump cannot work", "The heartbeat failed", "The housekeeping failed"):
        eventually(lambda duty=duty: duty in worker.text())
    assert "the server has not answered for 2 s" in worker.text()


def test_database_away_for_twice_the_lease_gets_nobody_reaped_and_no_process_ends(start_worker, proxy):
    """Two commands under load; what they run goes on meanwhile, and is written down when the database is back."""
    workers = [
        start_worker("--processes", "2", "--concurrency", "4", DATABASE_URL=proxy.url(), LEASE_SECONDS="3")
        for _ in range(2)
    ]
    eventually(lambda: Worker.objects.exclude(pid=0).count() == 4)
    children = [worker.children() for worker in workers]
    long = enqueue_many(app.pause.using(lease=3, priority=10), [(8.0,)] * 4)
    ids = enqueue_many(app.noop.using(lease=3), [()] * 8_000)
    eventually(lambda: Job.objects.filter(status="running", pk__in=long).count() == 4 and FinishedJob.objects.exists())
    proxy.go_away()
    over = models.Q(lease_until__lte=Now() - dt.timedelta(seconds=3))
    eventually(lambda: not Worker.objects.exclude(over).exists() and Job.objects.filter(status="running").exists())
    proxy.come_back()
    eventually(lambda: FinishedJob.objects.count() == len([*long, *ids]))
    assert set(FinishedJob.objects.values_list("attempts", "lost")) == {(1, 0)}
    assert [worker.children() for worker in workers] == children
    for worker in workers:
        assert worker.process.poll() is None
        assert "Reaped" not in worker.text()
        assert all(line.startswith("2") for line in worker.text().splitlines()), "one line each, and ours only"
