"""Workers and their connections behind a real PgBouncer in transaction mode."""

import contextlib
import json
import logging
import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from django.db import DataError, connections, transaction

import tests.app.tasks as app
from django_pgqueue import jobs
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.flow.concurrency import LockKind, try_lock
from django_pgqueue.jobs import ack, waiter
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import Job, SucceededJob
from django_pgqueue.records import Fate, Outcome, Receipt
from django_pgqueue.worker import listener as listener_module
from django_pgqueue.worker.heartbeat import Liveness
from django_pgqueue.worker.listener import BACKEND, Listener, is_lent, unlisten
from tests.app.models import Mark
from tests.support.many import enqueued_ids
from tests.support.needs import PGBOUNCER, PGBOUNCER_122
from tests.support.pgbouncer import BINARY, PgBouncer, knows_prepared_statements
from tests.support.results import said_too_late
from tests.support.waiting import PATIENCE_SECONDS, beside, eventually

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not BINARY, reason=PGBOUNCER),
]

ALIAS = "pooled"
TRACKED = {"max_prepared_statements": 100}
UNTRACKED = {"max_prepared_statements": 0} if knows_prepared_statements() else {}


@pytest.fixture
def pool(transactional_db) -> Iterator:
    """Start poolers, the last of which the alias ``pooled`` leads to."""
    with contextlib.ExitStack() as stack:

        def start(**settings) -> PgBouncer:
            pooler = PgBouncer(**settings)
            stack.callback(pooler.stop)
            connections.settings[ALIAS] = connections.settings["default"] | pooler.address()
            stack.callback(forget)
            return pooler

        yield start


def forget() -> None:
    del connections.settings[ALIAS]
    with contextlib.suppress(AttributeError):
        del connections[ALIAS]


@pytest.fixture
def client(pool) -> Iterator:
    """Open a worker's connections by way of the pooler."""
    with contextlib.ExitStack() as stack:

        def open_one(alias: str = ALIAS) -> QueueConnection:
            database = QueueConnection(alias, "test")
            stack.callback(database.close)
            free(database)
            return database

        yield open_one


def free(database: QueueConnection) -> None:
    """Have a client hold no server, by a plain statement.

    psycopg ends a pipeline by Sync, then Flush. A pooler that has taken the server back in between lends one for that.
    """
    database.autocommit().execute(BACKEND)


def who(database: QueueConnection) -> tuple:
    """Return the server process and the transaction that a statement runs in."""
    [row] = database.rows("SELECT pg_backend_pid(), pg_current_xact_id()::text", {})
    return row


def test_locks_of_admission_hold_for_one_transaction_of_a_pooled_connection(pool, client):
    pool()
    one, other = client(), client()
    with one.transaction(), other.transaction():
        assert try_lock(one, LockKind.KEY, ["a"]).got() == {"a"}
        assert try_lock(other, LockKind.KEY, ["a", "b"]).got() == {"b"}
        [(names,)] = other.send("SELECT current_setting('pgqueue.admitting')", {}).fetchall()
        assert json.loads(names) == ["b"]
    with one.transaction():
        assert try_lock(one, LockKind.KEY, ["a", "b"]).got() == {"a", "b"}


def test_pooler_is_told_from_a_server(pool, client):
    pool()
    assert client().is_pooled
    assert not client("default").is_pooled


def test_pooled_transactions_are_one_transaction_on_one_server_though_no_begin_is_sent(pool, client):
    """Four clients share two servers, statement by statement."""
    pool(default_pool_size=2)
    clients = [client() for _ in range(4)]
    seen: list[set] = []
    pair = threading.Barrier(2, timeout=PATIENCE_SECONDS)

    def work(database: QueueConnection) -> None:
        for number in range(25):
            with database.transaction():
                seen.append({who(database) for _ in range(5)})
                if number == 0:
                    pair.wait()  # each of them in a transaction, which takes both servers
        free(database)

    threads = [threading.Thread(target=work, args=(database,)) for database in clients]
    [thread.start() for thread in threads]
    [thread.join(PATIENCE_SECONDS) for thread in threads]
    assert {len(one) for one in seen} == {1}
    transactions = {pair for one in seen for pair in one}
    assert len(transactions) == 100
    assert len({pid for pid, _ in transactions}) == 2


