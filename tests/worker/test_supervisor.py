"""The supervisor: pauses of its threads, its stop, and what it closes at its end."""

import contextlib
import threading

import pytest
from django.core.management import CommandError, call_command
from django.db import connections, transaction

import tests.app.tasks as app
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import Job
from django_pgqueue.services import Service
from django_pgqueue.worker.config import WorkerConfig
from django_pgqueue.worker.supervisor import Supervisor
from tests.support.pauses import fail, pauses
from tests.support.ports import free_port
from tests.support.probes import get
from tests.support.proxy import Detour
from tests.support.stuck import LEASE_SECONDS, settle, watch
from tests.support.waiting import PATIENCE_SECONDS, eventually


def test_heart_tries_again_before_others_may_judge(settings):
    """They may after a full lease in touch, however short that is: a live worker must have said so by then."""
    settings.PGQUEUE = {"LEASE_SECONDS": 3}
    plan = WorkerConfig(queues=(), processes=1, concurrency=1)
    loop = Supervisor(plan)._heartbeat_loop
    loop._pass_once = fail
    assert max(pauses(loop)) == 1.0


def test_command_that_ends_says_which_service_has_not_come_back_and_leaves_it_its_connection(
    transactional_db, monkeypatch, caplog
):
    """To close the connection under a thread that uses it would hide what the thread hangs in."""
    monkeypatch.setattr("django_pgqueue.worker.supervisor.FAREWELL_SECONDS", 0.0)
    supervisor = Supervisor(WorkerConfig(queues=(), processes=1, concurrency=1))
    maintenance, loop, is_over = supervisor._maintenance, supervisor._maintenance_loop, threading.Event()

    def expire():
        maintenance.database.rows("SELECT 1", {})
        is_over.wait(PATIENCE_SECONDS)

    maintenance.services._services = (Service("expire", expire),)
    loop.start()
    try:
        eventually(lambda: maintenance.database._wrapper.connection)
        supervisor.finish()
        assert "until their leases expire: maintenance is still at its service expire" in caplog.text
        assert maintenance.database._wrapper.connection
    finally:
        is_over.set()
        loop.join(PATIENCE_SECONDS)
        maintenance.database.close()


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_threads_that_do_not_come_back_are_waited_for_together(outbox, monkeypatch):
    """As relays of several outboxes, each of which connects to a silent server."""
    monkeypatch.setattr("django_pgqueue.worker.supervisor.FAREWELL_SECONDS", 0.2)
    supervisor = Supervisor(WorkerConfig(queues=(), processes=1, concurrency=1))
    loops, is_over, waits = (supervisor._tables_loop, *supervisor._relay_loops), threading.Event(), []
    for loop in loops:
        loop._pass_once = lambda: 0.0 * is_over.wait(PATIENCE_SECONDS)
        join = loop.join
        loop.join = lambda timeout, join=join: waits.append(timeout) or join(timeout)
        loop.start()
    try:
        supervisor.finish()
        assert len(waits) == 2
        assert sum(waits) < 2 * 0.2
    finally:
        is_over.set()
        for loop in loops:
            del loop.join
            loop.join(PATIENCE_SECONDS)


def test_service_that_does_not_come_back_is_named_once(transactional_db, monkeypatch, caplog):
    """As while the database hangs."""
    supervisor = Supervisor(WorkerConfig(queues=(), processes=1, concurrency=1))
    seconds = [59.0]
    supervisor._maintenance.services.doing_seconds = lambda: seconds[0]
    supervisor._maintenance.services.doing = "expire"
    for seconds[0] in (59.0, 60.0, 61.0, 0.0, 75.0):
        supervisor._tell_of_long_service()
    assert [record.message for record in caplog.records] == [
        "Maintenance has been at its service expire for 60 s, and runs no other",
        "Maintenance has been at its service expire for 75 s, and runs no other",
    ]


