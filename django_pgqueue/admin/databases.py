"""The database that a page shows: one at a time, where ``PGQUEUE["SHARDS"]`` names others than that of ``DATABASE``.

The id of a job or a workflow says which one it is on. Addresses of other pages name it, ``?database=ALIAS``, unless it
is that of ``DATABASE``; so do all links, forms and redirects of such a page.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db import Error, connections
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import SimpleTemplateResponse
from django.utils.encoding import escape_uri_path
from django.utils.translation import gettext as _
from psycopg.errors import ConnectionTimeout

from django_pgqueue.admin.keyset import is_integer
from django_pgqueue.conf import NUMBER_SHIFT, conf, page_database
from django_pgqueue.db.errors import is_of_connection
from django_pgqueue.models import DeadJob, Job, SucceededJob, Workflow
from django_pgqueue.workflows.records import WORKFLOW_SHIFT

DATABASE = "database"  # the parameter
PRESERVED = "_changelist_filters"  # Django's, on the page of a row: the parameters of the list it was opened from

SHIFTS: dict[type[Model], int] = {
    Job: NUMBER_SHIFT,
    DeadJob: NUMBER_SHIFT,
    SucceededJob: NUMBER_SHIFT,
    Workflow: WORKFLOW_SHIFT,
}
"""Bits of an id below the number of its database; the keys of other tables have none."""

AT_HOME = {"schedule"}
"""Names of models with rows on the database of ``DATABASE`` only."""

View = Callable[..., HttpResponse]


class Choice(NamedTuple):
    alias: str
    address: str  # empty: of the page that is shown


def located(path: str, query: str = "", *, alias: str | None = None) -> str:
    """Return an address of the admin on the database that is shown, or on ``alias``, with a query."""
    alias = alias or conf.database_here
    parameters = QueryDict(query, mutable=True)
    parameters.pop(DATABASE, None)
    if alias != conf.database:
        parameters[DATABASE] = alias
    return f"{path}?{parameters.urlencode()}" if parameters else path


@contextlib.contextmanager
def showing(alias: str) -> Iterator[None]:
    """Make a database that of ``conf.database_here`` inside, for figures and addresses."""
    token = page_database.set(alias)
    try:
        yield
    finally:
        page_database.reset(token)


def is_elsewhere() -> bool:
    """Whether the page shows another database than that of ``DATABASE``."""
    return conf.database_here != conf.database


def with_name(entry: str) -> str:
    """Return an entry for the log of the admin, which does not know databases, with the name of another one."""
    return f"{entry} Database: {conf.database_here}." if is_elsewhere() else entry


def choices(path: str) -> list[Choice]:
    """Return the databases that a list may show, at this path; empty where there is one only."""
    here, aliases = conf.database_here, conf.databases
    if len(aliases) == 1:
        return []
    return [Choice(one, "" if one == here else located(path, alias=one)) for one in aliases]


def current() -> list[Choice]:
    """Return the one database of a page that cannot show another; empty where there is one only."""
    return [Choice(conf.database_here, "")] if len(conf.databases) > 1 else []


def of_key(model: type[Model], key: str) -> str | None:
    """Return the alias of the database of a row, by its id; None where that does not say."""
    shift = SHIFTS.get(model._meta.concrete_model or model)  # noqa: SLF001 - Django's own idiom
    if shift is None or not is_integer(key):
        return None
    return conf.with_number(max(int(key), 0) >> shift)


def search_of_key(request: HttpRequest, model: type[Model], key: str) -> list[tuple[str, str]]:
    """Return words and the address of the same search on the database of an id; empty if that is shown."""
    alias = of_key(model, key)
    if alias in {None, conf.database_here}:
        return []
    return [(_("Search the database %(name)s") % {"name": alias}, located(request.path, f"q={key}", alias=alias))]


def on_its_database(admin: Any, view: View) -> View:
    """Return a view of an admin that shows, and changes, the database that the id or the address of a request is of.

    The page is rendered here. Where the database does not answer, and is one of several, it says so.
    """

    @functools.wraps(view)
    def page(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        is_known = admin.admin_site.has_permission(request)  # others are sent to log in first
        if len(conf.databases) == 1 or admin.opts.model_name in AT_HOME or not is_known:
            return view(request, *args, **kwargs)
        alias = of_key(admin.model, unquote(kwargs.get("object_id", ""))) or _asked(request) or conf.database
        if alias not in conf.databases:
            return _refused(admin, request, alias)
        with showing(alias):
            try:
                return _leading_on(request, rendered(view(request, *args, **kwargs)))
            except Error as error:
                if not (is_of_connection(error) and _is_away(alias, error)):
                    raise
                return rendered(admin.away(request, error))

    return page


def _asked(request: HttpRequest) -> str:
    preserved = QueryDict(request.GET.get(PRESERVED, ""))
    return request.GET.get(DATABASE) or preserved.get(DATABASE) or ""


def _refused(admin: Any, request: HttpRequest, alias: str) -> HttpResponse:
    if not admin.has_view_permission(request):
        raise PermissionDenied
    words = _("No database %(name)s has a queue. Nothing was changed; this is %(home)s.")
    messages.error(request, words % {"name": alias, "home": conf.database})
    return HttpResponseRedirect(request.path)


def _leading_on(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """Name the database in Django's redirect from an old address of a row to its page, which drops the query."""
    path, _, query = response.get("Location", "").partition("?")
    if is_elsewhere() and path.startswith(escape_uri_path(request.path)) and DATABASE not in QueryDict(query):
        response["Location"] = located(path, query)
    return response


def _is_away(alias: str, error: Error) -> bool:
    """Ask again, unless connecting has just failed; another database may have ended a connection."""
    cause = error.__cause__
    is_new = isinstance(cause, ConnectionTimeout) or getattr(cause, "pgconn", None) is not None
    if is_new and connections[alias].connection is None:
        return True
    connections[alias].close()
    try:
        connections[alias].ensure_connection()
    except Error:
        return True
    return False


def rendered(response: HttpResponse) -> HttpResponse:
    """Render a page, if it is not yet, with a sidebar that leads to lists of the same database."""
    if not isinstance(response, SimpleTemplateResponse):
        return response
    if is_elsewhere() and not response.is_rendered and response.context_data:
        apps = response.context_data.get("available_apps", ())
        response.context_data["available_apps"] = [_located_app(app) for app in apps]
    return response.render()


def _located_app(app: dict[str, Any]) -> dict[str, Any]:
    if app["app_label"] != "pgqueue":
        return app
    return {**app, "models": [{**model, **_located_model(model)} for model in app["models"]]}


def _located_model(model: dict[str, Any]) -> dict[str, Any]:
    is_at_home = model["object_name"].lower() in AT_HOME
    return {} if is_at_home or not model.get("admin_url") else {"admin_url": located(model["admin_url"])}
