"""The plugin for pytest, in a pytest of its own, which may fail."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.plugin import PLUGIN
from tests.support.waiting import LONG_PATIENCE_SECONDS

ROOT = Path(__file__).parent.parent

TESTS = """
import pytest
from django.db import connection, transaction
from django.test import SimpleTestCase, TestCase, TransactionTestCase

from tests.app import helped


def test_fixtures_are_the_helpers(pgqueue, run_jobs, assert_enqueued, assert_not_enqueued):
    assert run_jobs is pgqueue.run_jobs
    helped.note.enqueue("a")
    assert_enqueued(helped.note)
    assert len(run_jobs()) == 1
    assert_not_enqueued(helped.note)


def test_fixtures_work_in_real_transactions(transactional_db, run_jobs):
    helped.family_on_commit.enqueue()
    assert not connection.in_atomic_block
    assert len(run_jobs()) == 3


def test_assert_fails(assert_enqueued):
    assert_enqueued(helped.note)


@pytest.fixture
def made_before(db):
    helped.note.enqueue("a")


def test_due_one_is_left(db):
    helped.note.enqueue("a")


def test_due_one_is_left_in_a_real_transaction(transactional_db):
    helped.note.enqueue("a")


@pytest.mark.django_db
def test_due_one_is_left_by_a_marked_test():
    helped.note.enqueue("a")


@pytest.mark.django_db
def test_error_is_told_before_what_is_left():
    helped.note.enqueue("a")
    assert False, "the error itself"


@pytest.mark.pgqueue_leftovers
def test_one_may_be_left(db):
    helped.note.enqueue("a")


def test_later_one_may_be_left(db, made_before):
    helped.note.using(delay=3600).enqueue("a")


def test_nothing_can_be_known_of_a_broken_transaction(db):
    helped.note.enqueue("a")
    with connection.cursor() as cursor, pytest.raises(Exception, match="division"):
        cursor.execute("SELECT 1 / 0")


@pytest.mark.django_db(databases=["other"])
def test_other_databases_are_not_asked():
    pass


def test_no_database():
    pass


class CaseTest(TestCase):
    @classmethod
    def setUpTestData(cls):
        helped.note.enqueue("of the class")

    def test_due_one_is_left_by_a_case(self):
        helped.note.enqueue("a")

    def test_error_of_a_case_is_told_alone(self):
        helped.note.enqueue("a")
        self.fail("the error itself")

    def test_nothing_is_left_by_a_case(self):
        pass


class CommittingTest(TransactionTestCase):
    def test_due_one_is_left_by_a_committing_case(self):
        helped.note.enqueue("a")


class SimpleTest(SimpleTestCase):
    def test_simple_case_is_not_asked(self):
        pass
"""

SHARDED = """
from tests.settings import *

PGQUEUE = {**PGQUEUE, "SHARDS": {"other": {"number": 1, "queues": ["abroad"]}}}
for database in DATABASES.values():
    database.get("TEST", {}).pop("TEMPLATE", None)  # which has no tables of a shard
