"""A loopback port before a PostgreSQL server that refuses, cuts, stalls, or loses an answer."""

import contextlib
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from django.db import connection

from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.workers import database_url

ENCRYPTION = {80877103, 80877104}  # requests for TLS and GSSAPI, which are declined
CANCEL = 80877102
Address = Path | tuple[str, int]
"""A socket file, or host and port."""

READY = b"Z\0\0\0\5"  # the server has done all it was asked to


class Proxy:
    """Listens from when it is made until it is closed; its methods may be called by any thread.

    Methods take the beginning of an ``application_name``; "" are connections without one, None are all.

    Args:
        upstream: tells where the server is at the moment, for each new connection.
    """

    def __init__(self, upstream: Callable[[], Address]) -> None:
        self.upstream = upstream
        self.port = free_port()  # not one that the kernel may give to a client while this one is away
        self.flows = threading.Event()  # whether newcomers are let in
        self.flows.set()
        self.links: set[Link] = set()
        self._losing: list[tuple[str | None, bytes]] = []
        self.come_back()

    def go_away(self) -> None:
        """Cut all connections and refuse new ones, as a server that is down."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._serving.join()  # whom it has let in is among the links
        self.cut()

    def come_back(self) -> None:
        """Listen, on the same port as before."""
        self._listening = socket.create_server(("127.0.0.1", self.port))
        self._serving = threading.Thread(target=self._serve, args=(self._listening,), name="proxy", daemon=True)
        self._serving.start()

    def cut(self, name: str | None = None) -> int:
        """Close connections on both sides, whatever is on its way; return how many."""
        links = self._named(name)
        for link in links:
            link.cut()
        return len(links)

    def stall(self, name: str | None = None) -> int:
        """Pass nothing on, close nothing; with None accept no new connections either. Return how many fell silent."""
        if name is None:
            self.flows.clear()
        links = self._named(name)
        for link in links:
            link.flows.clear()
        return len(links)

    def flow(self) -> None:
        """Let go on all that was stalled."""
        self.flows.set()
        for link in self._named(None):
            link.flows.set()

    def lose_answer(self, name: str | None, to: bytes) -> None:
        """Cut one connection when the server has answered a transaction in which these bytes were sent, unread."""
        self._losing.append((name, to))

    @property
    def is_losing(self) -> bool:
        """Whether there is an answer still to be lost."""
        return bool(self._losing) or any(link.is_losing for link in self._named(None))

    def must_lose(self, link: "Link", data: bytes) -> bool:
        """Whether the answer to this is to be lost; true once for each time that was asked for."""
        for name, needle in self._losing:
            if needle in data and link.is_named(name):
                self._losing.remove((name, needle))
                return True
        return False

    def close(self) -> None:
        self.go_away()
        self.flow()

    def _named(self, name: str | None) -> "list[Link]":
        return [link for link in self.links.copy() if link.is_named(name)]

    def _serve(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listening.accept()
                link = Link(self, client)
                self.links.add(link)
                threading.Thread(target=link.run, name="proxy link", daemon=True).start()


class Detour(Proxy):
    """A proxy before the server of the test database."""

    def __init__(self) -> None:
        host, port = connection.settings_dict["HOST"] or "localhost", int(connection.settings_dict["PORT"] or 5432)
        address = Path(host, f".s.PGSQL.{port}") if host.startswith("/") else (host, port)
        super().__init__(lambda: address)

    def url(self) -> str:
        """The URL of the test database by way of this port."""
        url = urlsplit(database_url())
        login, has_login, _ = url.netloc.rpartition("@")
        name = url.path.rpartition("/")[2]
        return urlunsplit(url._replace(netloc=f"{login}{has_login}127.0.0.1:{self.port}", path=f"/{name}"))


class Hung(Detour):
    """A pooler that has no server for a client that it has let in."""

    def must_lose(self, link: "Link", data: bytes) -> bool:
        if b"SET ROLE" in data:
            link.flows.clear()
        return super().must_lose(link, data)


@contextlib.contextmanager
def hung(settings: dict[str, Any]) -> Iterator[None]:
    """Let settings of the server of the tests lead to it by way of such a pooler.

    It answers no statement by which Django sets a connection up, here one that is sent in any case.
    """
    before, options, pooler = dict(settings), dict(settings["OPTIONS"]), Hung()
    end = threading.Timer(PATIENCE_SECONDS, pooler.cut)
    end.start()
    settings |= {"HOST": "127.0.0.1", "PORT": str(pooler.port)}
    settings["OPTIONS"]["assume_role"] = settings["USER"]
    try:
        yield
    finally:
        settings |= before
        settings["OPTIONS"] = options
        end.cancel()
        pooler.close()


class Link:
    """One client's connection, and the one to the server that belongs to it."""

    def __init__(self, proxy: Proxy, client: socket.socket) -> None:
        self.flows = threading.Event()
        self.flows.set()
        self.is_losing = False
        self._lost = b""
        self._name: str | None = None  # not yet known
        self._proxy = proxy
        self._client = client
        self._ends = [client]

    def run(self) -> None:
        with self._client, contextlib.suppress(OSError):
            self._proxy.flows.wait()
            address = self._proxy.upstream()
            with socket.socket(socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX) as self._server:
                self._ends.append(self._server)
                self._server.connect(address if isinstance(address, tuple) else str(address))
                self._introduce()
                self._pass_on()
        self._proxy.links.discard(self)

    def is_named(self, name: str | None) -> bool:
        return name is None or (self._name is not None and (self._name.startswith(name) if name else not self._name))

    def cut(self) -> None:
        self.flows.set()
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _introduce(self) -> None:
        """Pass the client's first words on, which say who it is."""
        while True:
            head = exactly(self._client, 8)
            length, code = struct.unpack("!II", head)
            if code not in ENCRYPTION:
                break
            self._client.sendall(b"N")
        rest = exactly(self._client, length - 8)
        words = rest.split(b"\0") if code != CANCEL else []
        self._name = dict(zip(words[::2], words[1::2], strict=False)).get(b"application_name", b"").decode()
        self._server.sendall(head + rest)

    def _pass_on(self) -> None:
        """Pass on what comes, both ways, until one side has ended."""
        while True:
            ready, _, _ = select.select([self._client, self._server], [], [])
            self.flows.wait()
            for end in ready:
                data = end.recv(65536)
                if not data:
                    return
                if end is self._client:
                    self.is_losing = self.is_losing or self._proxy.must_lose(self, data)
                    self._server.sendall(data)
                elif not self.is_losing:
                    self._client.sendall(data)
                else:
                    self._lost = (self._lost + data)[-6:]  # the end of an answer may come in pieces
                    if self._lost[:-1] == READY:
                        return


def exactly(end: socket.socket, size: int) -> bytes:
    """Receive this number of bytes."""
    data = b""
    while len(data) < size:
        if not (more := end.recv(size - len(data))):
            raise ConnectionError("closed in the middle of a message")
        data += more
    return data
