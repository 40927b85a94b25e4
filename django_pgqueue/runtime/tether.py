"""The worker's end of the pipe between it and its reloader."""

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection

from django_pgqueue.runtime.sources import sources

logger = logging.getLogger("django_pgqueue.worker")


def hold(descriptor: int, *, when_gone: Callable[[], None]) -> None:
    """Tell the reloader what this process is made of; call ``when_gone``, on another thread, if it has ended."""
    os.set_inheritable(descriptor, False)
    tether = Connection(descriptor)
    threading.Thread(
        target=_hold, args=(tether, sources().told(), when_gone), name="pgqueue-tether", daemon=True
    ).start()


def _hold(tether: Connection, told: bytes, when_gone: Callable[[], None]) -> None:
    with contextlib.suppress(EOFError, OSError):
        tether.send_bytes(told)
        tether.recv_bytes()  # it never says anything
    logger.warning("Stopping, as the reloader has ended")
    when_gone()
