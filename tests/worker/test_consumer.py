"""The consumer, driven turn by turn in this process, against real rows."""

import queue as stdlib_queue
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import psycopg
import pytest
from django.db import OperationalError, connection, transaction

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from django_pgqueue.db.errors import Silence
from django_pgqueue.jobs import ack, leases
from django_pgqueue.jobs.ack import release
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import DeadJob, FinishedJob, Job
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.states import Reason
from django_pgqueue.worker import consumer as errands_module
from django_pgqueue.worker import queue_cursor as intake_module
from django_pgqueue.worker.consumer import WORTHWHILE, Consumer, Prefetch
from django_pgqueue.worker.shared_state import CAPACITY, SharedState, now
from django_pgqueue.worker.slots import Slots
from tests.support.consumers import turn
from tests.support.slots import ended
from tests.support.waiting import PATIENCE_SECONDS, eventually, until_gone


@pytest.fixture(autouse=True)
def _slots_end() -> Iterator[None]:
    with ended():
        yield


def test_consumer_fills_its_slots_and_no_more(consumer):
    enqueue_many(app.noop, [()] * 10)
    turn(consumer)
    assert len(consumer.slots.accepted) == 4
    turn(consumer)
    assert len(consumer.slots.accepted) == 4
    consumer.slots.finish()
    turn(consumer)
    assert (len(consumer.slots.accepted), FinishedJob.objects.count()) == (4, 1)


def test_marks_tell_what_is_held_and_what_was_started(consumer):
    enqueue_many(app.noop, [()] * 2)
    turn(consumer)
    shared = consumer._shared
    held = {job.id ^ job.lease_token for _, job in consumer.slots.accepted}
    assert shared.held() - {0} == held
    assert shared.started() == set()
    cell, job = consumer.slots.accepted[0]
    shared.start(cell)
    assert shared.started() == {job.id ^ job.lease_token}
    consumer.slots.finish()
    consumer.slots.finish()
    turn(consumer)
    assert shared.held() == {0}
    assert len(consumer._in_flight._free) == CAPACITY


def test_cell_in_which_a_job_was_started_begins_anew_with_the_next_one():
    shared = SharedState()
    shared.hold([7], [SimpleNamespace(id=1, lease_token=2)])
    shared.start(7)
    assert shared.started() == {1 ^ 2}
    shared.free([7])
    shared.hold([7], [SimpleNamespace(id=4, lease_token=8)])
    assert (shared.started(), shared.held() - {0}) == (set(), {4 ^ 8})


def test_locked_row_stays_in_the_buffer_and_the_others_are_written(consumer):
    ids = enqueue_many(app.noop, [()] * 4)
    turn(consumer)
    for _ in range(4):
        consumer.slots.finish()
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=ids[0])
        before = time.monotonic()
        turn(consumer)
        assert FinishedJob.objects.count() == 3
        assert [outcome.job.id for outcome in consumer._in_flight._blocked.values()] == [ids[0]]
        until = consumer._in_flight.blocked_until()
        assert before < until <= time.monotonic() + 0.1, "it must neither wait for the row nor ask without a pause"
    consumer._in_flight._blocked_until = 0.0
    turn(consumer)
    assert (FinishedJob.objects.count(), consumer._in_flight.unwritten, consumer._in_flight._blocked) == (4, {}, {})


def test_outcome_that_the_database_refuses_is_found_and_buried_alone(consumer):
    """Three good outcomes and one whose result is no JSON: the flush fails, is halved, and only the bad one pays."""
    ids = enqueue_many(app.noop, [()] * 4)
    turn(consumer)
    for number in range(4):
        consumer.slots.finish(result="no json" if number == 2 else "1")
    turn(consumer)
    turn(consumer)
    assert sorted(FinishedJob.objects.values_list("id", flat=True)) == [ids[0], ids[1], ids[3]]
    dead = DeadJob.objects.get()
    assert (dead.id, dead.reason, dead.errors[0]["refused"]) == (ids[2], "discarded", "succeeded")
    assert "invalid input syntax for type json" in dead.errors[0]["message"]
    assert consumer._in_flight.held() == 0


def test_error_of_a_refused_outcome_is_stored_without_the_row_that_it_quotes(consumer):
    app.noop.using(metadata={"note": "of no concern"}).enqueue()
    turn(consumer)
    consumer.slots.finish(Fate.RELEASED, delay_seconds=3e11)  # later than any job may be due
    turn(consumer)
    turn(consumer)
    [error] = DeadJob.objects.get().errors
    assert "violates check constraint" in error["message"]
    assert "concern" not in error["message"]


def test_outcome_that_cannot_even_be_buried_is_left_to_its_lease(consumer, sql):
    [job_id] = enqueue_many(app.noop, [()])
    turn(consumer)
    sql(
        "INSERT INTO pgqueue_dead_jobs (id, run_at, enqueued_at, reason, queue, task) "
        "VALUES (%s, now(), now(), 'lost', 'q', 't')",
        job_id,
    )
    consumer.slots.finish(fate=Fate.DIED, reason=Reason.EXHAUSTED, error={"kind": "failed", "error": "x"})
    for _ in range(3):
        turn(consumer)
    assert Job.objects.get(pk=job_id).status == "running"
    assert consumer._in_flight.unwritten == {}
    assert CAPACITY - consumer._in_flight.free() == 1, (
        "the supervisor must not take it for a claim that was never answered"
    )


def test_outcomes_survive_a_database_that_is_away(consumer, monkeypatch, caplog):
    enqueue_many(app.noop, [()] * 4)
    turn(consumer)
    for _ in range(4):
        consumer.slots.finish()
    settings = consumer.database._wrapper.settings_dict
    host, settings["HOST"] = settings["HOST"], "/nowhere"
    consumer.database.close()
    for _ in range(3):
        consumer._backoff._retry_at = 0.0
        before = time.monotonic()
        turn(consumer)
    assert consumer._backoff.failures == 3
    assert consumer._backoff._retry_at > before
    consumer._backoff._retry_at += 3600  # its time may come before the next line
    turn(consumer)
    assert consumer._backoff.failures == 3, "it tries again before its time"
    assert (len(consumer._in_flight.unwritten), FinishedJob.objects.count()) == (4, 0)
    settings["HOST"] = host
    consumer._backoff._retry_at = 0.0
    turn(consumer)
    assert (len(consumer._in_flight.unwritten), FinishedJob.objects.count()) == (0, 4)
    assert caplog.text.count("The consumer cannot work with the database") == 1
    assert caplog.text.count("The consumer works again after 3 failures") == 1


