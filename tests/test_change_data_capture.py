"""The outbox of docs/how-to/publish-to-a-broker.md that has no table: subscribers get it in the order of commits."""

import pytest

from tests.support.pages import DOCS, blocks
from tests.support.server import Server

[EMIT] = [one for one in blocks(DOCS / "how-to" / "publish-to-a-broker.md", "sql") if "emit_message" in one]

SLOT = "SELECT pg_create_logical_replication_slot('subscriber', 'pgoutput')"
READ = """
SELECT data FROM pg_logical_slot_get_binary_changes(
    'subscriber', NULL, NULL, 'proto_version', '1', 'publication_names', 'shop', 'messages', 'true'
)
"""


@pytest.fixture
def logical():
    server = Server()
    with server.connect() as session:
        session.execute("ALTER SYSTEM SET wal_level = logical")
    server.restart("fast")
    yield server
    server.remove()


def messages(session) -> list[bytes]:
    """Return the contents of the messages that the slot has, without what pgoutput says of transactions."""
    found = [data for (data,) in session.execute(READ)]
    return [data[data.index(b"{") :] for data in found if data[:1] == b"M"]


def test_message_is_sent_at_the_commit_and_not_after_a_rollback(logical):
    with logical.connect() as session, logical.connect() as other:
        session.execute("CREATE TABLE shop_order (id int PRIMARY KEY)")
        session.execute("CREATE PUBLICATION shop FOR TABLE shop_order")
        session.execute(SLOT)
        with session.transaction(force_rollback=True):
            session.execute(EMIT)
        with session.transaction():
            session.execute(EMIT)
            with other.transaction():
                other.execute(EMIT.replace("17", "18"))
            assert messages(other) == [b'{"key": "18", "state": "shipped"}']
        assert messages(other) == [b'{"key": "17", "state": "shipped"}']
