"""The part of Wagtail's own tests that is in its wheel and has to do with its tasks, and more that is near."""

import pytest

from tests.foreign.environment import check, failed

REQUIREMENTS = "wagtail"

LABELS = (
    "wagtail.tests.test_reference_index",
    "wagtail.tests.test_page_search",
    "wagtail.tests.test_page_model",
    "wagtail.tests.test_signals",
    "wagtail.tests.test_workflow",
    "wagtail.images.tests.test_signal_handlers",
    "wagtail.images.tests.test_models",
    "wagtail.documents.tests.test_models",
    "wagtail.contrib.frontend_cache.tests",
)

DIFFERENT = {
    f"wagtail.contrib.frontend_cache.tests.TestCachePurgingFunctions.{name}": "it counts statements, those of a job too"
    for name in (
        "test_purge_page_from_cache",
        "test_purge_page_from_cache_with_shared_cache_object",
        "test_purge_pages_from_cache",
        "test_purge_pages_from_cache_with_shared_cache_object",
    )
}
"""Others fail with either backend: their files are not in the wheel, or need packages for clouds."""


@pytest.fixture(scope="module")
def template(foreign) -> str:
    """The database of both suites before they begin, migrated once: that takes longer than the tests."""
    migrate = ("-m", "django", "migrate", "--settings", "wagtail_suite", "--verbosity", "0")
    foreign.run(*migrate, MEDIA="unused", OURS="1")
    return foreign.variables()["PGDATABASE"]


def test_no_failure_that_its_own_default_has_not(foreign, template):
    suites = [
        foreign.begin_suite(
            *LABELS, name=name, settings="wagtail_suite", TEMPLATE=template, MEDIA=str(foreign.folder / name), **ours
        )
        for name, ours in (("default", {}), ("ours", {"OURS": "1"}))
    ]
    default, ours = [suite.outcomes() for suite in suites]
    assert ours.keys() == default.keys()
    assert len(ours) > 500
    check({test: how for test, how in failed(ours).items() if test not in failed(default)}, DIFFERENT)
    assert not set(failed(default)) - set(failed(ours))
