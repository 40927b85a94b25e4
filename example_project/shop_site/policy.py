"""Tells browsers what pages may load: from this site alone, and nothing inline. Django 6.0 has a middleware of its own.

The shop, the admin and the pages of the queue in it keep to that. The pages that Django shows of an error while DEBUG
is on have styles inside, so they go without.
"""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
FIRST_ERROR = 400


def content_security_policy(get_response):
    def respond(request):
        response = get_response(request)
        if response.status_code < FIRST_ERROR:
            response.headers.setdefault("Content-Security-Policy", POLICY)
        return response

    return respond
