"""HTTP server of a worker command: pages by path, each at the address that the plan names for it."""

import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from django.utils.datastructures import CaseInsensitiveMapping

from django_pgqueue.exceptions import ConfigurationError

logger = logging.getLogger("django_pgqueue.worker")

Address = tuple[str, int]
Headers = Mapping[str, str]


@dataclass(frozen=True)
class Response:
    body: bytes
    headers: Headers
    status: HTTPStatus = HTTPStatus.OK

    @classmethod
    def json(cls, document: Mapping[str, Any], status: HTTPStatus) -> "Response":
        return cls(json.dumps(document).encode() + b"\n", {"Content-Type": "application/json"}, status)


Page = Callable[[Headers], Response]
"""Answers a request by its headers; in a thread of its own, several at once."""


class PageServer:
    """Listens from when it is made, answers from when it is started until it is closed.

    Args:
        planned: by address, the pages by path; empty: no server is started.

    Raises:
        ConfigurationError: another process listens there, or the address is not this machine's.
    """

    def __init__(self, planned: Mapping[Address, Mapping[str, Page]]) -> None:
        with contextlib.ExitStack() as closing:
            self._servers = [closing.enter_context(listen(*address, pages)) for address, pages in planned.items()]
            self._closing = closing.pop_all()

    def start(self) -> None:
        for server in self._servers:
            logger.info("Answering %s on %s port %d", ", ".join(server.pages), *server.server_address[:2])
            threading.Thread(target=server.serve_forever, name="pgqueue-pages", daemon=True).start()
            self._closing.callback(server.stop)

    def close(self) -> None:
        self._closing.close()


def listen(host: str, port: int, pages: Mapping[str, Page]) -> "BoundedHTTPServer":
    try:
        return BoundedHTTPServer(host, port, pages)
    except OSError as error:
        raise ConfigurationError(f"{', '.join(pages)} cannot be answered on {host!r} port {port}: {error}.") from error


MOST_REQUESTS = 16
"""Maximum number of requests that are answered at once: those beyond are hung up on, and their clients ask again."""

MOMENT_SECONDS = 0.05  # after a connection that could not be accepted

LONGEST_SECONDS = 10.0  # maximum time for one request, however fast its client sends


class BoundedHTTPServer(ThreadingHTTPServer):
    """Answers requests, each in a thread that gives up after a few seconds of silence.

    It shares its process with the heartbeat, so clients must not take all the threads and descriptors there are.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, pages: Mapping[str, Page]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.pages = pages
        self._begun: dict[Any, float] = {}  # by connection: since when, monotonic
        super().__init__((host, port), Handler)

    def get_request(self) -> Any:
        try:
            return super().get_request()
        except OSError:  # no descriptor is left: the client still waits, and would be tried again without end
            time.sleep(MOMENT_SECONDS)
            raise

    def stop(self) -> None:
        """End ``serve_forever()``, which another thread is in."""
        with contextlib.suppress(OSError):  # ends a wait for clients that would go on for half a second
            self.socket.shutdown(socket.SHUT_RDWR)
        self.shutdown()

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._begun) >= MOST_REQUESTS:
            self.shutdown_request(request)
            return
        self._begun[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread can be started
            del self._begun[request]
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._begun.pop(request, None)

    def service_actions(self) -> None:
        """Close connections of clients that take too long; called twice a second."""
        super().service_actions()
        for request, begun in list(self._begun.items()):
            if time.monotonic() - begun > LONGEST_SECONDS:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def server_bind(self) -> None:
        """Leave out what HTTPServer adds: a look for this machine's name in the DNS, which may take very long."""
        TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's signature
        logger.debug("A request from %s was not answered", client_address)

    def answer(self, path: str, headers: Headers) -> Response:
        if (page := self.pages.get(path)) is None:
            problems = [f"ask for {' or '.join(self.pages)}"]
            return Response.json({"ok": False, "problems": problems}, HTTPStatus.NOT_FOUND)
        try:
            return page(headers)
        except Exception:
            logger.exception("The page %s failed", path)
            problems = ["the page failed, the log says how"]
            return Response.json({"ok": False, "problems": problems}, HTTPStatus.INTERNAL_SERVER_ERROR)


class Handler(BaseHTTPRequestHandler):
    server: BoundedHTTPServer
    timeout = 5.0
    server_version, sys_version = "pgqueue", ""

    def do_GET(self) -> None:
        answer = self.server.answer(self.path.partition("?")[0], CaseInsensitiveMapping(self.headers.items()))
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *args: Any) -> None:
        """Say nothing: requests come every few seconds."""
