"""What every page of the tests is served under: the policy of a careful site, and a count of open requests."""

import threading
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

STRICT = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)

_quiet = threading.Condition()
_open = 0


def strict_policy(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: nothing inline, nothing from elsewhere."""

    def respond(request: HttpRequest) -> HttpResponse:
        _count(1)
        try:
            response = get_response(request)
        finally:
            _count(-1)
        response.headers["Content-Security-Policy"] = STRICT
        return response

    return respond


def wait_until_quiet(seconds: float) -> None:
    """Wait until no request is open, so that none reads tables which the end of a test empties."""
    with _quiet:
        assert _quiet.wait_for(lambda: not _open, seconds), f"{_open} requests are open after {seconds} s."


def _count(step: int) -> None:
    global _open  # noqa: PLW0603 - one server for each process
    with _quiet:
        _open += step
        _quiet.notify_all()
