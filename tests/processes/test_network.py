"""The way to the database: away, silent, cut in the worst moment. Workers reach it by a proxy on a loopback port."""

import datetime as dt
import json
import re
import signal

import pytest
from django.db import models
from django.db.models.functions import Now

import tests.app.tasks as app
from django_pgqueue.models import Job, SucceededJob, Worker
from tests.app.models import Mark
from tests.support.many import enqueued_ids
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def nothing(proxy):
    """The proxy's port, where nothing listens."""
    proxy.go_away()
    yield proxy
    proxy.come_back()


def marks(label: str | None = None) -> list[int]:
    found = Mark.objects.filter(label=label) if label else Mark.objects.all()
    return sorted(found.values_list("job_id", flat=True))


def test_answers_lost_at_commit_let_nothing_run_twice_and_nothing_be_lost(start_worker, proxy):
    """The consumer does not learn that its outcomes and claims were committed, nor a task that its transaction was."""
    for _ in range(3):
        proxy.lose_answer("pgqueue consumer", to=b"INSERT INTO pgqueue_succeeded_jobs")
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
        ids += [*enqueued_ids(app.record, [("x",)] * 20), *enqueued_ids(app.record_atomic, [("x",)] * 20)]
        eventually(lambda ids=ids: SucceededJob.objects.count() >= len(ids) - 100)
    eventually(lambda: not Job.objects.exists())
    assert marks() == sorted(ids)
    assert set(SucceededJob.objects.values_list("attempts", "lost")) == {(1, 0)}
    eventually(lambda: worker.text().count("Stale result dropped") >= 3)
    assert worker.text().count("Stale result dropped") == 3, "those of the tasks that were told of an error"
    assert "The consumer cannot work with the database" in worker.text()


def test_connections_that_fall_silent_are_given_up(start_worker, proxy):
    """Nothing comes and nothing is closed, as behind a firewall that has forgotten them; the kernel notices nothing."""
    worker = start_worker(
        *("--concurrency", "2"),
        DATABASE_URL=proxy.url(),
        LEASE_SECONDS="6",
        PGQUEUE=json.dumps({"STATEMENT_TIMEOUT_SECONDS": 1}),
    ).wait_until_ready()
    ids = enqueued_ids(app.record, [("before",)] * 20)
    eventually(lambda: SucceededJob.objects.count() == 20)
    assert proxy.stall("pgqueue") >= 4
    ids += enqueued_ids(app.record, [("after",)] * 20)
    eventually(lambda: SucceededJob.objects.count() == 40)
    assert marks() == ids
    for service in ("The consumer cannot work", "The heartbeat failed", "The maintenance failed"):
        eventually(lambda service=service: service in worker.text())
    assert "the server has not answered for 2 s" in worker.text()


@pytest.mark.parametrize("options", [(), ("--wait-for-database=0.2",)], ids=["at once", "after a moment"])
def test_command_that_starts_while_the_database_is_away_ends_with_one_line(start_worker, nothing, options):
    worker = start_worker(*options, DATABASE_URL=nothing.url())
    assert worker.wait() == 1
    *waiting, last = worker.text().splitlines()
    assert re.match(
        r"CommandError: The database of alias 'default' cannot be reached: .*[Cc]onnection refused.* "
        r"Start with --wait-for-database to wait for it\.$",
        last,
    )
    assert len(waiting) <= len(options), "none where the moment was over with the first try"
    assert all(re.search("Waiting for the database of alias 'default': .*refused", line) for line in waiting)


def test_command_waits_for_the_database_where_it_is_told_to(start_worker, proxy):
    job_id = app.noop.enqueue().id
    proxy.go_away()
    worker = start_worker("--wait-for-database", "--drain", DATABASE_URL=proxy.url())
    eventually(lambda: "Waiting for the database of alias 'default'" in worker.text() or worker.must_live())
    proxy.come_back()
    assert worker.wait() == 0, worker.text()
    assert SucceededJob.objects.filter(pk=job_id).exists()
    assert worker.text().count("Waiting for the database") == 1


def test_command_that_waits_for_the_database_can_be_stopped(start_worker, nothing):
    worker = start_worker("--wait-for-database", DATABASE_URL=nothing.url())
    eventually(lambda: "Waiting for the database" in worker.text() or worker.must_live())
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert worker.text().endswith("Stopped by SIGTERM before it has begun.\n")


def test_database_away_for_twice_the_lease_gets_no_worker_reaped_and_no_process_ends(start_worker, proxy):
    """Two commands under load; what they run goes on meanwhile, and is written down when the database is back."""
    workers = [
        start_worker("--processes", "2", "--concurrency", "4", DATABASE_URL=proxy.url(), LEASE_SECONDS="6")
        for _ in range(2)
    ]
    eventually(lambda: Worker.objects.exclude(pid=0).count() == 4)
    children = [worker.children() for worker in workers]
    long = enqueued_ids(app.pause.using(lease=6, priority=10), [(16.0,)] * 4)
    ids = enqueued_ids(app.noop.using(lease=6), [()] * 8_000)
    eventually(lambda: Job.objects.filter(status="running", pk__in=long).count() == 4 and SucceededJob.objects.exists())
    proxy.go_away()
    over = models.Q(lease_until__lte=Now() - dt.timedelta(seconds=6))
    eventually(lambda: not Worker.objects.exclude(over).exists() and Job.objects.filter(status="running").exists())
    proxy.come_back()
    eventually(lambda: SucceededJob.objects.count() == len([*long, *ids]))
    assert set(SucceededJob.objects.values_list("attempts", "lost")) == {(1, 0)}
    assert [worker.children() for worker in workers] == children
    for worker in workers:
        assert worker.process.poll() is None
        assert "Reaped" not in worker.text()
        assert all(line.startswith("2") for line in worker.text().splitlines()), "one line each, and ours only"
