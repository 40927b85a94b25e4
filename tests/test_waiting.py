"""Waits of the tests end when they should, and say what they have waited for."""

import threading

import pytest

from tests.support import workers
from tests.support.waiting import beside, eventually
from tests.support.workers import until_alone


def test_wait_in_vain_shows_its_condition_and_what_that_returned():
    found = []
    with pytest.raises(AssertionError, match=r"^not within 0 s, but \[\]: .*lambda: found"):
        eventually(lambda: found, seconds=0)


def test_condition_may_have_a_name_or_a_docstring():
    def is_full() -> bool:
        """The disk is full."""
        return False

    with pytest.raises(AssertionError, match=r"^not within 0 s, but False: The disk is full\.$"):
        eventually(is_full, seconds=0)
    with pytest.raises(AssertionError, match=r"^not within 0 s, but False: <bound method Event\.is_set of .*unset"):
        eventually(threading.Event().is_set, seconds=0)


def test_thread_that_does_not_end_is_told_by_its_code():
    is_over = threading.Event()
    try:
        told = r"^not within 0 s, the end of: .*is_over\.wait"
        with pytest.raises(AssertionError, match=told), beside(lambda: is_over.wait(), seconds=0):
            pass
    finally:
        is_over.set()


def test_session_that_an_earlier_test_has_left_open_is_named_and_not_waited_for(
    transactional_db, other_queue, sql, monkeypatch
):
    until_alone(sql)
    other_queue.rows("SELECT 'the last one'", {})
    monkeypatch.setattr(workers, "LEFT_SECONDS", 0.0)
    with pytest.raises(AssertionError, match=r"^left open by an earlier test: \[OtherSession\(.*") as caught:
        until_alone(sql)
    pid = other_queue.autocommit().info.backend_pid
    for told in ("application_name='pgqueue", f"pid={pid}", "state='idle'", "SELECT 'the last one'"):
        assert told in str(caught.value)
