"""A worker, since none would be the first finding, and the storage options as they were."""

from collections.abc import Iterator

import pytest

from tests.support import storage
from tests.support.worker_rows import forget_others, worker


@pytest.fixture
def living(transactional_db, sql) -> None:
    """A worker that lives, and listens."""
    worker()
    forget_others(sql)


@pytest.fixture
def storage_options(sql) -> Iterator[None]:
    """Restore them exactly: an option that is set again stands behind the others."""
    with storage.kept(sql):
        yield