def test_cut_connection_is_logged_by_the_consumer_alone(consumer, queue, sql, caplog):
    """The driver has nothing to add on a logger of its own."""
    enqueue_many(app.noop, [()] * 4)
    for _ in range(2):
        turn(consumer)
        session = consumer.database.autocommit().info.backend_pid
        sql("SELECT pg_terminate_backend(%s)", session)
        until_gone(queue, session)
        consumer.slots.finish()
        turn(consumer)
        assert consumer._backoff.failures == 1
        consumer._backoff._retry_at = 0.0
        turn(consumer)
    consumer.database.close()
    with pytest.raises(LookupError), consumer.database.transaction():
        consumer.database.rows("SELECT 1", {})
        raise LookupError
    assert [record.getMessage() for record in caplog.records if record.name.startswith("psycopg")] == []
    assert FinishedJob.objects.count() == 2


def test_outcome_whose_commit_was_never_answered_is_not_called_stale(consumer, sql, monkeypatch, caplog):
    """The second try finds no row, because the first has removed it; what is stale later on is called so."""
    enqueue_many(app.noop, [()] * 2)
    turn(consumer)
    receipt = ack.receipt

    def lose_the_answer(*_):
        monkeypatch.setattr(ack, "receipt", receipt)
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(ack, "receipt", lose_the_answer)
    consumer.slots.finish()
    turn(consumer)
    assert (FinishedJob.objects.count(), len(consumer._in_flight.unwritten), consumer._backoff.failures) == (1, 1, 1)
    consumer._backoff._retry_at = 0.0
    turn(consumer)
    assert (FinishedJob.objects.count(), consumer._in_flight.unwritten, consumer._backoff.failures) == (1, {}, 0)
    assert "Stale result dropped" not in caplog.text
    sql("UPDATE pgqueue_jobs SET status = 'queued', lease_token = 0, worker_id = 0")
    consumer.slots.finish()
    turn(consumer)
    assert caplog.text.count("Stale result dropped") == 1


def test_outcomes_in_doubt_stay_so_until_each_is_written_again(consumer, monkeypatch, caplog):
    """After a long silence they are written half by half, and the first half must not end the doubt for the other."""
    enqueue_many(app.noop, [()] * 4)
    turn(consumer)
    receipt = ack.receipt

    def fall_silent(*_):
        monkeypatch.setattr(ack, "receipt", receipt)
        raise OperationalError("no answer") from Silence()

    monkeypatch.setattr(ack, "receipt", fall_silent)
    for _ in range(4):
        consumer.slots.finish()
    turn(consumer)
    for left in (2, 0):
        consumer._backoff._retry_at = 0.0
        turn(consumer)
        assert len(consumer._in_flight.unwritten) == left
    assert FinishedJob.objects.count() == 4
    assert "Stale result dropped" not in caplog.text
    assert not consumer._backoff.in_doubt


KEPT_OR_NOT = pytest.mark.parametrize("keep", [True, False], ids=["kept", "not kept"])


def run_elsewhere(queue, sql) -> None:
    """Let another worker take the job away from the consumer and run it."""
    sql("UPDATE pgqueue_jobs SET status = 'queued', lease_token = 0, worker_id = 0")
    [job] = claim(queue, "default", limit=1, worker_id=2)
    assert ack.write(queue, [Outcome(job, Fate.SUCCEEDED)]).stale == frozenset()


@KEPT_OR_NOT
def test_outcome_that_could_not_even_be_sent_is_stale_when_another_worker_has_run_the_job(
    consumer, queue, sql, caplog, keep
):
    """As after a network that was cut, or in a process that thaws while the primary is away."""
    counted = []
    consumer._follow_ups.count = lambda outcomes, stale: counted.append((list(outcomes), stale))
    [job_id] = enqueue_many(app.noop.using(keep=keep), [()])
    turn(consumer)
    consumer.slots.finish()
    settings = consumer.database._wrapper.settings_dict
    host, settings["HOST"] = settings["HOST"], "/nowhere"
    consumer.database.close()
    turn(consumer)
    assert (consumer._backoff.failures, consumer._backoff.in_doubt) == (1, set())
    run_elsewhere(queue, sql)
    settings["HOST"] = host
    consumer._backoff._retry_at = 0.0
    turn(consumer)
    assert caplog.text.count("Stale result dropped") == 1
    assert [stale for outcomes, stale in counted if outcomes] == [{job_id}]


@pytest.fixture
def cut_at_commit(sql):
    """Let the first session that takes a job away end at its commit, which is rolled back."""
    sql("CREATE SEQUENCE pgqueue_trouble")
    sql(
        "CREATE FUNCTION pgqueue_fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF nextval('pgqueue_trouble') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()), pg_sleep(60); END IF; "
        "RETURN NULL; END $$"
    )
    sql(
        "CREATE CONSTRAINT TRIGGER fail AFTER DELETE ON pgqueue_jobs DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION pgqueue_fail()"
    )
    yield
    sql("DROP FUNCTION pgqueue_fail CASCADE")
    sql("DROP SEQUENCE pgqueue_trouble")


@pytest.mark.usefixtures("cut_at_commit")
@pytest.mark.parametrize("fate", [Fate.SUCCEEDED, Fate.DIED])
def test_outcome_in_doubt_is_stale_when_another_worker_has_run_the_job(consumer, queue, sql, caplog, fate):
    """The answers do not tell: what the database holds of the job does."""
    enqueue_many(app.noop, [()])
    turn(consumer)
    session = consumer.database.autocommit().info.backend_pid
    consumer.slots.finish(fate, reason=Reason.EXHAUSTED, error={"kind": "failed", "error": "x"})
    turn(consumer)
    until_gone(queue, session)
    assert (consumer._backoff.failures, len(consumer._backoff.in_doubt)) == (1, 1)
    run_elsewhere(queue, sql)
    consumer._backoff._retry_at = 0.0
    turn(consumer)
    assert caplog.text.count("Stale result dropped") == 1
    assert (consumer._in_flight.held(), consumer._backoff.in_doubt) == (0, set())


@KEPT_OR_NOT
@pytest.mark.parametrize("fate", [Fate.SUCCEEDED, Fate.RETRIED, Fate.DIED, Fate.REPEATED])
def test_outcome_of_each_kind_that_was_committed_without_an_answer_is_not_stale(
    consumer, monkeypatch, caplog, fate, keep
):
    enqueue_many(app.noop.using(keep=keep), [()])
    turn(consumer)
    receipt = ack.receipt

    def lose_the_answer(*_):
        monkeypatch.setattr(ack, "receipt", receipt)
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(ack, "receipt", lose_the_answer)
    consumer.slots.finish(fate, reason=Reason.EXHAUSTED, error={"kind": "failed", "error": "x"}, delay_seconds=60)
    turn(consumer)
    assert len(consumer._backoff.in_doubt) == 1
    consumer._backoff._retry_at = 0.0
    turn(consumer)
    assert (consumer._in_flight.held(), consumer._backoff.failures) == (0, 0)
    assert "Stale result dropped" not in caplog.text


