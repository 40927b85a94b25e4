"""pgqueue_doctor finds each fault that is planted, by name, and nothing once it is cured."""

import contextlib
import datetime as dt
import importlib
import json
import threading
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import SystemCheckError
from django.db import OperationalError, connection, connections, transaction
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from django_pgqueue.doctor import sessions, tables
from django_pgqueue.doctor.catalogue import wanted
from django_pgqueue.doctor.finding import View
from django_pgqueue.jobs.actions import KILL
from django_pgqueue.jobs.bulk_actions import begin
from django_pgqueue.jobs.search import Filter
from django_pgqueue.models import Job, Worker
from django_pgqueue.version import VERSION
from tests.support import storage
from tests.support.schedules import make
from tests.support.waiting import PATIENCE_SECONDS, beside, eventually
from tests.support.worker_rows import ALIVE, forget_counters, worker

pytestmark = pytest.mark.django_db(transaction=True)


def say(*words: str) -> tuple[str, str, int]:
    """Return what the command prints, what it complains of, and its exit code."""
    out = StringIO()
    try:
        call_command("pgqueue_doctor", *words, stdout=out)
    except CommandError as error:
        return out.getvalue(), str(error), error.returncode
    return out.getvalue(), "", 0


def diagnosis(*words: str) -> tuple[dict[str, Any], int]:
    """Return the findings by name, and the exit code."""
    text, _complaint, code = say("--json", *words)
    return {finding["name"]: finding for finding in json.loads(text)["findings"]}, code


@pytest.fixture(autouse=True)
def living(sql) -> None:
    """A worker that lives, and listens."""
    worker()
    forget_counters(sql)


def is_healthy(sql) -> bool:
    """Nothing is found, once the last session of an earlier test has told what it did."""
    forget_counters(sql)
    return say() == ("healthy\n", "", 0)


def cured_by_statements(sql, finding) -> None:
    for statement in finding["facts"]["statements"]:
        sql(statement)


def partition_of(days: int) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT (statement_timestamp() AT TIME ZONE 'UTC')::date + %s", [days])
        return f"pgqueue_finished_jobs_{cursor.fetchone()[0]:%Y%m%d}"


def insert(sql, task: str, **values: str) -> None:
    columns = {"task": f"'{task}'", **values}
    sql(f"INSERT INTO pgqueue_jobs ({', '.join(columns)}) VALUES ({', '.join(columns.values())})")


def drop_tomorrow(sql) -> None:
    sql(f"DROP TABLE {partition_of(1)}")


def keep_partitions(_sql, _finding) -> None:
    call_command("pgqueue_retention", "--run", stdout=StringIO(), stderr=StringIO())


def fail_to_make_an_index(sql) -> None:
    """Leave behind what CREATE INDEX CONCURRENTLY leaves where values are not unique."""
    insert(sql, "tests.app.tasks.noop")
    insert(sql, "tests.app.tasks.noop")
    with pytest.raises(Exception, match="could not create unique index"):
        sql("CREATE UNIQUE INDEX CONCURRENTLY mine ON pgqueue_jobs (task)")
    sql("DELETE FROM pgqueue_jobs")


def fail_to_make_one_again(sql) -> None:
    sql("DROP INDEX pgqueue_jobs_due")
    sql("INSERT INTO pgqueue_jobs (task, priority) VALUES ('tests.app.tasks.noop', 0)")
    with pytest.raises(Exception, match="division by zero"):
        sql("CREATE INDEX CONCURRENTLY pgqueue_jobs_due ON pgqueue_jobs ((1 / priority))")
    sql("DELETE FROM pgqueue_jobs")


def made_due_again(sql, _finding) -> None:
    [(index,)] = [(part.rule,) for part in wanted() if part.name == "pgqueue_jobs_due"]
    with connection.schema_editor() as editor:
        editor.remove_index(Job, index)
        editor.add_index(Job, index)


def forget_migration(sql) -> None:
    sql("DELETE FROM django_migrations WHERE app = 'django_pgqueue' AND name = '0001_initial'")


def ask_for_what_no_worker_does(sql) -> None:
    begin(KILL, Filter(queues=("mail",)), by="ann")
    sql("UPDATE pgqueue_bulk_actions SET next_at = statement_timestamp() - interval '2 minutes'")


FAILED = (
    "INSERT INTO pgqueue_stats (minute, queue, task, failed) "
    "VALUES (date_trunc('minute', now()) - interval '2 min', 'mail', 't', 10)"
)

