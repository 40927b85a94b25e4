"""Dead rows of the jobs table, made by the test alone."""

from collections.abc import Callable

import pytest

import tests.app.tasks as app
from tests.support.storage import without_autovacuum
from tests.support.waiting import eventually
from tests.support.workers import until_alone


@pytest.fixture
def own_vacuum_only(queue, sql):
    """Keep autovacuum away from the table, and begin with nothing dead on it, nor in the books of earlier sessions."""
    until_alone(sql)
    with without_autovacuum(sql):
        sql("SELECT pg_stat_force_next_flush()")
        eventually(lambda: left_by_vacuum(sql) == 0)
        yield


def left_by_vacuum(sql) -> int:
    """VACUUM the table, and return how many dead rows that has left: some, while an ANALYZE holds a snapshot."""
    sql("VACUUM pgqueue_jobs")
    [(left,)] = sql("SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = 'pgqueue_jobs'::regclass")
    return left


@pytest.fixture
def kill_rows(sql) -> Callable[[int], None]:
    """Make a number of rows of the table die, and the server's counters know it."""

    def kill(number: int) -> None:
        app.noop.using(queue="doomed").enqueue_many([()] * number)
        sql("DELETE FROM pgqueue_jobs WHERE queue = 'doomed'")
        sql("SELECT pg_stat_force_next_flush()")

    return kill
