from typing import Any

from django.db.models import Model

from django_pgqueue.conf import conf

APPS = {"pgqueue", "pgqueue_cutover", "pgqueue_outbox"}


class PgQueueRouter:
    """Sends models and migrations of the queue to ``PGQUEUE["DATABASE"]``; migrations to its shards too.

    Needed in ``DATABASE_ROUTERS`` only where that is not the default database.
    """

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        if model._meta.app_label not in APPS:  # noqa: SLF001
            return None
        instance = hints.get("instance")
        origin = instance._state.db if isinstance(instance, model) else None  # noqa: SLF001
        return origin if origin in conf.databases else conf.database

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        if app_label not in APPS:
            return None
        if app_label == "pgqueue_outbox":
            return db in conf.databases or db in conf.outboxes
        return db in conf.databases if app_label == "pgqueue" else db == conf.database
