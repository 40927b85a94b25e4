from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin.base import QueueAdminBase, ReadOnlyAdmin
from django_pgqueue.admin.formatting import moment_of
from django_pgqueue.models import OnceKey


@admin.register(OnceKey)
class OnceKeyAdmin(ReadOnlyAdmin, QueueAdminBase):
    """Keys that ``once`` has taken, the newest first; a search finds one by the whole key."""

    list_display = ("key", "taken")
    list_display_links = None
    ordering = ("-taken_at",)
    search_fields = ("key",)
    search_help_text = _("The whole key.")
    actions = None
    fields = readonly_fields = ("key", "taken")

    taken = moment_of("taken_at", _("taken at"))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        return (queryset.filter(pk=search_term) if search_term else queryset), False
