"""Jobs with a concurrency key are let in one by one, in their order, whichever process crashes or holds locks."""

import datetime as dt
import itertools
import json
import math
import threading
import time
from collections import Counter

import pytest
from django.db import IntegrityError, OperationalError, connection, connections, transaction
from django.utils import timezone

from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.flow.concurrency import LOCKED_AT_ONCE, LockKind, admit, sweep, try_lock
from django_pgqueue.jobs import ack, kill, leases, retry, run_now
from django_pgqueue.jobs.claim import claim, send, send_limited
from django_pgqueue.jobs.context import CurrentJob
from django_pgqueue.jobs.leases import release
from django_pgqueue.jobs.queue_selector import QueueSelector
from django_pgqueue.maintenance.pending_work import is_drained
from django_pgqueue.maintenance.promoter import promote
from django_pgqueue.maintenance.reaper import settle
from django_pgqueue.models import Job
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.states import DeathReason
from tests.app.tasks import noop
from tests.support.consumers import cycle
from tests.support.keyed import admitted, limited
from tests.support.many import enqueued_ids
from tests.support.waiting import PATIENCE_SECONDS, eventually


def start(queue, number=1) -> list:
    return claim(queue, "default", limit=number, worker_id=1)


def end(queue, job, fate=Fate.SUCCEEDED, **details) -> None:
    ack.write(queue, [Outcome(job, fate, **details)])


# In their order, no more than may be


def test_jobs_of_a_key_are_let_in_by_priority_then_due_time_then_id(queue):
    low, first, second = (limited(priority=priority).enqueue().id for priority in (-1, 5, 5))
    early = limited(priority=5, run_at=timezone.now() - dt.timedelta(minutes=1)).enqueue().id
    order = []
    while admit(queue, ["k"]).queues:
        assert admit(queue, ["k"]).queues == set(), "one is in"
        [job] = start(queue, 10)
        order.append(job.id)
        end(queue, job)
    assert order == [early, first, second, low]


def test_as_many_are_let_in_as_the_limit_leaves_room_for_in_the_lowest_slots(queue):
    ids = enqueued_ids(limited(3), [()] * 6)
    admit(queue, ["k"])
    assert admitted() == ids[:3]
    jobs = start(queue, 3)
    end(queue, jobs[1])
    admit(queue, ["k"])
    assert dict(Job.objects.filter(pk__in=admitted()).values_list("id", "concurrency_slot")) == {
        ids[0]: 1,
        ids[2]: 3,
        ids[3]: 2,
    }


@pytest.mark.parametrize("name", ["claim", "claim_limited", "claim_above"])
def test_running_jobs_know_their_slots(queue, name):
    enqueued_ids(limited(3), [()] * 5)
    admit(queue, ["k"])
    with queue.transaction():
        if name == "claim_limited":
            queue.rows(statement("register_queue"), {"name": "default"})
            claimed = send_limited(queue, "default", limit=5, worker_id=1).jobs()
        else:
            above = (-1, 0.0, 0) if name == "claim_above" else None
            claimed = send(queue, "default", limit=5, worker_id=1, above=above).jobs()
    assert [CurrentJob(job).slot for job in claimed] == [1, 2, 3]
    end(queue, claimed[1])
    admit(queue, ["k"])
    [next_one] = start(queue, 5)
    assert CurrentJob(next_one).slot == 2


def test_job_without_a_limit_has_no_slot_and_costs_no_more(queue):
    limited(1).enqueue()
    noop.enqueue()
    admit(queue, ["k"])
    claimed = start(queue, 2)
    assert [job.slot for job in claimed] == [1, None]
    assert [job.rest for job in claimed] == [None, None]


def test_slot_of_a_strict_limit_stays_over_attempts(queue):
    enqueued_ids(limited(2, strict=True), [()] * 2)
    admit(queue, ["k"])
    first, second = start(queue, 2)
    end(queue, first)
    end(queue, second, Fate.RETRIED, error={"error": "x"})
    promote(queue)
    [again] = start(queue, 2)
    assert (again.id, again.slot) == (second.id, 2)


def test_each_job_is_let_in_by_its_own_limit_and_none_passes_one_that_finds_no_room(queue):
    wide = enqueued_ids(limited(3), [()] * 2)
    narrow = limited(1).enqueue().id
    last = limited(3).enqueue().id
    admit(queue, ["k"])
    assert admitted() == wide
    for job in start(queue, 2):
        admit(queue, ["k"])
        assert narrow not in admitted()
        end(queue, job)
    admit(queue, ["k"])
    assert admitted() == [narrow]
    end(queue, *start(queue))
    admit(queue, ["k"])
    assert admitted() == [last]


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("locked", [0, 1])
def test_strict_job_is_not_passed_while_a_caller_notes_that_it_waits_for_it(queue, other_queue, limit, locked):
    """Which locks its row, for a moment: as does any change of a job."""
    ids = enqueued_ids(limited(limit, strict=True), [()] * 4)
    with other_queue.transaction():
        other_queue.rows(statement("watch_jobs"), {"ids": [ids[locked]], "wanted": [True]})
        admit(queue, ["k"])
        assert admitted() == ids[: min(locked, limit)]
    admit(queue, ["k"])
    assert admitted() == ids[:limit]


