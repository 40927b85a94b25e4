"""Outcomes kept while the database is in trouble, and those of which it is in doubt whether they are written."""

import time

import pytest
from django.db import OperationalError, connection

import tests.app.tasks as app
from django_pgqueue.db.errors import Silence
from django_pgqueue.jobs import ack
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import DeadJob, SucceededJob
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.states import DeathReason
from tests.support.consumers import cycle
from tests.support.many import enqueued_ids
from tests.support.waiting import eventually, until_gone


def test_outcomes_survive_a_database_that_is_away(consumer, monkeypatch, caplog):
    app.noop.enqueue_many([()] * 4)
    cycle(consumer)
    for _ in range(4):
        consumer.slots.finish()
    settings = consumer.database._wrapper.settings_dict
    host, settings["HOST"] = settings["HOST"], "/nowhere"
    consumer.database.close()
    for _ in range(3):
        consumer._backoff._retry_at = 0.0
        before = time.monotonic()
        cycle(consumer)
    assert consumer._backoff.failures == 3
    assert consumer._backoff._retry_at > before
    consumer._backoff._retry_at += 3600  # its time may come before the next line
    cycle(consumer)
    assert consumer._backoff.failures == 3, "it tries again before its time"
    assert (len(consumer._in_flight.unwritten), SucceededJob.objects.count()) == (4, 0)
    settings["HOST"] = host
    consumer._backoff._retry_at = 0.0
    cycle(consumer)
    assert (len(consumer._in_flight.unwritten), SucceededJob.objects.count()) == (0, 4)
    assert caplog.text.count("The consumer cannot work with the database") == 1
    assert caplog.text.count("The consumer works again after 3 failures") == 1


def test_outcome_whose_commit_was_never_answered_is_not_called_stale(consumer, sql, monkeypatch, caplog):
    """The second try finds no row, because the first has removed it; what is stale later on is called so."""
    app.noop.enqueue_many([()] * 2)
    cycle(consumer)
    receipt = ack.receipt

    def lose_the_answer(*_):
        monkeypatch.setattr(ack, "receipt", receipt)
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(ack, "receipt", lose_the_answer)
    consumer.slots.finish()
    cycle(consumer)
    assert (SucceededJob.objects.count(), len(consumer._in_flight.unwritten), consumer._backoff.failures) == (1, 1, 1)
    consumer._backoff._retry_at = 0.0
    cycle(consumer)
    assert (SucceededJob.objects.count(), consumer._in_flight.unwritten, consumer._backoff.failures) == (1, {}, 0)
    assert "Stale result dropped" not in caplog.text
    sql("UPDATE pgqueue_jobs SET status = 'queued', lease_token = 0, worker_id = 0")
    consumer.slots.finish()
    cycle(consumer)
    assert caplog.text.count("Stale result dropped") == 1


def test_outcomes_in_doubt_stay_so_until_each_is_written_again(consumer, monkeypatch, caplog):
    """After a long silence they are written half by half, and the first half must not end the doubt for the other."""
    app.noop.enqueue_many([()] * 4)
    cycle(consumer)
    receipt = ack.receipt

    def fall_silent(*_):
        monkeypatch.setattr(ack, "receipt", receipt)
        raise OperationalError("no answer") from Silence()

    monkeypatch.setattr(ack, "receipt", fall_silent)
    for _ in range(4):
        consumer.slots.finish()
    cycle(consumer)
    for left in (2, 0):
        consumer._backoff._retry_at = 0.0
        cycle(consumer)
        assert len(consumer._in_flight.unwritten) == left
    assert SucceededJob.objects.count() == 4
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
    consumer._stats.count = lambda outcomes, stale: counted.append((list(outcomes), stale))
    [job_id] = enqueued_ids(app.noop.using(keep_result=keep), [()])
    cycle(consumer)
    consumer.slots.finish()
    settings = consumer.database._wrapper.settings_dict
    host, settings["HOST"] = settings["HOST"], "/nowhere"
    consumer.database.close()
    cycle(consumer)
    assert (consumer._backoff.failures, consumer._backoff.in_doubt) == (1, set())
    run_elsewhere(queue, sql)
    settings["HOST"] = host
    consumer._backoff._retry_at = 0.0
    cycle(consumer)
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
    app.noop.enqueue_many([()])
    cycle(consumer)
    session = consumer.database.autocommit().info.backend_pid
    consumer.slots.finish(fate, reason=DeathReason.EXHAUSTED, error={"kind": "failed", "error": "x"})
    cycle(consumer)
    until_gone(queue, session)
    assert (consumer._backoff.failures, len(consumer._backoff.in_doubt)) == (1, 1)
    run_elsewhere(queue, sql)
    consumer._backoff._retry_at = 0.0
    cycle(consumer)
    assert caplog.text.count("Stale result dropped") == 1
    assert (consumer._in_flight.held(), consumer._backoff.in_doubt) == (0, set())


