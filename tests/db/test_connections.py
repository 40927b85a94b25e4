"""The queue's own connections: time limits, isolation, planner settings, and servers that fall silent or only read."""

import contextlib

import pytest
from django.db import Error, OperationalError, ProgrammingError, connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from psycopg.pq import PipelineStatus

import tests.app.tasks as app
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.models import Job
from django_pgqueue.worker.listener import BACKEND
from tests.support.proxy import hung
from tests.support.waiting import PATIENCE_SECONDS

SLEEP = "SELECT pg_sleep(60)"  # the server goes on for so long when the client has given up: it is ended by the fixture


@pytest.fixture
def database(transactional_db, sql):
    opened = QueueConnection("default", "hasty test", patience_seconds=PATIENCE_SECONDS)
    yield opened
    opened.close()
    sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '%%hasty test'")


@contextlib.contextmanager
def hasty(database):
    """Have the connection give up soon; whatever else it is asked is to be answered, however busy the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_least_patience", 0.2)
        yield


def test_connection_on_which_the_server_is_silent_is_given_up_and_opened_again(database):
    [(first,)] = database.rows("SELECT pg_backend_pid()", {})
    with hasty(database), pytest.raises(OperationalError, match=r"the server has not answered for 0.2 s"):
        database.rows(SLEEP, {})
    assert database.rows("SELECT pg_backend_pid()", {}) != [(first,)]


def test_silence_outside_of_transactions_is_given_up_too(database):
    database.rows("SELECT 1", {})
    with hasty(database), pytest.raises(OperationalError, match="has not answered"):
        connection = database.autocommit()
        with database._wrapper.wrap_database_errors:
            connection.execute(SLEEP)
    assert database.autocommit().execute("SELECT 1").fetchall() == [(1,)]


def test_silence_while_a_connection_is_set_up_is_given_up_too(database):
    with hung(database._wrapper.settings_dict), hasty(database), pytest.raises(OperationalError, match="not answered"):
        database.rows("SELECT 1", {})


def test_silence_is_given_up_where_a_connection_that_was_lent_is_opened_by_its_use(transactional_db):
    before = connections["default"]
    with hung(before.settings_dict):
        lent = QueueConnection("default", "lent", patience_seconds=0.2)
        lent.lend()
        try:
            with pytest.raises(OperationalError, match="has not answered"):
                connections["default"].ensure_connection()
        finally:
            connections["default"] = before
            lent.close()


def test_what_may_take_long_is_waited_for_and_nothing_after_it(database):
    with hasty(database):
        assert database.autocommit(may_take_long=True).execute("SELECT pg_sleep(0.5)").fetchall() == [("",)]
        with pytest.raises(OperationalError, match="has not answered"):
            database.rows(SLEEP, {})


def test_no_statement_of_a_worker_is_compiled(queue):
    """Plans by index only look dear to the planner; a second would go by before each of them began."""
    with queue.transaction():
        assert queue.rows("SELECT current_setting('jit')", {}) == [("off",)]


@pytest.mark.parametrize("is_single", [False, True], ids=["several", "single"])
def test_single_statement_of_a_session_of_its_own_is_sent_without_a_pipeline(queue, is_single):
    queue.listen("somewhere", lambda _: None)
    with queue.transaction(is_single=is_single):
        status = queue._wrapper.connection.pgconn.pipeline_status
        answer = queue.send("INSERT INTO pgqueue_queues (name) VALUES ('mail') RETURNING name", {})
    assert (status == PipelineStatus.OFF, answer.fetchall()) == (is_single, [("mail",)])
    assert queue.rows("SELECT name FROM pgqueue_queues", {}) == [("mail",)]
    assert not queue.in_transaction


def test_single_statement_has_its_settings_where_the_session_has_none(queue):
    with queue.transaction(is_single=True):
        assert queue.rows("SHOW plan_cache_mode", {}) == [("force_generic_plan",)]
    assert queue.autocommit().execute("SHOW plan_cache_mode").fetchall() == [("auto",)]


def test_error_of_a_single_statement_is_djangos_and_leaves_nothing(queue):
    queue.listen("somewhere", lambda _: None)
    with pytest.raises(ProgrammingError), queue.transaction(is_single=True):
        queue.send("SELECT 1 FROM nothing", {})
    assert queue.rows("SELECT 1", {}) == [(1,)]


def test_own_connection_that_only_reads_is_given_up_though_all_it_does_is_read(queue: QueueConnection):
    """It meets no error there; it would look at a queue that stands still for ever."""
    before = queue.rows(BACKEND, {})
    assert queue.rows(BACKEND, {}) == before
    queue.autocommit().execute("SET default_transaction_read_only = on")
    assert queue.rows(BACKEND, {}) != before


def test_queue_works_at_read_committed_whatever_the_server_prefers(queue, sql):
    name = connection.settings_dict["NAME"]
    sql(f"""ALTER DATABASE "{name}" SET default_transaction_isolation = 'serializable'""")
    try:
        queue.close()
        assert queue.rows("SELECT current_setting('transaction_isolation')", {}) == [("read committed",)]
        with pytest.raises(LookupError), queue.transaction():
            queue.rows("INSERT INTO pgqueue_jobs (task) VALUES ('x') RETURNING 1", {})
            raise LookupError
        assert Job.objects.count() == 0
    finally:
        sql(f'ALTER DATABASE "{name}" RESET default_transaction_isolation')
        queue.close()


def test_connection_to_a_server_that_is_read_only_is_not_kept(queue, sql):
    """As after a failover: the next one may lead to the server that is the primary now."""
    insert = "INSERT INTO pgqueue_jobs (task) VALUES ('x') RETURNING 1"
    name = connection.settings_dict["NAME"]
    sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    try:
        former = queue.autocommit()
        with pytest.raises(Error, match="read-only"):
            queue.rows(insert, {})
        assert former.closed
    finally:
        sql("SET default_transaction_read_only = off")
        sql(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
    assert queue.rows(insert, {}) == [(1,)]


SECRET = "TopSecret99"


def enqueue_one():
    app.record.enqueue(SECRET)


def enqueue_keyed():
    app.record.using(unique_key="k", on_conflict="replace").enqueue(SECRET)


def replace():
    app.record.using(unique_key="k").enqueue("old")
    app.record.using(unique_key="k", on_conflict="replace").enqueue(SECRET)


def enqueue_some():
    app.record.enqueue_many([(SECRET,), (SECRET,)])


@pytest.mark.parametrize("act", [enqueue_one, enqueue_keyed, replace, enqueue_some])
def test_text_of_the_statement_holds_no_arguments(transactional_db, queue, act):
    """While its transaction is open, and in the debug log."""
    with CaptureQueriesContext(connection) as captured, transaction.atomic():
        act()
        [(text,)] = queue.rows(
            "SELECT query FROM pg_stat_activity WHERE pid = %(pid)s", {"pid": connection.connection.info.backend_pid}
        )
    assert text
    assert SECRET not in text
    statements = [query["sql"] for query in captured if "INSERT INTO pgqueue_jobs" in query["sql"]]
    assert statements
    assert SECRET not in "".join(query["sql"] for query in captured)
    assert Job.objects.filter(args=[SECRET]).exists()


def test_cursors_of_the_project_are_as_they_were(transactional_db):
    before = connection.connection and connection.connection.cursor_factory
    app.record.enqueue(SECRET)
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s", ["by the client"])
        assert type(cursor.cursor) is connection.connection.cursor_factory
    assert before in {None, connection.connection.cursor_factory}


def test_cursors_of_a_class_that_the_settings_name_are_used(transactional_db, monkeypatch):
    connection.ensure_connection()
    seen = []

    class Traced(connection.connection.cursor_factory):
        def execute(self, query, *given, **more):
            seen.append(query)
            return super().execute(query, *given, **more)

    monkeypatch.setattr(connection.connection, "cursor_factory", Traced)
    app.record.enqueue(SECRET)
    assert any("INSERT INTO pgqueue_jobs" in query for query in seen)


def test_connection_that_has_died_since_is_opened_anew_and_still_holds_none(transactional_db):
    wrapper = connections["default"]
    wrapper.ensure_connection()
    with CaptureQueriesContext(wrapper) as captured:
        wrapper.health_check_enabled, wrapper.health_check_done = True, False  # until it is opened again
        wrapper.connection.close()
        enqueue_one()
    [statement] = [query["sql"] for query in captured if "INSERT INTO pgqueue_jobs" in query["sql"]]
    assert SECRET not in statement