def test_pooled_transaction_that_fails_leaves_nothing(pool, client, sql):
    pool()
    database = client()
    sql("CREATE TABLE pooled (number integer)")
    insert = "INSERT INTO pooled VALUES (%(number)s::text::integer) RETURNING number"
    try:
        with pytest.raises(DataError), database.transaction():
            database.send(insert, {"number": "1"})
            database.send(insert, {"number": "x"})
        with pytest.raises(LookupError), database.transaction():
            database.rows(insert, {"number": "2"})
            raise LookupError
        with database.transaction():
            database.send(insert, {"number": "3"})
            database.send(insert, {"number": "4"})
        assert sql("SELECT number FROM pooled ORDER BY 1") == [(3,), (4,)]
    finally:
        sql("DROP TABLE pooled")


def test_statements_are_not_prepared_where_the_pooler_does_not_keep_them_apart(pool, client):
    pool(**UNTRACKED)
    database = client()
    assert database.is_preparing is False
    for _ in range(5):
        assert database.rows("SELECT count(*)::integer FROM pg_prepared_statements", {}) == [(0,)]


@pytest.mark.skipif(not knows_prepared_statements(), reason=PGBOUNCER_122)
def test_statements_are_prepared_where_the_pooler_keeps_them_apart(pool, client):
    pool(default_pool_size=2, **TRACKED)
    clients = [client() for _ in range(3)]
    assert all(database.is_preparing for database in clients)
    for _ in range(20):
        for number, database in enumerate(clients):  # the same name for another statement in each client
            assert database.rows(f"SELECT {number}, %(one)s::integer", {"one": 1}) == [(number, 1)]


