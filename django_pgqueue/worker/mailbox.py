"""Mailbox of the consumer, which waits for it and for notifications on its connection at the same time."""

import contextlib
import os
import queue
import select

from django_pgqueue.records import Ended

MILLISECONDS = 1000


class Mailbox(queue.SimpleQueue[Ended | None]):
    """A queue whose only reader can wait for a socket as well. Anything may be put into it by any thread."""

    def __init__(self) -> None:
        super().__init__()
        self._is_watched = False  # the reader waits, or is about to
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def __del__(self) -> None:
        os.close(self._read)
        os.close(self._write)

    def put(self, item: Ended | None, block: bool = True, timeout: float | None = None) -> None:  # noqa: FBT001, FBT002 - as its base
        super().put(item, block, timeout)
        if self._is_watched:
            self._is_watched = False
            with contextlib.suppress(BlockingIOError):  # it is full: the reader has enough to wake for
                os.write(self._write, b"!")

    def wait(self, socket: int, seconds: float) -> bool:
        """Wait until there is an item, or something to read from the socket; return False when the time is over."""
        self._is_watched = True  # before the look: an item that comes after it is announced
        poll = select.poll()
        poll.register(socket, select.POLLIN)
        poll.register(self._read, select.POLLIN)
        has_come = not self.empty()
        ready = poll.poll(0 if has_come else seconds * MILLISECONDS)
        self._is_watched = False
        if any(file == self._read for file, _ in ready):
            os.read(self._read, 4096)
        return has_come or bool(ready)