Plant = str | Callable[[Any], None]
Cure = str | Callable[[Any, Any], None]

FAULTS: dict[str, tuple[str, Plant, Cure, int]] = {
    "unknown task": (
        "unknown-tasks",
        "INSERT INTO pgqueue_jobs (task) VALUES ('gone')",
        "DELETE FROM pgqueue_jobs",
        0,
    ),
    "queue that no worker serves": (
        "queue-not-served",
        (
            "UPDATE pgqueue_workers SET queues = '[\"mail\"]'; INSERT INTO pgqueue_jobs (task) VALUES "
            "('tests.app.tasks.noop')"
        ),
        "UPDATE pgqueue_workers SET queues = '[]'",
        1,
    ),
    "no worker, and work": (
        "no-workers",
        (
            "UPDATE pgqueue_workers SET lease_until = now(); INSERT INTO pgqueue_jobs (task) VALUES "
            "('tests.app.tasks.noop')"
        ),
        "UPDATE pgqueue_workers SET lease_until = now() + interval '1 h'",
        1,
    ),
    "worker that polls": (
        "polling",
        "UPDATE pgqueue_workers SET session_pid = 0",
        "UPDATE pgqueue_workers SET session_pid = 1",
        0,
    ),
    "job that waits and waits": (
        "oldest-job",
        "INSERT INTO pgqueue_jobs (task, run_at) VALUES ('tests.app.tasks.noop', now() - interval '16 min')",
        "DELETE FROM pgqueue_jobs",
        0,
    ),
    "attempts that fail": ("failing", FAILED, "DELETE FROM pgqueue_stats", 1),
    "late schedule": (
        "schedules-late",
        lambda _sql: make("hourly", next_at=timezone.now() - dt.timedelta(minutes=2)),
        "UPDATE pgqueue_schedules SET is_enabled = false",
        1,
    ),
    "refused schedule": (
        "schedules-refused",
        lambda _sql: make("hourly", next_at=timezone.now() + ALIVE, last_error="no such task"),
        "UPDATE pgqueue_schedules SET last_error = ''",
        1,
    ),
    "missing index of the claim": (
        "indexes-missing",
        "DROP INDEX pgqueue_jobs_claim",
        cured_by_statements,
        1,
    ),
    "missing index of the admin": (
        "indexes-missing",
        "DROP INDEX pgqueue_dead_jobs_cause; DROP INDEX pgqueue_finished_jobs_schedule",
        cured_by_statements,
        0,
    ),
    "missing keys": (
        "indexes-missing",
        (
            "ALTER TABLE pgqueue_queue_heads DROP CONSTRAINT pgqueue_queue_heads_place; "
            "DROP INDEX pgqueue_jobs_unique; "
            "ALTER TABLE pgqueue_schedules DROP CONSTRAINT pgqueue_schedules_name_key; "
            "ALTER TABLE pgqueue_finished_jobs DROP CONSTRAINT pgqueue_finished_jobs_pkey; "
            "ALTER TABLE pgqueue_jobs DROP CONSTRAINT pgqueue_jobs_pkey"
        ),
        cured_by_statements,
        1,
    ),
    "index that failed to be made": ("indexes-invalid", fail_to_make_an_index, cured_by_statements, 0),
    "index of the queue that failed to be made again": ("indexes-invalid", fail_to_make_one_again, made_due_again, 1),
    "missing checks": (
        "checks-missing",
        (
            "ALTER TABLE pgqueue_jobs DROP CONSTRAINT pgqueue_jobs_running_has_lease; "
            "ALTER TABLE pgqueue_queues DROP CONSTRAINT pgqueue_queues_rate"
        ),
        cured_by_statements,
        0,
    ),
    "check that old rows were not held to": (
        "checks-missing",
        (
            "ALTER TABLE pgqueue_jobs DROP CONSTRAINT pgqueue_jobs_names; "
            "ALTER TABLE pgqueue_jobs ADD CONSTRAINT pgqueue_jobs_names "
            "CHECK (NOT (queue = '') AND NOT (task = '')) NOT VALID"
        ),
        cured_by_statements,
        0,
    ),
    "missing function": (
        "functions-missing",
        "ALTER FUNCTION pgqueue_enqueue RENAME TO mine",
        "ALTER FUNCTION mine RENAME TO pgqueue_enqueue",
        1,
    ),
    "missing column": (
        "columns-missing",
        "ALTER TABLE pgqueue_workers RENAME COLUMN memory_bytes TO mine",
        "ALTER TABLE pgqueue_workers RENAME COLUMN mine TO memory_bytes",
        1,
    ),
    "missing table": (
        "columns-missing",
        "ALTER TABLE pgqueue_queue_heads RENAME TO mine",
        "ALTER TABLE mine RENAME TO pgqueue_queue_heads",
        1,
    ),
    "migration that was not applied": (
        "migrations-missing",
        forget_migration,
        "INSERT INTO django_migrations (app, name, applied) VALUES ('django_pgqueue', '0001_initial', now())",
        1,
    ),
    "missing partition": ("partitions-missing", drop_tomorrow, keep_partitions, 0),
    "changed storage options": (
        "storage-options",
        "ALTER TABLE pgqueue_jobs SET (fillfactor = 100)",
        "ALTER TABLE pgqueue_jobs SET (fillfactor = 50)",
        0,
    ),
    "workers of another version": (
        "versions-differ",
        "UPDATE pgqueue_workers SET version = '0.0.1'",
        f"UPDATE pgqueue_workers SET version = '{VERSION}'",
        0,
    ),
    "bulk action that no worker does": (
        "bulk-actions-stalled",
        ask_for_what_no_worker_does,
        "UPDATE pgqueue_bulk_actions SET ended_at = now()",
        0,
    ),
    "more slots than the server has connections": (
        "connections-short",
        "UPDATE pgqueue_workers SET concurrency = 1000",
        "UPDATE pgqueue_workers SET concurrency = 8",
        1,
    ),
}