def test_callers_behind_a_pooler_share_its_server_and_prepare_nothing_there(pool, sql):
    """Each INSERT goes with its wake-up, and the pooler may lend the server to the other caller in between."""
    pool(default_pool_size=1, **UNTRACKED)
    noop = app.noop.using(database=ALIAS)

    def enqueue_some():
        connections[ALIAS].connect()  # a test may not let Django do it
        for _ in range(5):
            noop.enqueue()
            with transaction.atomic(using=ALIAS):
                noop.enqueue()
        connections[ALIAS].close()

    callers = [threading.Thread(target=enqueue_some) for _ in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert sql("SELECT count(*) FROM pgqueue_jobs") == [(20,)]


def test_setting_decides_about_prepared_statements_where_it_says_so(pool, client, settings):
    pool(mode="session")
    for wanted in (True, False):
        settings.PGQUEUE = {"PREPARED_STATEMENTS": wanted}
        assert client().is_preparing is wanted


# LISTEN


def test_listener_behind_a_pooler_names_the_setting_once_and_leaves_no_server_listening(
    pool, client, settings, caplog, monkeypatch
):
    """It sees through the pooler before it LISTENs, so there is nothing to take back."""
    monkeypatch.setattr(listener_module, "unlisten", lambda *_: None)
    pool(default_pool_size=1)
    settings.PGQUEUE = {"DATABASE": ALIAS}
    listener = Listener(ALIAS, Liveness(changed=lambda: None), lambda _: None)
    with contextlib.closing(listener), caplog.at_level(logging.WARNING):
        assert [listener.pass_once(), listener.pass_once()] == [300, 300]
    assert listener.works is False
    assert listener.is_settled.is_set()
    [line] = caplog.messages
    assert line.startswith("LISTEN by way of 'pooled' gets no notifications")
    assert "PGQUEUE['LISTEN_DATABASE']" in line
    assert client().rows("SELECT * FROM pg_listening_channels()", {}) == []


def test_listener_listens_directly_where_the_setting_says_so(pool, settings):
    pool()
    settings.PGQUEUE = {"DATABASE": ALIAS, "LISTEN_DATABASE": "default"}
    heard = []
    listener = Listener(ALIAS, Liveness(changed=lambda: None), heard.append)
    with contextlib.closing(listener), beside(listener.pass_once):
        eventually(lambda: heard == [None])
        app.noop.using(database="default").enqueue()
        eventually(lambda: heard == [None, {"default"}])
    assert listener.works


def test_listener_works_behind_a_pooler_in_session_mode(pool, settings, monkeypatch):
    monkeypatch.setattr(listener_module, "ECHO_SECONDS", PATIENCE_SECONDS)
    pool(mode="session")
    settings.PGQUEUE = {"DATABASE": ALIAS}
    heard = []
    with contextlib.closing(Listener(ALIAS, Liveness(changed=lambda: None), heard.append)) as listener:
        listener.stop()  # the wait that follows ends at once
        listener.pass_once()
        assert listener.works
        assert heard == [None]


def test_server_lent_for_one_listen_is_found_again_and_listens_no_more(pool, client):
    """Three servers take turns: a client that holds one sees another client get the next. Two could hide the pooler."""
    pool(default_pool_size=3, server_round_robin=1)
    assert listening(client, number=3) == [], "there are three from here on"
    one, other = client(), client()
    assert is_lent(one.autocommit(), other)
    free(other)
    with one.autocommit().transaction():
        [backend] = one.autocommit().execute(BACKEND).fetchone()
        one.autocommit().execute("LISTEN pgqueue_jobs")
    unlisten(one.autocommit(), backend)
    assert listening(client, number=3) == []


def listening(client, *, number: int) -> list:
    """Return the channels that any of the pool's servers listens on."""
    databases = [client() for _ in range(number)]
    found = []
    with contextlib.ExitStack() as stack:
        for database in databases:  # each holds its server, so the next one gets another
            stack.enter_context(database.transaction())
            found += database.rows("SELECT * FROM pg_listening_channels()", {})
    for database in databases:
        free(database)
    return found


# Workers


def test_workers_behind_a_pooler_run_each_job_once_and_leave_nothing_on_its_servers(pool, client, start_worker):
    pooler = pool(default_pool_size=6, **UNTRACKED)
    ids = enqueued_ids(app.record, [(str(number),) for number in range(800)])
    atomic = enqueued_ids(app.record_atomic, [(str(number),) for number in range(200)])
    worker = start_worker("--processes", "2", "--concurrency", "4", "--drain", **pooler.environment())
    assert worker.wait() == 0, worker.text()
    runs = Counter(Mark.objects.values_list("job_id", flat=True))
    assert set(runs) == {*ids, *atomic}
    assert set(runs.values()) == {1}
    assert "LISTEN off, polling" in worker.text()
    assert "PGQUEUE['LISTEN_DATABASE']" in worker.text()
    assert worker.text().count("PGQUEUE['PREPARED_STATEMENTS']") == 1
    assert "Traceback" not in worker.text()
    with contextlib.ExitStack() as stack:
        for _ in range(6):
            database = client()
            stack.enter_context(database.transaction())
            assert database.rows("SELECT name FROM pg_prepared_statements", {}) == []
            assert database.rows("SELECT * FROM pg_listening_channels()", {}) == []


def test_worker_behind_a_pooler_finds_jobs_by_polling(pool, start_worker):
    pooler = pool()
    worker = start_worker(**pooler.environment()).wait_until_ready()
    assert "LISTEN off, polling every 1 s" in worker.text()
    app.record.enqueue("x")
    eventually(SucceededJob.objects.exists)


def test_worker_behind_a_pooler_is_woken_by_way_of_the_direct_alias(pool, start_worker):
    pooler = pool()
    environment = pooler.environment_to_listen() | {"PGQUEUE": json.dumps({"POLL_SECONDS": 3600})}
    worker = start_worker(**environment).wait_until_ready()
    assert "LISTEN on" in worker.text()
    for number in range(3):
        app.record.enqueue(str(number))
        eventually(lambda: not Job.objects.exists())
    assert SucceededJob.objects.count() == 3


def test_worker_outlives_its_pooler(pool, start_worker):
    """PgBouncer ends and comes back on the same port; the worker goes on."""
    pooler = pool()
    worker = start_worker(**pooler.environment()).wait_until_ready()
    pooler.restart()
    app.record.enqueue("x")
    eventually(SucceededJob.objects.exists)
    assert worker.process.poll() is None
    assert "Traceback" not in worker.text()


def test_caller_that_waits_by_way_of_a_pooler_looks_and_does_not_listen(pool, client, sql, settings):
    [(begun,)] = sql("SELECT clock_timestamp()")
    pool()
    settings.PGQUEUE = {"POLL_SECONDS": 0.05}
    handle, database = jobs.get(app.noop.enqueue().id, database=ALIAS), client("default")
    try:
        eventually(lambda: "it was queued" in said_too_late(lambda: handle.result(0.2)))
        listening = "SELECT FROM pg_stat_activity WHERE query ILIKE 'listen %%' AND backend_start > %s"
        assert sql(listening, begun) == []
        [claimed] = claim(database, "default", limit=1, worker_id=1)
        assert ack.write(database, [Outcome(claimed, Fate.SUCCEEDED, result="5")]) == Receipt(), "it is not noted"
        assert handle.result(PATIENCE_SECONDS) == 5
    finally:
        waiter.stop_all()
