"""The queue's own connections, and what their errors mean."""

import pytest
from django.db import OperationalError

from django_pgqueue.db import QueueConnection


@pytest.fixture
def hasty(transactional_db):
    opened = QueueConnection("default", "hasty test", patience_seconds=1.5)
    yield opened
    opened.close()


def test_connection_on_which_the_server_is_silent_is_given_up_and_opened_again(hasty):
    [(first,)] = hasty.rows("SELECT pg_backend_pid()", {})
    with pytest.raises(OperationalError, match=r"the server has not answered for 1.5 s"):
        hasty.rows("SELECT pg_sleep(5)", {})
    assert hasty.rows("SELECT pg_backend_pid()", {}) != [(first,)]


def test_silence_outside_of_transactions_is_given_up_too(hasty):
    with pytest.raises(OperationalError, match="has not answered"), hasty._wrapper.wrap_database_errors:
        hasty.autocommit().execute("SELECT pg_sleep(5)")
    assert hasty.autocommit().execute("SELECT 1").fetchall() == [(1,)]


def test_what_may_take_long_is_waited_for_and_nothing_after_it(hasty):
    assert hasty.autocommit(may_take_long=True).execute("SELECT pg_sleep(3)").fetchall() == [("",)]
    with pytest.raises(OperationalError, match="has not answered"):
        hasty.rows("SELECT pg_sleep(5)", {})


def test_no_statement_of_a_worker_is_compiled(queue):
    """Plans by index only look dear to the planner; a second would go by before each of them began."""
    with queue.transaction():
        assert queue.rows("SELECT current_setting('jit')", {}) == [("off",)]
