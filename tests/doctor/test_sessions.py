"""Connections that the workers may open are compared with those that the server lets them have."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, connections

from django_pgqueue.doctor import sessions
from django_pgqueue.doctor.finding import View
from django_pgqueue.models import Worker
from tests.support.doctor import diagnosis
from tests.support.waiting import eventually
from tests.support.worker_rows import worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("living")]


@pytest.mark.parametrize(
    ("used", "workers", "alike", "others"),
    [(90, 5, 0, 85), (90, 5, 30, 77), (90, 5, 8, 77), (90, 5, 3, 82), (20, 13, 7, 7)],
)
def test_sessions_that_may_be_those_of_the_workers_threads_are_not_others(used, workers, alike, others):
    assert sessions.SessionLimit("server", "max_connections", 97, used, workers, alike).others(13) == others


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


@pytest.mark.parametrize(("pool", "threads"), [(None, 18), (True, 10), ({"min_size": 3}, 8), ({"max_size": 20}, 18)])
def test_pool_bounds_what_threads_take(pool, threads, monkeypatch):
    """Two commands, three processes with eight, eight and two slots."""
    worker()
    worker(supervisor_id=2, concurrency=2)
    view = View("default", [])
    assert len(view.workers) == 3
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {"pool": pool} if pool else {})
    assert sessions.connections_of(view) == 2 * 4 + 3 + threads
