"""manage.py pgqueue_doctor: the worst first, exit codes, JSON, and what keeps it from looking."""

import json

import pytest
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection, connections

from django_pgqueue.version import VERSION
from tests.support.doctor import insert, say
from tests.support.worker_rows import forget_counters, worker

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def living(sql) -> None:
    """A worker that lives, and listens."""
    worker()
    forget_counters(sql)


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
    assert json.loads(text) == {"healthy": True, "databases": ["default"], "version": VERSION, "findings": []}
    sql("UPDATE pgqueue_workers SET version = '0.0.1'")
    told = json.loads(say("--json")[0])
    [finding] = told["findings"]
    assert told["healthy"] is False
    assert set(finding) == {"database", "name", "level", "what", "remedy", "facts"}
    assert finding["facts"] == {"here": VERSION, "versions": ["0.0.1"], "processes": 1}


def test_names_that_others_may_have_written_do_nothing_to_the_terminal(sql):
    sql("INSERT INTO pgqueue_jobs (task) VALUES (E'gone\\x1b[2Jaway')")
    text, *_ = say()
    assert "gone?[2Jaway" in text
    assert "\x1b" not in text


def test_other_database_is_listened_to_by_itself(sql, settings):
    """LISTEN_DATABASE stands for the one in the settings alone; SQLite would be an error."""
    settings.PGQUEUE = {**settings.PGQUEUE, "DATABASE": "other", "LISTEN_DATABASE": "lite"}
    assert say("--database", "default") == ("healthy\n", "", 0)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_all_databases_of_the_queue_are_looked_at_and_each_finding_names_its_own(sql, shard):
    text, complaint, code = say()
    headings = [line for line in text.splitlines() if line.startswith("On ")]
    assert (headings, complaint, code) == (["On default:", "On other:"], "", 0)
    assert text.startswith("On default:\n\nhealthy\n\nOn other:\n\nWARNING no-workers\n")
    told = json.loads(say("--json")[0])
    assert told["databases"] == ["default", shard]
    assert [(one["database"], one["name"]) for one in told["findings"]] == [(shard, "no-workers")]
    assert say("--database", "default") == ("healthy\n", "", 0)
    text, _complaint, code = say("--deploy")
    assert [line for line in text.splitlines() if line.startswith("On ")] == headings


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_database_that_is_away_keeps_no_other_from_being_looked_at(sql, far, other_server):
    assert say()[2] == 0
    other_server.stop()
    connections[far].close()
    sql("UPDATE pgqueue_workers SET version = '0.0.1'")
    text, complaint, code = say()
    assert text.startswith("On default:\n\nWARNING versions-differ\n")
    assert "On other:\n\nWARNING not-looked-at\n  The database of alias 'other' cannot be reached: " in text
    assert (complaint, code) == ("Not everything could be looked at.", 2)
    told = json.loads(say("--json", "--deploy")[0])
    assert {one["database"] for one in told["changes"]} <= {"default"}
    assert ("other", "not-looked-at") in {(one["database"], one["name"]) for one in told["findings"]}
    sql("UPDATE pgqueue_workers SET session_pid = 0")
    insert(sql, "tests.app.tasks.noop", args="'{}'")
    assert say()[1:] == ("Found: 1 error, 3 warnings.", 1)


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


def test_statement_that_takes_too_long_keeps_it_from_looking(sql, settings):
    settings.PGQUEUE = {**settings.PGQUEUE, "READ_TIMEOUT_SECONDS": 1}
    sql("ALTER TABLE pgqueue_stats RENAME TO fast")
    sql(
        "CREATE VIEW pgqueue_stats AS SELECT fast.* FROM fast RIGHT JOIN pg_sleep(5) AS slow ON true "
        "CROSS JOIN LATERAL (SELECT pg_sleep(5)) AS slower"
    )
    try:
        text, _, code = say("--deploy")
    finally:
        sql("DROP VIEW pgqueue_stats")
        sql("ALTER TABLE fast RENAME TO pgqueue_stats")
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
