"""Checks name what is wrong with settings and databases, each with a hint."""

import psycopg
import pytest
from django.conf import settings as django_settings
from django.core.checks import run_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection
from django.test import override_settings
from django.utils import translation

from django_pgqueue import Limit, periodic, registry, task
from django_pgqueue.checks import check_distribution, check_schedules
from django_pgqueue.models import Job
from django_pgqueue.version import installed, version_of
from tests.support.schedules import HOUR, bound

ROUTER = "django_pgqueue.routers.PgQueueRouter"


class NeedsMore:
    def __init__(self, tenant):
        self.tenant = tenant

    def run(self, job):
        raise NotImplementedError


def found(**settings) -> list:
    with override_settings(**settings):
        return run_checks(tags=["pgqueue"])


def test_good_settings_raise_nothing():
    assert found(PGQUEUE={}) == []
    assert found(PGQUEUE={"DEAD_RETENTION_DAYS": 1}) == []
    assert found(PGQUEUE={"DATABASE": "other"}, DATABASE_ROUTERS=[ROUTER]) == []


@pytest.mark.parametrize(
    ("settings", "expected", "text"),
    [
        ({"DATABSE": "x"}, "pgqueue.E001", "no key 'DATABSE'"),
        ({"LEASE_SECONDS": 2}, "pgqueue.E002", "PGQUEUE['LEASE_SECONDS'] is 2"),
        ({"LEASE_SECONDS": "30"}, "pgqueue.E002", "is '30'"),
        ({"TASK_DEFAULTS": {"max_attempts": 0}}, "pgqueue.E002", "TASK_DEFAULTS'] has 'max_attempts'"),
        ({"TASK_DEFAULTS": {"unique": True}}, "pgqueue.E002", "TASK_DEFAULTS'] has 'unique'"),
        ({"TASK_DEFAULTS": {"max_snoozes": 0}}, "pgqueue.E002", "TASK_DEFAULTS'] has 'max_snoozes'"),
        ({"TASK_DEFAULTS": {"backoff": -1}}, "pgqueue.E002", "TASK_DEFAULTS'] has 'backoff'"),
        ({"TASK_DEFAULTS": {"discard_on": "no.Such"}}, "pgqueue.E002", "discard_on names 'no.Such', which cannot be"),
        ({"TASK_DEFAULTS": {"capture_logs": "info"}}, "pgqueue.E002", "capture_logs is one of 'DEBUG', 'INFO', "),
        ({"TASK_DEFAULTS": 5}, "pgqueue.E002", "PGQUEUE['TASK_DEFAULTS'] is 5"),
        ({"RETENTION_DAYS": -1}, "pgqueue.E002", "RETENTION_DAYS"),
        ({"DEAD_RETENTION_DAYS": 0}, "pgqueue.E002", "PGQUEUE['DEAD_RETENTION_DAYS'] is 0"),
        ({"DEAD_RETENTION_DAYS": False}, "pgqueue.E002", "PGQUEUE['DEAD_RETENTION_DAYS'] is False"),
        ({"STATS_DAYS": 0}, "pgqueue.E002", "PGQUEUE['STATS_DAYS'] is 0"),
        ({"POLL_SECONDS": True}, "pgqueue.E002", "POLL_SECONDS"),
        ({"NOTIFY": "no"}, "pgqueue.E002", "PGQUEUE['NOTIFY'] is 'no'"),
        ({"JSON_ENCODER": "no.such.Encoder"}, "pgqueue.E002", "cannot be imported"),
        ({"MIDDLEWARE": "shop.jobs.Tenant"}, "pgqueue.E002", "PGQUEUE['MIDDLEWARE'] is 'shop.jobs.Tenant'"),
        ({"MIDDLEWARE": [7]}, "pgqueue.E002", "PGQUEUE['MIDDLEWARE'] has 7, which has no method enqueue() or run()"),
        ({"MIDDLEWARE": [list]}, "pgqueue.E002", "which has no method enqueue() or run()"),
        (
            {"MIDDLEWARE": [len, "shop.jobs.Tenant"]},
            "pgqueue.E002",
            "'shop.jobs.Tenant', which cannot be used: Mod",
        ),
        ({"MIDDLEWARE": ["tests.test_checks.NeedsMore"]}, "pgqueue.E002", "TypeError: missing a required argument"),
        ({"MIDDLEWARE": ["tests.test_checks.ROUTER"]}, "pgqueue.E002", "PGQUEUE['MIDDLEWARE'] has 'tests.test_che"),
        ({"DATABASE": "nowhere"}, "pgqueue.E003", "'nowhere', which is not in DATABASES"),
        ({"MAINTENANCE_DATABASE": "nowhere"}, "pgqueue.E003", "PGQUEUE['MAINTENANCE_DATABASE'] is 'nowhere'"),
        ({"MAINTENANCE_DATABASE": "lite"}, "pgqueue.E004", "'lite' is sqlite"),
        ({"LISTEN_DATABASE": "nowhere"}, "pgqueue.E003", "PGQUEUE['LISTEN_DATABASE'] is 'nowhere'"),
        ({"REPLICA_DATABASE": "nowhere"}, "pgqueue.E003", "PGQUEUE['REPLICA_DATABASE'] is 'nowhere'"),
        ({"PREPARED_STATEMENTS": "no"}, "pgqueue.E002", "PGQUEUE['PREPARED_STATEMENTS'] is 'no'"),
        ({"IMMEDIATE_ERRORS": "logged"}, "pgqueue.E002", "PGQUEUE['IMMEDIATE_ERRORS'] is 'logged'"),
        ({"QUEUES": ["mail"]}, "pgqueue.E002", "PGQUEUE['QUEUES'] is ['mail']"),
        ({"VACUUM_DEAD_ROWS": -1}, "pgqueue.E002", "VACUUM_DEAD_ROWS"),
        ({"OUTBOXES": ["other"]}, "pgqueue.E002", "PGQUEUE['OUTBOXES'] is ['other']"),
        ({"OUTBOXES": {"other": 128}}, "pgqueue.E002", "PGQUEUE['OUTBOXES'] is {'other': 128}"),
        ({"OUTBOXES": {"other": 1, "default": 1}}, "pgqueue.E002", "PGQUEUE['OUTBOXES'] is {'other': 1, 'defa"),
        ({"OUTBOXES": {"lite": 1}}, "pgqueue.E004", "'lite' is sqlite"),
        ({"SHARDS": {"other": {"number": 1, "queues": "mail"}}}, "pgqueue.E002", "['queues'] is 'mail'"),
        (
            {"SHARDS": {"other": {"number": 1, "slots": [7]}, "default": {"number": 0, "slots": range(9)}}},
            *("pgqueue.E002", "The slot 7 is on 'other' and 'default'"),
        ),
        ({"SHARDS": {"other": {"number": 1, "slots": [1024]}}}, "pgqueue.E002", "['other']['slots'] is [1024]"),
        ({"SHARDS": ["other"]}, "pgqueue.E002", "PGQUEUE['SHARDS'] is ['other']"),
        ({"SHARDS": {"other": {"lisen": "direct"}}}, "pgqueue.E002", "PGQUEUE['SHARDS']['other'] is {'lisen'"),
        (
            {"SHARDS": {"other": {"number": 1, "listen": "direct"}}},
            "pgqueue.E003",
            "PGQUEUE['SHARDS']['other']['listen'] is 'dir",
        ),
        ({"SHARDS": {"other": {}}}, "pgqueue.E002", "PGQUEUE['SHARDS']['other'] has no number"),
        ({"SHARDS": {"other": {"number": 32}}}, "pgqueue.E002", "PGQUEUE['SHARDS']['other'] has no number"),
        ({"SHARDS": {"other": {"number": 0}}}, "pgqueue.E002", "'default' and 'other' have the number 0 in PGQ"),
        (
            {"SHARDS": {"nowhere": {"number": 1}}},
            "pgqueue.E003",
            "PGQUEUE['SHARDS'] has 'nowhere', which is not in DATABASES",
        ),
        ({"SHARDS": {"lite": {"number": 1}}}, "pgqueue.E004", "'lite' is sqlite"),
        ({"DATABASE": "other"}, "pgqueue.W001", "The queue is on 'other'"),
        ([], "pgqueue.E002", "PGQUEUE is []"),
    ],
    ids=str,
)
def test_wrong_setting_is_named_with_a_hint(settings, expected, text):
    [message] = found(PGQUEUE=settings)
    assert message.id == expected
    assert text in message.msg
    assert message.hint