def test_locked_job_is_passed_where_the_order_is_not_strict(queue, other_queue):
    first, second = enqueued_ids(limited(), [()] * 2)
    with other_queue.transaction():
        other_queue.rows(statement("watch_jobs"), {"ids": [first], "wanted": [True]})
        admit(queue, ["k"])
    assert admitted() == [second]


def test_jobs_that_are_not_due_yet_are_not_let_in(queue, sql):
    job_id = limited().enqueue().id
    sql("UPDATE pgqueue_jobs SET run_at = now() + interval '1 hour'")
    assert (admit(queue, ["k"]).queues, sweep(queue).keys) == (set(), [])
    sql("UPDATE pgqueue_jobs SET run_at = now()")
    assert sweep(queue).keys == ["k"]
    assert admit(queue, ["k"]).queues == {"default"}
    assert admitted() == [job_id]


@pytest.mark.parametrize(
    "change",
    [
        "status = 'queued', concurrency_slot = NULL",
        "concurrency_slot = 1",
        "concurrency_slot = 3",
        "concurrency_slot = 0",
        "concurrency_key = NULL",
        "concurrency_key = ''",
        "concurrency_limit = NULL",
    ],
)
def test_database_refuses_more_than_may_be(queue, sql, change):
    first, second = enqueued_ids(limited(2), [()] * 2)
    admit(queue, ["k"])
    with pytest.raises(IntegrityError):
        sql(f"UPDATE pgqueue_jobs SET {change} WHERE id = %s", second)
    assert admitted() == [first, second]


@pytest.mark.django_db(transaction=True)
def test_many_admitters_at_once_never_let_in_too_many(transactional_db):
    """Eight connections admit, claim and end the same keys; before a job ends, its thread counts those of its key."""
    keys = [f"key {number}" for number in range(6)]
    for key, limit in zip(keys, itertools.cycle([1, 2, 3]), strict=False):
        limited(limit, key).enqueue_many([()] * 40)
    running, most, guard = Counter(), Counter(), threading.Lock()
    ended, failures = [], []

    def work():
        own = QueueConnection("default", "admitter")
        try:
            while len(ended) < 240 and not failures:
                admit(own, keys)
                jobs = claim(own, "default", limit=4, worker_id=1)
                with guard:
                    running.update(job.concurrency_key for job in jobs)
                    most.update({key: max(running[key] - most[key], 0) for key in keys})
                with guard:
                    running.subtract(job.concurrency_key for job in jobs)
                left = [Outcome(job, Fate.SUCCEEDED) for job in jobs]
                while left:  # a claim that came too late may hold a row for a moment
                    locked = ack.write(own, left).locked
                    left = [outcome for outcome in left if outcome.job.id in locked]
                ended.extend(job.id for job in jobs)
        except Exception as error:
            failures.append(error)
            raise
        finally:
            own.close()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert (failures, len(ended), Job.objects.count()) == ([], 240, 0)
    assert all(most[key] <= limit for key, limit in zip(keys, itertools.cycle([1, 2, 3]), strict=False))


# What is kept, and what is given back


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("fate", "details"),
    [
        (Fate.RETRIED, {"delay_seconds": 60.0, "error": {"error": "no luck"}}),
        (Fate.RELEASED, {"delay_seconds": 60.0}),
        (Fate.RELEASED, {}),
    ],
    ids=["retry", "release later", "release"],
)
def test_job_that_backs_off_lets_others_pass_unless_the_order_is_strict(queue, sql, fate, details, strict):
    first, second = enqueued_ids(limited(strict=strict), [(), ()])
    admit(queue, ["k"])
    end(queue, *start(queue), fate, **details)
    admit(queue, ["k"])
    keeps = strict or not details
    assert admitted() == ([first] if keeps else [second])
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '1 s' WHERE status = 'scheduled'")
    promoted = promote(queue)
    assert promoted == (({}, {}) if not details else ({"default": 1}, {}) if strict else ({}, {"k": 1}))
    assert Job.objects.get(pk=first).status == ("queued" if keeps else "limited")
    assert [job.id for job in start(queue, 2)] == [first if keeps else second]


