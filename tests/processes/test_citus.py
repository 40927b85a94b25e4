"""The queue's tables are local to the coordinator or to a node of Citus, beside a distributed table."""

import contextlib
from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.db import connections, transaction

import tests.app.tasks as app
from tests.support.citus import CitusNode, citus
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

ALIAS = "other"
LOCAL = "-c citus.enable_ddl_propagation=off -c search_path=queue,public"


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[CitusNode, CitusNode]]:
    with citus() as both:
        yield both


@pytest.fixture(params=["", LOCAL], ids=["coordinator", "node"])
def options(request) -> str:
    """The options of sessions on the server with the queue."""
    return request.param


@pytest.fixture
def place(servers, options, transactional_db, settings) -> Iterator[CitusNode]:
    """A server of Citus with the queue's tables, to which the alias leads."""
    server = servers[bool(options)]
    if options:
        server.sql("SET citus.enable_ddl_propagation = off; CREATE SCHEMA IF NOT EXISTS queue")
    settings.PGQUEUE = {"DATABASE": ALIAS}
    before, wrapper = connections.settings[ALIAS], connections[ALIAS]
    connections.settings[ALIAS] = before | server.settings(options)
    del connections[ALIAS]
    try:
        call_command("migrate", "pgqueue", database=ALIAS, verbosity=0)
        call_command("migrate", "app", database=ALIAS, verbosity=0)
        yield server
    finally:
        connections[ALIAS].close()
        connections.settings[ALIAS] = before
        connections[ALIAS] = wrapper


def test_job_is_committed_with_rows_of_a_distributed_table_and_runs(place, options, start_worker):
    first = place.port * 1000
    for number in range(first, first + 20):
        with contextlib.suppress(RuntimeError), transaction.atomic(using=ALIAS):
            with connections[ALIAS].cursor() as cursor:
                cursor.execute("INSERT INTO public.orders VALUES (%s)", [number])
            app.record.using(unique_key=str(number), limit_key="k", fair_key="f").enqueue(str(number))
            if number % 4 == 0:
                raise RuntimeError
    app.record.using(delay=0.1).enqueue("later")
    start_worker(DATABASE_URL=place.url(options))
    eventually(lambda: place.sql(f"SELECT count(*) FROM {schema(options)}.pgqueue_jobs") == [(0,)])
    done = {args[0] for [args] in place.sql(f"SELECT args FROM {schema(options)}.pgqueue_succeeded_jobs")}
    orders = {str(number) for (number,) in place.sql(f"SELECT id FROM public.orders WHERE id >= {first}")}
    assert done == orders | {"later"}
    assert len(orders) == 15
    assert place.sql("SELECT count(*) FROM pg_prepared_xacts") == [(0,)]


def schema(options: str) -> str:
    return "queue" if options else "public"