@KEPT_OR_NOT
@pytest.mark.parametrize("fate", [Fate.SUCCEEDED, Fate.RETRIED, Fate.DIED, Fate.REPEATED])
def test_outcome_of_each_kind_that_was_committed_without_an_answer_is_not_stale(
    consumer, monkeypatch, caplog, fate, keep
):
    app.noop.using(keep_result=keep).enqueue_many([()])
    cycle(consumer)
    receipt = ack.receipt

    def lose_the_answer(*_):
        monkeypatch.setattr(ack, "receipt", receipt)
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(ack, "receipt", lose_the_answer)
    consumer.slots.finish(fate, reason=DeathReason.EXHAUSTED, error={"kind": "failed", "error": "x"}, delay_seconds=60)
    cycle(consumer)
    assert len(consumer._backoff.in_doubt) == 1
    consumer._backoff._retry_at = 0.0
    cycle(consumer)
    assert (consumer._in_flight.held(), consumer._backoff.failures) == (0, 0)
    assert "Stale result dropped" not in caplog.text


def test_outcome_that_the_server_has_rolled_back_is_not_in_doubt(consumer, trouble):
    app.noop.enqueue_many([()])
    cycle(consumer)
    consumer.slots.finish()
    trouble("40001", 1, 1)
    cycle(consumer)
    assert (consumer._backoff.failures, consumer._backoff.in_doubt) == (1, set())


def test_flush_that_takes_too_long_is_made_smaller(consumer):
    app.noop.enqueue_many([()] * 4)
    cycle(consumer)
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
            cycle(consumer)
            return SucceededJob.objects.count() == 4

        eventually(try_again)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION pgqueue_slow CASCADE")


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
    app.noop.enqueue_many([()] * 4)
    cycle(consumer)
    for _ in range(4):
        consumer.slots.finish()
    trouble(state, 1, 2)
    for failures in (1, 2, 0):
        consumer._backoff._retry_at = 0.0
        cycle(consumer)
        assert consumer._backoff.failures == failures
    for _ in range(3):  # fewer at once after some of them
        cycle(consumer)
    assert (SucceededJob.objects.count(), DeadJob.objects.count(), consumer._in_flight.held()) == (4, 0, 0)


def test_second_half_of_a_refused_batch_waits_when_the_first_meets_trouble(consumer, trouble, monkeypatch):
    """One outcome is refused, and when the halves are written apart the database is in trouble."""
    app.noop.enqueue_many([()] * 4)
    cycle(consumer)
    for number in range(4):
        consumer.slots.finish(result="no json" if number == 2 else "1")
    trouble("53100", 1, 1)  # a batch that is refused is not even begun
    written, write = [], ack.write
    monkeypatch.setattr(ack, "write", lambda *given: written.append(len(given[1])) or write(*given))
    cycle(consumer)
    assert written == [4, 2], "the second half is not tried beside the trouble of the first"
    assert consumer._backoff.failures == 1
    for _ in range(3):
        consumer._backoff._retry_at = 0.0
        cycle(consumer)
    assert (SucceededJob.objects.count(), DeadJob.objects.count(), consumer._in_flight.held()) == (3, 1, 0)


def at_once(consumer) -> None:
    """Do one cycle, whatever the last one met; a session that was ended may keep its locks for a moment more."""
    consumer._backoff._retry_at = 0.0
    cycle(consumer)


def due(consumer) -> None:
    """Let all that waits be tried in the next cycle."""
    consumer._backoff._retry_at = consumer._in_flight._try_at = 0.0
    put_off = consumer._in_flight._put_off
    put_off.update({cell: one._replace(until=0.0) for cell, one in put_off.items()})


@pytest.fixture
def long_pauses(monkeypatch) -> None:
    """Let nothing that is put off be due unless the test says so."""
    monkeypatch.setattr("django_pgqueue.worker.in_flight.FIRST_PAUSE_SECONDS", 200.0)
    monkeypatch.setattr("django_pgqueue.worker.in_flight.LONGEST_PAUSE_SECONDS", 6000.0)


@pytest.mark.parametrize("state", ["P0001", "XX001", "57014", "end of the session"])
def test_outcome_whose_row_cannot_be_written_waits_alone_and_the_others_go_on(
    consumer, bad_row, long_pauses, caplog, state
):
    ids = enqueued_ids(app.noop, [()] * 4)
    cycle(consumer)
    for _ in ids:
        consumer.slots.finish()
    bad_row(ids[2], state)
    eventually(lambda: at_once(consumer) or len(consumer._in_flight._put_off) == 1 == consumer._in_flight.held())
    at_once(consumer)
    assert set(SucceededJob.objects.values_list("id", flat=True)) == {*ids} - {ids[2]}
    assert (consumer._in_flight.held(), consumer._in_flight.outstanding(), consumer._backoff.failures) == (1, 0, 0)
    assert (
        f"The outcome of job {ids[2]} (tests.app.tasks.noop) cannot be written, and is tried again in 200 s"
        in caplog.text
    )
    assert 0.0 < consumer._in_flight.wait_until() - time.monotonic() <= 200.0
    [other] = enqueued_ids(app.noop, [()])
    consumer.wake()
    cycle(consumer)
    consumer.slots.finish()
    due(consumer)
    eventually(lambda: at_once(consumer) or "is tried again in 400 s" in caplog.text)
    eventually(lambda: at_once(consumer) or SucceededJob.objects.filter(pk=other).exists())  # it goes on beside it
    bad_row(ids[2], None)
    eventually(lambda: due(consumer) or cycle(consumer) or not consumer._in_flight.held())
    assert (SucceededJob.objects.count(), DeadJob.objects.count(), consumer._in_flight.held()) == (5, 0, 0)
    assert consumer._in_flight._tries == {}