"""

FAILING = {"test_assert_fails", "test_error_is_told_before_what_is_left", "test_error_of_a_case_is_told_alone"}


def run(folder: Path, *options: str, code: str = TESTS, **environment: str) -> subprocess.CompletedProcess:
    (folder / "test_it.py").write_text(code)
    suffix = f"{os.environ.get('TEST_DB_SUFFIX', '')}_plugin"
    # Where one of these is set, pytest's summary repeats the whole text of each failure.
    inherited = {name: value for name, value in os.environ.items() if name not in {"CI", "BUILD_NUMBER"}}
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-n0",
            "-p",
            "no:randomly",
            "-p",
            "no:cacheprovider",
            "-rA",
            *PLUGIN,
            *options,
        ],
        cwd=folder,
        env=inherited | {"PYTHONPATH": str(ROOT), "TEST_DB_SUFFIX": suffix} | environment,
        capture_output=True,
        text=True,
        timeout=LONG_PATIENCE_SECONDS,
        check=False,
    )


def failed(result: subprocess.CompletedProcess) -> set[str]:
    assert "ERROR" not in result.stdout, result.stdout + result.stderr
    return set(re.findall(r"^FAILED \S*::(\w+)", result.stdout, flags=re.MULTILINE))


def of_django(**options: str) -> dict[str, str]:
    return {"DJANGO_SETTINGS_MODULE": "tests.settings", **options}


def test_test_that_leaves_jobs_behind_fails_where_that_is_asked_for(tmp_path):
    result = run(tmp_path, "--pgqueue-no-leftovers", **of_django())
    assert failed(result) - FAILING == {
        "test_due_one_is_left",
        "test_due_one_is_left_in_a_real_transaction",
        "test_due_one_is_left_by_a_marked_test",
        "test_due_one_is_left_by_a_case",
        "test_due_one_is_left_by_a_committing_case",
    }
    told = re.findall(r"^The test has left (.*) behind to run now\.", result.stdout, flags=re.MULTILINE)
    assert told == ["a job"] * 5, result.stdout
    assert "tests.app.helped.note('a') on 'default', queued, due at once" in result.stdout


def test_jobs_left_on_any_database_of_the_queue_are_found(tmp_path):
    (tmp_path / "sharded.py").write_text(SHARDED)
    code = """
import pytest
from tests.app import helped


@pytest.mark.django_db(databases=["default", "other"])
@pytest.mark.parametrize("queue", ["default", "abroad"])
def test_due_one_is_left(queue):
    helped.note.using(queue=queue).enqueue("a")


@pytest.mark.django_db
def test_other_databases_are_not_asked():
    pass
"""
    path = f"{ROOT}{os.pathsep}{tmp_path}"
    result = run(tmp_path, "--pgqueue-no-leftovers", code=code, DJANGO_SETTINGS_MODULE="sharded", PYTHONPATH=path)
    assert re.findall(r"note\('a'\) on '(\w+)'", result.stdout) == ["default", "abroad"], result.stdout
    assert "1 passed" in result.stdout


def test_leftovers_are_allowed_otherwise(tmp_path):
    result = run(tmp_path, **of_django())
    assert failed(result) == FAILING, result.stdout


def test_ini_file_may_ask_for_it_too(tmp_path):
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\npgqueue_no_leftovers = true\nDJANGO_SETTINGS_MODULE = tests.settings\n"
    )
    assert "test_due_one_is_left" in failed(run(tmp_path, "-k", "test_due_one_is_left or nothing"))


def test_project_without_django_is_left_alone(tmp_path):
    case = "class T(unittest.TestCase):\n    def test_case(self):\n        pass\n"
    code = f"import unittest\n\ndef test_it():\n    pass\n\n{case}"
    result = run(tmp_path, "-p", "no:django", "--pgqueue-no-leftovers", code=code, DJANGO_SETTINGS_MODULE="")
    assert "2 passed" in result.stdout, result.stdout + result.stderr


def test_plugin_imports_nothing_of_django_or_the_package():
    parts = "{name.split('.')[0] for name in sys.modules}"
    code = f"import sys, pytest_django_pgqueue; print({parts} & {{'django', 'django_pgqueue'}})"
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "set()"


def test_package_does_not_need_pytest(project):
    code = (
        "import sys; sys.modules['pytest'] = None; import django; django.setup(); import django_pgqueue.testing; "
        "import django_pgqueue.testing.immediate_mode, django_pgqueue.testing.assertions; print('fine')"
    )
    told = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project,
        env=os.environ | {"DJANGO_SETTINGS_MODULE": "tests.settings"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.stdout.strip() == "fine", told.stderr


def test_entry_point_is_declared(project):
    assert 'pgqueue = "pytest_django_pgqueue"' in (project / "pyproject.toml").read_text()
    pytest.importorskip("pytest_django_pgqueue")
