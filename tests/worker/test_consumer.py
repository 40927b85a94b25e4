"""The consumer, driven cycle by cycle in this process, against real rows."""

import math
import queue as stdlib_queue
import threading
from collections.abc import Iterator

import pytest
from django.db import connection, transaction

import tests.app.tasks as app
from django_pgqueue.jobs import leases
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.leases import release
from django_pgqueue.models import DeadJob, Job, SucceededJob
from django_pgqueue.records import Fate
from django_pgqueue.signals import job_died
from django_pgqueue.states import DeathReason
from django_pgqueue.worker import consumer as consumer_module
from django_pgqueue.worker import queue_cursor
from django_pgqueue.worker.consumer import Consumer
from django_pgqueue.worker.mailbox import Mailbox
from django_pgqueue.worker.shared_state import SharedState, now
from django_pgqueue.worker.slots import Slots
from tests.support.consumers import Benched, cycle, cycles, fall_silent
from tests.support.many import enqueued_ids
from tests.support.slots import ended
from tests.support.waiting import PATIENCE_SECONDS, eventually, until_gone


@pytest.fixture(autouse=True)
def _slots_end() -> Iterator[None]:
    with ended():
        yield


def test_consumer_fills_its_slots_and_no_more(consumer):
    app.noop.enqueue_many([()] * 10)
    cycle(consumer)
    assert len(consumer.slots.accepted) == 4
    cycle(consumer)
    assert len(consumer.slots.accepted) == 4
    consumer.slots.finish()
    cycle(consumer)
    assert (len(consumer.slots.accepted), SucceededJob.objects.count()) == (4, 1)


def test_outcome_that_the_database_refuses_is_found_and_buried_alone(consumer):
    """Three good outcomes and one whose result is no JSON: the flush fails, is halved, and only the bad one pays."""
    ids = enqueued_ids(app.noop, [()] * 4)
    cycle(consumer)
    for number in range(4):
        consumer.slots.finish(result="no json" if number == 2 else "1")
    cycle(consumer)
    cycle(consumer)
    assert sorted(SucceededJob.objects.values_list("id", flat=True)) == [ids[0], ids[1], ids[3]]
    dead = DeadJob.objects.get()
    assert (dead.id, dead.reason, dead.errors[0]["refused"]) == (ids[2], "discarded", "succeeded")
    assert "invalid input syntax for type json" in dead.errors[0]["message"]
    assert consumer._in_flight.held() == 0


def test_cut_connection_is_logged_by_the_consumer_alone(consumer, queue, sql, caplog):
    """The driver has nothing to add on a logger of its own."""
    app.noop.enqueue_many([()] * 4)
    for _ in range(2):
        cycle(consumer)
        session = consumer.database.autocommit().info.backend_pid
        sql("SELECT pg_terminate_backend(%s)", session)
        until_gone(queue, session)
        consumer.slots.finish()
        cycle(consumer)
        assert consumer._backoff.failures == 1
        consumer._backoff._retry_at = 0.0
        cycle(consumer)
    consumer.database.close()
    with pytest.raises(LookupError), consumer.database.transaction():
        consumer.database.rows("SELECT 1", {})
        raise LookupError
    assert [record.getMessage() for record in caplog.records if record.name.startswith("psycopg")] == []
    assert SucceededJob.objects.count() == 2


def test_others_are_told_of_jobs_that_are_given_back(consumer, monkeypatch, sql):
    """Idle workers poll seldom, and would leave them alone for that long; they are queued when that is said."""
    told = []
    monkeypatch.setattr(
        consumer,
        "_call_others",
        lambda queues: told.append((set(queues), Job.objects.filter(status="queued", queue__in=queues).count())),
    )
    for name in ("default", "mail"):
        app.noop.using(queue=name).enqueue_many([()] * 4)
    consumer._prefetch.size.jobs = 8
    consumer._prefetch.size._since += 3600
    for _ in range(3):
        cycle(consumer)
    assert (len(consumer.slots.accepted), told) == (8, [])
    consumer.stop()
    cycle(consumer)
    [(queues, number)] = told
    assert (queues <= {"default", "mail"}, number) == (True, 4)
    consumer.slots.finish()
    cycle(consumer)
    assert len(told) == 1


def test_stop_gives_back_what_waits_and_takes_no_more(consumer):
    app.noop.enqueue_many([()] * 20)
    consumer._prefetch.size.jobs = 10
    cycle(consumer)
    consumer.stop()
    cycle(consumer)
    assert Job.objects.filter(status="running").count() == 4
    for _ in range(4):
        consumer.slots.finish()
    consumer.run()
    assert (SucceededJob.objects.count(), Job.objects.filter(status="queued", attempts=0).count()) == (4, 16)


