"""django-tasks-db, the database backend of Django's tasks: https://github.com/RealOrangeOne/django-tasks-db.

* ``db_worker`` takes one task at a time; there is nothing to set but the interval at which an idle worker polls, here
  0.05 s in place of 1 s.
* Connections are persistent. There is no bulk API, so rows like the first one are made with the ORM.
"""

import os
from uuid import uuid4

import django
from django.conf import settings
from django.core.management import call_command

settings.configure(
    SECRET_KEY="benchmarks only",
    USE_TZ=True,
    INSTALLED_APPS=["django_tasks_db"],
    TASKS={"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}},
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            **{key: os.environ.get(f"PG{key}", "") for key in ("HOST", "PORT", "USER", "PASSWORD")},
            "NAME": os.environ["PGDATABASE"],
            "CONN_MAX_AGE": None,
        }
    },
)
django.setup()

from django_tasks import task  # noqa: E402 - after the settings
from django_tasks_db.models import DBTaskResult  # noqa: E402

from benchmarks.peers.tally import count  # noqa: E402
from benchmarks.peers.workers import base  # noqa: E402


@task()
def noop() -> None:
    count()


class Queue(base.Queue):
    def prepare(self) -> None:
        call_command("migrate", verbosity=0)

    def seed(self, count: int) -> None:
        first = DBTaskResult.objects.get(pk=noop.enqueue().id)
        values = {field.attname: getattr(first, field.attname) for field in first._meta.concrete_fields}
        for size in base.chunks(count - 1):
            DBTaskResult.objects.bulk_create(DBTaskResult(**values | {"id": uuid4()}) for _ in range(size))

    def enqueue(self) -> None:
        noop.enqueue()

    def left(self) -> int:
        return DBTaskResult.objects.filter(finished_at=None).count()

    def work(self) -> None:
        call_command("db_worker", interval=0.05, startup_delay=False, verbosity=0)
