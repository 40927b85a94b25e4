"""Missing workers, queues that none serves, polling, too few connections and stalled bulk actions are found."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, connections
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import queues
from django_pgqueue.doctor import Level
from django_pgqueue.doctor.finding import View
from django_pgqueue.doctor.workers import SessionLimit, connections_of
from django_pgqueue.jobs.actions import KILL
from django_pgqueue.jobs.bulk_actions import begin
from django_pgqueue.jobs.search import Filter
from django_pgqueue.models import Worker
from tests.support.doctor import diagnosis, found, only
from tests.support.waiting import eventually
from tests.support.worker_rows import ALIVE, worker

pytestmark = pytest.mark.django_db


def test_no_worker_is_worse_while_jobs_wait():
    assert only("no-workers").level is Level.WARNING
    app.noop.using(queue="mail").enqueue_many([()])
    assert only("no-workers").level is Level.ERROR
    assert "mail" in only("no-workers").what
    worker(lease_until=timezone.now() - ALIVE)
    assert only("no-workers")
    worker()
    assert not found("no-workers")


def test_queue_that_no_living_worker_serves_is_named():
    worker(queues=["default", "m*", "-mail"])
    app.noop.using(queue="mail").enqueue_many([()] * 3)
    app.noop.using(queue="music").enqueue_many([()])
    finding = only("queue-not-served")
    assert (finding.facts["queues"], finding.level) == (["mail"], Level.ERROR)
    assert "mail (3)" in finding.what
    queues.pause("mail", by="ann")
    assert not found("queue-not-served")


def test_workers_that_poll_although_jobs_are_announced_are_found(settings):
    worker()
    worker(session_pid=0, supervisor_id=2)
    worker(session_pid=0, supervisor_id=2)
    worker(session_pid=0, supervisor_id=3, started_at=timezone.now())
    assert "1 of 3" in only("polling").what
    settings.PGQUEUE = {**settings.PGQUEUE, "NOTIFY": False}
    assert not found("polling")


@pytest.mark.usefixtures("living")
@pytest.mark.parametrize(("seconds", "is_found"), [(5, False), (70, True)])
def test_bulk_action_counts_as_stalled_when_its_slice_has_been_due_for_a_minute(sql, seconds, is_found):
    begin(KILL, Filter(), by="ann")
    sql("UPDATE pgqueue_bulk_actions SET next_at = statement_timestamp() - make_interval(secs => %s)", seconds)
    assert ("bulk-actions-stalled" in diagnosis()[0]) is is_found


def among_workers(test):
    """Let a test commit, and workers be alive in it."""
    return pytest.mark.django_db(transaction=True)(pytest.mark.usefixtures("living")(test))


@among_workers
@pytest.mark.parametrize(
    ("used", "known", "alike", "others"),
    [(90, 5, 0, 85), (90, 5, 30, 77), (90, 5, 8, 77), (90, 5, 3, 82), (20, 13, 7, 7)],
)
def test_sessions_that_may_be_those_of_the_workers_threads_are_not_others(used, known, alike, others):
    assert SessionLimit("server", "max_connections", 97, used, known, alike).others(13) == others


@among_workers
def test_sessions_of_others_leave_too_few(sql):
    """To the database of the tests, by a limit that has room for the workers alone."""
    [(name,)] = sql("SELECT current_database()")
    Worker.objects.update(concurrency=2)  # 4 + 1 + 2
    sql("DROP ROLE IF EXISTS shop_small")  # of a run that was killed
    sql("CREATE ROLE shop_small LOGIN")
    sql("GRANT ALL ON ALL TABLES IN SCHEMA public TO shop_small")
    sql(f'ALTER DATABASE "{name}" CONNECTION LIMIT 8')
    try:
        sql("SET SESSION AUTHORIZATION shop_small")
        eventually(lambda: "connections-short" not in diagnosis()[0])  # sessions take a moment to end
        with held_sessions(2):
            finding = eventually(lambda: of_two_others(diagnosis()[0]))
        assert finding["level"] == "warning"
        eventually(lambda: "connections-short" not in diagnosis()[0])
        Worker.objects.update(concurrency=4)
        assert diagnosis()[0]["connections-short"]["level"] == "error"
    finally:
        sql("RESET SESSION AUTHORIZATION")
        sql(f'ALTER DATABASE "{name}" CONNECTION LIMIT -1')
        sql("DROP OWNED BY shop_small")
        sql("DROP ROLE shop_small")


def of_two_others(found: dict[str, Any]) -> dict[str, Any] | None:
    finding = found.get("connections-short")
    return finding if finding and finding["facts"]["others"] == 2 else None


@contextlib.contextmanager
def held_sessions(number: int) -> Iterator[None]:
    opened = [connections.create_connection("default") for _ in range(number)]
    try:
        for one in opened:
            one.settings_dict = connection.settings_dict
            one.connect()
        yield
    finally:
        for one in opened:
            one.close()


@among_workers
@pytest.mark.parametrize(("pool", "threads"), [(None, 18), (True, 10), ({"min_size": 3}, 8), ({"max_size": 20}, 18)])
def test_pool_bounds_what_threads_take(pool, threads, monkeypatch):
    """Two commands, three processes with eight, eight and two slots."""
    worker()
    worker(supervisor_id=2, concurrency=2)
    view = View("default", [])
    assert len(view.workers) == 3
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {"pool": pool} if pool else {})
    assert connections_of(view) == 2 * 4 + 3 + threads
