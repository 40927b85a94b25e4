"""A queue in each schema, as docs/how-to/multi-tenant.md says: each worker command sees its own."""

import os
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.support import prestarted
from tests.support.waiting import eventually
from tests.support.workers import database_url

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

TENANTS = ("tenant_a", "tenant_b")
ENQUEUE = """
INSERT INTO {schema}.pgqueue_jobs (task) SELECT 'tests.app.tasks.noop' FROM generate_series(1, 20);
INSERT INTO {schema}.pgqueue_jobs (task, status, concurrency_key, concurrency_limit)
SELECT 'tests.app.tasks.noop', 'limited', 'shared by name', 1 FROM generate_series(1, 3)
"""


def url_of(schema: str) -> str:
    url = database_url()
    return f"{url}{'&' if '?' in url else '?'}options={quote(f'-c search_path={schema}')}"


@pytest.fixture
def schemas(transactional_db, sql) -> Iterator[None]:
    for schema in TENANTS:
        sql(f"CREATE SCHEMA {schema}")
        environment = {**os.environ, "DATABASE_URL": url_of(schema)}
        prestarted.run(["migrate", "--verbosity=0"], env=environment).check_returncode()
    yield
    for schema in TENANTS:
        sql(f"DROP SCHEMA {schema} CASCADE")


def test_worker_of_one_schema_leaves_the_jobs_of_another_alone(schemas, sql, start_worker):
    for schema in TENANTS:
        sql(ENQUEUE.format(schema=schema))
    worker = start_worker("--drain", DATABASE_URL=url_of("tenant_a"))
    assert eventually(lambda: worker.process.poll() is not None)
    assert worker.process.returncode == 0, worker.text()
    [(left, succeeded, untouched, in_public)] = sql(
        "SELECT (SELECT count(*) FROM tenant_a.pgqueue_jobs), (SELECT count(*) FROM tenant_a.pgqueue_succeeded_jobs),"
        " (SELECT count(*) FROM tenant_b.pgqueue_jobs WHERE attempts = 0), (SELECT count(*) FROM public.pgqueue_stats)"
    )
    assert (left, succeeded, untouched, in_public) == (0, 23, 23, 0)
