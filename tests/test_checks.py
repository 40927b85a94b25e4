import pytest
from django.core.checks import run_checks
from django.core.management import call_command
from django.test import override_settings

ROUTER = "django_pgqueue.routers.PgQueueRouter"


def found(**settings) -> list:
    with override_settings(**settings):
        return run_checks(tags=["pgqueue"])


def test_good_settings_raise_nothing():
    assert found(PGQUEUE={}) == []
    assert found(PGQUEUE={"DATABASE": "other"}, DATABASE_ROUTERS=[ROUTER]) == []


@pytest.mark.parametrize(
    ("settings", "expected", "text"),
    [
        ({"DATABSE": "x"}, "pgqueue.E001", "no key 'DATABSE'"),
        ({"LEASE_SECONDS": 2}, "pgqueue.E002", "PGQUEUE['LEASE_SECONDS'] is 2"),
        ({"LEASE_SECONDS": "30"}, "pgqueue.E002", "is '30'"),
        ({"MAX_ATTEMPTS": 0}, "pgqueue.E002", "MAX_ATTEMPTS"),
        ({"RETENTION_DAYS": -1}, "pgqueue.E002", "RETENTION_DAYS"),
        ({"POLL_SECONDS": True}, "pgqueue.E002", "POLL_SECONDS"),
        ({"NOTIFY": "no"}, "pgqueue.E002", "PGQUEUE['NOTIFY'] is 'no'"),
        ({"ENCODER": "no.such.Encoder"}, "pgqueue.E002", "cannot be imported"),
        ({"DATABASE": "nowhere"}, "pgqueue.E003", "'nowhere', which is not in DATABASES"),
        ({"DATABASE": "other"}, "pgqueue.W001", "The queue is on 'other'"),
        ([], "pgqueue.E002", "PGQUEUE is []"),
    ],
    ids=str,
)
def test_wrong_setting_is_named_with_a_hint(settings, expected, text):
    [message] = found(PGQUEUE=settings)
    assert message.id == expected
    assert text in message.msg
    assert message.hint


def test_database_of_another_vendor_is_an_error():
    messages = found(PGQUEUE={"DATABASE": "lite"}, DATABASE_ROUTERS=[ROUTER])
    assert [message.id for message in messages] == ["pgqueue.E004"]
    assert "'lite' is sqlite" in messages[0].msg


def test_all_wrong_settings_are_named_at_once():
    assert len(found(PGQUEUE={"LEASE_SECONDS": 0, "MAX_ATTEMPTS": 0, "TYPO": 1})) == 3


def test_router_sends_models_and_migrations_to_the_queue_database():
    from django.contrib.auth.models import User

    from django_pgqueue.models import Job
    from django_pgqueue.routers import PgQueueRouter

    router = PgQueueRouter()
    with override_settings(PGQUEUE={"DATABASE": "other"}):
        assert (router.db_for_read(Job), router.db_for_write(Job)) == ("other", "other")
        assert router.db_for_read(User) is None
        assert router.allow_migrate("other", "django_pgqueue") is True
        assert router.allow_migrate("default", "django_pgqueue") is False
        assert router.allow_migrate("default", "auth") is None


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_queue_on_a_second_database_works_from_migration_to_enqueue():
    from django.db import connections

    import tests.app.tasks as app
    from django_pgqueue.models import Job

    with override_settings(PGQUEUE={"DATABASE": "other"}, DATABASE_ROUTERS=[ROUTER]):
        # The migrations were recorded there while the queue was elsewhere, and made nothing.
        call_command("migrate", "django_pgqueue", "zero", database="other", fake=True, verbosity=0)
        call_command("migrate", "django_pgqueue", database="other", verbosity=0)
        try:
            handle = app.record.enqueue("x")
            assert handle.database == "other"
            assert Job.objects.get(pk=handle.id)._state.db == "other"
        finally:
            call_command("migrate", "django_pgqueue", "zero", database="other", verbosity=0)
    assert "pgqueue_jobs" not in connections["other"].introspection.table_names()
    call_command("migrate", "django_pgqueue", database="other", verbosity=0)