def test_outcome_that_the_server_has_rolled_back_is_not_in_doubt(consumer, trouble):
    enqueue_many(app.noop, [()])
    turn(consumer)
    consumer.slots.finish()
    trouble("40001", 1, 1)
    turn(consumer)
    assert (consumer._backoff.failures, consumer._backoff.in_doubt) == (1, set())


def test_jobs_fetched_ahead_go_back_when_no_slot_begins_them(consumer, monkeypatch):
    enqueue_many(app.noop, [()] * 20)
    consumer._prefetch.prefetch = 10
    consumer._prefetch._since += 3600  # the speed of this machine is not to matter
    turn(consumer)
    turn(consumer)
    assert len(consumer.slots.accepted) == 10, "in halves of the work ahead; too little room is left for another one"
    monkeypatch.setattr("django_pgqueue.worker.consumer.STALLED_SECONDS", 0.0)
    for _ in range(4):
        consumer._look_again_at = 0.0
        turn(consumer)
    assert len(consumer.slots.accepted) == 4
    assert Job.objects.filter(status="queued", attempts=0).count() == 16


def test_only_what_is_not_begun_goes_back(consumer):
    """As when slots for plain tasks are all busy, and those for async ones go on."""
    enqueue_many(app.noop, [()] * 8)
    consumer._prefetch.prefetch = 4
    consumer._prefetch._since += 3600
    turn(consumer)
    turn(consumer)
    first = [job for _, job in consumer.slots.accepted[4:6]]
    consumer._look_again_at = 0.0
    consumer._unbegun = {job.run_id for job in first}
    consumer._release_stalled()
    consumer._look_again_at += 3600
    turn(consumer)
    assert {job.id for _, job in consumer.slots.accepted}.isdisjoint({job.id for job in first})
    assert sorted(Job.objects.filter(status="queued", attempts=0).values_list("id", flat=True)) == [
        job.id for job in first
    ]


def test_careful_consumer_claims_the_next_job_when_the_last_one_has_ended_or_runs_for_a_second(consumer):
    consumer._careful_until = time.monotonic() + 3600
    consumer._prefetch.prefetch = 8
    consumer._prefetch._since += 3600
    ids = enqueue_many(app.noop, [()] * 10)
    consumer._found_at = time.monotonic() + 3600
    turn(consumer)
    turn(consumer)
    consumer._found_at = time.monotonic() + 3600
    consumer._shared.start(consumer.slots.accepted[0][0])
    turn(consumer)
    assert accepted(consumer) == ids[:1], "one at a time"
    consumer.slots.finish()
    turn(consumer)
    assert accepted(consumer) == ids[1:2], "it has ended"
    for number in (2, 3, 4, 5):
        consumer._found_at = time.monotonic() - 1
        turn(consumer)
        assert accepted(consumer) == ids[1:number], "one that was not begun is waited for"
        assert consumer._patience() < 0.1, "and it looks soon whether it was"
        consumer._shared.start(consumer.slots.accepted[-1][0])
        turn(consumer)
    consumer._found_at = time.monotonic() - 1
    turn(consumer)
    assert accepted(consumer) == ids[1:5], "none is fetched ahead"
    consumer._careful_until = 0.0
    consumer._prefetch.prefetch = 8
    turn(consumer)
    turn(consumer)
    assert accepted(consumer) == ids[1:]


def test_others_are_told_of_jobs_that_are_given_back(consumer, monkeypatch, sql):
    """Idle workers poll seldom, and would leave them alone for that long; they are queued when that is said."""
    told = []
    monkeypatch.setattr(
        consumer._follow_ups,
        "call_others",
        lambda queues: told.append((set(queues), Job.objects.filter(status="queued", queue__in=queues).count())),
    )
    for name in ("default", "mail"):
        enqueue_many(app.noop.using(queue=name), [()] * 4)
    consumer._prefetch.prefetch = 8
    consumer._prefetch._since += 3600
    for _ in range(3):
        turn(consumer)
    assert (len(consumer.slots.accepted), told) == (8, [])
    consumer.stop()
    turn(consumer)
    [(queues, number)] = told
    assert (queues <= {"default", "mail"}, number) == (True, 4)
    consumer.slots.finish()
    turn(consumer)
    assert len(told) == 1


def test_job_that_was_only_just_handed_over_has_not_stalled(consumer):
    """However long nothing happened before."""
    consumer._look_again_at -= 60
    consumer.slots.concurrency = 0  # every accepted job counts as waiting for a slot
    consumer._prefetch.prefetch = 4
    enqueue_many(app.noop, [()] * 2)
    turn(consumer)
    assert len(consumer.slots.accepted) == 2
    consumer._look_again_at = 0.0
    turn(consumer)
    assert len(consumer.slots.accepted) == 2
    assert Job.objects.filter(status="running", attempts=1).count() == 2


def enqueue_suspect(sql) -> int:
    [suspect] = enqueue_many(app.noop, [()])
    sql("UPDATE pgqueue_jobs SET lost = 2 WHERE id = %s", suspect)
    return suspect


def accepted(consumer) -> list[int]:
    return [job.id for _, job in consumer.slots.accepted]


def test_job_that_was_lost_twice_runs_alone(consumer, sql, caplog):
    before = enqueue_many(app.noop, [()] * 2)
    suspect = enqueue_suspect(sql)
    begun = time.monotonic()
    turn(consumer)
    assert begun + 10 <= consumer._isolation.until <= time.monotonic() + 10
    consumer._isolation.until += 3600
    assert accepted(consumer) == before, "it waits until nothing else runs"
    after = enqueue_many(app.noop, [()] * 2)
    turn(consumer)
    assert accepted(consumer) == before, "and nothing else begins"
    consumer.slots.finish()
    turn(consumer)
    assert accepted(consumer) == before[1:]
    consumer.slots.finish()
    turn(consumer)
    assert accepted(consumer) == [suspect]
    turn(consumer)
    assert accepted(consumer) == [suspect]
    assert f"Job {suspect} (tests.app.tasks.noop) was lost 2 times: it runs alone" in caplog.text
    consumer.slots.finish()
    turn(consumer)
    assert accepted(consumer) == after


