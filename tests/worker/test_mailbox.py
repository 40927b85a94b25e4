"""One wait for what slots put into the mailbox and for what comes from a socket."""

import queue
import socket
import threading

import pytest

from django_pgqueue.worker.mailbox import Mailbox
from tests.support.waiting import PATIENCE_SECONDS


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("comes", ["before", "meanwhile"])
def test_item_ends_the_wait(ends, comes):
    mailbox = Mailbox()
    putting = threading.Thread(target=mailbox.put, args=("item",))
    putting.start()
    if comes == "before":
        putting.join()
    mailbox.wait(ends[0].fileno(), PATIENCE_SECONDS)
    assert mailbox.get_nowait() == "item"
    putting.join()


def test_socket_ends_the_wait(ends):
    mailbox = Mailbox()
    ends[1].send(b"x")
    mailbox.wait(ends[0].fileno(), PATIENCE_SECONDS)
    with pytest.raises(queue.Empty):
        mailbox.get_nowait()


def test_wait_ends_without_either(ends):
    assert not Mailbox().wait(ends[0].fileno(), 0.0)


def test_each_item_ends_the_wait_though_reader_and_writer_meet_at_any_line(ends):
    mailbox = Mailbox()
    taken = threading.Semaphore()

    def write():
        for number in range(2000):
            taken.acquire()
            mailbox.put(number)

    writer = threading.Thread(target=write)
    writer.start()
    for number in range(2000):
        while mailbox.empty():
            assert mailbox.wait(ends[0].fileno(), PATIENCE_SECONDS)
        assert mailbox.get_nowait() == number
        taken.release()
    writer.join()
