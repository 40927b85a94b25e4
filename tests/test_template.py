"""Templates of the tests' servers: several runs in one tree may make theirs at the same time."""

import fcntl
import os
import subprocess
import sys

import pytest

from tests.support import template
from tests.support.server import RUNS, remove
from tests.support.waiting import PATIENCE_SECONDS


@pytest.fixture
def folder():
    chosen = RUNS / f"{os.getpid()}-template"  # which the user of the server may enter
    yield chosen
    remove(chosen)


def test_process_that_makes_a_template_asks_for_no_copy_of_one(folder):
    """Its starter, any process of pytest, holds the lock of the templates until it has ended."""
    environment = os.environ | {"PYTEST_XDIST_WORKER": "gw1", "TEST_SERVER_OF": "gw0"}
    command = [sys.executable, "-m", "tests.support.template", folder]
    with (template.TEMPLATES / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(command, cwd=template.ROOT, env=environment, check=True, timeout=PATIENCE_SECONDS)
    assert list(folder.rglob("PG_VERSION"))


def test_templates_of_other_runs_are_kept_and_the_oldest_go(tmp_path, monkeypatch):
    monkeypatch.setattr(template, "TEMPLATES", tmp_path)
    for number, name in enumerate(["oldest", "old", "new", "newest"]):
        (tmp_path / name).mkdir()
        made = tmp_path / f"{name}.made"
        made.touch()
        os.utime(made, (number, number))
    (tmp_path / "never-ready").mkdir()
    (tmp_path / "lock").touch()
    template._remove_all_but(3)
    kept = {"old", "new", "newest"}
    assert {path.name for path in tmp_path.iterdir()} == {"lock", *kept, *(f"{name}.made" for name in kept)}