def test_suspects_run_one_after_the_other(consumer, sql):
    suspects = [enqueue_suspect(sql), enqueue_suspect(sql)]
    turn(consumer)
    assert accepted(consumer) == suspects[:1]
    turn(consumer)
    assert accepted(consumer) == suspects[:1]
    other = Job.objects.get(pk=suspects[1])
    assert (other.status, other.attempts) == ("queued", 0), "another process may be free for it"
    consumer.slots.finish()
    turn(consumer)
    assert accepted(consumer) == suspects[1:]


def test_suspect_begins_beside_jobs_that_do_not_end(consumer, sql):
    before = enqueue_many(app.noop, [()])
    suspect = enqueue_suspect(sql)
    turn(consumer)
    consumer._isolation.until = time.monotonic()
    turn(consumer)
    assert accepted(consumer) == [*before, suspect]


def test_suspect_that_takes_long_does_not_stop_the_queue(consumer, sql):
    suspect = enqueue_suspect(sql)
    begun = time.monotonic()
    turn(consumer)
    after = enqueue_many(app.noop, [()])
    assert begun + 60 <= consumer._isolation.until <= time.monotonic() + 60
    consumer._isolation.until = time.monotonic()
    turn(consumer)
    assert accepted(consumer) == [suspect, *after]


def test_suspect_that_no_slot_begins_does_not_keep_the_child_for_itself(consumer, sql):
    enqueue_many(app.noop, [()] * 4)
    suspect = enqueue_suspect(sql)
    consumer._prefetch.prefetch = 10
    turn(consumer)
    consumer._isolation.until = time.monotonic()
    turn(consumer)
    assert accepted(consumer)[4:] == [suspect], "all slots are busy"
    consumer._prefetch.prefetch = 0
    consumer._shared.cap_lease(0)
    consumer._shared.renew_lease(now() + 60)
    turn(consumer)
    assert Job.objects.get(pk=suspect).status == "queued"
    assert not consumer._isolation.want_the_child()


def test_suspect_that_has_not_begun_goes_back_when_the_consumer_stops(consumer, sql):
    enqueue_many(app.noop, [()])
    suspect = enqueue_suspect(sql)
    turn(consumer)
    consumer.stop()
    turn(consumer)
    assert Job.objects.get(pk=suspect).status == "queued"
    consumer.slots.finish()
    consumer.run()


def test_stop_gives_back_what_waits_and_takes_no_more(consumer):
    enqueue_many(app.noop, [()] * 20)
    consumer._prefetch.prefetch = 10
    turn(consumer)
    consumer.stop()
    turn(consumer)
    assert Job.objects.filter(status="running").count() == 4
    for _ in range(4):
        consumer.slots.finish()
    consumer.run()
    assert (FinishedJob.objects.count(), Job.objects.filter(status="queued", attempts=0).count()) == (4, 16)


def test_busy_consumer_waits_instead_of_spinning(consumer):
    enqueue_many(app.noop, [()] * 4)
    turn(consumer)
    assert len(consumer.slots.accepted) == 4
    consumer._cursors.mark_ready(None)
    assert consumer._patience() > 0.5, "with all slots busy there is nothing to look for"
    consumer.stop()
    turn(consumer)
    assert consumer._patience() > 0.5, "while the last jobs finish there is nothing to do"
    for _ in range(4):
        consumer.slots.finish()
    consumer.run()


def test_old_run_of_a_job_ends_beside_the_new_one(consumer, sql):
    """The job lost its lease, and this very process claimed it again while the old run went on."""
    enqueue_many(app.noop, [()])
    turn(consumer)
    sql("UPDATE pgqueue_jobs SET status = 'queued', lease_token = 0, worker_id = 0")
    turn(consumer)
    assert len(consumer.slots.accepted) == 2
    consumer.slots.finish(result='"old"')
    turn(consumer)
    assert CAPACITY - consumer._in_flight.free() == 1
    assert FinishedJob.objects.count() == 0
    consumer.slots.finish(result='"new"')
    turn(consumer)
    assert FinishedJob.objects.get().result == "new"
    assert len(consumer._in_flight._free) == CAPACITY


@pytest.mark.parametrize("first", ["old", "new"])
def test_both_runs_of_a_job_may_end_before_one_flush(consumer, sql, first):
    enqueue_many(app.noop, [()])
    turn(consumer)
    sql("UPDATE pgqueue_jobs SET status = 'queued', lease_token = 0, worker_id = 0")
    turn(consumer)
    if first == "new":
        consumer.slots.accepted.reverse()
    for result in (first, {"old": "new", "new": "old"}[first]):
        consumer.slots.finish(result=f'"{result}"')
    turn(consumer)
    turn(consumer)
    assert FinishedJob.objects.get().result == "new"
    assert len(consumer._in_flight._free) == CAPACITY


def test_schema_change_under_a_prepared_statement_harms_no_outcome(consumer, sql):
    for _ in range(5):
        enqueue_many(app.noop, [()] * 4)
        turn(consumer)
        for _ in range(4):
            consumer.slots.finish()
    sql("ALTER TABLE pgqueue_jobs ALTER COLUMN queue TYPE varchar(200)")
    try:
        for _ in range(3):
            consumer._backoff._retry_at = 0.0
            turn(consumer)
        assert (FinishedJob.objects.count(), DeadJob.objects.count()) == (20, 0)
    finally:
        sql("ALTER TABLE pgqueue_jobs ALTER COLUMN queue TYPE text")


def test_prepared_statements_that_are_gone_harm_no_outcome(consumer):
    for _ in range(5):
        enqueue_many(app.noop, [()] * 4)
        turn(consumer)
        for _ in range(4):
            consumer.slots.finish()
    consumer.database.autocommit().execute("DEALLOCATE ALL", prepare=False)
    for _ in range(3):
        consumer._backoff._retry_at = 0.0
        turn(consumer)
    assert (FinishedJob.objects.count(), DeadJob.objects.count()) == (20, 0)


def test_server_that_was_read_only_is_left_for_a_new_connection(consumer, sql):
    enqueue_many(app.noop, [()])
    turn(consumer)
    consumer.slots.finish()
    name = connection.settings_dict["NAME"]
    sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    try:
        consumer.database.close()
        turn(consumer)
        assert consumer._backoff.failures == 1
    finally:
        sql("SET default_transaction_read_only = off")
        sql(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
    consumer._backoff._retry_at = 0.0
    turn(consumer)
    assert FinishedJob.objects.count() == 1


def test_flush_that_takes_too_long_is_made_smaller(consumer):
    enqueue_many(app.noop, [()] * 4)
    turn(consumer)
    for _ in range(4):
        consumer.slots.finish()
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION pgqueue_slow() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN IF (SELECT count(*) FROM gone) > 2 THEN RAISE query_canceled; END IF; RETURN NULL; END $$"
        )
        cursor.execute(
            "CREATE TRIGGER slow AFTER DELETE ON pgqueue_jobs REFERENCING OLD TABLE AS gone "
            "FOR EACH STATEMENT EXECUTE FUNCTION pgqueue_slow()"
        )
    try:

        def try_again() -> bool:
            consumer._backoff._retry_at = 0.0
            turn(consumer)
            return FinishedJob.objects.count() == 4

        eventually(try_again)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION pgqueue_slow CASCADE")