def test_there_are_a_dozen_faults_and_more():
    assert len({name for name, *_ in FAULTS.values()}) >= 12


@pytest.fixture
def storage_options(sql) -> Iterator[None]:
    """Restore them exactly: an option that is set again stands behind the others."""
    with storage.kept(sql):
        yield


@pytest.mark.usefixtures("storage_options")
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_found_by_name_and_silent_once_it_is_cured(fault, sql):
    name, plant, cure, exit_code = FAULTS[fault]
    sql(plant) if isinstance(plant, str) else plant(sql)
    found, code = diagnosis()
    finding = found.get(name)
    sql(cure) if isinstance(cure, str) else cure(sql, finding)
    assert finding, found
    assert finding["what"]
    assert finding["remedy"]
    assert (finding["level"], code) == (("error", 1) if exit_code else ("warning", 0))
    assert found == {name: finding} or fault.startswith("missing")
    sql("DELETE FROM pgqueue_jobs")
    eventually(lambda: is_healthy(sql))


# Faults that take more than a statement


def test_arguments_that_no_longer_fit_are_found_and_the_next_signature_may_take_them(registry_of, sql):
    def send(order_id, copy=False): ...

    registry_of(send, name="shop.send", aliases=["shop.mail"])
    insert(sql, "shop.send", args="'[7]'")
    insert(sql, "shop.send", args="'[7]'", kwargs="""'{"copy": true}'""", status="'scheduled'")
    insert(sql, "shop.mail", kwargs="""'{"order_id": 7}'""", queue="'mail'")
    eventually(lambda: is_healthy(sql))

    def send(order, *, language): ...

    registry_of(send, name="shop.send", aliases=["shop.mail"])
    found, code = diagnosis()
    assert code == 1
    assert "3 jobs" in found["arguments-unfit"]["what"]
    problems = {name: told["problem"] for name, told in found["arguments-unfit"]["facts"]["tasks"].items()}
    assert problems["shop.send"].endswith("argument: 'language'")
    assert set(problems) == {"shop.send", "shop.mail"}

    def send(order_id=None, copy=False, *, order=None, language="en"): ...

    registry_of(send, name="shop.send", aliases=["shop.mail"])
    eventually(lambda: is_healthy(sql))


def test_backend_that_cannot_be_made_stops_no_other_look(sql, settings, caplog):
    """Its jobs are of an unknown task, as they are to workers."""
    settings.TASKS = {**settings.TASKS, "broken": {"BACKEND": f"{__name__}.NoBroker"}}
    insert(sql, "mail.send", backend="'broken'")
    found, code = diagnosis()
    assert (list(found), code) == (["unknown-tasks"], 0)
    assert "The backend broken cannot find the task mail.send" in caplog.messages
    assert "there is no broker" in caplog.text


class NoBroker:
    def __init__(self, alias, params):
        raise RuntimeError("there is no broker")


