"""Keys of jobs are computed from their arguments."""

import pytest

from django_pgqueue.exceptions import ConfigurationError
from django_pgqueue.models import Job
from tests.support.keyed import keyed


@pytest.mark.django_db
def test_key_is_computed_by_a_function_of_the_arguments():
    declared = keyed(fair_by=str.upper)
    declared.enqueue("ann")
    assert Job.objects.get().fair_key == "ANN"


@pytest.mark.django_db
def test_key_is_made_of_arguments_by_their_names_and_the_task():
    declared = keyed(unique_by="label", concurrency_by=("label",))
    declared.enqueue(label="ann")
    job = Job.objects.get()
    assert (job.unique_key, job.concurrency_key) == (f'{declared.name}:label="ann"', 'label="ann"')


@pytest.mark.django_db
def test_key_of_a_call_goes_before_the_computed_one():
    keyed(unique_by="label").using(unique_key="mine").enqueue("ann")
    assert Job.objects.get().unique_key == "mine"


@pytest.mark.django_db
def test_function_may_return_no_key():
    declared = keyed(unique_by=lambda label: None)
    assert declared.enqueue("ann").id != declared.enqueue("ann").id


def test_names_that_are_no_arguments_are_refused():
    with pytest.raises(ConfigurationError, match=r"unique_by is .* of which there are label; not \['nmae'\]"):
        keyed(unique_by=("nmae",))
