import datetime as dt

import pytest

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from django_pgqueue.exceptions import ConfigurationError, InvalidJob
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import Job
from tests.support.keyed import keyed

pytestmark = pytest.mark.django_db


# Keys, given and computed


def test_key_of_a_call_is_stored_with_its_scope():
    handle = app.noop.using(unique_key="daily", unique_for=60).enqueue()
    job = Job.objects.get()
    assert (handle.created, job.unique_key, job.unique_scope, job.unique_for_seconds) == (True, "daily", "live", 60)


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


def test_longest_keys_of_the_longest_queue_are_stored():
    key = "\U0001f600" * 500
    queue = "\U0001f600" * 128
    app.noop.using(queue=queue, unique_key=key, concurrency_key=key, fair_key=key).enqueue()
    app.noop.using(queue=queue, fair_key=key).enqueue()
    assert Job.objects.count() == 2


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


# One live job per key


def test_second_job_of_a_key_is_the_first():
    first = app.record.using(unique_key="k").enqueue("ann")
    second = app.record.using(unique_key="k").enqueue("bob")
    assert (second.id, second.created) == (first.id, False)
    assert Job.objects.get().args == ["ann"]


def test_bulk_returns_the_id_of_each_call_in_their_order():
    first = app.record.using(unique_key="c").enqueue("old").id
    declared = keyed(unique_by=lambda name: None if name == "x" else name)
    ids = enqueue_many(declared, [("d",), ("x",), ("c",), ("b",), ("x",), ("d",)])
    names = dict(Job.objects.values_list("id", "args"))
    assert [names[job_id] for job_id in ids] == [["d"], ["x"], ["old"], ["b"], ["x"], ["d"]]
    assert (ids[2], ids[0]) == (first, ids[5])
    assert len(set(ids)) == 5


def test_job_with_a_concurrency_key_waits_to_be_admitted(queue):
    app.noop.using(concurrency_key="k", concurrency_limit=3).enqueue()
    job = Job.objects.get()
    assert (job.status, job.concurrency_limit, job.concurrency_slot) == ("waiting", 3, None)
    assert claim(queue, "default", limit=1, worker_id=1) == []


def test_expiry_is_counted_from_when_the_job_is_due():
    app.noop.using(expires=60, run_at=dt.timedelta(hours=1)).enqueue()
    job = Job.objects.get()
    assert job.expires_at - job.run_at == dt.timedelta(seconds=60)


# Fair keys take turns


def test_jobs_of_one_key_are_due_a_turn_apart_and_those_of_another_in_between():
    many = app.noop.using(fair_key="a")
    ids = enqueue_many(many, [()] * 100)
    late = enqueue_many(app.noop.using(fair_key="b"), [()] * 3)
    more = many.enqueue().id
    order = list(Job.objects.order_by("run_at", "id").values_list("id", flat=True))
    assert order == [ids[0], late[0], ids[1], late[1], ids[2], late[2], *ids[3:], more]