def test_outbox_without_its_app_is_an_error():
    installed = [name for name in django_settings.INSTALLED_APPS if name != "django_pgqueue.outbox"]
    [message] = found(PGQUEUE={"OUTBOXES": {"other": 0}}, INSTALLED_APPS=installed)
    assert (message.id, message.hint) == ("pgqueue.E002", "Add 'django_pgqueue.outbox' to INSTALLED_APPS, and migrate.")


def test_database_of_another_vendor_is_an_error():
    messages = found(PGQUEUE={"DATABASE": "lite"}, DATABASE_ROUTERS=[ROUTER])
    assert [message.id for message in messages] == ["pgqueue.E004"]
    assert "'lite' is sqlite" in messages[0].msg


# What the workers' role may do


def found_in(*databases, **settings) -> list:
    with override_settings(PGQUEUE=settings):
        return [message for message in run_checks(databases=databases) if message.id == "pgqueue.W003"]


@pytest.fixture
def lesser(db):
    """Work as a role that may do nothing with the tables but read and write."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE ROLE pgqueue_reader")
        cursor.execute("SET ROLE pgqueue_reader")
        yield
        cursor.execute("RESET ROLE")


def test_owner_of_the_tables_hears_nothing(db):
    assert found_in("default") == []


def test_role_that_cannot_look_after_the_tables_is_told_what_to_do(lesser):
    [message] = found_in("default")
    assert "'default' may not make and drop partitions of succeeded jobs or VACUUM pgqueue_jobs" in message.msg
    assert "MAINTENANCE_DATABASE" in message.hint


@pytest.mark.parametrize(
    ("off", "left"), [("VACUUM_DEAD_ROWS", "partitions of succeeded jobs, so"), ("RETENTION_DAYS", "may not VACUUM")]
)
def test_service_that_is_switched_off_needs_no_right(lesser, off, left):
    [message] = found_in("default", **{off: 0})
    assert left in message.msg
    assert found_in("default", VACUUM_DEAD_ROWS=0, RETENTION_DAYS=0) == []
    [message] = found_in("default", VACUUM_DEAD_ROWS=0, RETENTION_DAYS=0, DEAD_RETENTION_DAYS=30)
    assert "may not prune dead jobs, so" in message.msg


def test_rights_are_looked_at_only_where_the_queue_is(lesser):
    assert found_in("other") == []
    assert found_in() == []


@pytest.mark.django_db(databases=["default", "other"])
def test_rights_of_the_maintenance_role_count(lesser):
    messages = found_in("default", MAINTENANCE_DATABASE="other")  # another database, where the queue is not
    assert [message.msg for message in messages] == ["The tables of the queue are on 'default', but not on 'other'."]


@pytest.mark.django_db(databases=["default", "lite"])
@pytest.mark.parametrize("value", [[], {"DATABASE": "nowhere"}, {"DATABASE": "lite"}], ids=str)
def test_worker_with_unusable_settings_is_stopped_by_their_check(value):
    with override_settings(PGQUEUE=value), pytest.raises(SystemCheckError, match=r"pgqueue\.E00"):
        call_command("pgqueue_worker", skip_checks=False)


def test_all_wrong_settings_are_named_at_once():
    assert len(found(PGQUEUE={"LEASE_SECONDS": 0, "STATS_DAYS": 0, "TYPO": 1})) == 3


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_queue_on_a_second_database_works_from_migration_to_enqueue():
    from django.db import connections

    import tests.app.tasks as app

    with override_settings(PGQUEUE={"DATABASE": "other"}, DATABASE_ROUTERS=[ROUTER]):
        # The migrations were recorded there while the queue was elsewhere, and made nothing.
        call_command("migrate", "pgqueue", "zero", database="other", fake=True, verbosity=0)
        call_command("migrate", "pgqueue", database="other", verbosity=0)
        try:
            handle = app.record.enqueue("x")
            assert handle.database == "other"
            assert Job.objects.get(pk=handle.id)._state.db == "other"
        finally:
            call_command("migrate", "pgqueue", "zero", database="other", verbosity=0)
    assert "pgqueue_jobs" not in connections["other"].introspection.table_names()
    call_command("migrate", "pgqueue", database="other", verbosity=0)


def lacking() -> dict[str, str]:
    """Return what is said of the database's tables: the messages by their ids."""
    messages = run_checks(tags=["database"], databases=["default"])
    return {one.id: f"{one.msg} {one.hint}" for one in messages if one.id != "pgqueue.W003"}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("statement", "expected", "text"),
    [
        ("DROP INDEX pgqueue_jobs_claim", "pgqueue.W007", 'CREATE INDEX CONCURRENTLY "pgqueue_jobs_claim"'),
        ("ALTER TABLE pgqueue_jobs DROP CONSTRAINT pgqueue_jobs_names", "pgqueue.W007", "ADD CONSTRAINT"),
        ("DROP FUNCTION pgqueue_enqueue", "pgqueue.W007", "sqlmigrate pgqueue 0001_initial"),
        ("ALTER TABLE pgqueue_workers DROP COLUMN memory_bytes", "pgqueue.W007", "pgqueue_workers.memory_bytes"),
        ("ALTER TABLE pgqueue_jobs RESET (fillfactor)", "pgqueue.W009", "SET (fillfactor = 50);"),
    ],
)
def test_what_the_database_lacks_is_told_with_the_remedy(sql, statement, expected, text):
    assert lacking() == {}
    sql(statement)
    [(found, message)] = lacking().items()
    assert found == expected
    assert text in message


