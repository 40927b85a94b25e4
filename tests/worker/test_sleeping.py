"""No wake-up is lost between callers, who notify only where a worker sleeps, and workers about to fall asleep."""

import contextlib
import itertools
import threading

import pytest
from django.db import connection

import tests.app.tasks as app
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.models import Job
from django_pgqueue.worker.consumer import Consumer
from django_pgqueue.worker.mailbox import Mailbox
from django_pgqueue.worker.shared_state import SharedState, now
from django_pgqueue.worker.slots import Slots
from tests.support.sleeping import fall_asleep, wake
from tests.support.slots import ended
from tests.support.waiting import eventually
from tests.support.workers import until_alone

INSERT = "INSERT INTO pgqueue_jobs (task) VALUES ('x')"
LOOK = "SELECT count(*) FROM pgqueue_jobs"


@pytest.fixture
def sessions(transactional_db, sql):
    """Open connections of psycopg, once no session of an earlier test can be asleep."""
    until_alone(sql)
    with contextlib.ExitStack() as stack:

        def opened():
            database = QueueConnection("default", "test")
            stack.callback(database.close)
            return database.autocommit()

        yield opened


def heard(session) -> int:
    session.execute("SELECT 1")
    return len(list(session.notifies(timeout=0)))


@pytest.mark.parametrize("callers", [1, 2])
def test_job_is_seen_or_announced_however_callers_and_a_worker_interleave(sessions, callers):
    """Each of them is at its first or second statement: insert and ask, or say that it sleeps and look."""
    worker, sessions_of_callers = sessions(), [sessions() for _ in range(callers)]
    worker.execute("LISTEN pgqueue_jobs")
    turns = set(itertools.permutations([*range(callers), "worker"] * 2))
    for order in turns:
        done: dict = {}
        for who in order:
            is_first = done.setdefault(who, 0) == 0
            done[who] += 1
            if who == "worker" and is_first:
                assert fall_asleep(worker)
            elif who == "worker":
                [(seen,)] = worker.execute(LOOK).fetchall()
            elif is_first:
                sessions_of_callers[who].execute(INSERT)
            else:
                wake(sessions_of_callers[who])
        assert seen == callers or heard(worker), order
        worker.execute(statement("awake"))
        worker.execute("DELETE FROM pgqueue_jobs")
        heard(worker)


def test_worker_is_notified_of_the_queues_on_which_it_sleeps(sessions):
    worker, caller = sessions(), sessions()
    worker.execute("LISTEN pgqueue_jobs")
    wake(caller, "mail")
    assert not heard(worker)
    fall_asleep(worker, "mail", "post")
    for queue, number in (("mail", 1), ("post", 1), ("other", 0)):
        wake(caller, queue)
        assert heard(worker) == number, queue
    worker.execute(statement("awake"))
    wake(caller, "mail")
    assert not heard(worker)
    fall_asleep(worker)
    wake(caller, "any other")
    assert heard(worker) == 1


def test_worker_that_was_killed_in_its_sleep_is_not_notified(sessions, sql):
    worker, other, caller = sessions(), sessions(), sessions()
    other.execute("LISTEN pgqueue_jobs")
    fall_asleep(worker)
    assert sql("SELECT pg_terminate_backend(%s, 30000)", worker.info.backend_pid) == [(True,)]
    wake(caller)
    assert not heard(other)


def test_worker_does_not_wait_for_a_caller_that_asks_and_does_not_end(sessions):
    worker, caller = sessions(), sessions()
    with caller.transaction():
        wake(caller)
        assert fall_asleep(worker) is False
    worker.execute(statement("awake"))
    assert fall_asleep(worker) is True


def test_caller_in_a_transaction_unknown_to_django_keeps_no_worker_from_sleep(sessions):
    """It would keep the answer locked until its end; the notification goes with its commit."""
    worker = sessions()
    worker.execute("LISTEN pgqueue_jobs")
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        try:
            app.noop.enqueue()
            assert fall_asleep(worker) is True
            assert not heard(worker)
        finally:
            cursor.execute("COMMIT")
    assert heard(worker) == 1


@pytest.fixture
def consumers(transactional_db, settings):
    """Two that never poll, each running in a thread."""
    settings.PGQUEUE = {"POLL_SECONDS": 3600}
    running = []
    with ended():
        for number in (1, 2):
            shared = SharedState()
            shared.extend_lease(now() + 3600)
            made = Consumer(number, (), Slots(2, shared, Mailbox()), shared)
            made.listen()
            thread = threading.Thread(target=made.run)
            thread.start()
            running.append((made, thread))
        yield [made for made, _ in running]
        for made, thread in running:
            made.stop()
            thread.join()


def test_no_job_of_many_callers_is_left_lying_by_workers_that_never_poll(consumers):
    def enqueue_some():
        for number in range(60):
            app.noop.enqueue()
            if number % 7 == 0:  # let the workers fall asleep
                eventually(lambda: not Job.objects.exists())
        connection.close()

    callers = [threading.Thread(target=enqueue_some) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    eventually(lambda: not Job.objects.exists())
    eventually(lambda: all(consumer._is_asleep for consumer in consumers))
