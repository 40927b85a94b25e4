from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class CutoverConfig(AppConfig):
    """Connects the check of the flag; nothing else."""

    name = "django_pgqueue.contrib.cutover"
    label = "pgqueue_cutover"
    verbose_name = _("Switch to the job queue")

    def ready(self) -> None:
        from django_pgqueue.contrib.cutover import enqueue  # noqa: F401, PLC0415 - its check registers itself, once apps are loaded
