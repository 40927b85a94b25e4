"""The log of a worker command names databases where there are several."""

import logging

import pytest

from django_pgqueue.worker.config import DatabaseFilter, name_databases, served

LOGGER = logging.getLogger("django_pgqueue.worker")


@pytest.fixture(autouse=True)
def _log_as_before():
    yield
    LOGGER.filters[:] = [one for one in LOGGER.filters if not isinstance(one, DatabaseFilter)]


def test_lines_name_the_database_that_is_served(caplog):
    name_databases()
    with served("50%"):
        LOGGER.warning("Lost %d", 3)
        LOGGER.warning("100% lost")
    LOGGER.warning("of none")
    assert caplog.messages == ["Lost 3 (database 50%)", "100% lost (database 50%)", "of none"]
    assert [getattr(record, "database", None) for record in caplog.records] == ["50%", "50%", None]


def test_process_of_one_database_names_it_in_each_line(caplog):
    name_databases()
    name_databases("b")
    LOGGER.warning("Lost")
    assert caplog.messages == ["Lost (database b)"]
