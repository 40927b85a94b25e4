"""JSON that PostgreSQL stores and Python cannot read."""

from html.parser import HTMLParser

from django.test import Client

DIGITS = "9" * 5000
DEEP = "[" * 3000 + "]" * 3000
UNREADABLE = [f'{{"a": {DIGITS}}}', f"[{DIGITS}]", DEEP, f'{{"a": {DEEP}}}', DIGITS]


ADMIN = "/admin/pgqueue/"


def page(client: Client, job_id: int, table: str = "job") -> str:
    response = client.get(f"{ADMIN}{table}/{job_id}/change/")
    assert response.status_code == 200
    return response.content.decode()


EVIL = [
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "</pre></textarea></title><b>x",
    "\u202etxt.exe \u2066x",
    "🦊 مرحبا ✓",
    "\x01\x1b[31m\x7f\u2028",
    "{x} {0.__class__} %s %(x)s {{ x }} {% x %}",
    "ab" * 50_000,
]


class Markup(HTMLParser):
    """What of a page is markup that a job could have brought in, and what is text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.strange: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        is_strange = tag == "b" or (tag in {"img", "script"} and not named.get("src", "").startswith("/static/"))
        if is_strange or any(name[:2] == "on" for name in named):
            self.strange.append(self.get_starttag_text())

    def handle_data(self, data):
        self.text += data


def must_be_text(html: str, *evils: str) -> None:
    page = Markup(html.partition('id="content"')[2].partition('id="footer"')[0])
    assert not page.strange
    assert not [evil for evil in evils if evil[:60] not in page.text.replace("\r", "")]
