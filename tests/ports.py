"""Loopback ports for servers that tests start."""

import socket


def free_port() -> int:
    """Return a port on which nobody listens; whoever starts a server there has to be quick."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
