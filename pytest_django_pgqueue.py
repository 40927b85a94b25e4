"""Plugin for pytest: the helpers of ``django_pgqueue.testing`` as fixtures, and an option about jobs left behind.

pytest imports it at its start, also for projects without Django, and before coverage is measured. So it stands outside
of the package, and neither Django nor the package is imported before a test asks for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

OPTION, INI, MARKER = "--pgqueue-no-leftovers", "pgqueue_no_leftovers", "pgqueue_leftovers"
OF_DATABASE = {"db", "transactional_db", "django_db_reset_sequences", "django_db_serialized_rollback"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option, and its like for the ini file."""
    told = "Fail tests that leave jobs behind that are due."
    parser.getgroup("pgqueue").addoption(OPTION, action="store_true", default=False, help=told)
    parser.addini(INI, help=f"{told} As {OPTION}.", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Add the marker."""
    config.addinivalue_line("markers", f"{MARKER}: the test may leave jobs behind that are due, see {OPTION}.")


@pytest.fixture
def pgqueue(db: None) -> Any:  # noqa: ARG001 - the database may be used
    """Give the module ``django_pgqueue.testing`` to tests that use the database."""
    from django_pgqueue import testing  # noqa: PLC0415 - see above

    return testing


@pytest.fixture
def run_jobs(pgqueue: Any) -> Any:
    """Give ``run_jobs`` of ``django_pgqueue.testing``."""
    return pgqueue.run_jobs


@pytest.fixture
def assert_enqueued(pgqueue: Any) -> Any:
    """Give ``assert_enqueued`` of ``django_pgqueue.testing``."""
    return pgqueue.assert_enqueued


@pytest.fixture
def assert_not_enqueued(pgqueue: Any) -> Any:
    """Give ``assert_not_enqueued`` of ``django_pgqueue.testing``."""
    return pgqueue.assert_not_enqueued


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Look for jobs when the test has passed, while its transaction is still open."""
    if not (watched := _watched(item)):
        return (yield)
    from django_pgqueue.testing.assertions import complaint, due_jobs  # noqa: PLC0415 - see above

    before = due_jobs(watched)
    case = _test_case_of(item)
    if case is not None:  # it has rolled back by the time it is over

        def look() -> None:
            if not getattr(item, "_excinfo", None):  # the test has passed so far
                _fail_with(complaint(watched, before))

        case.addCleanup(look)
        return (yield)
    outcome = yield
    _fail_with(complaint(watched, before))
    return outcome


def _fail_with(text: str) -> None:
    if text:
        pytest.fail(text, pytrace=False)


def _watched(item: pytest.Item) -> list[str]:
    """Return the databases of the queue that the test may use, and is to leave nothing behind in."""
    is_on = item.config.getoption(OPTION) or item.config.getini(INI)
    if not is_on or item.get_closest_marker(MARKER) is not None or not (allowed := _databases_of(item)):
        return []
    from django_pgqueue.conf import conf  # noqa: PLC0415 - see above

    return [alias for alias in conf.databases if allowed == "__all__" or alias in allowed]


def _databases_of(item: pytest.Item) -> Any:
    """Return the aliases that the test may use."""
    if (case := _test_case_of(item)) is not None:
        return getattr(case, "databases", ())
    if (marker := item.get_closest_marker("django_db")) is not None:
        return marker.kwargs.get("databases") or ("default",)
    return ("default",) if OF_DATABASE.intersection(getattr(item, "fixturenames", ())) else ()


def _test_case_of(item: pytest.Item) -> Any:
    """Return the test case, where the test is one of its methods."""
    from unittest import TestCase  # noqa: PLC0415 - pytest has it loaded

    case = getattr(item, "instance", None)
    return case if isinstance(case, TestCase) else None
