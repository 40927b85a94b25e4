"""Middleware surrounds inserts and runs; its errors are raised, those of integrations harm nothing."""

import contextlib
import functools
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
from asgiref.sync import async_to_sync
from django.utils.translation import get_language, override

import tests.app.tasks as app
from django_pgqueue import enqueue_many, middleware
from django_pgqueue.exceptions import ConfigurationError
from django_pgqueue.middleware import add, around_insert, run_if_immediate
from django_pgqueue.models import Job
from django_pgqueue.records import Fate
from django_pgqueue.testing import override_pgqueue, run_jobs
from tests.support.claimed import outcome_of, raising
from tests.support.many import enqueued_ids
from tests.support.pages import DOCS, blocks


@pytest.fixture
def hooks(monkeypatch) -> list:
    """What integrations put around inserts: at first, nothing."""
    monkeypatch.setattr(middleware, "around_inserts", [])
    return middleware.around_inserts


class Noting:
    """Notes what it surrounds."""

    def __init__(self, name, told, *, key="seen"):
        self.name, self.told, self.key = name, told, key

    @contextlib.contextmanager
    def enqueue(self, jobs):
        self.told.append(f"{self.name} begins")
        jobs.metadata[self.key] = self.name
        try:
            yield
        finally:
            self.told.append(f"{self.name} ends")
            self.told.append(jobs.ids)


def test_hook_is_added_once(hooks):
    add(len, hooks)
    add(len, hooks)
    assert hooks == [len]


# Around an insert


def test_all_surround_the_insert_in_order_and_change_the_metadata(db, hooks):
    told = []
    hooks.append(Noting("integration", told, key="last").enqueue)
    with override_pgqueue(MIDDLEWARE=[Noting("outer", told), Noting("inner", told)]):
        ids = enqueued_ids(app.noop.using(metadata={"mine": 1}), [()] * 3)
    assert told == [
        *("outer begins", "inner begins", "integration begins"),
        *("integration ends", ids, "inner ends", ids, "outer ends", ids),
    ]
    metadata = {"mine": 1, "seen": "inner", "last": "integration"}
    assert list(Job.objects.values_list("metadata", flat=True)) == [metadata] * 3


def test_metadata_of_the_caller_is_not_changed(db):
    task = app.noop.using(metadata={"mine": 1})
    with override_pgqueue(MIDDLEWARE=[Noting("it", [])]):
        task.enqueue()
    assert task.options.metadata == {"mine": 1}


def test_metadata_may_be_another_object_after_the_middleware(db):
    class Replacing:
        @contextlib.contextmanager
        def enqueue(self, jobs):
            jobs.metadata = {**jobs.metadata, "tenant": 7}
            yield

    with override_pgqueue(MIDDLEWARE=[Replacing()]):
        app.noop.using(metadata={"mine": 1}).enqueue()
    assert Job.objects.get().metadata == {"mine": 1, "tenant": 7}


@pytest.mark.parametrize(
    "enqueue",
    [
        lambda task: task.enqueue(7),
        lambda task: task.enqueue_many([(7,)]),
        lambda task: enqueue_many([task.bind(7)]),
        lambda task: task.using(unique_key="k").enqueue(7),
        lambda task: async_to_sync(task.aenqueue)(7),
    ],
    ids=["one", "many", "calls", "keyed", "async"],
)
def test_every_way_to_enqueue_goes_through_it(transactional_db, enqueue):
    seen = []

    class Seeing:
        @contextlib.contextmanager
        def enqueue(self, jobs):
            yield
            seen.append((jobs.task, jobs.options.queue, [(*args,) for args, _ in jobs.calls], jobs.ids))

    with override_pgqueue(MIDDLEWARE=[Seeing()]):
        enqueue(app.record)
    assert seen == [(app.record.name, "default", [(7,)], [Job.objects.get().id])]


def test_job_that_the_unique_key_found_is_not_among_the_new_ones(db):
    told = []
    app.noop.using(unique_key="k").enqueue()
    with override_pgqueue(MIDDLEWARE=[Noting("it", told)]):
        app.noop.using(unique_key="k").enqueue()
    assert told[-1] == []


class Failing:
    def __init__(self, *, before):
        self.before = before

    @contextlib.contextmanager
    def enqueue(self, jobs):
        if self.before:
            raise LookupError("no tenant")
        yield
        raise LookupError("no tenant")


@pytest.mark.parametrize(
    ("before", "count", "when"),
    [
        (True, 0, "before the insert: no job is enqueued"),
        (False, 1, "after the insert of 1: enqueued unless the transaction is rolled back"),
    ],
)
def test_error_around_an_insert_is_raised_and_says_whose_it_is(db, before, count, when):
    told = []
    with (
        override_pgqueue(MIDDLEWARE=[Noting("outer", told), Failing(before=before)]),
        pytest.raises(LookupError, match="no tenant") as raised,
    ):
        app.noop.enqueue()
    assert raised.value.__notes__ == [f"Raised by the middleware tests.test_middleware.Failing, {when}."]
    assert Job.objects.count() == count
    assert told[1] == "outer ends"


def test_error_of_the_insert_passes_through_and_cannot_be_swallowed(db, sql):
    told = []

    class Swallowing:
        def enqueue(self, jobs):
            return contextlib.suppress(Exception)

    sql("ALTER TABLE pgqueue_jobs ADD CONSTRAINT none_at_all CHECK (task <> 'tests.app.tasks.noop') NOT VALID")
    with (
        override_pgqueue(MIDDLEWARE=[Noting("outer", told), Swallowing()]),
        pytest.raises(Exception, match="none_at_all") as raised,
    ):
        app.noop.enqueue()
    assert told == ["outer begins", "outer ends", []]
    assert not getattr(raised.value, "__notes__", [])


