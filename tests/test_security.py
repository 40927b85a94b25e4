"""Nothing runs, is read or is said to the database that the code has not named."""

import ast
import hashlib
import queue
import re
import sys
from pathlib import Path

import pytest

import django_pgqueue
from django_pgqueue import registry
from django_pgqueue.conf import is_sensitive_name
from django_pgqueue.records import Fate
from django_pgqueue.worker.shared_state import SharedState
from django_pgqueue.worker.slots import Slots
from tests.support.claimed import job
from tests.support.waiting import PATIENCE_SECONDS

PACKAGE = Path(django_pgqueue.__file__).parent
TREES = {path: ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}
WORKING = {path: tree for path, tree in TREES.items() if "bench" not in path.parts}  # its data is its own


@pytest.mark.parametrize(
    "name", ["os.system", "tests.app.tasks.mark", "django.core.management.call_command", "this.s", "eval", ""]
)
def test_only_registered_tasks_run(name, tmp_path):
    outbox = queue.SimpleQueue()
    slots = Slots(1, SharedState(), outbox)
    slots.accept(0, job(f'["touch {tmp_path}/proof"]', task=name))
    cell, outcome = outbox.get(timeout=PATIENCE_SECONDS)
    assert (cell, outcome.fate) == (0, Fate.RELEASED)
    assert registry.find(name) is None
    assert list(tmp_path.iterdir()) == []
    assert "this" not in sys.modules


UNPICKLES = {"fork_server.py"}
"""What a command has sent to its own processes by a socket that no other one can write to."""


def test_nothing_of_the_database_is_unpickled_or_evaluated():
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                modules = {getattr(node, "module", None), *(alias.name for alias in node.names)}
                allowed = {"pickle"} if path.name in UNPICKLES else set()
                assert not modules & {"pickle", "marshal", "shelve", "dill", "yaml"} - allowed, path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"eval", "exec", "compile", "__import__"}, path


def test_what_is_imported_by_name_comes_from_settings():
    found = [path.name for path, tree in TREES.items() if "import_string" in ast.unparse(tree)]
    assert sorted(found) == ["checks.py", "checks.py", "conf.py", "pgqueue_worker.py"]


def test_statements_are_files_or_constants():
    """What is sent to the database is a literal, a constant, a statement of a file, or composed by psycopg.sql."""
    fine = re.compile(r"'|\"|statement\(|sized\(|numbering\(|sql\.SQL\(|[A-Z_]+$")
    for path, tree in WORKING.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                text = ast.unparse(node.args[0])
                if is_sent(node.func) and (path.name, text) not in PASSED_ON:
                    assert fine.match(text), f"{path}: {node.func.attr}({text})"
                    assert not isinstance(node.args[0], ast.JoinedStr | ast.BinOp), path


def is_sent(call: ast.Attribute) -> bool:
    return call.attr in {"execute", "executemany", "rows"} or ast.unparse(call).endswith("database.send")


PASSED_ON = {
    ("connections.py", "sql"),  # given to rows() and send(), whose callers are looked at
    ("connection.py", "sql"),  # the same in tests of projects
    ("connections.py", "*self._set_local(lock_milliseconds)"),
    ("pgqueue_worker.py", "*args"),  # of a command, and nothing of the database
    ("command.py", "*args"),  # the same
    ("partitions.py", "statement"),  # given to _brief(), composed by psycopg.sql
    ("connections.py", "text.replace('true', 'false')"),  # the constant of _set_local(), for the session
    ("cursors.py", "query"),  # given to Django's cursor
    ("listener.py", "LISTEN.format(sql.Identifier(CHANNEL))"),  # composed by psycopg.sql
    ("listener.py", "LISTEN.format(sql.Identifier(CONTROL))"),
}


def test_code_of_others_is_as_it_was_released():
    folder = PACKAGE / "static" / "django_pgqueue" / "uplot"
    sums = dict(re.findall(r"^    ([0-9a-f]{64})  (\S+)$", (folder / "README.md").read_text(), flags=re.MULTILINE))
    assert set(sums.values()) == {path.name for path in folder.iterdir()} - {"README.md", "LICENSE"}
    for digest, name in sums.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name


@pytest.mark.parametrize(
    "name",
    [
        "pwd",
        "db_pwd",
        "pass",
        "passcode",
        "card_pin",
        "PIN",
        "otp",
        "cvv",
        "cvc",
        "iban",
        "ssn",
        "bearer",
        "jwt",
        "aws_access_key",
        "secretAccessKey",
        "dsn",
    ],
)
def test_names_of_sensitive_arguments_are_known_from_the_start(name):
    assert is_sensitive_name(name)


@pytest.mark.parametrize(
    "name", ["pinned", "shipping", "opinion", "passenger", "compass_heading", "options", "bypassed", "optional"]
)
def test_names_that_only_look_so_are_shown(name):
    assert not is_sensitive_name(name)
