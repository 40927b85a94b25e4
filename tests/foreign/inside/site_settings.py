"""Settings added to those of the site that ``wagtail start`` has made, as its ``local.py``."""

from database import DATABASES as DATABASES

from django_pgqueue import Unique

from .base import INSTALLED_APPS as APPS

INSTALLED_APPS = [*APPS, "django.contrib.postgres", "django_pgqueue"]
TASKS = {
    "default": {
        "BACKEND": "django_pgqueue.backend.PgQueueBackend",
        "ENQUEUE_ON_COMMIT": False,
        "OPTIONS": {
            "discard_on": ["django.core.exceptions.ObjectDoesNotExist"],
            "tasks": {
                name: {"unique": Unique(["app_label", "model_name", "pk"], until="start")}
                for name in (
                    "modelsearch.tasks.insert_or_update_object_task",
                    "wagtail.tasks.update_reference_index_task",
                )
            },
        },
    },
}
# The editor saves a draft by itself, half a second after its form has changed. A page that is published while its first
# draft is on the way would be made twice: that is answered by an error, since the slug is in use.
WAGTAIL_AUTOSAVE_INTERVAL = 0