def test_consumer_claims_nothing_when_the_lease_of_its_process_has_passed(consumer):
    consumer._shared.extend_lease(now() - 1)
    enqueue_many(app.noop, [()])
    turn(consumer)
    assert (consumer.slots.accepted, Job.objects.get().status) == ([], "queued")


def test_job_is_not_started_after_the_lease_of_its_process(transactional_db):
    shared = SharedState()
    shared.extend_lease(now() - 1)
    outbox = stdlib_queue.SimpleQueue()
    consumer = Consumer(1, (), Slots(2, shared, outbox), shared)
    enqueue_many(app.record, [("x",)])
    [job] = claim(consumer.database, "default", limit=1, worker_id=1)
    cell = consumer._in_flight._free.pop()
    consumer.slots.accept(cell, job)
    released = outbox.get(timeout=PATIENCE_SECONDS)
    assert (released[0], released[1].fate) == (cell, Fate.RELEASED)
    outbox.put(released)
    consumer.stop()
    consumer.run()
    assert (Job.objects.get().status, Job.objects.get().attempts) == ("queued", 0)
    for thread in threading.enumerate():
        assert "pgqueue" not in thread.name or thread.daemon


def test_lease_that_had_lapsed_is_not_simply_renewed():
    shared = SharedState()
    shared.extend_lease(now() + 60)
    shared.renew_lease(now() + 61)
    assert (shared.is_lease_valid(), shared.has_lease_lapsed()) == (True, False)
    shared.extend_lease(now() - 1)
    assert (shared.is_lease_valid(), shared.has_lease_lapsed()) == (False, False)
    for _ in range(2):  # the child may not have looked between two heartbeats
        shared.renew_lease(now() + 60)
        assert (shared.is_lease_valid(), shared.has_lease_lapsed()) == (False, True)
    shared.accept_lapse()
    assert (shared.is_lease_valid(), shared.has_lease_lapsed()) == (True, False)


def test_what_was_fetched_before_a_lapse_goes_back_before_anything_is_started(transactional_db):
    """As after a stall of the network for longer than a lease: others may have run it meanwhile."""
    shared = SharedState()
    shared.extend_lease(now() + 60)
    consumer = Consumer(1, (), Slots(1, shared, stdlib_queue.SimpleQueue()), shared)
    app.sleep_for_ever.using(priority=1).enqueue()
    waiting = app.noop_async.enqueue().id
    first, second = claim(consumer.database, "default", limit=2, worker_id=1)
    consumer._accept([first, second])
    eventually(lambda: shared.started() == {first.run_id})
    shared.extend_lease(now() - 1)
    shared.renew_lease(now() + 60)
    consumer._cycle()
    assert list(Job.objects.filter(status="queued").values_list("id", "attempts")) == [(waiting, 0)]
    assert shared.is_lease_valid()
    consumer.slots.cancel(first.run_id)
    eventually(lambda: turn(consumer) or FinishedJob.objects.filter(pk=waiting, attempts=1).exists())
    consumer.database.close()


def test_lane_that_was_about_to_begin_a_job_leaves_it_to_those_who_were_given_it_meanwhile(queue, registry_of):
    """A job has held the event loop for so long that the heartbeat has given back what that was about to begin."""
    shared, is_full, is_over, begun = SharedState(), threading.Event(), threading.Event(), []

    async def hold_the_loop():
        begun.append("hog")
        is_over.wait(PATIENCE_SECONDS)

    async def fetched():
        begun.append("fetched")

    shared.extend_lease(now() + 60)
    consumer = Consumer(1, (), Slots(2, shared, stdlib_queue.SimpleQueue()), shared)
    for func in (hold_the_loop, fetched):
        registry_of(func).enqueue()
    try:
        consumer.slots._lanes._start().call_soon_threadsafe(is_full.wait, PATIENCE_SECONDS)
        consumer._accept(claim(consumer.database, "default", limit=2, worker_id=1))
        is_full.set()  # now it opens a lane for each of the two, and then runs what is in the first
        eventually(lambda: begun)
        shared.cap_lease(now())
        assert release(queue, [one for one in leases.worker_leases(queue, [1]) if one.run_id in shared.unbegun()])
        assert [job.task for job in claim(queue, "default", limit=2, worker_id=2)] == [f"{__name__}.fetched"]
        shared.renew_lease(now() + 60)
        consumer._cycle()
        assert shared.is_lease_valid()
        is_over.set()
        eventually(lambda: turn(consumer) or not consumer._in_flight.held())
        assert begun == ["hog"]
    finally:
        is_full.set()
        is_over.set()
        consumer.database.close()


def test_nothing_is_started_between_a_renewal_after_a_lapse_and_the_next_turn(transactional_db):
    shared, outbox = SharedState(), stdlib_queue.SimpleQueue()
    shared.extend_lease(now() - 1)
    shared.renew_lease(now() + 60)
    consumer = Consumer(1, (), Slots(1, shared, outbox), shared)
    app.noop.enqueue()
    consumer._accept(claim(consumer.database, "default", limit=1, worker_id=1))
    assert outbox.get(timeout=PATIENCE_SECONDS)[1].fate is Fate.RELEASED
    assert shared.started() == set()
    consumer.database.close()


@pytest.fixture
def clock(monkeypatch):
    """What ``Speed`` reads: it stands still until the test moves it."""
    hands = [0.0]
    monkeypatch.setattr("django_pgqueue.worker.consumer.time", SimpleNamespace(monotonic=lambda: hands[0]))
    return hands


def test_prefetch_follows_the_speed_of_the_jobs(clock):
    speed = Prefetch()
    clock[0] += 1.0
    speed.measure(turns=0.005, finished=10_000)
    assert 250 < speed.prefetch < 350, "about 30 ms of 10,000 jobs a second"
    clock[0] += 1.0
    speed.measure(turns=0.005, finished=100)
    assert 120 < speed.prefetch < 180, "what is fast for a moment is not believed for long"
    speed.forget()
    assert speed.prefetch == 0


def test_speed_is_known_within_few_jobs_after_an_idle_time(clock):
    speed = Prefetch()
    speed.measure(turns=0.005, finished=31)
    assert speed.prefetch == 0
    speed.measure(turns=0.005, finished=1)
    assert speed.prefetch > 0


