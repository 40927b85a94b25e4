"""Chromium before a live server. Skipped only where there is no Chromium: install one, or name it in CHROMIUM."""

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.contrib.auth.models import Permission, User
from django.test import Client
from playwright.sync_api import expect as playwright_expect
from playwright.sync_api import sync_playwright

from tests.browser.tab import DESKTOP, PHONE, Tab
from tests.browser.thread import Elsewhere, Handle
from tests.support import needs
from tests.support.waiting import PATIENCE_SECONDS, eventually

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser")
"""The first has no windows: it opens a tab in half the time and takes two thirds of the CPU time."""


def is_installed(name: str) -> bool:
    """Return whether this browser can be started; Ubuntu's package is only a notice that points to a snap."""
    if shutil.which(name) is None:
        return False
    return subprocess.run([name, "--version"], check=False, capture_output=True).returncode == 0


CHROMIUM = os.environ.get("CHROMIUM") or shutil.which(next(filter(is_installed, NAMES), ""))
PATIENCE = PATIENCE_SECONDS * 1000
"""In milliseconds, as Playwright counts."""


def pytest_collection_modifyitems(items) -> None:
    if CHROMIUM is None:
        here = os.path.dirname(__file__)
        for item in items:
            if str(item.path).startswith(here):
                item.add_marker(pytest.mark.skip(reason=needs.CHROMIUM))


@pytest.fixture(scope="session")
def elsewhere() -> Iterator[Elsewhere]:
    """The thread that Playwright lives on."""
    thread = Elsewhere()
    yield thread
    thread.end()


@pytest.fixture(scope="session")
def chromium(elsewhere) -> Iterator[Handle]:
    """One Chromium for all tests of this process; each test has profiles of its own in it."""
    playwright = elsewhere(sync_playwright().start)
    try:
        options = {"executable_path": CHROMIUM, "args": ["--no-sandbox", "--disable-dev-shm-usage"]}
        browser = elsewhere(playwright.chromium.launch, timeout=PATIENCE, **options)
        yield elsewhere.handle(browser)
        elsewhere(browser.close)
    finally:
        elsewhere(playwright.stop)


@pytest.fixture(scope="session")
def expect(elsewhere) -> Handle:
    """Playwright's ``expect``, which waits until what is expected is so."""
    playwright_expect.set_options(timeout=PATIENCE)
    return elsewhere.handle(playwright_expect)


@pytest.fixture
def tab_of(elsewhere, chromium, live_server) -> Iterator:
    """Open a tab for a user; at the end of the test no tab may have had a problem."""
    tabs: list[Tab] = []

    def tab_of(user: User, *, dark: bool = False, phone: bool = False, scripts: bool = True) -> Tab:
        context = chromium.new_context(
            viewport=PHONE if phone else DESKTOP,
            color_scheme="dark" if dark else "light",
            has_touch=phone,
            java_script_enabled=scripts,
            locale="en-GB",
        )
        context.set_default_timeout(PATIENCE)
        context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session(user), "url": live_server.url}])
        tabs.append(Tab(elsewhere, context, live_server.url))
        return tabs[-1]

    yield tab_of
    for tab in tabs:
        tab.close()
    eventually(lambda: not answering())
    problems = [problem for tab in tabs for problem in tab.problems]
    assert not problems, "\n".join(problems)


def answering() -> list[str]:
    """Return the threads of the live server that have a connection, from which a request may still come.

    It would read tables which the end of a test empties.
    """
    return [thread.name for thread in threading.enumerate() if "process_request_thread" in thread.name]


def session(user: User) -> str:
    """Log a user in; return the value of the cookie."""
    client = Client()
    client.force_login(user)
    return client.cookies[settings.SESSION_COOKIE_NAME].value


@pytest.fixture
def superuser(live_server) -> User:
    return User.objects.create_superuser("zoe")


@pytest.fixture
def staff_with(live_server):
    """Make a member of staff with permissions of the queue's app, by their codenames."""

    def make(*codenames: str, name: str = "ann") -> User:
        user = User.objects.create_user(name, is_staff=True)
        chosen = Permission.objects.filter(content_type__app_label="pgqueue", codename__in=codenames)
        assert {permission.codename for permission in chosen} == set(codenames)
        user.user_permissions.set(chosen)
        return user

    return make
