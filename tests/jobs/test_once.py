"""Keys of once(): taken with the caller's transaction, and once at a time."""

import threading

import pytest
from django.db import connection, transaction
from django.db.transaction import TransactionManagementError

import tests.app.tasks as app
from django_pgqueue import once
from django_pgqueue.exceptions import InvalidOption, NoTransaction
from django_pgqueue.models import Job, OnceKey
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)

BLOCKED = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%%pgqueue_once_keys%%'"


def test_key_is_taken_once_if_the_transaction_commits():
    with transaction.atomic():
        assert [once("paid:1"), once("paid:1"), once("paid:2")] == [True, False, True]
        app.noop.enqueue()
    with transaction.atomic():
        assert not once("paid:1")
    assert (OnceKey.objects.count(), Job.objects.count()) == (2, 1)


def test_key_is_free_again_after_a_rollback():
    with transaction.atomic():
        assert once("k")
        transaction.set_rollback(True)
    with transaction.atomic():
        assert once("k")


def test_transaction_goes_on_after_a_key_that_was_taken():
    with transaction.atomic():
        once("k")
    with transaction.atomic():
        assert not once("k")
        app.noop.enqueue()
    assert Job.objects.exists()


def test_outside_of_a_transaction_it_is_refused():
    with pytest.raises(NoTransaction, match=r"call it in transaction\.atomic\(\)") as error:
        once("k")
    assert isinstance(error.value, TransactionManagementError)
    assert not OnceKey.objects.exists()


@pytest.mark.parametrize("wrong", ["", "x" * 501, 5, None])
def test_key_that_cannot_be_is_refused(wrong):
    with transaction.atomic(), pytest.raises(InvalidOption, match="key"):
        once(wrong)


@pytest.mark.parametrize("commits", [True, False])
def test_second_caller_waits_for_the_transaction_of_the_first(queue, commits):
    answers = []

    def second():
        try:
            with transaction.atomic():
                answers.append(once("k"))
        finally:
            connection.close()

    thread = threading.Thread(target=second)
    with transaction.atomic():
        assert once("k")
        thread.start()
        eventually(lambda: queue.rows(BLOCKED, {}))
        assert not answers
        transaction.set_rollback(not commits)
    thread.join()
    assert answers == [not commits]
