"""The router keeps the tables on the database of the queue."""

from django.test import override_settings

from django_pgqueue.models import Job


def test_router_sends_models_and_migrations_to_the_queue_database():
    from django.contrib.auth.models import User

    from django_pgqueue.routers import PgQueueRouter

    router = PgQueueRouter()
    with override_settings(PGQUEUE={"DATABASE": "other"}):
        assert (router.db_for_read(Job), router.db_for_write(Job)) == ("other", "other")
        assert router.db_for_read(User) is None
        assert router.allow_migrate("other", "pgqueue") is True
        assert router.allow_migrate("default", "pgqueue") is False
        assert router.allow_migrate("default", "auth") is None
