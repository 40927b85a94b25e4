"""Concurrency keys with room are found by a sweep, and tried again until their jobs are let in."""

import time

from django_pgqueue.flow.concurrency import LockKind, admit, try_lock
from django_pgqueue.maintenance.concurrency_sweeper import sweep
from tests.support.consumers import cycle
from tests.support.keyed import admitted, limited
from tests.support.waiting import eventually


def test_sweep_finds_keys_that_have_room_and_goes_on_where_it_stopped(queue):
    for number in range(5):
        limited(1, f"key {number}").enqueue_many([(), ()])
    admit(queue, ["key 1", "key 3"])
    assert sweep(queue, limit=2) == (["key 0"], "key 1")
    assert sweep(queue, limit=2, after="key 1") == (["key 2"], "key 3")
    assert sweep(queue, limit=2, after="key 3") == (["key 4"], "")
    assert sweep(queue, after="key 4") == ([], "")


def test_key_that_another_session_counts_is_tried_again_soon_and_not_at_once(consumer, other_queue):
    limited().enqueue_many([(), ()])
    admit(consumer.database, ["k"])
    cycle(consumer)
    consumer.slots.finish()
    with other_queue.transaction():
        assert try_lock(other_queue, LockKind.KEY, ["k"]).got() == {"k"}
        before = time.monotonic()
        cycle(consumer)
        assert consumer.slots.accepted == []
        assert before < consumer._admissions.wait_until() <= time.monotonic() + 0.005
    eventually(lambda: cycle(consumer) or consumer.slots.accepted)


def test_more_keys_than_one_transaction_locks_are_let_in_by_the_next_ones(consumer):
    keys = [f"key {number}" for number in range(450)]
    for key in keys:
        limited(1, key).enqueue()
    consumer._admissions.request(keys)
    for expected in (200, 400, 450):
        cycle(consumer)
        assert len(admitted()) == expected
    assert consumer._patience() > 0
