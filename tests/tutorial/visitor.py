"""A visitor of the admin: in Chromium, and where there is none, by its links and forms alone."""

import re
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode, urljoin
from urllib.request import HTTPCookieProcessor, build_opener

from bs4 import BeautifulSoup

from docs.screenshots import save
from tests.browser.thread import Elsewhere
from tests.support.waiting import PATIENCE_SECONDS

WINDOW = {"width": 1280, "height": 960}
WIDTH = 900
"""Of pictures."""
REPLACE = """([text, other]) => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(text, other);
}"""


class Visitor(Protocol):
    def open(self, url: str) -> None: ...
    def log_in(self, user: str, password: str) -> None: ...
    def click(self, name: str) -> None: ...
    def take(self, picture: Path, home: Path) -> None: ...


class InChromium:
    """Clicks on what is called so, as a person would."""

    def __init__(self, elsewhere: Elsewhere, browser: Any) -> None:
        context = elsewhere(browser.new_context, viewport=WINDOW, locale="en-GB")
        elsewhere(context.set_default_timeout, PATIENCE_SECONDS * 1000)
        self._page = elsewhere.handle(elsewhere(context.new_page))

    def open(self, url: str) -> None:
        self._page.goto(url)

    def log_in(self, user: str, password: str) -> None:
        self._page.get_by_label("Username").fill(user)
        self._page.get_by_label("Password").fill(password)
        self.click("Log in")

    def click(self, name: str) -> None:
        button = self._page.get_by_role("button", name=name, exact=True)
        self._page.get_by_role("link", name=name, exact=True).or_(button).first.click()
        self._page.wait_for_load_state()

    def take(self, picture: Path, home: Path) -> None:
        """Take this picture of the page, and the same in dark; as it would be in the home of the page's Ada."""
        picture.parent.mkdir(exist_ok=True)
        self._page.evaluate(REPLACE, [str(home), "/home/ada"])
        for theme in ("light", "dark"):
            self._page.emulate_media(color_scheme=theme)
            save(self._page.screenshot(), picture.with_name(picture.name.replace("light", theme)), WIDTH)
        self._page.emulate_media(color_scheme="light")


class ByForms:
    """Follows the link, or sends the form whose button, is called so."""

    def __init__(self) -> None:
        self._opener = build_opener(HTTPCookieProcessor(CookieJar()))
        self._url, self._page = "", BeautifulSoup("", "html.parser")

    def open(self, url: str, data: dict[str, str] | None = None) -> None:
        self._opener.addheaders = [("Referer", self._url)]
        with self._opener.open(url, urlencode(data).encode() if data else None, timeout=PATIENCE_SECONDS) as answer:
            self._url, self._page = answer.url, BeautifulSoup(answer.read(), "html.parser")

    def log_in(self, user: str, password: str) -> None:
        self._send(self._page.find("input", {"name": "username"}).find_parent("form"), username=user, password=password)

    def click(self, name: str) -> None:
        exactly = re.compile(rf"^\s*{re.escape(name)}\s*$")
        if link := self._page.find("a", string=exactly):
            self.open(urljoin(self._url, link["href"]))
            return
        button = self._page.find("input", {"type": "submit", "value": name}) or self._page.find(
            "button", string=exactly
        )
        assert button, f"There is neither a link nor a button {name!r} on {self._url}."
        self._send(button.find_parent("form"))

    def take(self, picture: Path, home: Path) -> None:
        raise AssertionError(f"{picture.name} cannot be taken without Chromium.")

    def _send(self, form: Any, **typed: str) -> None:
        fields = {one["name"]: one.get("value", "") for one in form.find_all("input") if one.get("name")}
        self.open(urljoin(self._url, form.get("action") or self._url), fields | typed)
