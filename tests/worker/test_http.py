"""Pages of a command over HTTP: silent clients, many clients, a port that is taken."""

import contextlib
import socket
import threading

import pytest

from django_pgqueue.exceptions import ConfigurationError
from django_pgqueue.worker.health import HealthStatus
from django_pgqueue.worker.http import MOST_REQUESTS, PageServer
from tests.support.ports import free_port
from tests.support.probes import get
from tests.support.waiting import eventually


def test_silent_client_keeps_no_other_from_an_answer(probes):
    probes.tell(HealthStatus((), ()), True)
    host, port = probes.address
    with socket.create_connection((host, port)):
        assert probes.get("/ready")[0] == 200
        assert get(port, "/ready", "HEAD") == (200, None)


def test_clients_that_hold_on_take_no_more_than_some_threads_and_not_for_long(probes, monkeypatch):
    probes.tell(HealthStatus((), ()), True)
    before = threading.active_count()
    with contextlib.ExitStack() as clients:
        connected = [clients.enter_context(socket.create_connection(probes.address)) for _ in range(60)]
        eventually(lambda: sum(is_hung_up(one) for one in connected) >= 60 - MOST_REQUESTS)
        assert threading.active_count() <= before + MOST_REQUESTS
        with monkeypatch.context() as patch:
            patch.setattr("django_pgqueue.worker.http.LONGEST_SECONDS", 0.0)
            eventually(lambda: all(map(is_hung_up, connected)))
    eventually(lambda: threading.active_count() <= before)
    assert probes.get("/ready")[0] == 200


def is_hung_up(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_port_that_is_taken_is_an_error_that_names_it(probes):
    port = probes.address[1]
    with pytest.raises(ConfigurationError, match=rf"^/live, /ready cannot .* '127.0.0.1' port {port}: .*in use"):
        PageServer({("127.0.0.1", free_port()): probes.pages, probes.address: probes.pages})
