"""How others learn of a command's health: over HTTP, from a file, and systemd by a protocol of its own."""

import contextlib
import json
import logging
import os
import socket
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any

from django_pgqueue.base.exceptions import ConfigurationError
from django_pgqueue.runtime.plan import Plan
from django_pgqueue.runtime.verdict import Verdict

logger = logging.getLogger("django_pgqueue.worker")

FRESH_SECONDS = 10.0
"""A verdict is made each second. One that is older says only that nobody judges any more."""


class Probes:
    """Passes verdicts on to whoever has been named in the plan or the environment.

    Raises:
        ConfigurationError: nobody can be answered at this address.
    """

    def __init__(self, plan: Plan) -> None:
        self._file = Path(plan.health_file) if plan.health_file else None
        self._systemd = os.environ.get("NOTIFY_SOCKET", "")
        self._is_started = False  # as systemd knows
        self._verdict: Verdict | None = None
        self._told_at = 0.0
        self._thread: threading.Thread | None = None
        self._server = listen(plan.health_host, plan.health_port, self) if plan.health_port else None

    @property
    def are_wanted(self) -> bool:
        """Whether anybody wants to know."""
        return bool(self._server or self._file or self._systemd)

    def start(self) -> None:
        if self._server:
            logger.info("Answering /live and /ready on %s port %d", *self._server.server_address[:2])
            self._thread = threading.Thread(target=self._server.serve_forever, name="pgqueue-probes", daemon=True)
            self._thread.start()

    def tell(self, verdict: Verdict, is_at_work: bool) -> None:  # noqa: FBT001 - the two halves of what is told
        """Take note of a verdict and pass it on; systemd first, as a disk that is full need not be its end."""
        self._verdict, self._told_at = verdict, time.monotonic()
        if self._systemd:
            self._tell_systemd(verdict, is_at_work=is_at_work)
        if self._file:
            write(self._file, verdict)

    def stopping(self) -> None:
        """Say that the command is about to end on purpose."""
        if self._systemd:
            notify(self._systemd, "STOPPING=1")

    def close(self) -> None:
        if self._server and self._thread:
            with contextlib.suppress(OSError):  # ends a wait for clients that would go on for half a second
                self._server.socket.shutdown(socket.SHUT_RDWR)
            self._server.shutdown()
        if self._server:
            self._server.server_close()
        if self._file:
            self._file.unlink(missing_ok=True)

    def answer(self, path: str) -> tuple[HTTPStatus, dict[str, Any]]:
        """Return the answer to a request for a path."""
        verdict = self._verdict
        if path not in {"/live", "/ready"}:
            return HTTPStatus.NOT_FOUND, {"ok": False, "problems": ["ask for /live or /ready"]}
        if verdict is None or time.monotonic() - self._told_at > FRESH_SECONDS:
            problems: tuple[str, ...] = ("nobody has looked yet" if verdict is None else "nobody looks any more",)
        else:
            problems = verdict.dead if path == "/live" else verdict.unready
        status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
        return status, {"ok": not problems, "problems": problems}

    def _tell_systemd(self, verdict: Verdict, *, is_at_work: bool) -> None:
        lines = [f"STATUS={'; '.join(verdict.unready) or 'at work'}"]
        if is_at_work and not self._is_started:
            self._is_started = True
            lines.append("READY=1")
        if verdict.is_live:
            lines.append("WATCHDOG=1")
        notify(self._systemd, "\n".join(lines))


def write(path: Path, verdict: Verdict) -> None:
    """Rewrite the file, as a whole, where the command is alive; remove it where it is not."""
    if not verdict.is_live:
        path.unlink(missing_ok=True)
        return
    new = path.with_name(f"{path.name}.{os.getpid()}")
    report = {"live": verdict.is_live, "ready": verdict.is_ready, "problems": verdict.unready}
    new.write_text(json.dumps(report) + "\n")
    new.replace(path)


def notify(address: str, message: str) -> None:
    """Send one message to systemd; one that does not arrive is missed by nobody but it.

    Source: https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
    """
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(f"\0{address[1:]}" if address.startswith("@") else address)
        sender.send(message.encode())


def listen(host: str, port: int, probes: Probes) -> "Server":
    """Return a server that listens at an address.

    Raises:
        ConfigurationError: somebody else does, or the address is not this machine's.
    """
    try:
        return Server(host, port, probes)
    except OSError as error:
        raise ConfigurationError(f"Probes cannot be answered on {host!r} port {port}: {error}.") from error


class Server(ThreadingHTTPServer):
    """Answers probes, each in a thread that gives up after a few seconds of silence."""

    daemon_threads = True

    def __init__(self, host: str, port: int, probes: Probes) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.probes = probes
        super().__init__((host, port), Handler)

    def server_bind(self) -> None:
        """Leave out what HTTPServer adds: a look for this machine's name in the DNS, which may take very long."""
        TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's signature
        """Leave a client alone that hung up in the middle."""
        logger.debug("A probe from %s was not answered", client_address)


class Handler(BaseHTTPRequestHandler):
    """Answers one probe."""

    server: Server
    timeout = 5.0
    server_version, sys_version = "pgqueue", ""

    def do_GET(self) -> None:
        status, report = self.server.probes.answer(self.path.partition("?")[0])
        body = json.dumps(report).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *args: Any) -> None:
        """Probes come every few seconds; nobody wants to read of them."""
