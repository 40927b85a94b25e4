from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class OutboxConfig(AppConfig):
    """Has the tables; the workers do the rest."""

    name = "django_pgqueue.outbox"
    label = "pgqueue_outbox"
    verbose_name = _("Outbox of the job queue")
    default_auto_field = "django.db.models.BigAutoField"