def test_stop_gives_attempts_back_where_a_process_has_stood_still_for_a_lease(queue, pool, clock):
    """Its consumer may as well wait for the database, as cannot be told from outside, while the jobs do well."""
    [process] = pool.living
    job_id = app.noop.enqueue().id
    process.shared.hold([0], claim(queue, "default", limit=1, worker_id=process.worker_id))
    process.shared.start(0)
    process.shared.count_cycle()
    watch(pool, clock, LEASE_SECONDS + 30)
    supervisor = Supervisor(WorkerConfig())
    supervisor.pool = pool
    supervisor._press_to_stop(0.0)
    assert settle(pool) == {(job_id, 0, 0)}


@pytest.mark.django_db
def test_worker_that_cannot_answer_probes_does_not_start(probes):
    with pytest.raises(CommandError, match="/live, /ready cannot be answered"):
        call_command("pgqueue_worker", health_port=probes.address[1], drain=True, verbosity=0)


@pytest.mark.django_db(transaction=True)
def test_worker_inside_a_test_closes_what_it_opened(tmp_path):
    """A socket or a connection left open would be an error here."""
    path = tmp_path / "health"
    app.noop.enqueue()
    port = free_port()
    call_command(
        "pgqueue_worker", drain=True, verbosity=0, health_port=port, health_file=str(path), health_max_age=60.0
    )
    assert not path.exists()
    with pytest.raises(ConnectionRefusedError):
        get(port, "/live")


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_outbox_that_is_silent_keeps_calls_of_no_other_waiting(outbox, settings, monkeypatch):
    proxy = Detour()
    proxy.stall()
    known = connections.settings[outbox]
    place = {"HOST": "127.0.0.1", "PORT": proxy.port, "OPTIONS": known["OPTIONS"] | {"connect_timeout": 3600}}
    monkeypatch.setitem(connections.settings, "silent", known | place)
    settings.PGQUEUE = settings.PGQUEUE | {"OUTBOXES": {"silent": 6, outbox: 5}}
    supervisor = Supervisor(WorkerConfig(queues=(), processes=1, concurrency=1))
    for loop in supervisor._relay_loops:
        loop.start()
    try:
        for _ in range(2):
            with transaction.atomic(using=outbox):
                handle = app.noop.enqueue()
            eventually(lambda handle=handle: Job.objects.filter(pk=handle.id).exists())
        eventually(lambda: supervisor._relays[1].handed_over == 2)
        assert supervisor.figures().handed_over == {"silent": 0, outbox: 2}
    finally:
        proxy.close()
        supervisor.finish()


@pytest.fixture
def draining(outbox, settings, monkeypatch, pool):
    """A supervisor that drains two outboxes, which are one database here."""
    monkeypatch.setitem(connections.settings, "second", connections.settings[outbox])
    settings.PGQUEUE = settings.PGQUEUE | {"OUTBOXES": {outbox: 5, "second": 6}}
    supervisor = Supervisor(WorkerConfig(queues=(), processes=1, concurrency=1, drain=True))
    supervisor.pool = pool
    with contextlib.ExitStack() as stack:
        for relay in supervisor._relays:
            stack.callback(relay.close)
        yield supervisor


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_outboxes_that_are_found_empty_one_after_the_other_are_drained(draining):
    for relay in draining._relays:
        draining._drained()
        assert not draining.is_stopping
        relay.pass_once()
    draining._drained()
    assert draining.is_stopping


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_outbox_that_was_found_empty_before_a_job_has_ended_is_looked_into_again(draining):
    """The job may have come by the other one, and put a call into this one."""
    first, second = draining._relays
    draining._drained()
    first.pass_once()
    draining.pool.living[0].shared.add_finished(1)
    second.pass_once()
    draining._drained()
    first.pass_once()
    draining._drained()
    assert not draining.is_stopping
    second.pass_once()
    draining._drained()
    assert draining.is_stopping
