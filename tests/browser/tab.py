"""One tab of one user, which remembers whatever went wrong in it."""

import json
from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from axe_playwright_python.sync_playwright import Axe

from tests.browser.thread import Elsewhere, bare

DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
SERIOUS = {"serious", "critical"}
AXE = {"resultTypes": ["violations"], "preload": False}  # what it would load, it would put in a style of its own
LESSER = """
axe.configure({rules: axe._audit.rules.filter(rule => ["minor", "moderate"].includes(rule.impact)).map(
    rule => ({id: rule.id, enabled: false})
)})
"""
"""Turns off the rules whose findings are never more serious, which are not asked for below."""
DJANGO = {"link-in-text-block": 'class="breadcrumbs"', "label-title-only": 'id="searchbar"'}
"""What the admin of Django itself is found guilty of, on its own pages too: rule -> markup of the element around it."""

# The console tells of violations too, but not of each one's line.
LISTEN = """
document.addEventListener("securitypolicyviolation", event => console.error(
    `policy: ${event.violatedDirective} forbids ${event.blockedURI} (${event.sourceFile}:${event.lineNumber})`
))
"""
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


class Tab:
    """A page of Chromium. ``page`` is Playwright's, to be clicked and typed into as a user would.

    Attributes:
        problems: what the console complained about, errors of scripts, answers of 500, and what broke the policy.
        may_be_refused: answers of 400 to 499 are no problem; the console names each.
    """

    def __init__(self, elsewhere: Elsewhere, context: Any, site: str) -> None:
        self._elsewhere = elsewhere
        self._context = context
        self._site = site
        self.problems: list[str] = []
        self.may_be_refused = False
        elsewhere(self._listen, bare(context))
        self.page = context.new_page()

    def open(self, path: str) -> Any:
        """Go to a page of the site; return Playwright's page."""
        self.page.goto(self._site + path)
        return self.page

    @property
    def path(self) -> str:
        """Where it is, without the site."""
        return str(self.page.url).removeprefix(self._site)

    def violations(self) -> list[str]:
        """Return what axe finds serious or critical, one line for each element."""
        found = self._elsewhere(Axe(AXE_SCRIPT + LESSER).run, bare(self.page), options=AXE).response["violations"]
        return [
            f"{rule['id']} ({rule['impact']}): {node['html']} {json.dumps(node.get('any', [])[:1])[:300]}"
            for rule in found
            if rule["impact"] in SERIOUS
            for node in rule["nodes"]
            if DJANGO.get(rule["id"], "none") not in f"{node['html']}{node['any']}"
        ]

    def must_be_sound(self) -> None:
        """Fail unless the page that is open is accessible, fits its window and had no problem."""
        self.page.wait_for_load_state()  # a click waits for the beginning of the next page only
        found = [*self.violations(), *self.problems]
        if (pixels := self.page.evaluate(TOO_WIDE)) > 0:
            found.append(f"{self.path} is {pixels} pixels wider than its window.")
        assert not found, "\n".join(found)

    def close(self) -> None:
        self._context.close()

    def _listen(self, context: Any) -> None:
        context.add_init_script(LISTEN)
        context.on("console", self._hear)
        context.on("weberror", lambda error: self.problems.append(f"error in a script: {error.error}"))
        context.on("response", self._look)

    def _hear(self, message: Any) -> None:
        if self.may_be_refused and "responded with a status of 4" in message.text:
            return
        if message.type in {"error", "warning"}:
            self.problems.append(f"{message.type} in the console of {message.page.url}: {message.text}")

    def _look(self, response: Any) -> None:
        if response.status >= 500:
            self.problems.append(f"{response.status} of {response.url}")
