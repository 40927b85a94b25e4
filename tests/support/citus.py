"""A Citus of a test's own: a coordinator and a node on loopback ports."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from tests.support.needs import CITUS
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_SECONDS

CONFIG = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
shared_preload_libraries = 'citus'
fsync = off
shared_buffers = 32MB
"""


def tools() -> Path:
    """Return the folder with the tools of a PostgreSQL that has Citus; skip the test where there is none."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    for folder in map(Path, filter(None, [os.environ.get("CITUS"), *map(str, reversed(installed))])):
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            asked = [folder / "pg_config", "--sharedir"]
            shared = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
            if Path(shared, "extension", "citus.control").exists():
                return folder
    pytest.skip(CITUS)


class CitusNode:
    """One server with the extension."""

    def __init__(self, folder: Path, tools: Path, user: str | None) -> None:
        self.port = free_port()
        self._folder, self._tools, self._user = folder, tools, user
        self._tool("initdb", "-D", str(folder), "-U", "postgres", "-A", "trust", "--no-sync")
        with (folder / "postgresql.conf").open("a") as file:
            file.write(CONFIG)
        self._tool("pg_ctl", "-w", "-D", str(folder), "-l", f"{folder}.log", "-o", f"-p {self.port}", "start")
        self.sql("CREATE EXTENSION citus")

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        known = {"host": "127.0.0.1", "port": self.port, "user": "postgres", "dbname": "postgres"}
        with psycopg.connect(**known, autocommit=True) as connection:
            cursor = connection.execute(text)
            return cursor.fetchall() if cursor.description else []

    def settings(self, options: str) -> dict[str, Any]:
        """Return what stands in DATABASES to reach it, with options of the session."""
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": "postgres",
            "USER": "postgres",
            "PASSWORD": "",
            "HOST": "127.0.0.1",
            "PORT": str(self.port),
            "OPTIONS": {"options": options},
        }

    def url(self, options: str) -> str:
        """Return the same as a URL."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres?options={quote(options)}"

    def stop(self) -> None:
        self._tool("pg_ctl", "-w", "-D", str(self._folder), "-m", "immediate", "stop")

    def _tool(self, name: str, *words: str) -> None:
        command = [str(self._tools / name), *words]
        subprocess.run(
            command, user=self._user, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE_SECONDS, cwd="/"
        )


@contextlib.contextmanager
def citus() -> Iterator[tuple[CitusNode, CitusNode]]:
    """Start a coordinator and a node, with the distributed table ``orders``; both are gone afterwards."""
    found, user = tools(), "postgres" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="citus-") as home, contextlib.ExitStack() as stack:
        if user:
            shutil.chown(home, user)
        nodes = []
        for name in ("coordinator", "node"):
            nodes.append(CitusNode(Path(home, name), found, user))
            stack.callback(nodes[-1].stop)
        coordinator, node = nodes
        coordinator.sql(f"SELECT citus_set_coordinator_host('127.0.0.1', {coordinator.port})")
        coordinator.sql(f"SELECT citus_add_node('127.0.0.1', {node.port})")
        coordinator.sql("CREATE TABLE public.orders (id bigint PRIMARY KEY)")
        coordinator.sql("SELECT create_distributed_table('public.orders', 'id')")
        yield coordinator, node