@pytest.mark.django_db
def test_missing_partition_is_told(sql):
    for days in (0, 1):  # midnight may be over before they are looked for
        [(day,)] = sql("SELECT to_char((statement_timestamp() AT TIME ZONE 'UTC')::date + %s, 'YYYYMMDD')", days)
        sql(f"DROP TABLE pgqueue_succeeded_jobs_{day}")
    assert list(lacking()) == ["pgqueue.W008"]


@pytest.mark.django_db
def test_what_comes_with_a_migration_is_not_told_before_it_is_applied(sql):
    """As by ``migrate`` itself, which runs these checks first."""
    sql("ALTER TABLE pgqueue_workers DROP COLUMN memory_bytes")
    sql("DELETE FROM django_migrations WHERE app = 'pgqueue' AND name = '0001_initial'")
    assert lacking() == {}


@pytest.mark.django_db
def test_what_the_database_lacks_is_asked_of_the_queues_database_alone(sql):
    sql("DROP INDEX pgqueue_jobs_claim")
    assert run_checks(tags=["database"], databases=[]) == []
    assert run_checks(tags=["pgqueue"]) == []
    with pytest.raises(SystemCheckError, match=r"pgqueue\.W007"):
        call_command("check", deploy=True, databases=["default"], fail_level="WARNING")