def test_quiet_consumer_gives_back_what_waits_and_claims_again_when_it_is_to(consumer):
    app.noop.enqueue_many([()] * 20)
    consumer._prefetch.size.jobs = 10
    cycle(consumer)
    consumer._shared.set_quiet(True)
    cycle(consumer)
    assert Job.objects.filter(status="running").count() == 4
    for _ in range(4):
        consumer.slots.finish()
    consumer.wake()
    cycle(consumer)
    cycle(consumer)
    assert (SucceededJob.objects.count(), Job.objects.filter(status="queued", attempts=0).count()) == (4, 16)
    consumer._stats.add()
    assert consumer._patience() > 0.5
    consumer._shared.set_quiet(False)
    consumer.wake()
    cycle(consumer)
    assert Job.objects.filter(status="running").count() >= 4


def test_consumer_claims_nothing_in_a_turn_in_which_it_becomes_quiet(consumer, monkeypatch):
    """As in its first one, which waits for a connection."""
    app.noop.enqueue()
    look = consumer._limits.look
    monkeypatch.setattr(consumer._limits, "look", lambda database: consumer._shared.set_quiet(True) or look(database))
    cycle(consumer)
    assert Job.objects.get().status == "queued"


def test_busy_consumer_waits_instead_of_spinning(consumer):
    app.noop.enqueue_many([()] * 4)
    cycle(consumer)
    assert len(consumer.slots.accepted) == 4
    consumer._cursors.mark_ready(None)
    assert consumer._patience() > 0.5, "with all slots busy there is nothing to look for"
    consumer.stop()
    cycle(consumer)
    assert consumer._patience() > 0.5, "while the last jobs finish there is nothing to do"
    for _ in range(4):
        consumer.slots.finish()
    consumer.run()


def test_schema_change_under_a_prepared_statement_harms_no_outcome(consumer, sql):
    for _ in range(5):
        app.noop.enqueue_many([()] * 4)
        cycle(consumer)
        for _ in range(4):
            consumer.slots.finish()
    sql("ALTER TABLE pgqueue_jobs ALTER COLUMN queue TYPE varchar(200)")
    try:
        for _ in range(3):
            consumer._backoff._retry_at = 0.0
            cycle(consumer)
        assert (SucceededJob.objects.count(), DeadJob.objects.count()) == (20, 0)
    finally:
        sql("ALTER TABLE pgqueue_jobs ALTER COLUMN queue TYPE text")


def test_prepared_statements_that_are_gone_harm_no_outcome(consumer):
    for _ in range(5):
        app.noop.enqueue_many([()] * 4)
        cycle(consumer)
        for _ in range(4):
            consumer.slots.finish()
    consumer.database.autocommit().execute("DEALLOCATE ALL", prepare=False)
    for _ in range(3):
        consumer._backoff._retry_at = 0.0
        cycle(consumer)
    assert (SucceededJob.objects.count(), DeadJob.objects.count()) == (20, 0)


