from typing import Any

from django.db.models import Model

from django_pgqueue.conf import conf

APPS = {"pgqueue", "pgqueue_cutover"}


class PgQueueRouter:
    """Sends models, admin and migrations of the queue to ``PGQUEUE["DATABASE"]``.

    Needed in ``DATABASE_ROUTERS`` only where that is not the default database.
    """

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        return conf.database if model._meta.app_label in APPS else None  # noqa: SLF001

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return db == conf.database if app_label in APPS else None
