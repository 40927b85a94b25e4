"""How the queues stand, as a page of the project: for staff, and for whoever knows the token."""

import functools
import secrets

from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseForbidden
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry

from django_pgqueue.conf import conf
from django_pgqueue.metrics.exposition import exposed
from django_pgqueue.metrics.tables import QueueCollector

PERMISSION = "django_pgqueue.view_overview"

REFUSAL = (
    "For staff with the permission to view the overview of the queues, or with the header "
    "'Authorization: Bearer' and the token of PGQUEUE['METRICS_TOKEN'].\n"
)


@never_cache
@require_safe
@transaction.non_atomic_requests
def view(request: HttpRequest) -> HttpResponse:
    """Tell how the queues stand; not what other processes have counted."""
    if not (knows_token(request) or may_look(request)):
        return HttpResponseForbidden(REFUSAL, content_type="text/plain")
    body, headers = exposed(_registry(conf.database), request.headers)
    return HttpResponse(body, headers=headers)


view.login_required = False  # type: ignore[attr-defined] # of Django's LoginRequiredMiddleware: a scraper cannot log in


def knows_token(request: HttpRequest) -> bool:
    """Whether a token is set, and the request brings it."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if not conf.metrics_token or scheme.lower() != "bearer":
        return False
    return secrets.compare_digest(token.strip().encode(), conf.metrics_token.encode())


def may_look(request: HttpRequest) -> bool:
    """Whether staff ask who may see the same in the admin."""
    user = getattr(request, "user", None)
    return bool(user and user.is_active and user.is_staff and user.has_perm(PERMISSION))


@functools.cache
def _registry(alias: str) -> CollectorRegistry:
    """Return the one of this process, in which a look is shared by all who ask within a second.

    Who has not begun it does not wait for its end: it may hang as long as a server that has fallen silent.
    """
    registry = CollectorRegistry()
    registry.register(QueueCollector(alias=alias, wait_seconds=conf.admin_timeout_seconds))
    return registry
