from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class PgQueueConfig(AppConfig):
    """Loads the ``tasks.py`` of every installed app and connects the checks; nothing else."""

    name = "django_pgqueue"
    verbose_name = _("Job queue")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django_pgqueue import checks  # noqa: F401, PLC0415 - checks register themselves, once apps are loaded

        autodiscover_modules("tasks")