def test_schedule_that_was_made_in_the_admin_is_found_before_it_fires(registry_of, sql):
    def send(order_id): ...

    registry_of(send, name="shop.send")
    soon = timezone.now() + ALIVE
    make("fits", task="shop.send", args=[7], next_at=soon)
    make("of code", task="gone", source="code", next_at=soon)
    make("paused", task="gone", is_enabled=False, next_at=soon)
    eventually(lambda: is_healthy(sql))
    make("gone", task="gone", next_at=soon)
    make("edited", task="shop.send", kwargs={"order": 7}, source="code", edited_at=timezone.now(), next_at=soon)
    found, code = diagnosis()
    assert (list(found), code) == (["schedules-unfit"], 1)
    assert found["schedules-unfit"]["facts"]["schedules"] == {
        "gone": "this code does not know gone",
        "edited": "missing a required argument: 'order_id'",
    }


@pytest.mark.parametrize(
    ("args", "kwargs", "kinds"),
    [('"ab"', "{}", "string and object"), ("[1, 2]", "[]", "array and array"), ("null", "7", "null and number")],
)
def test_schedule_whose_arguments_are_of_another_kind_is_found(sql, registry_of, args, kwargs, kinds):
    """A string has a length, and an empty array names nothing: by them a function could be called."""
    registry_of(lambda_of_two, name="two")
    make("odd", task="two", next_at=timezone.now() + ALIVE)
    sql("UPDATE pgqueue_schedules SET args = %s::jsonb, kwargs = %s::jsonb", args, kwargs)
    problem = diagnosis()[0]["schedules-unfit"]["facts"]["schedules"]["odd"]
    assert problem == f"args and kwargs are {kinds}, not array and object"


def test_arguments_of_another_kind_are_unfit_for_any_function(sql):
    insert(sql, "tests.app.tasks.record", args="""'{"label": "x"}'""")
    insert(sql, "tests.app.tasks.record", args="""'["x"]'""", kwargs="'[]'", status="'running'", lease_token="7")
    [told] = diagnosis()[0]["arguments-unfit"]["facts"]["tasks"].values()
    assert told["problem"] == "args and kwargs are object and object, not array and object"


def test_jobs_behind_those_that_come_next_are_looked_at_too(sql, registry_of):
    """The newest ones are, those that wait for a key, and those that are scheduled."""
    registry_of(lambda_of_two, name="two")
    enqueue_many(app.noop, [()] * 1100)
    insert(sql, "two", priority="-1")
    assert "arguments-unfit" in diagnosis()[0]
    sql("UPDATE pgqueue_jobs SET id = -id, priority = -2 WHERE task = 'two'")
    assert "arguments-unfit" not in diagnosis()[0]
    sql("UPDATE pgqueue_jobs SET status = 'waiting', concurrency_key = 'k', concurrency_limit = 1 WHERE task = 'two'")
    assert "arguments-unfit" in diagnosis()[0]


def lambda_of_two(one, two): ...


def test_tasks_of_the_framework_are_found_where_their_backend_finds_them(sql, fresh):
    """One is declared for another backend. The context is the framework's business: no job has it."""
    importlib.import_module("tests.app.elsewhere")
    insert(sql, "tests.app.elsewhere.lent", backend="'default'", args="'[1]'")
    insert(sql, "tests.app.contract.tell", backend="'default'", args="'[1, 2]'")
    eventually(lambda: is_healthy(sql))
    insert(sql, "tests.app.elsewhere.lent", backend="'default'", args="'[1, 2]'")
    insert(sql, "tests.app.elsewhere.gone", backend="'default'")
    found, _code = diagnosis()
    assert list(found["arguments-unfit"]["facts"]["tasks"]) == ["tests.app.elsewhere.lent"]
    assert list(found["unknown-tasks"]["facts"]["tasks"]) == ["tests.app.elsewhere.gone"]


@pytest.mark.parametrize(("seconds", "is_found"), [(30, False), (70, True)])
def test_bulk_action_counts_as_stalled_when_its_slice_has_been_due_for_a_minute(sql, seconds, is_found):
    begin(KILL, Filter(), by="ann")
    sql("UPDATE pgqueue_bulk_actions SET next_at = statement_timestamp() - make_interval(secs => %s)", seconds)
    assert ("bulk-actions-stalled" in diagnosis()[0]) is is_found


