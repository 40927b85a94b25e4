"""Schedules that the code of a test declares."""

import pytest

import tests.app.tasks as app
from django_pgqueue.schedules import periodic as timetable


@pytest.fixture
def code(monkeypatch) -> dict:
    """What the code declares: at first, nothing."""
    monkeypatch.setattr(timetable, "_declared", {})
    return timetable._declared


@pytest.fixture
def recode(code):
    """Have other code, as after a deploy."""

    def load(*declarations) -> None:
        code.clear()
        for declaration in declarations:
            declaration(app.record)

    return load
