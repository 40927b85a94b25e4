"""Pages that end: no query of theirs takes longer than ``ADMIN_TIMEOUT_SECONDS``, and being stopped is no error.

A list or a page of figures must never be what holds a snapshot of a busy database, nor what a worker waits behind.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import SimpleTemplateResponse, TemplateResponse
from django.urls import reverse
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from django_pgqueue.admin.links import crumbs
from django_pgqueue.conf import conf
from django_pgqueue.insights.bounded import TookTooLong, bounded

if TYPE_CHECKING:
    from django.db.models import Model

    ModelAdmin = admin.ModelAdmin[Model]
else:
    ModelAdmin = admin.ModelAdmin  # generic for the type checker only

READING = {"GET", "HEAD"}

Page = Callable[..., HttpResponse]


def bounded_page(view: Page) -> Page:
    """Bound every query of a page of an admin, those that its template makes too: it is rendered here.

    What took too long is told with the remedy, and with the status 503. What answers a POST is not bounded as a whole,
    but a ``bounded`` part of it that was stopped is told in the same way.
    """

    @functools.wraps(view)
    def page(self: Any, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            if request.method not in READING:
                return view(self, request, *args, **kwargs)
            with bounded():
                return _rendered(view(self, request, *args, **kwargs))
        except TookTooLong:
            return too_long(self, request)

    return page


def too_long(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """Say that the page was stopped, and what helps."""
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("Stopped"),
        "opts": model_admin.opts,
        "media": model_admin.media,
        "crumbs": crumbs(model_admin.admin_site, model_admin.opts, (_("Stopped"), "")),
        "seconds": conf.admin_timeout_seconds,
        "again": request.get_full_path() if request.method in READING else "",
        "back": _list_of(model_admin),
    }
    request.current_app = model_admin.admin_site.name
    return TemplateResponse(request, "admin/django_pgqueue/too_long.html", context, status=503)


class ReadOnlyAdmin(ModelAdmin):
    """An admin whose rows change by actions only, if at all."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class BoundedAdmin(ModelAdmin):
    """An admin whose own pages are bounded; what it adds to them is to be a ``bounded_page`` too.

    Attributes:
        lookups: what the address bar may filter by, and nothing else: Django lets it compare any column with anything,
            and so tell, a letter at a time, what a page leaves out. And no index would help.
    """

    lookups: tuple[str, ...] = ()

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return lookup in self.lookups

    @bounded_page
    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list under its name: "Select dead job to view" is no sentence in languages that inflect."""
        title = capfirst(self.opts.verbose_name_plural)
        return super().changelist_view(request, {"title": title, **(extra_context or {})})

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Bound it here for a POST: an action begins with reading its list."""
        with contextlib.nullcontext() if request.method in READING else bounded():
            return super().get_changelist_instance(request)

    @bounded_page
    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show a row under the name of its kind, for the same reason."""
        title = {"title": capfirst(self.opts.verbose_name)} if object_id else {}
        return super().changeform_view(request, object_id, form_url, {**title, **(extra_context or {})})

    @bounded_page
    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return super().delete_view(request, object_id, extra_context)

    @bounded_page
    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return super().history_view(request, object_id, extra_context)


def _rendered(response: HttpResponse) -> HttpResponse:
    if isinstance(response, SimpleTemplateResponse):
        response.render()
    return response


def _list_of(model_admin: Any) -> str:
    opts = model_admin.opts
    return reverse(f"admin:{opts.app_label}_{opts.model_name}_changelist", current_app=model_admin.admin_site.name)
