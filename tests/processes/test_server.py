"""A server that restarts, or refuses connections, or refuses writes, under a worker at work. It is the test's own."""

import datetime as dt

import psycopg
import pytest
from django.core.management import call_command
from django.db import Error, connections, transaction
from django.test import override_settings

import tests.app.tasks as app
from django_pgqueue.db.connections import POSTGRESQL_17
from django_pgqueue.db.notify import CHANNEL
from django_pgqueue.doctor import findings
from django_pgqueue.doctor.workers import listening
from django_pgqueue.models import Job, SucceededJob
from django_pgqueue.worker import listener as listener_module
from django_pgqueue.worker.heartbeat import Liveness
from django_pgqueue.worker.listener import Listener
from tests.app.models import Mark
from tests.support import needs
from tests.support.many import enqueued_ids
from tests.support.server import Server
from tests.support.sleeping import fall_asleep
from tests.support.waiting import eventually

ALIAS = "own"

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", ALIAS])


@pytest.fixture(scope="module")
def server(django_db_setup, django_db_blocker):
    """A server of its own with the queue's tables, and an alias for it in this process."""
    made = Server()
    connections.settings[ALIAS] = {
        **connections.settings["default"],
        "NAME": "postgres",
        "HOST": made.host,
        "PORT": "",
        "USER": "postgres",
        "PASSWORD": "",
    }
    with django_db_blocker.unblock(), override_settings(PGQUEUE={"DATABASE": ALIAS}):
        call_command("migrate", database=ALIAS, verbosity=0)
    yield made
    connections[ALIAS].close()
    del connections[ALIAS], connections.settings[ALIAS]
    made.remove()


def succeeded() -> int:
    """Return how many jobs are done; -1 while the server cannot be asked."""
    try:
        return SucceededJob.objects.using(ALIAS).count()
    except Error:
        connections[ALIAS].close()
        return -1


def enqueue(number: int) -> list[int]:
    return enqueued_ids(app.record_atomic.using(database=ALIAS), [("x",)] * number)


def test_server_that_restarts_under_load_is_found_again_and_effects_are_there_once(server, start_worker):
    worker = start_worker("--processes", "2", "--concurrency", "4", DATABASE_URL=server.url)
    before, ids = succeeded(), enqueue(900)
    for number, mode in enumerate(("fast", "immediate"), start=1):
        eventually(lambda number=number: succeeded() > before + 300 * number - 200)
        server.restart(mode)
    eventually(lambda: succeeded() == before + len(ids))
    assert sorted(Mark.objects.using(ALIAS).filter(job_id__in=ids).values_list("job_id", flat=True)) == ids
    assert worker.process.poll() is None
    assert "ended (" not in worker.text(), "no process had to be replaced"


@pytest.fixture
def lesser_url(server):
    """Its URL by a role that limits can be set to, unlike a superuser."""
    with server.connect() as connection:
        connection.execute("CREATE ROLE shop LOGIN")
        connection.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO shop")
        connection.execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO shop")
    yield server.url.replace("postgres@", "shop@")
    with server.connect() as connection:
        connection.execute("DROP OWNED BY shop")
        connection.execute("DROP ROLE shop")


TROUBLES = {
    "too many connections": ("ALTER ROLE shop CONNECTION LIMIT 0", "ALTER ROLE shop CONNECTION LIMIT -1"),
    "read-only transaction": (
        "ALTER ROLE shop SET default_transaction_read_only = on",
        "ALTER ROLE shop RESET default_transaction_read_only",
    ),
}


def test_worker_waits_for_a_server_that_refuses_connections_or_writes(server, lesser_url, start_worker):
    """It neither ends nor fills the log, and goes on by itself."""
    worker = start_worker("--concurrency", "2", DATABASE_URL=lesser_url, LEASE_SECONDS="3")
    done = succeeded()
    with server.connect() as connection:
        for trouble, (cause, cure) in TROUBLES.items():
            enqueue(20)
            eventually(lambda done=done: succeeded() == done + 20)
            connection.execute(cause)
            connection.execute("SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE usename = 'shop'")
            enqueue(20)
            eventually(lambda trouble=trouble: trouble in worker.text())
            assert succeeded() == done + 20
            connection.execute(cure)
            eventually(lambda done=done: succeeded() == done + 40)
            done += 40
    assert worker.process.poll() is None
    assert "ended (" not in worker.text()
    assert "Traceback" not in worker.text(), worker.text()


