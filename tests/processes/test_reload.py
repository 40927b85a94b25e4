"""Workers that start again when their code changes, in a small project whose files the tests write."""

import json
import signal
import socket
from pathlib import Path

import pytest

from django_pgqueue.models import Job, SucceededJob
from django_pgqueue.states import NEVER
from tests.support.waiting import eventually
from tests.support.workers import Worker, freeze, parent_of

pytestmark = pytest.mark.django_db(transaction=True)

SETTINGS = """
import environ

SECRET_KEY = "tests only"
DEBUG = True
DATABASES = {"default": environ.Env().db()}
INSTALLED_APPS = ["django_pgqueue", "shelf"]
"""

SIGNALLED = """
import os
import signal
import sys

if any(word.startswith("--reloader=") for word in sys.argv):  # the worker, which does not handle it yet
    os.kill(os.getppid(), signal.SIGUSR1)
"""

WAITS = "it starts again after the next change"

TASKS = """
import time
from pathlib import Path

from django_pgqueue import task


@task
def title() -> str:
    return "first"


@task
def subtitle() -> str:
    from shelf import subtitles

    return subtitles.SUBTITLE


@task(max_attempts=1)
def hold(folder: str) -> str:
    Path(folder, "reserved").touch()
    while not Path(folder, "let go").exists():
        time.sleep(0.01)
    return "first"
"""


class Project:
    """Its files, and its worker commands."""

    def __init__(self, folder: Path, root: Path, start_worker, sql) -> None:
        self.folder = folder
        self.environment = {"PYTHONPATH": f"{folder}:{root}", "DJANGO_SETTINGS_MODULE": "shelf_settings"}
        self.commands: list[Worker] = []
        self._start_worker = start_worker
        self._sql = sql

    def write(self, path: str, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)

    def change(self, path: str, before: str, after: str) -> None:
        """Change a part; to another length, since Python takes a file of the same second and size for the same."""
        text = (self.folder / path).read_text()
        assert before in text
        assert len(before) != len(after)
        self.write(path, text.replace(before, after))

    def start(self, *options: str, **environment: str) -> Worker:
        self.commands.append(self._start_worker(*options, **self.environment, **environment))
        return self.commands[-1]

    def end(self) -> None:
        """Stop what still runs, without its jobs: killed, it would leave workers that need a moment more."""
        for command in self.commands:
            eventually(lambda command=command: command.process.poll() is not None or command.signal(signal.SIGTERM))

    def enqueue(self, task: str, argument: str = "") -> int:
        [(job_id,)] = self._sql("SELECT pgqueue_enqueue(%s, %s)", task, json.dumps([argument] if argument else []))
        return job_id

    def hold(self, folder: Path) -> int:
        """Return the id of a job that runs until it is let go."""
        job_id = self.enqueue("shelf.tasks.hold", str(folder))
        eventually((folder / "reserved").exists)
        return job_id

    def result(self, task: str) -> str:
        """Run a job and return what came of it."""
        job_id = self.enqueue(task)
        return eventually(SucceededJob.objects.filter(pk=job_id).first).result


@pytest.fixture
def shelf(tmp_path, project, start_worker, sql):
    made = Project(tmp_path / "project", project, start_worker, sql)
    made.folder.mkdir()
    made.write("shelf_settings.py", SETTINGS)
    made.write("shelf/__init__.py", "")
    made.write("shelf/tasks.py", TASKS)
    made.write("shelf/subtitles.py", 'SUBTITLE = "one"\n')
    yield made
    made.end()


def workers_of(command: Worker) -> list[int]:
    """Return the pids of the workers that a command has started, which their first lines tell."""
    lines = [line for line in command.text().splitlines() if "pgqueue worker" in line]
    return [int(line.partition("[")[2].partition("]")[0]) for line in lines]


def wait_for_worker(command: Worker, number: int) -> None:
    eventually(lambda: len(workers_of(command)) == number or command.must_live())


def is_alive(pid: int) -> bool:
    return parent_of(pid) is not None