def test_queue_works_at_read_committed_whatever_the_server_prefers(queue, sql):
    name = connection.settings_dict["NAME"]
    sql(f"""ALTER DATABASE "{name}" SET default_transaction_isolation = 'serializable'""")
    try:
        queue.close()
        assert queue.rows("SELECT current_setting('transaction_isolation')", {}) == [("read committed",)]
        with pytest.raises(LookupError), queue.transaction():
            queue.rows("INSERT INTO pgqueue_jobs (task) VALUES ('x') RETURNING 1", {})
            raise LookupError
        assert Job.objects.count() == 0
    finally:
        sql(f'ALTER DATABASE "{name}" RESET default_transaction_isolation')
        queue.close()


def test_transaction_whose_body_fails_is_rolled_back(queue):
    with pytest.raises(LookupError), queue.transaction():
        queue.rows("INSERT INTO pgqueue_jobs (task) VALUES ('x') RETURNING 1", {})
        raise LookupError
    assert queue.rows("SELECT count(*) FROM pgqueue_jobs", {}) == [(0,)]


def test_refused_outcome_is_found_without_pipelines_too(consumer, monkeypatch):
    monkeypatch.setattr(psycopg.Pipeline, "is_supported", classmethod(lambda cls: False))
    enqueue_many(app.noop, [()] * 4)
    turn(consumer)
    for number in range(4):
        consumer.slots.finish(result="no json" if number == 2 else "1")
    for _ in range(3):
        turn(consumer)
    assert (FinishedJob.objects.count(), DeadJob.objects.count(), consumer._backoff.failures) == (3, 1, 0)


@pytest.fixture
def trouble(sql):
    """Let statements that take jobs away fail with an SQLSTATE, counted from 1, whatever is rolled back in between."""
    sql("CREATE SEQUENCE pgqueue_trouble")
    sql("CREATE TABLE pgqueue_plan (state text, first integer, last integer)")
    sql(
        "CREATE FUNCTION pgqueue_fail() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "DECLARE plan pgqueue_plan%ROWTYPE; number bigint := nextval('pgqueue_trouble'); BEGIN "
        "SELECT * INTO plan FROM pgqueue_plan; "
        "IF number BETWEEN plan.first AND plan.last THEN "
        "RAISE EXCEPTION 'as planned' USING ERRCODE = plan.state; END IF; RETURN NULL; END $$"
    )
    sql("CREATE TRIGGER fail BEFORE DELETE ON pgqueue_jobs FOR EACH STATEMENT EXECUTE FUNCTION pgqueue_fail()")
    yield lambda state, first, last: sql("INSERT INTO pgqueue_plan VALUES (%s, %s, %s)", state, first, last)
    sql("DROP FUNCTION pgqueue_fail CASCADE")
    sql("DROP TABLE pgqueue_plan")
    sql("DROP SEQUENCE pgqueue_trouble")


@pytest.mark.parametrize(
    "state",
    [
        "40001",
        "40P01",
        "53100",
        "53200",
        "53300",
        "55P03",
        "57014",
        "57P01",
        "57P03",
        "25006",
        "25P03",
        "25P04",
        "08006",
    ],
)
def test_outcomes_wait_for_a_database_that_is_in_trouble(consumer, trouble, state):
    """Serialization failure, deadlock, disk full, memory, connections, locks, time limits, shutdown, read-only."""
    enqueue_many(app.noop, [()] * 4)
    turn(consumer)
    for _ in range(4):
        consumer.slots.finish()
    trouble(state, 1, 2)
    for failures in (1, 2, 0):
        consumer._backoff._retry_at = 0.0
        turn(consumer)
        assert consumer._backoff.failures == failures
    for _ in range(3):  # fewer at once after some of them
        turn(consumer)
    assert (FinishedJob.objects.count(), DeadJob.objects.count(), consumer._in_flight.held()) == (4, 0, 0)


@pytest.fixture
def late_trouble(sql):
    """Let the first two transactions that take a job away fail when they commit."""
    sql("CREATE SEQUENCE pgqueue_trouble")
    sql(
        "CREATE FUNCTION pgqueue_fail() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "BEGIN IF nextval('pgqueue_trouble') <= 2 THEN RAISE 'too late'; END IF; RETURN NULL; END $$"
    )
    sql(
        "CREATE CONSTRAINT TRIGGER fail AFTER DELETE ON pgqueue_jobs DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION pgqueue_fail()"
    )
    yield
    sql("DROP FUNCTION pgqueue_fail CASCADE")
    sql("DROP SEQUENCE pgqueue_trouble")


def test_transaction_that_fails_at_its_commit_is_tried_again(consumer, queue, late_trouble, caplog):
    enqueue_many(app.noop, [()] * 4)
    turn(consumer)
    for _ in range(4):
        consumer.slots.finish()
    for failures in (1, 2, 0):
        consumer._backoff._retry_at = 0.0
        session = consumer.database.autocommit().info.backend_pid
        turn(consumer)
        assert consumer._backoff.failures == failures
        if failures:
            until_gone(queue, session)  # which may say that it has failed before it gives the rows back
    assert (FinishedJob.objects.count(), DeadJob.objects.count(), consumer._in_flight.held()) == (4, 0, 0)
    assert "too late" in caplog.text or "the transaction failed at its commit" in caplog.text
    assert "pipeline mode" not in caplog.text


def test_second_half_of_a_refused_batch_waits_when_the_first_meets_trouble(consumer, trouble, monkeypatch):
    """One outcome is refused, and when the halves are written apart the database is in trouble."""
    enqueue_many(app.noop, [()] * 4)
    turn(consumer)
    for number in range(4):
        consumer.slots.finish(result="no json" if number == 2 else "1")
    trouble("53100", 1, 1)  # a batch that is refused is not even begun
    written, write = [], ack.write
    monkeypatch.setattr(ack, "write", lambda *given: written.append(len(given[1])) or write(*given))
    turn(consumer)
    assert written == [4, 2], "the second half is not tried beside the trouble of the first"
    assert consumer._backoff.failures == 1
    for _ in range(3):
        consumer._backoff._retry_at = 0.0
        turn(consumer)
    assert (FinishedJob.objects.count(), DeadJob.objects.count(), consumer._in_flight.held()) == (3, 1, 0)


