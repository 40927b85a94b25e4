"""The way to a page, as the installed Django draws it."""

from typing import Any

import django
from django.contrib.admin import AdminSite
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.text import capfirst
from django.utils.translation import gettext as _

ARE_LISTED = django.VERSION >= (6, 1)
"""From then on it is a list; the stylesheet knows no other."""


def crumbs(site: AdminSite, opts: Any, *way: tuple[Any, str]) -> str:
    """Return the markup of the way to a page of a model.

    Args:
        way: what comes after the list of the model: names and addresses; the last one needs none.
    """
    app = reverse("admin:app_list", args=[opts.app_label], current_app=site.name)
    list_address = reverse(f"admin:{opts.app_label}_{opts.model_name}_changelist", current_app=site.name)
    steps: tuple[tuple[Any, str], ...] = (
        (_("Home"), reverse("admin:index", current_app=site.name)),
        (opts.app_config.verbose_name, app),
        (capfirst(opts.verbose_name_plural), list_address),
        *way,
    )
    context = {"steps": steps[:-1], "here": steps[-1][0], "are_listed": ARE_LISTED}
    return render_to_string("admin/django_pgqueue/crumbs.html", context)
