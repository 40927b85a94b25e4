"""Keys and their options are checked, and keys are computed of the arguments."""

import datetime as dt

import pytest

import tests.app.tasks as app
from django_pgqueue.exceptions import ConfigurationError, InvalidJob
from django_pgqueue.models import Job
from tests.support.keyed import keyed

pytestmark = pytest.mark.django_db


def test_key_is_computed_by_a_function_of_the_arguments():
    declared = keyed(fair_by=str.upper)
    declared.enqueue("ann")
    assert Job.objects.get().fair_key == "ANN"


def test_key_is_made_of_arguments_by_their_names_and_the_task():
    declared = keyed(unique_by="label", concurrency_by=("label",))
    declared.enqueue(label="ann")
    job = Job.objects.get()
    assert (job.unique_key, job.concurrency_key) == (f'{declared.name}:label="ann"', 'label="ann"')


def test_key_of_a_call_goes_before_the_computed_one():
    keyed(unique_by="label").using(unique_key="mine").enqueue("ann")
    assert Job.objects.get().unique_key == "mine"


def test_function_may_return_no_key():
    declared = keyed(unique_by=lambda label: None)
    assert declared.enqueue("ann").id != declared.enqueue("ann").id


def test_names_that_are_no_arguments_are_refused():
    with pytest.raises(ConfigurationError, match=r"unique_by is .* of which there are label; not \['nmae'\]"):
        keyed(unique_by=("nmae",))


@pytest.mark.parametrize("key", ["", "x" * 501, 7, "a\0b", "\ud800"])
@pytest.mark.parametrize("option", ["unique_key", "concurrency_key", "fair_key"])
def test_keys_that_cannot_be_stored_are_refused(option, key):
    with pytest.raises(InvalidJob, match=option):
        app.noop.using(**{option: key})


@pytest.mark.parametrize(
    "options",
    [
        {"unique_scope": "started"},
        {"unique_scope": "ever"},
        {"on_conflict": "fail"},
        {"concurrency_limit": 0},
        {"concurrency_limit": 1001},
        {"concurrency_strict": 1},
        {"unique_for": 0},
        {"unique_for": 60, "unique_scope": "start"},
        {"expires": -1},
        {"expires": dt.datetime(1900, 1, 1, tzinfo=dt.UTC)},
    ],
)
def test_options_out_of_range_are_refused(options):
    with pytest.raises(InvalidJob, match=next(iter(options))):
        app.noop.using(**options)
