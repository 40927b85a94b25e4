import contextlib
import socket
import struct
import threading

import pytest

from tests.support.proxy import Proxy, exactly
from tests.support.waiting import PATIENCE_SECONDS


@pytest.fixture
def echo():
    """A server that sends back what it gets, in capitals."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(peer):
        with peer:
            while data := peer.recv(1000):
                peer.sendall(data.upper())

    def accept():
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(peer,)).start()

    thread = threading.Thread(target=accept)
    thread.start()
    yield listener
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE_SECONDS)
    listener.close()


@pytest.fixture
def proxy(echo):
    made = Proxy(echo.getsockname)
    yield made
    made.close()


HELLO = struct.pack("!II", 8, 3 << 16)
"""The first message of PostgreSQL's protocol, in which a client says of itself nothing but the version."""


def connect(proxy: Proxy) -> socket.socket:
    """Return a connection that is not introduced yet."""
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_SECONDS)


@contextlib.contextmanager
def introduced(proxy: Proxy):
    with connect(proxy) as client:
        client.sendall(HELLO)
        assert exactly(client, len(HELLO)) == HELLO
        yield client


def ask(client: socket.socket, text: bytes) -> bytes:
    client.sendall(text)
    return client.recv(1000)


def test_it_passes_on_what_comes(proxy):
    with introduced(proxy) as client:
        assert ask(client, b"one") == b"ONE"
        assert ask(client, b"two") == b"TWO"


def test_cut_connections_are_gone_and_new_ones_work(proxy):
    with introduced(proxy) as client:
        assert ask(client, b"one") == b"ONE"
        proxy.cut()
        with contextlib.suppress(ConnectionError):
            assert ask(client, b"two") == b""
    with introduced(proxy) as client:
        assert ask(client, b"three") == b"THREE"


def test_stalled_connections_get_everything_later(proxy):
    with introduced(proxy) as old:
        assert ask(old, b"one") == b"ONE"
        proxy.stall()
        old.sendall(b"two")
        with connect(proxy) as new:
            new.sendall(HELLO + b"three")
            new.settimeout(0.2)
            with pytest.raises(TimeoutError):
                new.recv(1000)
            old.setblocking(False)
            with pytest.raises(BlockingIOError):
                old.recv(1000)
            proxy.flow()
            for client in (old, new):
                client.settimeout(PATIENCE_SECONDS)
            assert old.recv(1000) == b"TWO"
            assert exactly(new, len(HELLO) + 5) == HELLO + b"THREE"


def test_server_that_is_away_ends_connections(proxy, echo):
    echo.shutdown(socket.SHUT_RDWR)
    with connect(proxy) as client:
        assert client.recv(1000) == b""
