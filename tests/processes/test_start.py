"""The first second of a worker command: what keeps it from starting, and what it says of that."""

import io
import os
import signal
import subprocess
import sys

import pytest

from django_pgqueue.management.commands.pgqueue_worker import Command
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.workers import database_url

pytestmark = pytest.mark.django_db(transaction=True)

UNGUARDED = """
import os, sys
sys.path[0] = {project!r}
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_command_that_is_told_to_stop_before_it_has_begun_ends_in_order(start_worker, name):
    worker = start_worker(DJANGO_SETTINGS_MODULE="tests.processes.stopped_settings", STOPPED_BY=name, afresh=True)
    assert (worker.wait(), worker.text()) == (0, f"Stopped by {name} before it has begun.\n")


def test_manage_py_without_guard_ends_the_command_with_the_remedy(tmp_path, project):
    """Each process that is not forked imports it anew, and would run the command in place of its own work."""
    script = tmp_path / "manage.py"
    script.write_text(UNGUARDED.format(project=str(project)))
    ended = subprocess.run(
        [sys.executable, str(script), "pgqueue_worker", "--no-reload", "--processes=2", "--spawn"],
        env={**os.environ, "DATABASE_URL": database_url()},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    *_, last = ended.stderr.splitlines()
    assert last == (
        f"CommandError: {script} runs its command whenever it is imported, as each worker process does, so none of "
        'them can work. Put its last lines under  if __name__ == "__main__":  or start the worker by '
        "python -m django pgqueue_worker."
    )
    assert "Traceback" not in ended.stderr
    assert "freeze_support" not in ended.stderr


@pytest.mark.parametrize("has_begun", [False, True])
def test_signal_that_comes_when_all_is_over_is_not_said_to_have_come_early(has_begun):
    command = Command(stderr=io.StringIO(), no_color=True)
    command._called_from_command_line = True
    with command.until_it_begins():
        command.has_begun = has_begun
        signal.raise_signal(signal.SIGTERM)
    assert command.stderr._out.getvalue() == ("" if has_begun else "Stopped by SIGTERM before it has begun.\n")


def test_excluded_queue_without_equals_sign_is_told_how(capsys):
    with pytest.raises(SystemExit):
        Command().run_from_argv(["manage.py", "pgqueue_worker", "--queue", "-slow"])
    assert "--queue: expected one argument. To exclude a queue, write --queue=-slow" in capsys.readouterr().err