def ended_badly(consumer, bad_row, number: int) -> list[int]:
    """Let jobs end whose rows cannot be written; return their ids."""
    ids = enqueued_ids(app.noop, [()] * number)
    cycle(consumer)
    for job_id in ids:
        consumer.slots.finish()
        bad_row(job_id, "P0001")
    return ids


def test_no_more_outcomes_are_given_up_at_the_end_than_may_be_put_off(consumer, bad_row, monkeypatch):
    monkeypatch.setattr("django_pgqueue.worker.in_flight.MOST_PUT_OFF", 1)
    monkeypatch.setattr("django_pgqueue.worker.in_flight.FIRST_PAUSE_SECONDS", 0.0)
    ids = ended_badly(consumer, bad_row, 4)
    consumer.stop()
    for _ in range(12):
        consumer._backoff._retry_at = 0.0
        cycle(consumer)
    assert (consumer._in_flight.held(), consumer._in_flight._abandoned) == (3, 1)
    for job_id in ids:
        bad_row(job_id, None)
    consumer._backoff._retry_at = 0.0
    consumer.run()
    assert SucceededJob.objects.count() == 3


def test_tries_at_outcomes_that_are_put_off_leave_time_for_others(consumer, bad_row, long_pauses):
    """One of which each takes as long as a statement may: all others are written and claimed in between."""
    ended_badly(consumer, bad_row, 3)
    for _ in range(3):
        consumer._backoff._retry_at = 0.0
        cycle(consumer)
    in_flight = consumer._in_flight
    assert len(in_flight._put_off) == 3
    due(consumer)
    [first] = in_flight.batch(100)
    assert in_flight.batch(100) == {first: in_flight.unwritten[first]}, "that of all others comes next"
    in_flight._tried_at = time.monotonic() - 30.0
    error = OperationalError("as planned")
    assert in_flight.put_off(first, error)
    assert in_flight._try_at > time.monotonic() + 500, "twenty times as long as the try has taken"
    assert in_flight.wait_until() == in_flight._try_at
    assert in_flight.batch(100) == {}


def test_outcome_that_is_put_off_is_tried_at_once_at_the_end_and_given_up_only_for_its_own_row(
    consumer, bad_row, caplog
):
    good, bad = enqueued_ids(app.noop, [()] * 2)
    cycle(consumer)
    for job_id in (good, bad):
        consumer.slots.finish()
        bad_row(job_id, "P0001")
    for _ in range(3):
        consumer._backoff._retry_at = 0.0
        cycle(consumer)
    assert len(consumer._in_flight._put_off) == 2
    bad_row(good, None)
    consumer.stop()
    settings = consumer.database._wrapper.settings_dict
    host, settings["HOST"] = settings["HOST"], "/nowhere"
    consumer.database.close()
    for _ in range(4):
        consumer._backoff._retry_at = 0.0
        cycle(consumer)
    assert consumer._in_flight.held() == 2, "while the database is away no row is at fault"
    assert consumer._in_flight.wait_until() <= time.monotonic() + 2.0
    settings["HOST"] = host
    consumer._backoff._retry_at = 0.0
    consumer.run()
    assert [job.pk for job in SucceededJob.objects.all()] == [good]
    assert caplog.text.count(f"The outcome of job {bad} (tests.app.tasks.noop) cannot be written, and is given up") == 1
    assert f"The outcome of job {good} (tests.app.tasks.noop) cannot be written, and is given up" not in caplog.text


def test_more_outcomes_that_cannot_be_written_than_may_be_put_off_wait_together(
    consumer, bad_row, long_pauses, monkeypatch
):
    monkeypatch.setattr("django_pgqueue.worker.in_flight.MOST_PUT_OFF", 2)
    ids = ended_badly(consumer, bad_row, 4)
    for _ in range(4):
        consumer._backoff._retry_at = 0.0
        cycle(consumer)
    assert (consumer._in_flight.held(), len(consumer._in_flight._put_off)) == (4, 2)
    assert consumer._backoff.failures
    for job_id in ids:
        bad_row(job_id, None)
    for _ in range(5):
        due(consumer)
        cycle(consumer)
    assert (SucceededJob.objects.count(), consumer._in_flight.held()) == (4, 0)
