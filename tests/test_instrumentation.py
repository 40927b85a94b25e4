"""Hooks surround inserts and runs where there are any, and one that fails harms nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tests.app.tasks as app
from django_pgqueue import instrumentation
from django_pgqueue.instrumentation import InsertHook, add, around_insert, run_if_immediate
from django_pgqueue.models import Job
from tests.support.many import enqueued_ids


@pytest.fixture
def hooks(monkeypatch) -> list:
    """The hooks around inserts: at first, none."""
    monkeypatch.setattr(instrumentation, "around_inserts", [])
    return instrumentation.around_inserts


class Watching(InsertHook):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.metadata = {"seen": "by a hook"}
        self.told: list = []

    def inserted(self, ids):
        self.told.append(ids)

    def __enter__(self):
        self.told.append("begin")
        return self

    def __exit__(self, kind, *_):
        self.told.append(kind)


def test_hook_is_added_once(hooks):
    def hook(task, number):
        return None

    add(hook, hooks)
    add(hook, hooks)
    assert hooks == [hook]


def test_hook_surrounds_the_insert_and_adds_to_the_metadata(db, hooks):
    watching, given = Watching(), []
    hooks.append(lambda task, number: given.append((task.name, number)) or watching)
    ids = enqueued_ids(app.noop.using(metadata={"mine": 1}), [()] * 3)
    assert given == [(app.noop.name, 3)]
    assert watching.told == ["begin", ids, None]
    assert list(Job.objects.values_list("metadata", flat=True)) == [{"mine": 1, "seen": "by a hook"}] * 3


def test_hook_is_told_that_the_insert_has_failed(db, hooks, sql):
    watching = Watching()
    hooks.append(lambda task, number: watching)
    sql("ALTER TABLE pgqueue_jobs ADD CONSTRAINT none_at_all CHECK (task <> 'tests.app.tasks.noop') NOT VALID")
    with pytest.raises(Exception, match="none_at_all") as raised:
        app.noop.enqueue()
    assert watching.told == ["begin", type(raised.value)]


def test_first_hook_that_has_something_to_do_acts(hooks, caplog):
    first, second = Watching(), Watching()

    def fail(task, number):
        raise RuntimeError("a broken hook")

    hooks += [fail, lambda *_: None, lambda *_: first, lambda *_: second]
    assert around_insert(app.noop, 1) is first
    assert "The enqueueing of tests.app.tasks.noop cannot be watched, and goes on" in caplog.text
    assert "a broken hook" in caplog.text


def test_without_hooks_nothing_surrounds_an_insert(hooks):
    assert around_insert(app.noop, 1) is instrumentation.UNSEEN
    with instrumentation.UNSEEN as unseen:
        unseen.inserted([1])
    assert unseen.metadata == {}


@pytest.mark.parametrize(
    ("is_on", "ids", "expected"),
    [(True, [1, 2], [("default", [1, 2])]), (True, [], []), (False, [1, 2], [])],
    ids=["on", "no jobs", "off"],
)
def test_jobs_are_run_in_immediate_mode_alone(settings, monkeypatch, is_on, ids, expected):
    settings.PGQUEUE = {"IMMEDIATE": is_on}
    ran = []
    monkeypatch.setattr(instrumentation, "runners", [lambda alias, ids: ran.append((alias, ids))])
    run_if_immediate("default", ids)
    assert ran == expected


def test_nothing_watches_jobs_where_nothing_is_installed():
    code = """
import sys
sys.modules["opentelemetry"] = sys.modules["sentry_sdk"] = None
import django
django.setup()
from django_pgqueue import instrumentation as hooks
assert hooks.around_inserts == hooks.around_runs == []
assert hooks.around_insert(None, 1) is hooks.UNSEEN
"""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=Path(__file__).parent.parent)
