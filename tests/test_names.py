"""Public names: all of them are explained, and stand in the lists of them."""

import inspect
import re
from types import FunctionType

import pytest

import tests.app.tasks as app
from django_pgqueue import JobHandle
from django_pgqueue.signals import event_of
from tests.support.claimed import job
from tests.support.doc_pages import names, reference, section, table
from tests.support.pages import ROOT
from tests.support.public_names import MODULES, module, public_names

PUBLIC = public_names()

ROWS = table(section((ROOT / "CHANGELOG.md").read_text(), "### Names"))


def test_changelog_lists_every_public_name_with_its_former_one():
    assert sorted(names(row[0])[0] for row in ROWS if "enqueue_on_commit" not in row[0]) == sorted(PUBLIC)
    for name, former in ROWS:
        assert former == "new" or names(former), f"what was {name} called before?"


def test_no_former_name_is_left():
    """Nothing was released, so that no other name for the same thing has to be kept."""
    gone = {one for _, former in ROWS for one in names(former)} - {*PUBLIC}
    for name in gone:
        owner, _, attribute = name.rpartition(".")
        with pytest.raises((ImportError, AttributeError)):
            getattr(module(owner), attribute)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_name_says_what_it_is(name):
    owner, _, attribute = name.rpartition(".")
    found = getattr(module(owner), attribute)
    if inspect.isclass(found) or inspect.isroutine(found) or inspect.ismodule(found):
        told = vars(found).get("__doc__") if inspect.isclass(found) else found.__doc__
        assert told, "it has a docstring of its own"
        assert not told.startswith(f"{attribute}("), "one that Python has not made up"


OF_THE_QUEUE = {
    *("adapter", "backoff", "capture_logs", "capture_logs_from", "discard_on"),
    *("given", "keys_by", "keys_of", "max_snoozes"),
    *("needs_control", "retry_rules", "shapes", "with_keys"),
    "do_not_call_in_templates",
}
"""Attributes of a task for other modules of the package, and for Django; the reference leaves them out."""


@pytest.mark.parametrize(
    "value",
    [app.noop, app.noop.bind(), JobHandle(1, "", "", "default"), event_of(job())],
    ids=lambda value: type(value).__name__,
)
def test_attributes_of_the_values_that_callers_get_are_explained(value):
    _, _, attributes = inspect.getdoc(type(value)).partition("Attributes:")
    explained = set(re.findall(r"^ {4}(\w+): ", attributes, re.MULTILINE))
    for name in {name for name in dir(value) if not name.startswith("_")} - OF_THE_QUEUE - explained:
        defined = inspect.getattr_static(value, name)
        assert isinstance(defined, FunctionType | property), f"{name} is not explained"
        assert defined.__doc__, name


@pytest.mark.parametrize("name", MODULES)
def test_page_of_all_names_has_every_module(name):
    assert f".. automodule:: {module(name).__name__}\n" in reference("api")
