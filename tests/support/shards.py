"""A second database of the queue, for a test."""

from collections.abc import Iterator

import pytest
from django.core.management import call_command


@pytest.fixture
def shard(transactional_db, settings) -> Iterator[str]:
    """The alias of a shard; its tables are made for the test."""
    before = settings.PGQUEUE
    settings.PGQUEUE = before | {"SHARDS": {"other": {"number": 1}}}
    call_command("migrate", "pgqueue", "zero", database="other", fake=True, verbosity=0)
    call_command("migrate", "pgqueue", database="other", verbosity=0)
    yield "other"
    call_command("migrate", "pgqueue", "zero", database="other", verbosity=0)
    settings.PGQUEUE = before
    call_command("migrate", "pgqueue", database="other", verbosity=0)


@pytest.fixture
def outbox(transactional_db, settings) -> Iterator[str]:
    """The alias of a database with an outbox, whose number is 5; its tables are made for the test."""
    before = settings.PGQUEUE
    settings.PGQUEUE = before | {"OUTBOXES": {"other": 5}}
    call_command("migrate", "pgqueue_outbox", "zero", database="other", fake=True, verbosity=0)
    call_command("migrate", "pgqueue_outbox", database="other", verbosity=0)
    yield "other"
    call_command("migrate", "pgqueue_outbox", "zero", database="other", verbosity=0)
    settings.PGQUEUE = before
    call_command("migrate", "pgqueue_outbox", database="other", verbosity=0)
