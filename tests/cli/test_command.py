"""The base of all commands that only look, or change a few rows."""

import os
import subprocess

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError

from django_pgqueue.cli.command import explained
from tests.support import prestarted
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.workers import database_url


def without_a_reader(*words: str, **environment: str) -> tuple[int, str]:
    """Run a command whose output nothing reads; return its exit code, and what it says of errors."""
    reader, writer = os.pipe()
    os.close(reader)
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    variables = {**inherited, "DATABASE_URL": database_url(), **environment}
    with prestarted.Popen(
        words, env=variables, afresh=True, stdout=writer, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(writer)
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, said


@pytest.mark.parametrize("words", [["pgqueue_tasks"], ["pgqueue_queues", "list"], ["pgqueue_stats"]])
def test_where_nothing_reads_on_it_ends_quietly(transactional_db, words):
    assert without_a_reader(*words) == (0, "")


def test_where_nothing_reads_on_it_ends_quietly_without_a_buffer_too(transactional_db):
    assert without_a_reader("pgqueue_tasks", PYTHONUNBUFFERED="1") == (0, "")


def test_where_nothing_reads_on_an_error_is_still_told(transactional_db):
    code, said = without_a_reader("pgqueue_queues", "list", "unseen")
    assert (code, said) == (1, "CommandError: No job has been seen on 'unseen'.\n")


def test_broken_pipe_of_something_else_is_an_error(monkeypatch):
    def fail(names):
        raise BrokenPipeError("of a task")

    monkeypatch.setattr("django_pgqueue.registry.get", fail)
    with pytest.raises(BrokenPipeError, match="of a task"):
        call_command("pgqueue_tasks", "shop.one")


def test_remedy_is_part_of_an_error_of_the_database():
    error = OperationalError("first\nDETAIL: of a row")
    error.add_note("Do this.")
    assert explained(error) == "first Do this."


def test_error_of_the_package_is_one_sentence():
    with pytest.raises(CommandError, match=r"^No task is called 'shop\.none'"):
        call_command("pgqueue_tasks", "shop.none")