@pytest.mark.django_db
def test_what_the_database_lacks_is_told_in_english_as_other_checks_are(sql):
    sql("DROP INDEX pgqueue_jobs_claim")
    with translation.override("de"):
        assert lacking()["pgqueue.W007"].startswith("An index is missing: pgqueue_jobs_claim.")
        assert translation.get_language() == "de"


# At which isolation level atomic tasks run


@pytest.fixture(params=["server", "settings"])
def serializable(request, db, monkeypatch):
    """Let Django's transactions be serializable, by either of the two ways."""
    if request.param == "server":
        with connection.cursor() as cursor:
            cursor.execute("SET default_transaction_isolation = 'serializable'")
    else:
        level = psycopg.IsolationLevel.SERIALIZABLE
        monkeypatch.setitem(connection.settings_dict["OPTIONS"], "isolation_level", level)
    yield
    if request.param == "server":
        with connection.cursor() as cursor:
            cursor.execute("RESET default_transaction_isolation")


def conflicts(*databases) -> list[str]:
    return [message.msg for message in run_checks(databases=databases) if message.id == "pgqueue.W011"]


def test_atomic_tasks_at_serializable_are_warned_of(serializable, monkeypatch):
    [message] = conflicts("default")
    assert "'default' works at SERIALIZABLE: tasks with atomic=True, as tests.app." in message
    assert conflicts() == []
    monkeypatch.setattr(registry, "known", lambda: ("tests.app.tasks.noop",))
    assert conflicts("default") == [], "there is no atomic task"


def test_atomic_tasks_at_read_committed_are_fine(db):
    assert conflicts("default") == []


def test_check_names_schedules_that_cannot_be_stored(recode):
    recode(bound(periodic(every=HOUR), {1, 2}), bound(periodic(every=HOUR, name="good"), "x"))
    [error] = check_schedules()
    assert (error.id, "'tests.app.tasks.record'" in error.msg, "args[0] is the set" in error.msg) == (
        "pgqueue.E005",
        True,
        True,
    )


def test_declaration_of_a_queue_that_cannot_work_is_named():
    [message] = [one for one in found(PGQUEUE={"QUEUES": {"mail": {"max_runing": 4}}}) if one.id == "pgqueue.E002"]
    assert "PGQUEUE['QUEUES'] has 'mail': A queue has no 'max_runing'." in message.msg