@pytest.fixture
def damaged(sql):
    """Let each claim fail that meets a job of this id, with an SQLSTATE."""
    sql("CREATE TABLE pgqueue_plan (id bigint, state text)")
    sql(
        "CREATE FUNCTION pgqueue_fail() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE code text; BEGIN "
        "SELECT state INTO code FROM pgqueue_plan WHERE id = NEW.id; "
        "IF code = '57P01' THEN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(60); END IF; "
        "IF FOUND THEN RAISE EXCEPTION 'a damaged row' USING ERRCODE = code; END IF; RETURN NEW; END $$"
    )
    sql(
        "CREATE TRIGGER fail BEFORE UPDATE ON pgqueue_jobs FOR EACH ROW WHEN (NEW.status = 'running') "
        "EXECUTE FUNCTION pgqueue_fail()"
    )
    yield lambda job_id, state: sql("INSERT INTO pgqueue_plan VALUES (%s, %s)", job_id, state)
    sql("DROP FUNCTION pgqueue_fail CASCADE")
    sql("DROP TABLE pgqueue_plan")


def turns(consumer, number: int) -> None:
    """Let the consumer do some turns, each as soon as one is allowed."""
    for _ in range(number):
        consumer._backoff._retry_at = consumer._backoff.claim_at = 0.0
        turn(consumer)


@pytest.mark.parametrize("state", ["XX001", "57014", "P0001"])
def test_queue_with_a_job_that_cannot_be_claimed_keeps_back_no_outcome_and_no_other_queue(
    consumer, damaged, sql, state, caplog
):
    [done] = enqueue_many(app.noop, [()])
    turn(consumer)
    [bad] = enqueue_many(app.noop, [()])
    damaged(bad, state)
    consumer.slots.finish()
    turns(consumer, 2)
    assert FinishedJob.objects.get().id == done
    [other] = enqueue_many(app.noop.using(queue="mail"), [()])
    turns(consumer, 2)
    assert accepted(consumer) == [other]
    assert consumer._backoff.failures == 0
    assert caplog.text.count("Jobs of queue 'default' cannot be claimed (failure 1): a damaged row") == 1
    consumer.slots.finish()
    turn(consumer)
    assert FinishedJob.objects.filter(pk=other).exists(), "an outcome and a claim of another queue are one transaction"
    sql("DELETE FROM pgqueue_plan")
    consumer._cursors._setbacks["default"].retry_at = 0.0
    turns(consumer, 2)
    assert accepted(consumer) == [bad]
    assert "Jobs of queue 'default' can be claimed again" in caplog.text


def test_full_scan_that_takes_too_long_keeps_back_no_claim_above_the_low_water_mark(consumer, damaged, sql, caplog):
    """As with 200 million dead entries before the first job; here one that only full scans meet."""
    enqueue_many(app.noop, [()])
    turn(consumer)
    [urgent] = enqueue_many(app.noop.using(priority=1), [()])
    damaged(urgent, "57014")
    consumer.slots.finish()
    turns(consumer, 2)
    assert FinishedJob.objects.count() == 1
    others = enqueue_many(app.noop, [()] * 2)
    cursor = consumer._cursors._cursors["default"]
    cursor.full_scan_at = cursor.called_scan_at = time.monotonic() + 60  # on a slow machine it would be due by now
    consumer._backoff.claim_at = 0.0
    consumer.wake()
    consumer._collect(0.0)
    consumer._cycle()
    assert accepted(consumer) == others
    assert consumer._cursors._setbacks["default"].is_of_full_scans
    sql("DELETE FROM pgqueue_plan")
    consumer._cursors._setbacks["default"].retry_at = cursor.full_scan_at = cursor.called_scan_at = 0.0
    turns(consumer, 2)
    assert accepted(consumer) == [*others, urgent]
    assert consumer._cursors._setbacks == {}


def test_admission_that_goes_on_failing_keeps_back_no_outcome(consumer, sql, monkeypatch):
    enqueue_many(app.noop, [()])
    turn(consumer)
    send = consumer._admissions.send

    def fail(database, **limit):
        if consumer._admissions._due:
            database.rows("SELECT 1 FROM no_such_table", {})
        return send(database, **limit)

    monkeypatch.setattr(consumer._admissions, "send", fail)
    consumer._admissions.request(["key"])
    consumer.slots.finish()
    turns(consumer, 3)
    assert (FinishedJob.objects.count(), consumer._backoff.failures) == (1, 0)


def test_claim_that_fails_again_and_again_is_put_off_longer_and_longer(consumer, damaged):
    [bad] = enqueue_many(app.noop, [()])
    damaged(bad, "XX001")
    before = time.monotonic()
    turns(consumer, 2)
    setbacks = consumer._cursors._setbacks
    for failures in (1, 2, 3):
        assert setbacks["default"].failures == consumer._shared.failures() == failures
        assert before + 0.08 * 2 ** (failures - 1) < setbacks["default"].retry_at < time.monotonic() + 60
        setbacks["default"].retry_at += 3600  # its time may come before the next line
        failed = consumer._backoff._failed_claims
        turn(consumer)
        assert consumer._backoff._failed_claims == failed, "not before its time"
        setbacks["default"].retry_at = 0.0
        before = time.monotonic()
        turns(consumer, 1)


def test_queue_that_is_set_back_gives_no_reason_to_claim_before_its_time(consumer, damaged):
    """Not even if a full scan is owed to it: each turn would be an empty transaction, one right after the other."""
    enqueue_many(app.noop, [()])
    turn(consumer)
    [bad] = enqueue_many(app.noop, [()])
    damaged(bad, "57014")
    turns(consumer, 3)
    cursors = consumer._cursors
    assert cursors._setbacks["default"].failures == 2, "a full scan, and a claim above the low-water mark"
    later = time.monotonic() + 60
    cursors._look_at = cursors._setbacks["default"].retry_at = later
    consumer._backoff.claim_at = cursors._cursors["default"].full_scan_at = 0.0
    assert cursors._cursors["default"].is_owed
    assert cursors.wait_until() > 0.0
    assert not consumer._may_claim(time.monotonic())


def test_look_for_ready_queues_that_goes_on_failing_keeps_back_no_queue_that_is_announced(
    consumer, monkeypatch, caplog
):
    with monkeypatch.context() as patch:
        wrong = "SELECT 1 FROM no_such_table"
        patch.setattr(intake_module, "ready_queues", lambda database, _: database.rows(wrong, {}))
        turns(consumer, 2)
        assert (consumer._cursors._failed_looks, consumer._backoff.failures) == (1, 0)
        assert "The look for queues that have work fails (failure 1)" in caplog.text
        for failures in (2, 3):
            enqueue_many(app.noop, [()])
            consumer._cursors._retry_look_at = 0.0
            consumer._cursors.mark_ready(["default"])
            turns(consumer, 1)
            assert (consumer._cursors._failed_looks, consumer._backoff.failures) == (failures, 0)
            assert len(consumer.slots.accepted) == failures - 1
            consumer._cursors._retry_look_at += 60  # on a slow machine it would be due by now
            turns(consumer, 1)
            assert consumer._cursors._failed_looks == failures, "not before its time"
    consumer._cursors._retry_look_at = 0.0
    [other] = enqueue_many(app.noop.using(queue="mail"), [()])
    turns(consumer, 2)
    assert accepted(consumer)[2:] == [other]
    assert "succeeds again after 3 failures" in caplog.text


