"""The first second of a worker command: what keeps it from starting, and what it says of that."""

import io
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

import tests.app.tasks as app
from django_pgqueue.management.commands.pgqueue_worker import Command
from django_pgqueue.models import Job, SucceededJob, Worker
from tests.support.waiting import PATIENCE_SECONDS, eventually
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


def test_signal_to_be_quiet_that_comes_early_is_obeyed_before_anything_is_claimed(start_worker):
    waiting = app.noop.enqueue().id
    worker = start_worker(DJANGO_SETTINGS_MODULE="tests.processes.stopped_settings", STOPPED_BY="SIGUSR1", afresh=True)
    eventually(lambda: set(Worker.objects.values_list("quiet_by", flat=True)) == {"SIGUSR1"} or worker.must_live())
    worker.wait_until_ready()
    assert Job.objects.get(pk=waiting).status == "queued"
    worker.signal(signal.SIGUSR2)
    eventually(SucceededJob.objects.filter(pk=waiting).exists)


def test_early_signals_reach_the_supervisor_in_order():
    told, command = [], Command()
    with command.until_it_begins():
        signal.raise_signal(signal.SIGUSR2)
        signal.raise_signal(signal.SIGUSR1)
        command.supervisor = SimpleNamespace(quiet_on=told.append)
        signal.raise_signal(signal.SIGUSR2)
    assert told == [signal.SIGUSR2, signal.SIGUSR1, signal.SIGUSR2]


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
    with command.until_it_begins():
        command.supervisor = SimpleNamespace() if has_begun else None
        signal.raise_signal(signal.SIGTERM)
    assert command.stderr._out.getvalue() == ("" if has_begun else "Stopped by SIGTERM before it has begun.\n")


def test_excluded_queue_without_equals_sign_is_told_how(capsys):
    with pytest.raises(SystemExit):
        Command().run_from_argv(["manage.py", "pgqueue_worker", "--queue", "-slow"])
    assert "--queue: expected one argument. To exclude a queue, write --queue=-slow" in capsys.readouterr().err
