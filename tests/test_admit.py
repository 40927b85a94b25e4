"""The locks of admission: never waited for, seen by the next statement of the transaction, gone with it."""

import json

from django_pgqueue.flow.concurrency import LOCKED_AT_ONCE, LockKind, try_lock

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
