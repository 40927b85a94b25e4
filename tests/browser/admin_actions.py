"""Choices and buttons of staff in the lists of the admin."""

import re

APP = "/admin/pgqueue/"


def press(page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def actions(page):
    return page.get_by_role("combobox", name=re.compile("^Action"))


def choose(page, action: str) -> None:
    """Take an action of a list to its confirmation."""
    actions(page).select_option(label=action)
    page.get_by_role("button", name=re.compile("^(Go|Run)")).click()