def test_silence_while_a_queue_is_claimed_from_does_not_set_it_back(consumer, monkeypatch):
    turn(consumer)
    enqueue_many(app.noop, [()])
    with monkeypatch.context() as patch:
        patch.setattr(intake_module.claim, "send", fall_silent)
        turns(consumer, 2)
        assert (consumer._backoff.failures, consumer._backoff._failed_claims) == (0, 1), "it has failed apart"
    assert consumer._cursors._setbacks == {}
    turns(consumer, 1)
    assert len(consumer.slots.accepted) == 1


def test_queue_whose_claim_ends_the_connection_twice_in_a_row_keeps_back_no_other_queue(consumer, damaged, sql, caplog):
    """Once may be chance, as a server that is restarted."""
    [bad] = enqueue_many(app.noop, [()])
    damaged(bad, "57P01")
    turns(consumer, 2)
    assert (consumer._backoff.failures, consumer._backoff._failed_claims) == (0, 1), "it has failed apart"
    assert consumer._cursors._setbacks == {}
    turns(consumer, 2)
    assert consumer._cursors._setbacks["default"].failures == 1
    [other] = enqueue_many(app.noop.using(queue="mail"), [()])
    turns(consumer, 2)
    assert accepted(consumer) == [other]
    consumer._cursors._setbacks["default"].retry_at = 0.0
    turns(consumer, 1)
    assert consumer._cursors._setbacks["default"].failures >= 2, "one that was set back needs no second time"
    sql("DELETE FROM pgqueue_plan")
    consumer._cursors._setbacks["default"].retry_at = 0.0
    turns(consumer, 1)
    assert accepted(consumer) == [other, bad]
    assert "Jobs of queue 'default' can be claimed again" in caplog.text


def test_claim_that_goes_well_in_between_makes_the_end_of_a_connection_the_first_again(consumer, damaged, sql):
    [bad] = enqueue_many(app.noop, [()])
    damaged(bad, "57P01")
    for _ in range(2):
        turns(consumer, 2)
        assert (consumer._backoff._failed_claims, consumer._cursors._setbacks) == (1, {})
        sql("DELETE FROM pgqueue_plan")
        turns(consumer, 1)
        assert accepted(consumer) == [bad]
        consumer.slots.finish(Fate.RELEASED)
        damaged(bad, "57P01")


@pytest.mark.parametrize("ready", [["default"], []])
def test_look_for_ready_queues_that_ends_the_connection_twice_in_a_row_is_put_off(consumer, monkeypatch, ready):
    ends = "SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(60)"
    monkeypatch.setattr(intake_module, "ready_queues", lambda database, _: database.rows(ends, {}))
    turns(consumer, 2)
    assert (consumer._backoff._failed_claims, consumer._cursors._failed_looks) == (1, 0)
    turns(consumer, 2)
    assert consumer._cursors._failed_looks == 1
    enqueue_many(app.noop, [()])
    consumer._cursors._retry_look_at += 60
    consumer._cursors.mark_ready(ready)
    turns(consumer, 1)
    assert len(consumer.slots.accepted) == len(ready)


def test_connection_that_cannot_be_opened_for_a_claim_sets_no_queue_back(consumer, monkeypatch):
    enqueue_many(app.noop, [()])
    turn(consumer)
    monkeypatch.setitem(consumer.database._wrapper.settings_dict, "HOST", "/nowhere")
    for failures in (1, 2, 3):
        consumer.database.close()
        consumer._backoff.claim_at = 0.0
        consumer._cursors.mark_ready(["default"])
        consumer._claim_apart()
        assert consumer._backoff._failed_claims == failures
    assert (consumer._cursors._setbacks, consumer._cursors._failed_looks) == ({}, 0)


def fall_silent(*_, **__):
    raise OperationalError("silent") from Silence("silent")


def test_first_failure_of_a_claim_sets_its_queue_back_for_a_moment_however_long_it_has_taken(consumer, damaged):
    """As one of an ALTER TABLE that has locked the table. Only a call shortens the longer pause of later failures."""
    turn(consumer)
    [bad] = enqueue_many(app.noop, [()])
    damaged(bad, "57014")
    turns(consumer, 2)
    cursors, error = consumer._cursors, OperationalError("cancelled")
    del cursors._setbacks["default"]
    before = time.monotonic()
    cursors.failed(error, 5.0)
    assert before < cursors._setbacks["default"].retry_at < before + 5
    before = time.monotonic()
    cursors.failed(error, 5.0)
    assert before + 50 <= cursors._setbacks["default"].retry_at
    cursors.mark_ready(["another"])
    assert before + 50 <= cursors._setbacks["default"].retry_at
    cursors.mark_ready(["default"])
    assert before + 15 <= cursors._setbacks["default"].retry_at < before + 50


def test_jobs_that_were_fetched_do_not_wait_for_a_queue_that_was_set_back(consumer, damaged, monkeypatch):
    consumer.slots.concurrency = WORTHWHILE
    [bad] = enqueue_many(app.noop.using(queue="bad"), [()])
    damaged(bad, "57014")
    turns(consumer, 2)
    consumer._cursors._setbacks["bad"].retry_at = consumer._backoff.claim_at = 0.0
    enqueue_many(app.noop, [()] * WORTHWHILE)
    consumer._cursors.mark_ready(["default"])
    accepted_before, send = [], intake_module.claim.send

    def noting(database, queue, **details):
        accepted_before.append((queue, len(consumer.slots.accepted)))
        return send(database, queue, **details)

    monkeypatch.setattr(intake_module.claim, "send", noting)
    consumer.slots.concurrency += 1
    consumer._cycle()
    assert accepted_before == [("default", 0), ("bad", WORTHWHILE)]


def test_trouble_of_an_errand_is_not_forgotten_with_the_turn_that_it_follows(consumer, monkeypatch):
    enqueue_many(app.noop, [()])
    with monkeypatch.context() as patch:
        patch.setattr(errands_module, "register_queue", fall_silent)
        turn(consumer)
    assert len(consumer.slots.accepted) == 1
    assert (consumer._backoff.failures, consumer._shared.failures()) == (1, 1)
    turns(consumer, 1)
    assert (consumer._backoff.failures, consumer._shared.failures()) == (0, 0)