def test_check_names_tasks_and_schedules_on_queues_that_are_not_declared(recode, monkeypatch):
    recode(bound(periodic(every=HOUR), queue="nightly"))
    misspelt = registry.get("tests.app.tasks.noop").using(queue="emials")
    monkeypatch.setattr(registry, "_registry", {"shop.tasks.send": misspelt})
    assert not found(PGQUEUE={})
    task, schedule = found(PGQUEUE={"QUEUES": {"emails": {}}})
    assert task.id == schedule.id == "pgqueue.E010"
    assert task.msg == (
        "The task shop.tasks.send is on the queue 'emials', which PGQUEUE['QUEUES'] does not declare. "
        "Did you mean 'emails'?"
    )
    assert "of tests.app.tasks.record is on the queue 'nightly'" in schedule.msg
    assert not found(PGQUEUE={"QUEUES": {"emials": {}, "nightly": {}}})


def test_queues_on_several_databases_are_on_the_same_ones():
    queues = {"other": ["a", "b"], "default": ["a"], "second": ["b"]}
    shards = {alias: {"number": number, "queues": names} for number, (alias, names) in enumerate(queues.items(), 1)}
    [message] = [one for one in found(PGQUEUE={"SHARDS": shards}) if one.id == "pgqueue.E002"]
    assert "the queue 'a' is on ['other', 'default'], and 'b' on ['other', 'second']" in message.msg


def test_lost_slots_and_impatience_are_cautioned_of(monkeypatch):
    monkeypatch.delenv("PGCONNECT_TIMEOUT", raising=False)
    of_each = {"other": range(512), "default": range(513, 1024)}
    shards = {alias: {"number": n, "queues": ["a"], "slots": slots} for n, (alias, slots) in enumerate(of_each.items())}
    lost, *impatient = found(PGQUEUE={"SHARDS": shards})
    assert (lost.id, lost.msg[:64]) == (
        "pgqueue.W014",
        "1 of the slots 0 to 1023 are on no database in PGQUEUE['SHARDS']",
    )
    assert [one.msg for one in impatient] == [f"DATABASES['{alias}'] has no connect_timeout." for alias in of_each]
    assert {one.id for one in impatient} == {"pgqueue.W015"}
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "3")
    shards["default"]["slots"] = range(512, 1024)
    assert found(PGQUEUE={"SHARDS": shards}) == []
    shards["default"]["slots"] = shards["other"]["slots"] = []  # all are being moved
    assert [one.id for one in found(PGQUEUE={"SHARDS": shards})] == ["pgqueue.W014"]


def test_two_keys_on_several_databases_need_what_they_have_in_common(settings, recode):
    recode()
    shards = {"other": {"number": 1, "queues": ["a"]}, "default": {"number": 0, "queues": ["a"]}}
    settings.PGQUEUE = settings.PGQUEUE | {"SHARDS": shards}
    both = {"queue": "a", "unique": True, "limit": Limit("name")}
    made = task(name="tests.two_keys", **both)(two_keys)
    try:
        [found] = [one for one in run_checks() if one.id == "pgqueue.E011"]
        assert "Jobs of the task tests.two_keys have a unique key and a concurrency key" in found.msg
        task(name="tests.two_keys", shard_by="name", **both)(two_keys)
        assert "pgqueue.E011" not in {one.id for one in run_checks()}
    finally:
        del registry._registry[made.name]


def two_keys(name): ...


@pytest.mark.parametrize(
    ("settings", "debug", "found"), [({"IMMEDIATE": True}, False, 1), ({"IMMEDIATE": True}, True, 0), ({}, False, 0)]
)
def test_check_for_deployment_warns_of_it(settings, debug, found):
    def warnings(**options):
        with override_settings(PGQUEUE=settings, DEBUG=debug):
            return [one for one in run_checks(tags=["pgqueue"], **options) if one.id == "pgqueue.W006"]

    assert len(warnings(include_deployment_checks=True)) == found
    assert not warnings()


@pytest.mark.parametrize(("packages", "ids"), [("pgqueue\n", ["pgqueue.W012"]), (None, [])])
def test_other_project_of_that_name_is_warned_of(monkeypatch, tmp_path, packages, ids):
    """As PyPI has it: its metadata list its package, which ours, made by another tool, do not."""
    metadata = tmp_path / "django_pgqueue-0.9.3.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: django-pgqueue\nVersion: 0.9.3\n")
    if packages:
        (metadata / "top_level.txt").write_text(packages)
    monkeypatch.syspath_prepend(tmp_path)
    found = [*check_distribution()]
    assert [message.id for message in found] == ids
    assert all("django-pgqueue 0.9.3, which is installed, is another project" in message.msg for message in found)
    assert version_of(installed()) == ("0" if ids else "0.9.3")
