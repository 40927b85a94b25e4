"""A worker for tests of findings, which would be the first finding where there is none."""

import pytest

from tests.support.worker_rows import forget_counters, worker


@pytest.fixture
def living(transactional_db, sql) -> None:
    """A worker that lives, and listens."""
    worker()
    forget_counters(sql)
