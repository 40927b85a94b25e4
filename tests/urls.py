from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import include, path

from tests.app.tasks import record


def order(request: HttpRequest) -> HttpResponse:
    """Enqueue, and fail if asked to."""
    record.enqueue("ordered")
    if "fail" in request.GET:
        raise RuntimeError("the view failed after it had enqueued")
    return HttpResponse("ordered")


def icon(request: HttpRequest) -> HttpResponse:
    """Have none: browsers ask for it, and complain of a page that is missing."""
    return HttpResponse(status=204)


urlpatterns = [
    path("admin/", admin.site.urls),
    path("order/", order),
    path("metrics/pgqueue/", include("django_pgqueue.contrib.prometheus.urls")),
    path("favicon.ico", icon),
]