def test_index_that_is_being_made_is_not_invalid_yet(sql):
    """It waits for a transaction of another session; when it is cancelled, it is."""
    in_the_way = connections.create_connection("default")
    in_the_way.settings_dict = connection.settings_dict
    in_the_way.set_autocommit(False)
    with in_the_way.cursor() as cursor:
        cursor.execute("LOCK TABLE pgqueue_jobs IN ROW EXCLUSIVE MODE")
    try:
        with beside(make_an_index):
            [(pid,)] = eventually(lambda: sql("SELECT pid FROM pg_stat_progress_create_index WHERE index_relid <> 0"))
            is_valid = sql("SELECT indisvalid FROM pg_index WHERE indexrelid = 'mine'::regclass")
            found = diagnosis()
            sql("SELECT pg_cancel_backend(%s)", pid)
    finally:
        in_the_way.close()
    assert is_valid == [(False,)]
    assert found == ({}, 0)
    assert diagnosis()[0]["indexes-invalid"]["facts"]["indexes"] == ["mine"]
    sql("DROP INDEX mine")


def test_statement_that_drops_an_index_has_its_name_in_quotes(sql):
    insert(sql, "tests.app.tasks.noop")
    insert(sql, "tests.app.tasks.noop")
    name = 'My "index"; --'
    with pytest.raises(Exception, match="could not create unique index"):
        sql(f'CREATE UNIQUE INDEX CONCURRENTLY "{name.replace(chr(34), 2 * chr(34))}" ON pgqueue_jobs (task)')
    sql("DELETE FROM pgqueue_jobs")
    finding = diagnosis()[0]["indexes-invalid"]
    assert finding["facts"]["indexes"] == [name]
    cured_by_statements(sql, finding)
    eventually(lambda: is_healthy(sql))


def make_an_index() -> None:
    with connection.cursor() as cursor, contextlib.suppress(OperationalError):
        cursor.execute("CREATE INDEX CONCURRENTLY mine ON pgqueue_jobs (task)")
    connection.close()


def test_old_snapshot_is_found_until_its_transaction_ends(request, sql, monkeypatch):
    monkeypatch.setattr(tables, "OLD_SECONDS", 0)
    request.getfixturevalue("elsewhere")
    finding = diagnosis()[0]["old-snapshot"]
    assert finding["facts"]["application"] == "report"
    sql(f"SELECT pg_terminate_backend({finding['facts']['handle']}, 30000)")
    eventually(lambda: is_healthy(sql))


def test_dead_rows_are_found_until_a_vacuum(sql, monkeypatch):
    monkeypatch.setattr(tables, "MANY_DEAD_ROWS", 20)

    def dead_rows() -> dict | None:
        enqueue_many(app.noop, [()] * 20)
        sql("DELETE FROM pgqueue_jobs")
        sql("SELECT pg_stat_force_next_flush()")
        return diagnosis()[0].get("dead-rows")  # not if an autovacuum, for rows of tests before, has just begun anew

    assert eventually(dead_rows)["facts"]["dead"] >= 20
    sql("VACUUM pgqueue_jobs")
    eventually(lambda: is_healthy(sql))


def test_rows_in_the_default_partition_are_found_until_they_are_gone(sql):
    sql(
        "INSERT INTO pgqueue_finished_jobs (id, finished_at, enqueued_at, run_at, first_started_at, started_at, "
        "worker_id, run_seconds, priority, attempts, lost, queue, task, backend, args, kwargs, metadata, errors) "
        "VALUES (1, '2001-01-01', now(), now(), now(), now(), 0, 1, 0, 1, 0, 'q', 't', '', '[]', '{}', '{}', '[]')"
    )
    sql("SELECT pg_stat_force_next_flush()")
    assert "default-partition" in diagnosis()[0]
    sql("DELETE FROM pgqueue_finished_jobs")
    eventually(lambda: is_healthy(sql))


def test_clock_that_is_wrong_is_found(sql, monkeypatch):
    now = timezone.now
    with monkeypatch.context() as patch:
        patch.setattr(tables.timezone, "now", lambda: now() + dt.timedelta(minutes=10))
        assert "clocks-differ" in diagnosis()[0]
    eventually(lambda: is_healthy(sql))


def test_server_without_autovacuum_is_found_until_it_is_switched_on(sql):
    sql("ALTER SYSTEM SET autovacuum = off")
    try:
        sql("SELECT pg_reload_conf()")
        eventually(lambda: "autovacuum-off" in diagnosis()[0])
    finally:
        sql("ALTER SYSTEM RESET autovacuum")
        sql("SELECT pg_reload_conf()")
    eventually(lambda: is_healthy(sql))


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


