"""One wait for what slots put into the outbox and for what comes from a socket."""

import queue
import socket
import threading

import pytest

from django_pgqueue.worker.outbox import Outbox
from tests.support.waiting import PATIENCE_SECONDS


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("comes", ["before", "meanwhile"])
def test_item_ends_the_wait(ends, comes):
    outbox = Outbox()
    putting = threading.Thread(target=outbox.put, args=("item",))
    putting.start()
    if comes == "before":
        putting.join()
    outbox.wait(ends[0].fileno(), PATIENCE_SECONDS)
    assert outbox.get_nowait() == "item"
    putting.join()


def test_socket_ends_the_wait(ends):
    outbox = Outbox()
    ends[1].send(b"x")
    outbox.wait(ends[0].fileno(), PATIENCE_SECONDS)
    with pytest.raises(queue.Empty):
        outbox.get_nowait()


def test_wait_ends_without_either(ends):
    assert not Outbox().wait(ends[0].fileno(), 0.0)


def test_each_item_ends_the_wait_though_reader_and_writer_meet_at_any_line(ends):
    outbox = Outbox()
    taken = threading.Semaphore()

    def write():
        for number in range(2000):
            taken.acquire()
            outbox.put(number)

    writer = threading.Thread(target=write)
    writer.start()
    for number in range(2000):
        while outbox.empty():
            assert outbox.wait(ends[0].fileno(), PATIENCE_SECONDS)
        assert outbox.get_nowait() == number
        taken.release()
    writer.join()
