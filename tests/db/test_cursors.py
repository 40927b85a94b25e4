"""INSERTs of jobs on the caller's connection: seen by what watches, prepared, with the wake-up in one round trip."""

import contextlib
import enum

import psycopg
import pytest
from django.db import Error, OperationalError, ProgrammingError, connection, transaction
from django.test.utils import CaptureQueriesContext
from psycopg.pq import PipelineStatus

import tests.app.tasks as app
from django_pgqueue.db import cursors, notify
from django_pgqueue.models import Job
from tests.support.sleeping import fall_asleep

PREPARED = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%%INSERT INTO pgqueue_jobs%%'"


@pytest.fixture
def announced(queue, caller):
    """Return a function that gives the payloads announced from here on."""
    listening, heard = queue.autocommit(), []
    listening.add_notify_handler(lambda notification: heard.append(notification.payload))
    listening.execute("LISTEN pgqueue_jobs")
    fall_asleep(listening)

    def so_far():
        listening.execute("SELECT 1")
        return heard

    return so_far


@pytest.fixture(params=["plain", "prepared"])
def caller(request, transactional_db):
    """Django's connection, where nothing or the INSERT is prepared."""
    connection.close()
    connection.ensure_connection()
    if request.param == "prepared":
        for _ in range(cursors.UNPREPARED + 1):
            app.noop.enqueue()
        Job.objects.all().delete()
    return connection


def test_job_and_its_wake_up_are_one_statement_for_what_watches_django(caller, announced):
    seen = []

    def watch(execute, sql, params, many, context):
        seen.append((sql, params["task"]))
        return execute(sql, params, many, context)

    with CaptureQueriesContext(caller) as captured, caller.execute_wrapper(watch):
        handle = app.record.enqueue("secret")
    [(sql, task)] = seen
    assert ("INSERT INTO pgqueue_jobs" in sql, task) == (True, "tests.app.tasks.record")
    [text] = [query["sql"] for query in captured]
    assert ("INSERT INTO pgqueue_jobs" in text, "secret" in text) == (True, False)
    assert Job.objects.get(pk=handle.id).args == ["secret"]
    assert announced() == ["default"]


def test_job_whose_commit_fails_is_an_error_of_the_caller_though_its_wake_up_goes_well(caller, sql):
    sql(
        "CREATE FUNCTION pgqueue_fail() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE 'too late' USING ERRCODE = '55000'; END $$"
    )
    sql(
        "CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON pgqueue_jobs DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION pgqueue_fail()"
    )
    try:
        for _ in range(2):
            with pytest.raises(Error, match="too late"):
                app.noop.enqueue()
        assert not Job.objects.exists()
    finally:
        sql("DROP FUNCTION pgqueue_fail CASCADE")
    assert app.noop.enqueue().created


def test_job_is_there_though_its_wake_up_is_refused(announced, monkeypatch, caplog):
    monkeypatch.setattr(notify, "queue_payload", lambda name: "x" * 8000)  # more than PostgreSQL takes
    handle = app.noop.enqueue()
    assert Job.objects.filter(pk=handle.id).exists()
    assert "payload string too long" in caplog.text


def test_job_is_there_though_the_connection_breaks_at_its_wake_up(caller, monkeypatch, caplog):
    monkeypatch.setattr(
        notify,
        "statement",
        {"wake": "SELECT pg_terminate_backend(pg_backend_pid()) WHERE %(payload)s::text <> ''", "notify": "?"}.get,
    )
    handle = app.noop.enqueue()
    monkeypatch.undo()
    connection.close()
    assert Job.objects.filter(pk=handle.id).exists()
    assert "Wake-up ['default'] failed" in caplog.text


def test_connection_that_breaks_at_the_insert_is_an_error(caller, sql):
    sql(
        "CREATE FUNCTION pgqueue_end() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$"
    )
    sql("CREATE TRIGGER ends BEFORE INSERT ON pgqueue_jobs FOR EACH ROW EXECUTE FUNCTION pgqueue_end()")
    try:
        with pytest.raises(OperationalError):
            app.noop.enqueue()
    finally:
        connection.close()
        sql("DROP FUNCTION pgqueue_end CASCADE")
    assert not Job.objects.exists()


def test_error_of_the_insert_leaves_the_connection_as_it_was(caller, sql):
    pid = caller.connection.info.backend_pid
    sql("ALTER TABLE pgqueue_jobs RENAME metadata TO other")
    try:
        with pytest.raises(ProgrammingError, match="metadata"):
            app.noop.enqueue()
    finally:
        sql("ALTER TABLE pgqueue_jobs RENAME other TO metadata")
    assert app.noop.enqueue().created
    assert caller.connection.info.backend_pid == pid


@pytest.mark.parametrize("is_atomic", [False, True])
def test_insert_is_prepared_once_a_connection_is_used_for_several(transactional_db, is_atomic):
    connection.close()
    for number in range(cursors.UNPREPARED + 3):
        with transaction.atomic() if is_atomic else contextlib.nullcontext():
            app.noop.enqueue()
        with connection.cursor() as cursor:
            cursor.execute(PREPARED, [])
            assert cursor.fetchall() == [(int(number >= cursors.UNPREPARED),)]


@pytest.mark.parametrize("command", [None, "DEALLOCATE ALL"], ids=["kept", "dropped"])
def test_wake_up_after_a_commit_is_prepared_with_the_inserts_and_comes_without_it_too(caller, announced, command):
    for _ in range(cursors.UNPREPARED + 1):
        with transaction.atomic():
            app.noop.enqueue()
    with connection.cursor() as cursor:
        cursor.execute("SELECT FROM pg_prepared_statements WHERE statement LIKE '%%pg_notify%%'", [])
        assert cursor.fetchall()
    before = len(announced())
    with transaction.atomic():
        if command:
            transaction.on_commit(lambda: run(command))  # before the wake-up
        app.noop.enqueue()
    assert announced()[before:] == ["default"]