def test_server_that_was_read_only_is_left_for_a_new_connection(consumer, sql):
    app.noop.enqueue_many([()])
    cycle(consumer)
    consumer.slots.finish()
    name = connection.settings_dict["NAME"]
    sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    try:
        consumer.database.close()
        cycle(consumer)
        assert consumer._backoff.failures == 1
    finally:
        sql("SET default_transaction_read_only = off")
        sql(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
    consumer._backoff._retry_at = 0.0
    cycle(consumer)
    assert SucceededJob.objects.count() == 1


def test_consumer_claims_nothing_when_the_lease_of_its_process_has_passed(consumer):
    consumer._shared.extend_lease(now() - 1)
    app.noop.enqueue_many([()])
    cycle(consumer)
    assert (consumer.slots.accepted, Job.objects.get().status) == ([], "queued")


def test_job_is_not_started_after_the_lease_of_its_process(consumer_of):
    shared = SharedState()
    shared.extend_lease(now() - 1)
    mailbox = stdlib_queue.SimpleQueue()
    consumer = consumer_of(Slots(2, shared, mailbox))
    app.record.enqueue_many([("x",)])
    [job] = claim(consumer.database, "default", limit=1, worker_id=1)
    cell = consumer._in_flight._free.pop()
    consumer.slots.accept(cell, job)
    released = mailbox.get(timeout=PATIENCE_SECONDS)
    assert (released[0], released[1].fate) == (cell, Fate.RELEASED)
    mailbox.put(released)
    consumer.stop()
    consumer.run()
    assert (Job.objects.get().status, Job.objects.get().attempts) == ("queued", 0)
    for thread in threading.enumerate():
        assert "pgqueue" not in thread.name or thread.daemon


def test_what_was_fetched_before_a_lapse_goes_back_before_anything_is_started(consumer_of):
    """As after a stall of the network for longer than a lease: others may have run it meanwhile."""
    shared = SharedState()
    shared.extend_lease(now() + 3600)
    consumer = consumer_of(Slots(1, shared, stdlib_queue.SimpleQueue()))
    app.sleep_for_ever.using(priority=1).enqueue()
    waiting = app.noop_async.enqueue().id
    first, second = claim(consumer.database, "default", limit=2, worker_id=1)
    consumer._prefetch.accept([first, second])
    eventually(lambda: shared.started() == {first.run_id})
    shared.extend_lease(now() - 1)
    shared.renew_lease(now() + 3600)
    consumer._cycle()
    assert list(Job.objects.filter(status="queued").values_list("id", "attempts")) == [(waiting, 0)]
    assert shared.is_lease_valid()
    consumer.slots.kill(first.run_id)
    eventually(lambda: cycle(consumer) or SucceededJob.objects.filter(pk=waiting, attempts=1).exists())


def test_lane_that_was_about_to_begin_a_job_leaves_it_to_those_who_were_given_it_meanwhile(
    queue, registry_of, consumer_of
):
    """A job has held the event loop for so long that the heartbeat has given back what that was about to begin."""
    shared, is_full, is_over, begun = SharedState(), threading.Event(), threading.Event(), []

    async def hold_the_loop():
        begun.append("hog")
        is_over.wait(PATIENCE_SECONDS)

    async def fetched():
        begun.append("fetched")

    shared.extend_lease(now() + 3600)
    consumer = consumer_of(Slots(2, shared, stdlib_queue.SimpleQueue()))
    for func in (hold_the_loop, fetched):
        registry_of(func).enqueue()
    try:
        consumer.slots._lanes._start().call_soon_threadsafe(is_full.wait, PATIENCE_SECONDS)
        consumer._prefetch.accept(claim(consumer.database, "default", limit=2, worker_id=1))
        is_full.set()  # now it opens a lane for each of the two, and then runs what is in the first
        eventually(lambda: begun)
        shared.cap_lease(now())
        assert release(queue, [one for one in leases.worker_leases(queue, [1]) if one.run_id in shared.unbegun()])
        assert [job.task for job in claim(queue, "default", limit=2, worker_id=2)] == [f"{__name__}.fetched"]
        shared.renew_lease(now() + 3600)
        consumer._cycle()
        assert shared.is_lease_valid()
        is_over.set()
        eventually(lambda: cycle(consumer) or not consumer._in_flight.held())
        assert begun == ["hog"]
    finally:
        is_full.set()
        is_over.set()


def test_nothing_is_started_between_a_renewal_after_a_lapse_and_the_next_cycle(consumer_of):
    shared, mailbox = SharedState(), stdlib_queue.SimpleQueue()
    shared.extend_lease(now() - 1)
    shared.renew_lease(now() + 3600)
    consumer = consumer_of(Slots(1, shared, mailbox))
    app.noop.enqueue()
    consumer._prefetch.accept(claim(consumer.database, "default", limit=1, worker_id=1))
    assert mailbox.get(timeout=PATIENCE_SECONDS)[1].fate is Fate.RELEASED
    assert shared.started() == set()


def test_admission_that_goes_on_failing_keeps_back_no_outcome(consumer, sql, monkeypatch):
    app.noop.enqueue_many([()])
    cycle(consumer)
    send = consumer._admissions.send

    def fail(database, **limit):
        if consumer._admissions._due:
            database.rows("SELECT 1 FROM no_such_table", {})
        return send(database, **limit)

    monkeypatch.setattr(consumer._admissions, "send", fail)
    consumer._admissions.request(["key"])
    consumer.slots.finish()
    cycles(consumer, 3)
    assert (SucceededJob.objects.count(), consumer._backoff.failures) == (1, 0)


def test_trouble_of_a_follow_up_is_not_forgotten_with_the_cycle_that_it_follows(consumer, monkeypatch):
    app.noop.enqueue_many([()])
    with monkeypatch.context() as patch:
        patch.setattr(consumer_module, "register_queue", fall_silent)
        cycle(consumer)
    assert len(consumer.slots.accepted) == 1
    assert (consumer._backoff.failures, consumer._shared.failures()) == (1, 1)
    cycles(consumer, 1)
    assert (consumer._backoff.failures, consumer._shared.failures()) == (0, 0)


@pytest.fixture
def told_of_deaths(monkeypatch):
    """What receivers of job_died were told, with the thread and whether the job was dead by then."""
    told = []

    def receive(event, **_):
        name = threading.current_thread().name
        told.append((event.id, str(event.reason), event.attempt, name, DeadJob.objects.filter(pk=event.id).exists()))

    monkeypatch.setattr(job_died, "receivers", [])
    job_died.connect(receive, weak=False)
    return told


@pytest.mark.parametrize("reason", ["discarded", "expired"])
def test_death_is_told_once_it_is_written_by_a_thread_for_that(consumer, told_of_deaths, sql, reason):
    job_id = app.noop.using(expires=3600).enqueue().id
    if reason == "expired":
        sql("UPDATE pgqueue_jobs SET expires_at = now() - interval '1 second'")
    cycle(consumer)
    if reason == "discarded":
        consumer.slots.finish(Fate.DIED, reason=DeathReason.DISCARDED)
    cycle(consumer)
    assert consumer._receivers.close(PATIENCE_SECONDS)
    assert told_of_deaths == [(job_id, reason, int(reason == "discarded"), "pgqueue-signals", True)]


def test_death_whose_lease_is_gone_is_not_told(consumer, told_of_deaths, sql):
    app.noop.enqueue()
    cycle(consumer)
    sql("UPDATE pgqueue_jobs SET lease_token = 4711")
    consumer.slots.finish(Fate.DIED, reason=DeathReason.DISCARDED)
    cycle(consumer)
    assert consumer._receivers.close(PATIENCE_SECONDS)
    assert (told_of_deaths, consumer._in_flight.held()) == ([], 0)


def test_outcome_that_the_database_refuses_is_told_as_a_death(consumer, told_of_deaths):
    job_id = app.noop.enqueue().id
    cycle(consumer)
    consumer.slots.finish(result="no json")
    cycle(consumer)
    cycle(consumer)
    assert consumer._receivers.close(PATIENCE_SECONDS)
    assert [told[:2] for told in told_of_deaths] == [(job_id, "discarded")]


def test_receiver_that_does_not_return_keeps_the_consumer_from_nothing(consumer, monkeypatch, caplog):
    go_on = threading.Event()
    monkeypatch.setattr(consumer_module, "RECEIVERS_SECONDS", 0.01)
    monkeypatch.setattr(job_died, "receivers", [])
    job_died.connect(lambda **_: go_on.wait(PATIENCE_SECONDS), weak=False)
    app.noop.enqueue_many([()] * 2)
    cycle(consumer)
    consumer.slots.finish(Fate.DIED, reason=DeathReason.DISCARDED)
    cycle(consumer)
    consumer.slots.finish()
    cycle(consumer)
    assert SucceededJob.objects.count() == 1
    consumer.stop()
    consumer.run()
    assert "Receivers of signals have not returned" in caplog.text
    go_on.set()
    assert consumer._receivers.close(PATIENCE_SECONDS)


@pytest.fixture
def listening(transactional_db, settings):
    """A consumer that listens on its own connection, does not poll, and has found nothing."""
    settings.PGQUEUE = {"POLL_SECONDS": 3600}
    shared = SharedState()
    shared.extend_lease(now() + 3600)
    made = Consumer(1, ("default", "mail"), Benched(4, shared, Mailbox()), shared)
    made.listen()
    made._cycle()
    turn(made)
    yield made
    made.database.close()


def turn(consumer):
    """Do what the consumer repeats, but for the wait."""
    consumer._collect(0.0)
    consumer._cycle()


def wait_and_claim(consumer):
    """Let the consumer wait for as long as it likes, and claim; return the ids of its jobs so far."""
    consumer._collect(PATIENCE_SECONDS)
    consumer._cycle()
    return [job.id for _, job in consumer.slots.accepted]


def test_notification_reaches_the_claim_without_any_other_process(listening):
    with transaction.atomic():
        handle = app.noop.enqueue()
    assert wait_and_claim(listening) == [handle.id]


def test_notification_that_came_along_with_an_answer_is_not_waited_for(listening):
    handle = app.noop.enqueue()
    listening.database.rows("SELECT 1", {})
    assert wait_and_claim(listening) == [handle.id]


def test_queue_that_is_not_served_is_not_asked_for(listening):
    for payload in ("other", "mail"):
        listening._hear(payload)
    assert list(listening._announced) == [["mail"]]


def test_consumer_whose_connection_was_cut_while_it_waited_looks_when_it_listens_again(listening, sql):
    assert sql("SELECT pg_terminate_backend(%s, 30000)", listening.database.autocommit().info.backend_pid) == [(True,)]
    handle = app.noop.enqueue()
    listening._collect(PATIENCE_SECONDS)
    assert listening._backoff.failures == 1
    assert not listening.database.is_listening
    eventually(lambda: turn(listening) or listening.slots.accepted)
    assert [job.id for _, job in listening.slots.accepted] == [handle.id]
    assert listening.database.is_listening


def test_settings_of_transactions_are_made_once_for_a_session_that_listens(listening, queue):
    timeout = "SELECT current_setting('statement_timeout'), current_setting('enable_sort')"
    [own] = listening.database.autocommit().execute(timeout).fetchall()
    with queue.transaction():
        assert queue.rows(timeout, {}) == [own]
    assert own == ("30s", "off")


def test_idle_sessions_of_the_queue_are_not_ended(queue, monkeypatch):
    monkeypatch.setitem(queue._wrapper.settings_dict["OPTIONS"], "options", "-c idle_session_timeout=60000")
    queue.close()
    assert queue.rows("SHOW idle_session_timeout", {}) == [("0",)]


def test_consumer_looks_everywhere_after_it_has_said_that_it_sleeps(listening, sql):
    """Callers that have committed and asked before that did not notify it."""
    assert listening._is_asleep
    listening._called_at = math.inf
    handle = app.noop.enqueue()
    assert wait_and_claim(listening) == [handle.id]
    assert not listening._is_asleep
    sql("INSERT INTO pgqueue_jobs (task, queue) VALUES ('tests.app.tasks.noop', 'mail')")
    turn(listening)
    assert (len(listening.slots.accepted), listening._is_asleep) == (2, True)


def test_consumer_that_is_called_now_and_then_stays_asleep_and_is_called_again(listening):
    ids = []
    for _ in range(3):
        listening._called_at = 0.0
        ids.append(app.noop.enqueue().id)
        assert wait_and_claim(listening) == ids
        assert listening._is_asleep


def test_consumer_that_is_called_often_is_awake_and_spares_callers_the_notification(listening):
    first = app.noop.enqueue().id
    assert wait_and_claim(listening) == [first]
    assert listening._is_asleep
    listening._called_at = math.inf
    second = app.noop.enqueue().id
    assert wait_and_claim(listening) == [first, second]
    assert not listening._is_asleep


def test_consumer_that_is_called_reads_limits_that_have_changed_along_with_the_claim(listening):
    listening._limits.tell()
    handle = app.noop.enqueue()
    assert wait_and_claim(listening) == [handle.id]
    assert not listening._limits._is_told
    assert not listening._is_asleep


def test_claim_that_fails_when_the_consumer_is_called_is_made_again(listening, monkeypatch):
    handle = app.noop.enqueue()
    listening._collect(PATIENCE_SECONDS)
    with monkeypatch.context() as patch:
        patch.setattr(listening, "_claim", lambda **_: listening.database.rows("SELECT 1 FROM nothing", {}))
        listening._cycle()
    assert not listening.slots.accepted
    eventually(lambda: turn(listening) or [job.id for _, job in listening.slots.accepted] == [handle.id])


def test_consumer_whose_slots_are_busy_does_not_sleep_and_is_not_notified(listening, queue):
    ids = enqueued_ids(app.noop, [()] * 6)
    assert wait_and_claim(listening) == ids[:4]
    turn(listening)
    assert not listening._is_asleep
    heard = []
    listening._hear = heard.append
    app.noop.enqueue()
    listening.database.rows("SELECT 1", {})
    listening.database.take_notifications()
    assert heard == []


def test_consumer_sleeps_though_its_look_fails_and_is_notified(listening, monkeypatch):
    """Else it would neither wait nor learn of any job."""
    with monkeypatch.context() as patch:
        patch.setattr(queue_cursor, "ready_queues", lambda database, _: database.rows("SELECT 1 FROM nothing", {}))
        listening.wake()
        cycles(listening, 2)
        assert listening._cursors._failed_looks == 1
        listening._cursors._retry_look_at += 3600
        cycles(listening, 3)
        assert listening._due_at() > now()
        handle = app.noop.enqueue()
        assert wait_and_claim(listening) == [handle.id]