def test_job_of_a_dead_worker_keeps_its_place(queue):
    first, second = enqueued_ids(limited(max_attempts=2), [(), ()])
    admit(queue, ["k"])
    start(queue)
    assert settle(queue, leases.worker_leases(queue, [1])).keys == set()
    admit(queue, ["k"])
    assert admitted() == [first]
    start(queue)
    assert settle(queue, leases.worker_leases(queue, [1])).keys == {"k"}, "lost on its last attempt"
    admit(queue, ["k"])
    assert admitted() == [second]


def test_claim_that_was_never_answered_keeps_its_place(queue):
    first, _ = enqueued_ids(limited(), [(), ()])
    admit(queue, ["k"])
    release(queue, start(queue))
    admit(queue, ["k"])
    assert (admitted(), [job.id for job in start(queue)]) == ([first], [first])


def test_staff_make_jobs_wait_and_let_others_in(queue):
    """Each wakes who admits, after its commit."""
    later = limited(delay=dt.timedelta(hours=1)).enqueue().id
    first, second = enqueued_ids(limited(), [(), ()])
    admit(queue, ["k"])
    for change in (
        lambda: run_now([later], by="eve") == [later],
        lambda: sorted(kill([first, second], by="eve").dead) == [first, second],
        lambda: retry([second], by="eve").ids == [second],
    ):
        with transaction.atomic():
            assert change()
            assert [hook.payloads for _, hook, *_ in connection.run_on_commit] == [("?+k",)]
    assert dict(Job.objects.values_list("id", "status")) == {later: "limited", second: "limited"}


# No statement waits for a lock


def test_locked_row_at_the_head_and_open_insert_of_the_key_stall_no_job(queue):
    head, next_one = enqueued_ids(limited(2), [(), ()])
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=head)
        limited(2).enqueue()
        admit(queue, ["k"])
        [job] = start(queue)
        end(queue, job)
    assert job.id == next_one
    admit(queue, ["k"])
    assert head in admitted()


def test_outcome_that_a_lock_keeps_from_being_written_still_takes_its_place(queue):
    first, second = enqueued_ids(limited(), [(), ()])
    admit(queue, ["k"])
    [job] = start(queue)
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=first)
        assert ack.write(queue, [Outcome(job, Fate.SUCCEEDED)]).locked == {first}
        assert admit(queue, ["k"]).queues == set()
    end(queue, job)
    admit(queue, ["k"])
    assert admitted() == [second]


def test_admitter_that_dies_between_lock_and_commit_leaves_nothing_locked(queue, other_queue, sql):
    job_id = limited().enqueue().id
    with pytest.raises(OperationalError), queue.transaction():
        assert try_lock(queue, LockKind.KEY, ["k"]).got() == {"k"}
        assert admit(other_queue, ["k"]).missed == {"k"}
        sql("SELECT pg_terminate_backend(%s, 30000)", queue._wrapper.connection.info.backend_pid)
        queue.rows("SELECT 1", {})
    assert admit(other_queue, ["k"]) == ({"default"}, set())
    assert admitted() == [job_id]


# Draining


def test_drain_waits_for_those_that_can_be_let_in(queue):
    def drained(*queues):
        return is_drained(queue, served=QueueSelector(queues), worker_ids=[1])

    limited().enqueue_many([(), ()])
    assert (drained(), drained("default"), drained("mail")) == (False, False, True)
    admit(queue, ["k"])
    assert (drained(), drained("mail")) == (False, True)
    [job] = claim(queue, "default", limit=1, worker_id=2)
    assert drained(), "what another worker runs keeps the key"
    end(queue, job)
    assert not drained()


# The consumer


def test_next_job_of_a_key_is_claimed_in_the_same_cycle(consumer, sql):
    ids = enqueued_ids(limited(), [()] * 3)
    admit(consumer.database, ["k"])
    cycle(consumer)
    for job_id in ids:
        assert [job.id for _, job in consumer.slots.accepted] == [job_id]
        consumer.slots.finish()
        consumer._collect(0.0)
        consumer._cycle()
    assert Job.objects.count() == 0


def test_next_job_is_claimed_at_once_though_later_ones_of_other_keys_were_taken(consumer):
    """Claims begin behind the last job taken; its predecessor, let in later, is not left for the next full scan."""
    first, second = enqueued_ids(limited(key="a"), [(), ()])
    other = limited(key="b").enqueue().id
    admit(consumer.database, ["a", "b"])
    cycle(consumer)
    assert [job.id for _, job in consumer.slots.accepted] == [first, other]
    consumer.slots.finish()
    consumer._cursors._cursors["default"].full_scan_at = math.inf
    consumer._collect(0.0)
    consumer._cycle()
    assert [job.id for _, job in consumer.slots.accepted] == [other, second]