def test_async_context_manager_around_an_insert_is_an_error(db):
    class Async:
        @contextlib.asynccontextmanager
        async def enqueue(self, jobs):
            yield

    with (
        override_pgqueue(MIDDLEWARE=[Async()]),
        pytest.raises(ConfigurationError, match="returns an async context manager"),
    ):
        app.noop.enqueue()


def test_integration_that_fails_is_logged_and_the_others_act(db, hooks, caplog):
    told = []

    def fail(jobs):
        raise RuntimeError("a broken hook")

    hooks += [fail, lambda _: None, Noting("second", told).enqueue]
    app.noop.enqueue()
    assert told[0] == "second begins"
    assert "The enqueueing of tests.app.tasks.noop cannot be watched, and goes on" in caplog.text
    assert "a broken hook" in caplog.text


def test_without_middleware_nothing_surrounds_an_insert(hooks):
    class OfRuns:
        def run(self, job):
            return contextlib.nullcontext()

    for chain in ([], [OfRuns()]):
        with override_pgqueue(MIDDLEWARE=chain):
            assert around_insert(app.noop, [((), {})]) is middleware.UNSEEN
    with middleware.UNSEEN as unseen:
        unseen.inserted([1])
    assert unseen.metadata is None


# Around a run


class Touchy:
    """Of the run: fails before or after it, or passes on what the task raises."""

    def __init__(self, when):
        self.when = when

    @contextlib.contextmanager
    def run(self, job):
        if self.when == "before":
            raise LookupError("no tenant")
        yield
        if self.when == "after":
            raise LookupError("no tenant")


async def coroutine():
    """Do nothing, asynchronously."""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("func", [lambda: None, coroutine], ids=["plain", "async"])
def test_error_around_a_run_says_whose_it_is(func, when):
    with override_pgqueue(MIDDLEWARE=[Touchy(None), Touchy(when)]):
        outcome = outcome_of(func)
    assert (outcome.fate, outcome.error["message"]) == (Fate.RETRIED, "no tenant")
    note = f"Raised by the middleware tests.test_middleware.Touchy, {when} the task."
    assert outcome.error["traceback"].rstrip().endswith(note)
    assert outcome.error["traceback"].count("Raised by") == 1


def test_error_of_the_task_has_no_note():
    with override_pgqueue(MIDDLEWARE=[Touchy(None)]):
        outcome = outcome_of(raising(LookupError("of the task")))
    assert "Raised by" not in outcome.error["traceback"]


def test_function_and_partial_are_named_in_notes():
    def tenant(job):
        raise LookupError

    for given in (tenant, functools.partial(tenant)):
        with override_pgqueue(MIDDLEWARE=[given]):
            assert "test_function_and_partial_are_named_in_notes.<locals>.tenant, before" in str(
                outcome_of(lambda: None).error["traceback"]
            )


# The page


@pytest.fixture
def page(monkeypatch):
    """The blocks of docs/how-to/middleware.md as the module that they are said to be in."""
    module = types.ModuleType("shop.middleware")
    for block in blocks(DOCS / "how-to" / "middleware.md", "python"):
        if block.startswith("# shop/middleware.py"):
            exec(compile(block, "docs/how-to/middleware.md", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "shop", types.ModuleType("shop"))
    monkeypatch.setitem(sys.modules, "shop.middleware", module)
    return module


MIDDLEWARE = ["shop.middleware.Tenant", "shop.middleware.Language"]


def test_settings_of_the_page():
    assert str(MIDDLEWARE).replace("'", '"') in (DOCS / "how-to" / "middleware.md").read_text()


def test_tenant_and_language_go_along_with_the_jobs_of_the_page(page, transactional_db, registry_of):
    seen = []

    def inner():
        seen.append((page.current_tenant.get(), get_language()))

    def outer():
        seen.append((page.current_tenant.get(), get_language()))
        inner_task.enqueue()

    inner_task, outer_task = registry_of(inner, name="inner"), registry_of(outer, name="outer")
    with override_pgqueue(MIDDLEWARE=MIDDLEWARE):
        token = page.current_tenant.set("acme")
        with override("de"):
            outer_task.enqueue()
        page.current_tenant.reset(token)
        run_jobs()
    assert seen == [("acme", "de"), ("acme", "de")]
    assert get_language() == "en-us"
    assert page.current_tenant.get() is None


# Immediate mode


@pytest.mark.parametrize(
    ("is_on", "ids", "expected"),
    [(True, [1, 2], [("default", [1, 2])]), (True, [], []), (False, [1, 2], [])],
    ids=["on", "no jobs", "off"],
)
def test_jobs_are_run_in_immediate_mode_alone(settings, monkeypatch, is_on, ids, expected):
    settings.PGQUEUE = {"IMMEDIATE": is_on}
    ran = []
    monkeypatch.setattr(middleware, "runners", [lambda alias, ids: ran.append((alias, ids))])
    run_if_immediate("default", ids)
    assert ran == expected


def test_nothing_watches_jobs_where_nothing_is_installed():
    code = """
import sys
sys.modules["opentelemetry"] = sys.modules["sentry_sdk"] = None
import django
django.setup()
from django_pgqueue import middleware as hooks
assert hooks.around_inserts == hooks.around_runs == []
assert hooks.around_insert(None, []) is hooks.UNSEEN
"""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=Path(__file__).parent.parent)
