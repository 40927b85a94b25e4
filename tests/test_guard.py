"""The guard that ``pytest --guard`` sets over what tests leave behind: what it finds in a pytest of its own."""

import datetime as dt
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.guard import after, differences, findings, without_the_calendar
from tests.support.server import FIRST, Server
from tests.support.waiting import LONG_PATIENCE_SECONDS

CONFTEST = """
from tests.support.guard import Guard


def pytest_configure(config):
    config.pluginmanager.register(Guard(config, patience=1.0), "guard")
"""

HARMLESS = """
import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from tests.app import helped


@pytest.fixture(scope="module", autouse=True)
def seen_while_it_is_there():
    os.environ["FOR_A_WHILE"] = "1"
    yield
    del os.environ["FOR_A_WHILE"]


@pytest.mark.django_db
def test_rolls_back():
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE rolled_back ()")


@pytest.mark.django_db(transaction=True)
def test_is_emptied():
    helped.note.enqueue("a")


def test_ends_what_it_starts(monkeypatch, settings, tmp_path):
    monkeypatch.setenv("OF_THIS_TEST", "1")
    settings.LANGUAGE_CODE = "de"
    subprocess.run([sys.executable, "-c", ""], check=True)
    (tmp_path / "file").touch()


@pytest.fixture
def kept():
    return []


def test_logs_and_keeps_an_exception_whose_traceback_refers_to_a_thread(kept):
    executor = ThreadPoolExecutor()  # its thread ends when nothing refers to it any more
    try:
        executor.submit(int, "not a number").result()
    except ValueError as error:
        logging.getLogger(__name__).exception("caught")
        kept.append(error)
"""

PLANTED = """
import os
import subprocess
import sys

import psycopg
import pytest
from django.conf import settings
from django.db import connection

from django_pgqueue import tasks
from tests.support.workers import database_url

committed = pytest.mark.django_db(transaction=True)
kept = []


def sql(statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)


def session():
    from urllib.parse import unquote, urlsplit

    url = urlsplit(database_url())
    folder, _, name = unquote(url.path[1:]).rpartition("/")
    kept.append(psycopg.connect(host=folder, user=url.username, dbname=name))
    return kept[-1]


@committed
def test_storage_option():
    sql("ALTER TABLE pgqueue_jobs SET (autovacuum_enabled = off)")


@committed
def test_index():
    sql("CREATE INDEX planted ON pgqueue_jobs (task)")


@committed
def test_role_setting():
    sql("ALTER ROLE CURRENT_USER SET work_mem = '5MB'")


@pytest.mark.django_db
def test_row_in_the_default_partition():
    with session() as other:
        other.execute(
            "INSERT INTO pgqueue_succeeded_jobs (id, succeeded_at, enqueued_at, run_at, first_started_at, started_at, "
            "worker_id, run_seconds, priority, attempts, lost, queue, task, backend, args, kwargs, metadata, errors) "
            "VALUES (1, '2001-01-01', now(), now(), now(), now(), 0, 1, 0, 1, 0, 'q', 't', '', '[]', '{}', '{}', '[]')"
        )


def test_open_transaction():
    session().execute("SELECT 1")


def test_task():
    tasks.task(name="planted")(print)


def test_setting():
    settings.PGQUEUE = {**settings.PGQUEUE, "LEASE_SECONDS": 77}


def test_process():
    kept.append(subprocess.Popen([sys.executable, "-c", "input('planted')"], stdin=subprocess.PIPE))


def test_environment():
    os.environ["PLANTED"] = "1"


def test_listener():
    listening = session()
    listening.autocommit = True
    listening.execute("LISTEN planted")


def test_that_leaves_nothing():
    pass
"""

EXPECTED = {
    "test_storage_option": r"left storage options .*pgqueue_jobs.*|changed storage options .*autovacuum_enabled=off.*",
    "test_index": r"left index .*planted = CREATE INDEX planted .*",
    "test_role_setting": r"left setting of a role or database .*work_mem=5MB.*",
    "test_row_in_the_default_partition": r"left rows default: pgqueue_succeeded_jobs_default = 1: .*",
    "test_open_transaction": r"left open transaction \d+ = SELECT 1: .*",
    "test_task": r"left task planted = .*",
    "test_setting": r"changed setting PGQUEUE from .* to .*'LEASE_SECONDS': 77.*",
    "test_process": r"left process \d+ = .*input\('planted'\).*",
    "test_environment": r"left environment PLANTED = 1: use monkeypatch.setenv",
    "test_listener": r"left listener \d+ = LISTEN planted: .*",
}