def test_admission_that_is_refused_keeps_no_outcome_from_being_written(consumer, sql):
    limited().enqueue_many([(), ()])
    admit(consumer.database, ["k"])
    cycle(consumer)
    sql("ALTER TABLE pgqueue_jobs ADD CONSTRAINT nothing_is_let_in CHECK (status <> 'queued') NOT VALID")
    try:
        consumer.slots.finish(Fate.DIED, reason=DeathReason.DISCARDED, error={"error": "x"})
        cycle(consumer)
        assert consumer._in_flight.held() == 0
        cycle(consumer)
        assert consumer._backoff.failures == 0
    finally:
        sql("ALTER TABLE pgqueue_jobs DROP CONSTRAINT nothing_is_let_in")
    assert Job.objects.get().status == "limited"


def test_others_are_told_of_jobs_that_this_consumer_will_not_claim(consumer):
    mail = limited(queue="mail").enqueue().id
    limited(queue="mail").enqueue()
    admit(consumer.database, ["k"])
    cycle(consumer)
    consumer.slots.finish()
    consumer.stop()
    heard = listen()
    cycle(consumer)
    assert [notify.payload for notify in heard()] == ["mail"]
    assert mail not in admitted()


def listen():
    """Listen on a connection of one's own; return a function that waits for the first notification."""
    own = connections.create_connection("default")
    own.inc_thread_sharing()
    own.ensure_connection()
    own.connection.execute("LISTEN pgqueue_jobs")

    def heard():
        try:
            return list(own.connection.notifies(timeout=PATIENCE_SECONDS, stop_after=1))
        finally:
            own.close()

    return heard


# The locks: never waited for, seen by the next statement of the transaction, gone with it

ADMITTING = "SELECT current_setting('pgqueue.admitting')"


def test_locks_exclude_others_until_the_end_of_the_transaction(queue, other_queue):
    with queue.transaction():
        assert try_lock(queue, LockKind.KEY, ["b", "a"]).got() == {"a", "b"}
        with other_queue.transaction():
            assert try_lock(other_queue, LockKind.KEY, ["a", "c"]).got() == {"c"}
    with other_queue.transaction():
        assert try_lock(other_queue, LockKind.KEY, ["a", "b"]).got() == {"a", "b"}


def test_key_and_queue_of_one_name_do_not_meet(queue, other_queue):
    with queue.transaction(), other_queue.transaction():
        assert try_lock(queue, LockKind.KEY, ["a"]).got() == {"a"}
        assert try_lock(other_queue, LockKind.QUEUE, ["a"]).got() == {"a"}


def test_next_statement_finds_the_names_got_without_a_word_from_the_client(queue, other_queue):
    with queue.transaction():
        try_lock(queue, LockKind.KEY, ["taken"]).got()
        with other_queue.transaction():
            locking = try_lock(other_queue, LockKind.KEY, ["it's", 'a "name"', "taken", "ünï"])
            admitting = other_queue.send(ADMITTING, {})
        [(names,)] = admitting.fetchall()
    assert json.loads(names) == ['a "name"', "it's", "ünï"] == sorted(locking.got())


def test_nothing_got_is_an_empty_list_and_nothing_is_left_behind(queue):
    with queue.transaction():
        locking = try_lock(queue, LockKind.KEY, [])
        admitting = queue.send(ADMITTING, {})
    assert (locking.got(), admitting.fetchall()) == (frozenset(), [("[]",)])
    [(left,)] = queue.rows("SELECT current_setting('pgqueue.admitting', true)", {})
    assert not left


def test_next_statement_sees_what_the_last_holder_committed(queue, other_queue, sql):
    """The point of two statements: the session that gets the lock counts what the one before has let in."""
    sql("INSERT INTO pgqueue_queues (name) VALUES ('counted')")
    count = "SELECT tokens FROM pgqueue_queues WHERE name = 'counted'"
    for one in [queue, other_queue] * 3:
        with one.transaction():
            try_lock(one, LockKind.QUEUE, ["counted"])
            [(before,)] = one.send(count, {}).fetchall()
            one.send("UPDATE pgqueue_queues SET tokens = %(tokens)s WHERE name = 'counted'", {"tokens": before + 1})
    assert sql(count) == [(6.0,)]


def test_names_beyond_the_bound_are_left_for_the_next_time(queue):
    names = [f"{number:04}" for number in range(LOCKED_AT_ONCE + 5)]
    with queue.transaction():
        locking = try_lock(queue, LockKind.KEY, reversed(names))
    assert locking.names == tuple(names[:LOCKED_AT_ONCE])
    assert locking.got() == set(locking.names)


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