@pytest.fixture
def hoarder(server):
    """A session that listens and does not read: announcements have piled up until no session can make one."""
    with server.connect() as talker:
        if talker.info.server_version < POSTGRESQL_17:
            pytest.skip(needs.POSTGRESQL_17)  # the queue of older servers is 8 GB
        talker.execute("ALTER SYSTEM SET max_notify_queue_pages = 64")
    restart(server)
    listener = server.connect()
    listener.execute("LISTEN x")
    listener.execute("BEGIN")
    listener.execute("SELECT 1")
    with server.connect() as talker, pytest.raises(psycopg.errors.ProgramLimitExceeded):
        for number in range(1000):
            talker.execute("SELECT pg_notify('x', repeat('x', 7000) || %s)", [number])
    yield listener
    listener.close()
    with server.connect() as talker:
        talker.execute("ALTER SYSTEM RESET max_notify_queue_pages")
    restart(server)


def restart(server: Server) -> None:
    connections[ALIAS].close()
    server.restart("fast")


def test_full_notification_queue_does_not_keep_a_job_from_being_enqueued(server, hoarder, caplog):
    """That it is full is said once. When no session hoards any more, the next announcement makes room, and is heard."""
    fall_asleep(hoarder)
    for _ in range(2):
        with transaction.atomic(using=ALIAS):
            handle = app.record.using(database=ALIAS).enqueue("x")
        assert Job.objects.using(ALIAS).filter(pk=handle.id).exists()
    [record] = caplog.records
    assert record.message.startswith("Wake-up ['default'] failed; workers find out by polling")
    assert record.exc_info is None
    hoarder.close()
    with server.connect() as listener:
        listener.execute(f"LISTEN {CHANNEL}")
        fall_asleep(listener)
        eventually(lambda: app.record.using(database=ALIAS).enqueue("x") and any(listener.notifies(timeout=0)))
    assert caplog.records == [record]


def test_worker_polls_while_the_notification_queue_is_full(hoarder, server, start_worker):
    """What it would announce to others fails neither service nor consumer: promoted jobs, the next one of a key."""
    limited = app.record.using(database=ALIAS, limit_key="key")
    worker = start_worker("--queue", "default", DATABASE_URL=server.url)
    eventually(lambda: "LISTEN off, polling" in worker.text())
    limited.enqueue("x")
    other = limited.using(queue="other").enqueue("x")
    app.record.using(database=ALIAS, delay=dt.timedelta(seconds=1)).enqueue("x")
    eventually(lambda: succeeded() == 2)
    eventually(lambda: Job.objects.using(ALIAS).get(pk=other.id).status == "queued")
    eventually(lambda: "Wake-up ['default'] failed" in worker.text())
    text = worker.text()
    assert text.count("LISTEN by way of 'default' is of no use now") == 1
    assert "Traceback" not in text, text
    assert "cannot work with the database" not in text, text


@override_settings(PGQUEUE={"DATABASE": ALIAS})
def test_doctor_finds_the_full_notification_queue_until_no_session_hoards_any_more(hoarder):
    def found() -> set[str]:
        return {finding.name for finding in findings(looks=[listening])}

    assert found() == {"notifications-full"}
    hoarder.close()
    eventually(lambda: not found())


@override_settings(PGQUEUE={"DATABASE": ALIAS})
def test_listener_listens_again_when_the_notification_queue_is_no_longer_full(hoarder, monkeypatch):
    monkeypatch.setattr(listener_module, "PING_SECONDS", 0.1)
    session = Liveness(changed=lambda: None)
    listener = Listener(ALIAS, session, lambda payloads: None)
    assert listener.pass_once() > 0
    assert (listener.works, listener.is_settled.is_set(), session.pid) == (False, True, 0)
    hoarder.close()
    eventually(lambda: listener.pass_once() == 0)
    assert listener.works
    listener.close()
