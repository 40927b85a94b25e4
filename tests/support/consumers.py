"""Consumers that do their cycles when a test says so."""

import queue as stdlib_queue

import pytest
from django.db import OperationalError

from django_pgqueue.db.errors import Silence
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.worker.consumer import Consumer
from django_pgqueue.worker.shared_state import SharedState, now
from django_pgqueue.worker.slots import Slots


class Benched(Slots):
    """Slots whose jobs wait for the test to run them."""

    def __init__(self, concurrency, shared, mailbox):
        super().__init__(concurrency, shared, mailbox)
        self.accepted = []

    def accept(self, cell, job):
        self.accepted.append((cell, job))

    def waiting(self):
        return max(0, len(self.accepted) - self.concurrency)

    def withdraw(self):
        unrun = self.accepted[self.concurrency :]
        del self.accepted[self.concurrency :]
        return unrun

    def finish(self, fate=Fate.SUCCEEDED, **details):
        cell, job = self.accepted.pop(0)
        self.mailbox.put((cell, Outcome(job, fate, **details)))


@pytest.fixture
def consumer_of(transactional_db):
    """Make a consumer of some slots, whose connection is closed at the end, also of a test that fails."""
    made = []

    def make(slots: Slots) -> Consumer:
        made.append(Consumer(1, (), slots, slots._shared))
        return made[-1]

    yield make
    for consumer in made:
        consumer.database.close()


@pytest.fixture
def consumer(consumer_of):
    shared = SharedState()
    shared.extend_lease(now() + 3600)
    return consumer_of(Benched(4, shared, stdlib_queue.SimpleQueue()))


def cycle(consumer):
    """Let the consumer take what is in its mailbox, and do one cycle in which it looks everywhere."""
    consumer.wake()
    for cursor in consumer._cursors._cursors.values():
        cursor.full_scan_at = 0.0
    consumer._collect(0.0)
    consumer._cycle()


def accepted(consumer) -> list[int]:
    return [job.id for _, job in consumer.slots.accepted]


def cycles(consumer, number: int) -> None:
    """Let the consumer do some cycles, each as soon as one is allowed."""
    for _ in range(number):
        consumer._backoff._retry_at = consumer._backoff.claim_at = 0.0
        cycle(consumer)


def fall_silent(*_, **__):
    raise OperationalError("silent") from Silence("silent")
