"""Interruption of the thread of one run, and of nothing that comes after it."""

import contextlib
import logging
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from django_pgqueue.exceptions import JobInterrupted, JobKilled, JobTimeout
from django_pgqueue.jobs import interrupts as border_module
from django_pgqueue.jobs.context import CurrentJob
from django_pgqueue.jobs.interrupts import ThreadInterrupts
from tests.support.claimed import job as job_of
from tests.support.waiting import PATIENCE_SECONDS, beside, eventually


class Visit:
    """A thread that goes into user code and comes back when it is told to, or is interrupted."""

    def __init__(self, user_code):
        self.current = CurrentJob(job_of())
        self.border, self.raised = None, None
        self.is_inside = threading.Event()
        self._user_code = user_code

    def __call__(self):
        self.border = ThreadInterrupts()
        try:
            self.border.call(self.current, self._enter, [], {})
        except BaseException as error:
            self.border.leave()
            self.raised = error

    def _enter(self):
        self.is_inside.set()
        self._user_code()


def spin_until(event):
    """Wait in Python code."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not event.is_set() and time.monotonic() < deadline:
        time.sleep(0.001)


def test_interruption_reaches_the_run_it_is_meant_for_and_no_other():
    done = threading.Event()
    visit = Visit(lambda: spin_until(done))
    with beside(visit):
        assert visit.is_inside.wait(PATIENCE_SECONDS)
        other = CurrentJob(job_of(id=2))
        assert not visit.border.interrupt(other, JobKilled)
        done.set()
    assert (visit.raised, visit.border.was_hit) == (None, False)
    visit = Visit(lambda: spin_until(threading.Event()))
    with beside(visit):
        assert visit.is_inside.wait(PATIENCE_SECONDS)
        assert visit.border.interrupt(visit.current, JobKilled)
    assert isinstance(visit.raised, JobKilled)
    assert visit.border.was_hit


def test_run_that_has_come_back_is_not_interrupted():
    visit = Visit(lambda: None)
    with beside(visit):
        pass
    assert not visit.border.interrupt(visit.current, JobKilled)


def test_connection_of_the_next_run_is_left_alone(monkeypatch):
    """The run may be over, and the next one at work with a new connection, before its queries are broken off."""
    wrapper, broken_off = SimpleNamespace(connection="of this run"), []
    monkeypatch.setattr(border_module, "_raise_in", lambda *_: vars(wrapper).update(connection="of the next"))
    monkeypatch.setattr(border_module, "break_off", broken_off.append)
    border, current = ThreadInterrupts([wrapper]), CurrentJob(job_of())
    border.call(current, lambda: border.interrupt(current, JobKilled), [], {})
    assert broken_off == ["of this run"]


def test_run_that_comes_back_while_an_interrupt_aims_at_it_goes_on_unhurt():
    """The thread that aims has looked, and is about to raise: the run waits for that. Nothing that follows is hit."""
    survived, has_shot = [], threading.Event()

    def visit():
        border, current = ThreadInterrupts(), CurrentJob(job_of())
        border._is_being_aimed_at = border._is_aimed_at = True
        threading.Timer(0.1, shoot, [border]).start()
        with contextlib.suppress(JobInterrupted):
            border.call(current, lambda: None, [], {})
        border.leave()
        spin_until(has_shot)
        survived.append("what comes after")

    def shoot(border):
        border_module._raise_in(border._thread_id, JobKilled)
        border._is_being_aimed_at = False
        has_shot.set()

    with beside(visit):
        pass
    assert survived == ["what comes after"]


def test_thread_that_cleans_up_after_an_interruption_is_not_interrupted_again():
    cleaning, cleaned = threading.Event(), threading.Event()

    def user_code():
        try:
            spin_until(threading.Event())
        finally:
            cleaning.set()
            spin_until(cleaned)
            cleaned.clear()

    visit = Visit(user_code)
    with beside(visit):
        assert visit.is_inside.wait(PATIENCE_SECONDS)
        assert visit.border.interrupt(visit.current, JobTimeout)
        assert cleaning.wait(PATIENCE_SECONDS)
        assert visit.border.interrupt(visit.current, JobTimeout)
        cleaned.set()
    assert isinstance(visit.raised, JobTimeout)
    assert not cleaned.is_set(), "it was cleaned up to the end"


@pytest.fixture
def handler():
    """A logging handler that takes its lock for each record, as every one does, and has nothing to say."""
    logger, handler = logging.getLogger("alone"), Silent()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    handler.createLock()  # if a thread has kept the old one, the end of logging would wait for it


def test_lock_of_logging_is_not_left_taken(handler):
    """A thread that waits for a handler's lock would be interrupted when it has it, and has not yet seen to its end."""
    visit = Visit(lambda: (logging.getLogger("alone").warning("x"), spin_until(threading.Event())))
    handler.acquire()
    with beside(visit):
        try:
            assert visit.is_inside.wait(PATIENCE_SECONDS)
            eventually(lambda: in_logging(visit.border._thread_id))
            assert not visit.border.interrupt(visit.current, JobKilled)
        finally:
            handler.release()
        eventually(lambda: visit.border.interrupt(visit.current, JobKilled))
    assert isinstance(visit.raised, JobKilled)
    assert handler.lock.acquire(timeout=1), "a thread has kept it"
    handler.release()


def in_logging(thread_id):
    return sys._current_frames()[thread_id].f_code.co_filename == logging.__file__


class Silent(logging.Handler):
    def emit(self, record):
        pass
