"""A PgBouncer before the test database, or before another server, where it is installed."""

import functools
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from django.db import connection

from tests.support.ports import free_port
from tests.support.waiting import eventually
from tests.support.workers import database_url

BINARY = os.environ.get("PGBOUNCER") or shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")

CONFIG = """
[databases]
* = {words}

[pgbouncer]
pool_mode = {mode}
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
default_pool_size = 20
max_client_conn = 500
{more}
"""


@functools.cache
def knows_prepared_statements() -> bool:
    """Whether it is a version that can keep track of prepared statements."""
    said = subprocess.run([BINARY, "--version"], check=True, capture_output=True, text=True).stdout if BINARY else ""
    version = re.search(r"PgBouncer (\d+)\.(\d+)", said)
    return version is not None and tuple(map(int, version.groups())) >= (1, 22)


class PgBouncer:
    """One process that listens on a loopback port, and pools connections to a server.

    Args:
        mode: ``transaction`` or ``session``; whether a client has a server of its own for the one or the other.
        server: as in DATABASES. None: that of the tests.
        settings: more lines of its configuration.
    """

    def __init__(self, mode: str = "transaction", server: dict[str, Any] | None = None, **settings: object) -> None:
        self.port = free_port()
        self._server = server or connection.settings_dict
        self._mode, self._settings = mode, settings
        self._folder = Path(tempfile.mkdtemp(prefix="pgbouncer-"))
        self._folder.chmod(0o755)  # it reads its configuration again as another user than root
        self._log = self._folder / "log"
        self._config = self._folder / "pgbouncer.ini"
        self._write_config()
        self._command = [BINARY, *self._user(), str(self._config)]
        self._process = self._start()

    def address(self) -> dict[str, object]:
        """Return what differs in DATABASES of an alias that leads to the test database by way of this pooler."""
        return {"HOST": "127.0.0.1", "PORT": self.port, "NAME": connection.settings_dict["NAME"]}

    def environment(self) -> dict[str, str]:
        """Return the environment of a worker behind this pooler, which polls."""
        return {"DATABASE_URL": self.url()}

    def environment_to_listen(self) -> dict[str, str]:
        """Return the same for one that knows a direct way, to LISTEN by."""
        return self.environment() | {"LISTEN_DATABASE_URL": database_url()}

    def url(self) -> str:
        """Return the address of the server's database by way of this pooler."""
        return f"postgresql://{quote(self._user_name())}@127.0.0.1:{self.port}/{quote(self._server['NAME'])}"

    def lead_to(self, server: dict[str, Any]) -> None:
        """Lead to another server from now on, as what makes it the primary orders."""
        self._server = server
        self._write_config()
        self._process.send_signal(signal.SIGHUP)

    def restart(self) -> None:
        """End it with all its connections, and start it again."""
        self._process.kill()
        self._process.wait()
        self._process = self._start()

    def stop(self) -> None:
        """End it at once: its connections to the server would keep the test database from being dropped."""
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder)

    def _start(self) -> "subprocess.Popen[bytes]":
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        try:
            eventually(self._answers)
        except BaseException:
            self._process.kill()  # nothing else would end it
            raise
        return self._process

    def _write_config(self) -> None:
        words = {word: self._server[word.upper()] for word in ("host", "port", "user", "password")}
        text = CONFIG.format(
            words=" ".join(f"{word}='{value}'" for word, value in words.items() if value),
            mode=self._mode,
            port=self.port,
            more="\n".join(f"{name} = {value}" for name, value in self._settings.items()),
        )
        self._config.write_text(text)

    def _user_name(self) -> str:
        return self._server["USER"] or "postgres"

    def _user(self) -> list[str]:
        """As root, name the user whom the server's socket belongs to: PgBouncer refuses to be root."""
        if os.geteuid() != 0:
            return []
        host = self._server["HOST"]
        return ["-u", Path(host).owner() if host.startswith("/") else "nobody"]

    def _answers(self) -> bool:
        """PgBouncer answers."""
        assert self._process.poll() is None, self._log.read_text()
        try:
            psycopg.connect(self.url()).close()
        except psycopg.OperationalError:
            return False
        return True
