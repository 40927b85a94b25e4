"""Loopback ports for servers that tests start."""

import secrets
import socket

PORTS = range(10_000, 32_000)
"""Below those that the kernel gives to clients: one of them may have any of those a moment later."""

_given: set[int] = set()
"""Who asks for two asks for different ones."""


def free_port() -> int:
    """Return a port on which no process listens, and that others who ask at the same time hardly get."""
    while True:
        port = secrets.choice(PORTS)  # not by random, which is seeded alike in all processes of the tests
        if port in _given:
            continue
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        _given.add(port)
        return port
