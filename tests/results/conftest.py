"""Fixtures of the tests of results."""

import pytest

from django_pgqueue.results import waiter
from tests.support.results import SESSIONS
from tests.support.waiting import eventually


@pytest.fixture
def no_caller_waits_in_the_end(sql):
    yield
    waiter.stop_all()
    eventually(lambda: not (sql(SESSIONS, "pgqueue waiting") or sql(SESSIONS, "pgqueue waiting listener")))
