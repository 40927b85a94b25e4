"""Settings of the queue are overridden in tests one by one, and the others stay."""

import asyncio

import pytest
from django.test import SimpleTestCase, TestCase, override_settings

from django_pgqueue.conf import conf
from django_pgqueue.testing import immediate, override_pgqueue
from tests.app import helped
from tests.support.marks import labels

BASE = {"RETENTION_DAYS": 3, "POLL_SECONDS": 2}


def values():
    return conf.retention_days, conf.poll_seconds


def test_other_settings_stay_as_they_are(settings):
    settings.PGQUEUE = BASE
    with override_pgqueue(RETENTION_DAYS=0):
        assert values() == (0, 2)
        with override_pgqueue(POLL_SECONDS=5):
            assert values() == (0, 5)
        assert values() == (0, 2)
    assert values() == (3, 2)
    assert settings.PGQUEUE == BASE


def test_one_override_may_be_entered_again_inside_itself(settings):
    settings.PGQUEUE = BASE
    override = override_pgqueue(RETENTION_DAYS=0)
    with override, override:
        assert values() == (0, 2)
    assert values() == (3, 2)


def test_project_without_settings_gets_those_that_are_named(settings):
    del settings.PGQUEUE
    with override_pgqueue(RETENTION_DAYS=0):
        assert conf.retention_days == 0


def test_functions_are_decorated(settings):
    settings.PGQUEUE = BASE
    decorated = override_pgqueue(RETENTION_DAYS=0)(values)
    assert (decorated(), values()) == ((0, 2), (3, 2))


def test_async_functions_are_decorated(settings):
    async def avalues():
        return values()

    settings.PGQUEUE = BASE
    decorated = override_pgqueue(RETENTION_DAYS=0)(avalues)
    assert (asyncio.run(decorated()), values()) == ((0, 2), (3, 2))


def test_slip_in_a_name_is_told():
    with pytest.raises(TypeError, match=r"^PGQUEUE has no setting RETENTION_DAY\. Did you mean RETENTION_DAYS\?"):
        override_pgqueue(RETENTION_DAY=0)
    with pytest.raises(TypeError, match=r"PGQUEUE has no setting XYZ\. There are DATABASE, "):
        override_pgqueue(XYZ=0)


@override_pgqueue(POLL_SECONDS=5)
@override_settings(PGQUEUE=BASE)
class OverriddenTest(SimpleTestCase):
    def test_class_is_decorated(self):
        assert values() == (3, 5)

    @override_pgqueue(RETENTION_DAYS=0)
    def test_method_is_decorated_too(self):
        assert values() == (0, 5)


@override_pgqueue(RETENTION_DAYS=1)
class InheritingTest(OverriddenTest):
    def test_class_is_decorated(self):
        assert values() == (1, 5)


def test_only_test_cases_of_django_are_decorated():
    with pytest.raises(ValueError, match="SimpleTestCase"):
        override_pgqueue(RETENTION_DAYS=1)(type("Plain", (), {}))


class ImmediateTest(TestCase):
    @immediate()
    def test_job_has_run_when_enqueue_returns(self):
        helped.note.enqueue("now")
        assert labels() == ["now"]

    def test_error_is_only_logged_where_that_is_wanted(self):
        with immediate(errors="log"), self.assertLogs("django_pgqueue.jobs"):
            helped.fail.enqueue("x")
        with immediate(), pytest.raises(ValueError, match="no luck"):
            helped.fail.enqueue("x")