# The command


def test_worst_is_told_first_and_the_level_that_fails_may_be_chosen(sql):
    sql("UPDATE pgqueue_workers SET version = '0.0.1'")
    text, complaint, code = say()
    assert (text.partition("\n")[0], complaint, code) == ("WARNING versions-differ", "", 0)
    assert say("--fail-level", "warning")[1:] == ("Found: 1 warning.", 1)
    sql("UPDATE pgqueue_workers SET session_pid = 0")
    insert(sql, "tests.app.tasks.noop", args="'{}'")
    text, complaint, code = say()
    assert (text.partition("\n")[0], complaint, code) == ("ERROR arguments-unfit", "Found: 1 error, 2 warnings.", 1)


def test_json_has_everything(sql):
    text, _complaint, _code = say("--json")
    assert json.loads(text) == {"healthy": True, "database": "default", "version": VERSION, "findings": []}
    sql("UPDATE pgqueue_workers SET version = '0.0.1'")
    told = json.loads(say("--json")[0])
    [finding] = told["findings"]
    assert told["healthy"] is False
    assert set(finding) == {"name", "level", "what", "remedy", "facts"}
    assert finding["facts"] == {"here": VERSION, "versions": ["0.0.1"], "processes": 1}


def test_names_that_others_may_have_written_do_nothing_to_the_terminal(sql):
    sql("INSERT INTO pgqueue_jobs (task) VALUES (E'gone\\x1b[2Jaway')")
    text, *_ = say()
    assert "gone?[2Jaway" in text
    assert "\x1b" not in text


def test_names_are_cut_where_they_fill_the_screen(sql):
    sql("INSERT INTO pgqueue_jobs (task) VALUES ('gone.' || repeat('x', 490) || '.away')")
    text, *_ = say()
    assert "x" * 200 not in text
    assert "gone.xxx" in text
    assert "xxx.away" in text


def test_other_database_is_listened_to_by_itself(sql, settings):
    """LISTEN_DATABASE stands for the one in the settings alone; SQLite would be an error."""
    settings.PGQUEUE = {**settings.PGQUEUE, "DATABASE": "other", "LISTEN_DATABASE": "lite"}
    assert say("--database", "default") == ("healthy\n", "", 0)


def test_no_lock_is_waited_for(sql):
    """What another session has locked is not looked at, and that is told by an exit code of its own."""
    locked, done = threading.Event(), threading.Event()

    def lock() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("LOCK TABLE pgqueue_stats IN ACCESS EXCLUSIVE MODE")
            locked.set()
            done.wait(PATIENCE_SECONDS)
        connection.close()

    with beside(lock):
        assert locked.wait(PATIENCE_SECONDS)
        try:
            text, complaint, code = say()
        finally:
            done.set()
    assert "question for failing: canceling statement due to lock timeout" in text
    assert (complaint, code) == ("Not everything could be looked at.", 2)
    eventually(lambda: is_healthy(sql))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--database", "nowhere"], "not in DATABASES"),
        (["--database", "lite"], "is sqlite"),
        ([], "no table pgqueue_jobs"),
    ],
    ids=["unknown", "sqlite", "not migrated"],
)
def test_it_says_why_it_could_not_look(words, complaint, sql):
    sql("ALTER TABLE pgqueue_jobs RENAME TO mine")
    try:
        text, said, code = say(*words)
    finally:
        sql("ALTER TABLE mine RENAME TO pgqueue_jobs")
    assert complaint in said
    assert (text, code) == ("", 2)


def test_wrong_settings_keep_it_from_looking(settings):
    settings.PGQUEUE = {**settings.PGQUEUE, "LEASE_SECONDS": 0}
    with pytest.raises(SystemCheckError, match=r"pgqueue\.E002") as raised:
        call_command("pgqueue_doctor", skip_checks=False)
    assert raised.value.returncode == 2


def test_it_changes_nothing_and_keeps_no_transaction(sql):
    insert(sql, "tests.app.tasks.noop")
    before = sql("SELECT * FROM pgqueue_jobs")
    sql("UPDATE pgqueue_workers SET lease_until = now()")
    assert say()[2] == 1
    assert sql("SELECT * FROM pgqueue_jobs") == before
    assert not connection.in_atomic_block
    assert sql("SHOW lock_timeout") == [("0",)]
