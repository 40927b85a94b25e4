"""Loopback ports for servers that tests start."""

import secrets
import socket

PORTS = range(10_000, 32_000)
"""Below those that the kernel gives to clients: one of them may have any of those a moment later."""


def free_port() -> int:
    """Return a port on which no process listens, and that others who ask at the same time hardly get."""
    while True:
        port = secrets.choice(PORTS)  # not by random, which is seeded alike in all processes of the tests
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
