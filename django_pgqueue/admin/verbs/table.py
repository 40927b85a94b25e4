"""A table, the verbs for its rows, who may do them, and where: all that acting on rows has to know of their admin."""

from collections.abc import Iterable
from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from django_pgqueue.admin.lists.ids import job_ids
from django_pgqueue.admin.parts.bounded import BoundedAdmin
from django_pgqueue.admin.verbs.verb import Verb
from django_pgqueue.jobs.search import Filter

MOST_JOBS = 1000  # that one action takes


class VerbsAdmin(BoundedAdmin):
    """A table to whose rows something can be done.

    Attributes:
        verbs: what can be done here.
        named_by: the columns that the name of a row is made of.
        largest_selection: how many rows one action takes.
        takes_all: whether actions are done to everything that matches, in the background.
    """

    verbs: tuple[Verb, ...] = ()
    named_by: tuple[str, ...] = ("task",)
    largest_selection = MOST_JOBS
    takes_all = False

    def may(self, request: HttpRequest, verb: Verb) -> bool:
        """Whether this user sees these rows and may do that to them."""
        return self.has_view_permission(request) and request.user.has_perm(f"{self.opts.app_label}.{verb.permission}")

    def keys(self, texts: Iterable[str]) -> list[Any]:
        """Return the primary keys that stand in a request, each once; BadRequest where one cannot be."""
        return job_ids(texts)

    def address(self, name: str, *args: Any) -> str:
        """Return the address of the list, of a row's page or of a verb."""
        route = f"admin:{self.opts.app_label}_{self.opts.model_name}_{name}"
        return reverse(route, args=args, current_app=self.admin_site.name)

    def offers(self, verb: Verb, row: Any) -> bool:
        """Whether the verb can do anything to this row."""
        return True

    def chosen(self, request: HttpRequest) -> Filter | None:
        """Return what a list shows, on all its pages and beyond its window, for what is done to all of it.

        None: one row by its id, or none, which no filter says. Asked only of tables that take all.
        """
        raise NotImplementedError
