"""Starts the web server and the worker as a developer would, by ``manage.py``, and stops them."""

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.error import HTTPError, URLError

from django.conf import settings

from demo.browser import Browser

STOP_SECONDS = 60.0
"""Timeout of a process that was told to stop. A worker that is killed keeps the next demo waiting for its lease."""


@contextlib.contextmanager
def managed(
    command: str, *options: str, log: Path | None, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[subprocess.Popen]:
    """Run a management command until the block ends. Its output goes to ``log``, or to the terminal.

    It gets a session of its own: Ctrl-C reaches the demo alone, which then stops its processes in order.
    """
    with log.open("w") if log else contextlib.nullcontext() as output:
        process = subprocess.Popen(
            [sys.executable, settings.PROJECT / "manage.py", command, *options],
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        stop(process)


def stop(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port(wanted: int) -> int:
    """Return ``wanted`` or the next port that no process listens on; 0 wants any.

    It is listened on a moment later. So any is one below those that the kernel gives to clients in the meantime.
    """
    wanted = wanted or secrets.choice(range(10_000, 32_000))
    for port in range(wanted, wanted + 100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return probe.getsockname()[1]
    raise OSError(f"No port from {wanted} to {wanted + 99} is free.")


def wait_for(site: str, process: subprocess.Popen, *, seconds: float = 120.0) -> None:
    """Wait until the web server answers.

    Raises:
        RuntimeError: it ended, or does not answer in time.
    """
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        try:
            Browser(site).get("/")
        except HTTPError as error:
            raise RuntimeError(f"{site} answers {error}.") from error
        except (URLError, OSError):
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"{site} does not answer.")


def wait_for_an_end(processes: list[subprocess.Popen]) -> None:
    """Return when one of the processes has ended."""
    while all(process.poll() is None for process in processes):
        time.sleep(0.5)
