"""Real workers that look after their tables: VACUUM, and partitions by the role that owns them."""

import datetime as dt
import signal

import pytest

import tests.app.tasks as app
from django_pgqueue.maintenance.partitions import maintain_partitions
from tests.support.storage import without_autovacuum
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)

SETTINGS = {"DJANGO_SETTINGS_MODULE": "tests.processes.keeping_settings", "VACUUM_DEAD_ROWS": "500"}


@pytest.fixture(autouse=True)
def own_vacuum_only(sql):
    with without_autovacuum(sql):
        yield


@pytest.fixture
def vacuums(sql):
    """Return how often the table has been vacuumed by a command."""

    def count() -> int:
        return sql("SELECT pg_stat_get_vacuum_count('pgqueue_jobs'::regclass)")[0][0]

    return count


@pytest.fixture
def missing(sql, queue):
    """Take the partition of a day ahead away, and return its name; at the end it is there again."""
    name = f"pgqueue_succeeded_jobs_{dt.datetime.now(dt.UTC).date() + dt.timedelta(7):%Y%m%d}"
    sql(f"DROP TABLE IF EXISTS {name}")
    yield name
    eventually(lambda: not maintain_partitions(queue, retention_days=7).is_blocked)


def busy(condition):
    """Keep the worker at work until then: its sessions add what they did to the server's counters as it goes."""

    def is_so():
        app.noop.enqueue_many([()] * 20)
        return condition()

    eventually(is_so)


def test_busy_worker_vacuums_what_it_leaves(start_worker, sql, vacuums):
    before = vacuums()
    worker = start_worker("--verbosity=3", **SETTINGS).wait_until_ready()
    busy(lambda: vacuums() > before)
    eventually(lambda: sql("SELECT pg_stat_get_dead_tuples('pgqueue_jobs'::regclass) < 500") == [(True,)])
    eventually(lambda: "Vacuumed pgqueue_jobs: " in worker.text())  # said when it has looked what is left
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


def test_lesser_worker_works_and_says_what_it_cannot_do(start_worker, sql, login_as, vacuums, missing):
    before = vacuums()
    worker = start_worker(**SETTINGS, DATABASE_URL=login_as("shop_worker")).wait_until_ready()
    busy(lambda: "The worker's role may not VACUUM pgqueue_jobs. Set PGQUEUE[" in worker.text())
    assert "(pgqueue.W003) The role of 'default' may not make and drop partitions of succeeded jobs" in worker.text()
    assert "Partitions of pgqueue_succeeded_jobs cannot be kept" in worker.text()
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert vacuums() == before


def test_maintenance_is_done_by_the_role_that_owns_the_tables(start_worker, sql, login_as, vacuums, missing):
    owner_url, worker_url = login_as("shop_owner"), login_as("shop_worker")
    before = vacuums()
    worker = start_worker(**SETTINGS, DATABASE_URL=worker_url, OWNER_URL=owner_url).wait_until_ready()
    busy(lambda: vacuums() > before)
    eventually(lambda: sql("SELECT to_regclass(%s) IS NOT NULL", missing) == [(True,)])
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert "W003" not in worker.text()
    assert "cannot" not in worker.text()