def run(command):
    with connection.cursor() as cursor:
        cursor.execute(command)


def test_values_of_an_enum_are_stored_as_in_a_transaction(caller, announced):
    """Python writes such a value as its name: the job was on a queue that no worker serves."""

    class Queue(str, enum.Enum):  # noqa: UP042 - as Python before 3.11 wants it
        MAILS = "mails"

    class Priority(int, enum.Enum):
        HIGH = 7

    handle = app.noop.using(queue=Queue.MAILS, priority=Priority.HIGH).enqueue()
    job = Job.objects.get(pk=handle.id)
    assert (job.queue, job.priority, announced()) == ("mails", 7, ["mails"])


@pytest.mark.parametrize("number", [1, cursors.UNPREPARED + 1, cursors.UNPREPARED + 2])
def test_connection_that_has_ended_is_an_error_of_django_which_then_opens_another(queue, transactional_db, number):
    """Whatever the INSERT is preceded by: what psycopg raises itself would not let Django look at the connection."""
    connection.close()
    for _ in range(number - 1):
        app.noop.enqueue()
    connection.ensure_connection()
    queue.autocommit().execute("SELECT pg_terminate_backend(%s, 10000)", [connection.connection.info.backend_pid])
    with pytest.raises(OperationalError):
        app.noop.enqueue()
    connection.close_if_unusable_or_obsolete()
    connection.connect()  # a test may not let Django do it
    assert app.noop.enqueue().created


def test_no_more_is_prepared_where_each_text_is_another(transactional_db):
    """As of those who add a comment with the id of the trace: they would stay in the server's memory."""

    def add_comment(execute, sql, params, many, context):
        texts.append(f"{sql} /* trace {len(texts)} */")
        return execute(texts[-1], params, many, context)

    texts = []
    connection.close()
    with connection.execute_wrapper(add_comment):
        for _ in range(cursors.MOST_TEXTS + 5):
            app.noop.enqueue()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements")
        assert cursor.fetchall() == [(cursors.MOST_TEXTS,)]  # the wake-up is one


def test_statement_without_parameters_is_left_to_psycopg(caller):
    """As that by which a backend sets the search_path when it makes a cursor: no wake-up goes with it."""
    wake_up = notify.wake_up("default")
    with cursors.inserting(caller, wake_up) as cursor:
        cursor.execute("SELECT 1, 'two'")
        assert (cursor.fetchone(), wake_up.is_done) == ((1, "two"), False)


@pytest.mark.parametrize("setting", [False, None])
def test_insert_is_not_prepared_where_a_pooler_may_mix_it_up(transactional_db, settings, monkeypatch, setting):
    settings.PGQUEUE = {"PREPARED_STATEMENTS": setting}
    connection.close()
    if setting is None:  # a pooler gives its clients process ids of its own
        monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", 1)
    for _ in range(cursors.UNPREPARED + 2):
        app.noop.enqueue()
        with transaction.atomic():
            app.noop.enqueue()
    with connection.cursor() as cursor:
        cursor.execute(PREPARED, [])
        assert cursor.fetchall() == [(0,)]


@pytest.mark.parametrize("command", ["DISCARD ALL", "DEALLOCATE ALL"])
def test_connection_whose_prepared_statements_were_dropped_gets_no_others(transactional_db, command):
    connection.close()
    for _ in range(cursors.UNPREPARED + 1):
        app.noop.enqueue()
    with connection.cursor() as cursor:
        cursor.execute(command)
    app.noop.enqueue()
    with transaction.atomic():
        app.noop.enqueue()
    assert Job.objects.count() == cursors.UNPREPARED + 3
    with connection.cursor() as cursor:
        cursor.execute(PREPARED, [])
        assert cursor.fetchall() == [(0,)]


def test_dropped_statement_is_an_error_inside_a_transaction_once(transactional_db):
    """The server takes no other statement there until it is rolled back."""
    connection.close()
    for _ in range(cursors.UNPREPARED + 1):
        with transaction.atomic():
            app.noop.enqueue()
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")
    with pytest.raises(Error, match="prepared statement"), transaction.atomic():
        app.noop.enqueue()
    with transaction.atomic():
        app.noop.enqueue()


def test_wait_that_is_interrupted_does_not_leave_answers_for_the_next_statement(caller, monkeypatch):
    def interrupted(steps, *args, **kwargs):
        next(steps)
        raise KeyboardInterrupt

    monkeypatch.setattr(caller.connection, "wait", interrupted, raising=False)
    with pytest.raises(KeyboardInterrupt):
        app.noop.enqueue()
    monkeypatch.undo()
    connection.close_if_unusable_or_obsolete()
    with connection.cursor() as cursor:
        cursor.execute("SELECT 'mine'")
        assert cursor.fetchall() == [("mine",)]


def test_time_limit_of_a_job_at_the_first_moment_leaves_the_connection_as_it_was(caller, monkeypatch):
    """It is raised wherever the thread just is."""

    class Interrupted:
        def __getattr__(self, name):
            return getattr(real, name)

        def enter_pipeline_mode(self):
            real.enter_pipeline_mode()
            raise KeyboardInterrupt

    real = caller.connection.pgconn
    monkeypatch.setattr(caller.connection, "pgconn", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        app.noop.enqueue()
    monkeypatch.undo()
    assert real.pipeline_status == PipelineStatus.OFF  # else the next statement would wait for ever
    assert app.noop.enqueue().created