@pytest.fixture(scope="module")
def output(tmp_path_factory) -> str:
    """What a pytest says that has three modules, on a server of its own: the tests in that of the middle leak."""
    folder = tmp_path_factory.mktemp("planted")
    (folder / "conftest.py").write_text(CONFTEST)
    for name, code in {"test_1": HARMLESS, "test_2": PLANTED, "test_3": HARMLESS}.items():
        (folder / f"{name}.py").write_text(code)
    server = Server()
    try:
        return run(folder, server.url)
    finally:
        server.remove()


def run(folder: Path, url: str) -> str:
    environment = {
        "PYTHONPATH": str(Path(__file__).parent.parent),
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "DATABASE_URL": url,
        "TEST_SERVER_OF": os.environ.get("PYTEST_XDIST_WORKER", FIRST),
    }
    options = ["-q", "-n0", "-p", "no:randomly", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "TEST_TEMPLATES"} | environment,
        capture_output=True,
        text=True,
        timeout=LONG_PATIENCE_SECONDS,
        check=False,
    )
    return done.stdout + done.stderr


def accused(output: str) -> list[tuple[str, str]]:
    """Return the tests that are said to have left something, with what that is."""
    return re.findall(r"^\S+::(\w+)\n    (\S.*)$", output, flags=re.MULTILINE)


@pytest.mark.parametrize("test", EXPECTED)
def test_leak_is_found_with_the_test_that_it_is_of(output, test):
    told = [what for name, what in accused(output) if name == test]
    assert any(re.fullmatch(EXPECTED[test], what) for what in told), output


def test_no_other_test_is_accused(output):
    assert {test for test, _ in accused(output)} == EXPECTED.keys(), output
    assert "19 passed" in output


BEFORE = {("setting", "A"): "1", ("process", "7"): "sleep"}


def test_difference_is_what_is_new_or_changed_or_gone_but_for_what_ends_by_itself():
    assert differences(BEFORE, BEFORE) == {}
    assert differences(BEFORE, {("setting", "A"): "2", ("thread", "t"): ""}) == {
        ("setting", "A"): ("1", "2"),
        ("thread", "t"): (None, ""),
    }
    assert differences(BEFORE, {}) == {("setting", "A"): ("1", None)}


def test_first_test_after_whose_end_it_stood_until_the_end_is_named():
    left = {("setting", "A"): ("1", "2")}
    other = {("setting", "A"): ("1", "3")}
    [found] = findings([("a", left), ("b", {}), ("c", left), ("d", left)], left)
    assert found.test == "c"
    [found] = findings([("a", left), ("b", other), ("c", left)], left)
    assert found.test == "c"


def test_what_came_with_the_end_of_the_module_is_of_its_last_test():
    left = {("setting", "A"): ("1", "2")}
    [found] = findings([("a", {}), ("b", {})], left)
    assert found.test == "b"


def test_changes_are_added_to_the_baseline():
    now = {("setting", "A"): "2", ("setting", "B"): "3", ("process", "7"): "sleep"}
    assert after(BEFORE, differences(BEFORE, now)) == now


def test_finding_says_what_was_and_what_is():
    changes = {("setting", "A"): ("1", "2"), ("setting", "B"): ("1", None), ("role", "r"): (None, "")}
    lines = [str(one).splitlines()[1].strip() for one in findings([("t", changes)], changes)]
    assert lines == [
        "left role r: drop it",
        "changed setting A from 1 to 2: use the fixture settings",
        "removed setting B, which was 1: use the fixture settings",
    ]


def test_partitions_that_come_and_go_with_the_days_are_no_leftovers():
    partition, table = ("column", "public.pgqueue_succeeded_jobs_20261206.id"), ("column", "public.pgqueue_jobs.id")
    changes = {partition: (None, "bigint"), table: (None, "bigint")}
    saturday, sunday = dt.date(2026, 11, 28), dt.date(2026, 11, 29)
    assert without_the_calendar(changes, saturday, saturday) == changes
    assert without_the_calendar(changes, saturday, sunday) == {table: (None, "bigint")}