def test_worker_runs_the_new_code_and_ctrl_c_ends_it(shelf, tmp_path):
    command = shelf.start("--shutdown-timeout=3600")
    assert (shelf.result("shelf.tasks.title"), shelf.result("shelf.tasks.subtitle")) == ("first", "one")
    job_id = shelf.hold(tmp_path)

    # The next job runs the new code; one that runs too long goes back uncharged and runs in it
    freeze(command.process.pid)  # to the reloader it is one change
    shelf.write("annex/__init__.py", "")
    shelf.write("annex/tasks.py", TASKS)
    shelf.change("shelf_settings.py", '"shelf"]', '"shelf", "annex"]')
    shelf.change("shelf/tasks.py", 'return "first"', 'return "second"')
    shelf.change("shelf/subtitles.py", "one", "another")  # which only the job imports
    command.signal(signal.SIGCONT)
    wait_for_worker(command, 2)
    assert "changed: the worker starts again" in command.text()
    assert (shelf.result("shelf.tasks.title"), shelf.result("shelf.tasks.subtitle")) == ("second", "another")
    assert shelf.result("annex.tasks.title") == "first"
    eventually(Job.objects.filter(pk=job_id, status="running", attempts=1, lost=0).exists)
    (tmp_path / "let go").touch()
    succeeded = eventually(SucceededJob.objects.filter(pk=job_id).first)
    assert (succeeded.result, succeeded.attempts, succeeded.errors) == ("second", 1, [])

    # Code that cannot be imported is waited for; that of an app that is new, which the reloader does not know
    shelf.change("annex/tasks.py", '"first"', '"third to')
    eventually(lambda: WAITS in command.text() or command.must_live())
    assert "SyntaxError" in command.text()
    shelf.change("annex/tasks.py", '"third to', '"fourth"')
    assert shelf.result("annex.tasks.title") == "fourth"
    assert command.text().count(WAITS) == 1

    # Ctrl-C is passed on once, and the second time does not wait
    (tmp_path / "let go").unlink()
    (tmp_path / "reserved").unlink()
    job_id = shelf.hold(tmp_path)
    command.signal(signal.SIGINT)
    eventually(lambda: "Stopping on SIGINT" in command.text())
    assert "not waiting for jobs" not in command.text()
    command.signal(signal.SIGINT)
    assert command.wait() == 0
    assert command.text().count("Stopping on SIGINT") == 2
    assert command.text().count("not waiting for jobs") == 1
    left = Job.objects.values_list("status", "attempts", "lease_token", "first_started_at").get(pk=job_id)
    assert left == ("queued", 0, 0, NEVER)
    assert len(workers_of(command)) == 3
    assert not [pid for pid in workers_of(command) if is_alive(pid)]


def test_reloader_that_is_killed_takes_its_worker_with_it(shelf):
    command = shelf.start()
    wait_for_worker(command, 1)
    [pid] = workers_of(command)
    command.process.kill()
    eventually(lambda: not is_alive(pid))
    assert "Stopping, as the reloader has ended" in command.text()
    assert command.text().rstrip().endswith("Stopped")


def test_signal_to_be_quiet_that_comes_while_the_worker_starts_waits_for_it(shelf):
    job_id = shelf.enqueue("shelf.tasks.title")
    shelf.write("shelf_settings.py", SETTINGS + SIGNALLED)
    command = shelf.start()
    eventually(lambda: "Quiet, as SIGUSR1 has asked for" in command.text() or command.must_live())
    assert Job.objects.get(pk=job_id).status == "queued"
    command.signal(signal.SIGUSR2)
    eventually(SucceededJob.objects.filter(pk=job_id).exists)


def test_drained_worker_ends_its_reloader(shelf):
    job_id = shelf.enqueue("shelf.tasks.title")
    command = shelf.start("--reload", "--drain")
    assert command.wait() == 0
    assert SucceededJob.objects.filter(pk=job_id).exists()


def test_worker_that_cannot_start_ends_its_reloader_with_the_same_error(shelf):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = shelf.start("--health-port", str(taken.getsockname()[1]))
        assert command.wait() == 1
    assert "CommandError: " in command.text()
    assert not workers_of(command)
