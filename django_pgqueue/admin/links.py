"""Links between pages of the admin, and the path above each page."""

from typing import Any

import django
from django.contrib.admin import AdminSite
from django.contrib.admin.utils import quote
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import NoReverseMatch, reverse
from django.utils.http import urlencode
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from django_pgqueue.admin.databases import AT_HOME, located
from django_pgqueue.conf import conf

APP = "pgqueue"


class Links:
    """Addresses of other pages of the queue; empty if the user may not see them."""

    def __init__(self, request: HttpRequest, site: AdminSite) -> None:
        self._user = request.user
        self._site = site

    def to_list(self, model: str, **filters: Any) -> str:
        chosen = {name: value for name, value in filters.items() if value not in ("", None)}
        return self._to(model, "changelist", query=urlencode(chosen))

    def to_causes(self) -> str:
        return self._to("deadjob", "causes")

    def to_row(self, model: str, key: Any) -> str:
        return self._to(model, "change", quote(str(key)))

    def _to(self, model: str, name: str, *args: str, query: str = "") -> str:
        if not any(self._user.has_perm(f"{APP}.{right}_{model}") for right in ("view", "change")):
            return ""
        try:
            path = reverse(f"admin:{APP}_{model}_{name}", args=args, current_app=self._site.name)
        except NoReverseMatch:
            return ""  # a project's own site that has registered less
        return located(path, query, alias=conf.database if model in AT_HOME else None)


ARE_LISTED = django.VERSION >= (6, 1)  # the path is a list from then on; the stylesheet knows no other


def crumbs(site: AdminSite, opts: Any, *trail: tuple[Any, str]) -> str:
    """Return the path above a page as markup.

    Args:
        trail: names and addresses behind the list; the last one needs no address.
    """
    app = reverse("admin:app_list", args=[opts.app_label], current_app=site.name)
    list_address = located(reverse(f"admin:{opts.app_label}_{opts.model_name}_changelist", current_app=site.name))
    steps: tuple[tuple[Any, str], ...] = (
        (_("Home"), reverse("admin:index", current_app=site.name)),
        (opts.app_config.verbose_name, app),
        (capfirst(opts.verbose_name_plural), list_address),
        *trail,
    )
    context = {"steps": steps[:-1], "here": steps[-1][0], "are_listed": ARE_LISTED}
    return render_to_string("admin/pgqueue/crumbs.html", context)
