"""The pump, driven turn by turn in this process, against real rows."""

import queue as stdlib_queue
import threading
import time

import psycopg
import pytest
from django.db import connection, transaction

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from django_pgqueue.base.records import Fate, Outcome
from django_pgqueue.base.states import Reason
from django_pgqueue.lifecycle.claim import claim
from django_pgqueue.models import DeadJob, FinishedJob, Job
from django_pgqueue.runtime.marks import CAPACITY, Marks, now
from django_pgqueue.runtime.pump import Pump, Speed
from django_pgqueue.runtime.slots import Slots


class Benched(Slots):
    """Slots whose jobs wait for the test to run them."""

    def __init__(self, concurrency, marks, outbox):
        super().__init__(concurrency, marks, outbox)
        self.accepted = []

    def accept(self, cell, job):
        self.accepted.append((cell, job))

    def waiting(self):
        return max(0, len(self.accepted) - self.concurrency)

    def withdraw(self):
        unrun = self.accepted[self.concurrency :]
        del self.accepted[self.concurrency :]
        return unrun

    def finish(self, fate=Fate.SUCCEEDED, **details):
        cell, job = self.accepted.pop(0)
        self.outbox.put((cell, Outcome(job, fate, **details)))


@pytest.fixture
def pump(transactional_db):
    marks = Marks()
    marks.extend(now() + 60)
    made = Pump(1, (), Benched(4, marks, stdlib_queue.SimpleQueue()), marks)
    yield made
    made.database.close()


def turn(pump):
    """Let the pump take what is in its outbox, and do one turn in which it looks everywhere."""
    pump.wake()
    for shore in pump._intake._shores.values():
        shore.full_scan_at = 0.0
    pump._collect(0.0)
    pump._turn()


def test_pump_fills_its_slots_and_no_more(pump):
    enqueue_many(app.noop, [()] * 10)
    turn(pump)
    assert len(pump.slots.accepted) == 4
    turn(pump)
    assert len(pump.slots.accepted) == 4
    pump.slots.finish()
    turn(pump)
    assert (len(pump.slots.accepted), FinishedJob.objects.count()) == (4, 1)


def test_marks_tell_what_is_held_and_what_was_started(pump):
    enqueue_many(app.noop, [()] * 2)
    turn(pump)
    marks = pump._marks
    held = {job.id ^ job.lease_token for _, job in pump.slots.accepted}
    assert marks.held() - {0} == held
    assert marks.started() == set()
    cell, job = pump.slots.accepted[0]
    marks.start(cell)
    assert marks.started() == {job.id ^ job.lease_token}
    pump.slots.finish()
    pump.slots.finish()
    turn(pump)
    assert marks.held() == {0}
    assert len(pump._cells) == CAPACITY


def test_row_locked_by_somebody_stays_in_the_buffer_and_the_others_are_written(pump):
    ids = enqueue_many(app.noop, [()] * 4)
    turn(pump)
    for _ in range(4):
        pump.slots.finish()
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=ids[0])
        turn(pump)
        assert FinishedJob.objects.count() == 3
        assert [outcome.job.id for outcome in pump._blocked.values()] == [ids[0]]
        assert 0 < pump._patience() <= 0.1, "it must neither wait for the row nor ask for it without a pause"
    pump._blocked_until = 0.0
    turn(pump)
    assert (FinishedJob.objects.count(), pump._unwritten, pump._blocked) == (4, {}, {})


def test_outcome_that_the_database_refuses_is_found_and_buried_alone(pump):
    """Three good outcomes and one whose result is no JSON: the flush fails, is halved, and only the bad one pays."""
    ids = enqueue_many(app.noop, [()] * 4)
    turn(pump)
    for number in range(4):
        pump.slots.finish(result="no json" if number == 2 else "1")
    turn(pump)
    turn(pump)
    assert sorted(FinishedJob.objects.values_list("id", flat=True)) == [ids[0], ids[1], ids[3]]
    dead = DeadJob.objects.get()
    assert (dead.id, dead.reason, dead.errors[0]["refused"]) == (ids[2], "discarded", "succeeded")
    assert "invalid input syntax for type json" in dead.errors[0]["message"]
    assert pump._held() == 0


def test_outcome_that_cannot_even_be_buried_is_left_to_its_lease(pump, sql):
    [job_id] = enqueue_many(app.noop, [()])
    turn(pump)
    sql(
        "INSERT INTO pgqueue_dead_jobs (id, run_at, enqueued_at, reason, queue, task) "
        "VALUES (%s, now(), now(), 'lost', 'q', 't')",
        job_id,
    )
    pump.slots.finish(fate=Fate.DIED, reason=Reason.EXHAUSTED, error={"error": "x"})
    for _ in range(3):
        turn(pump)
    assert Job.objects.get(pk=job_id).status == "running"
    assert pump._unwritten == {}
    assert pump._held() == 1, "the supervisor must not take it for a claim that was never answered"


def test_outcomes_survive_a_database_that_is_away(pump, monkeypatch, caplog):
    enqueue_many(app.noop, [()] * 4)
    turn(pump)
    for _ in range(4):
        pump.slots.finish()
    settings = pump.database._wrapper.settings_dict
    host, settings["HOST"] = settings["HOST"], "/nowhere"
    pump.database.close()
    for _ in range(3):
        pump._retry_at = 0.0
        turn(pump)
    assert pump._failures == 3
    turn(pump)
    assert pump._failures == 3, "it tries again before its time"
    assert (len(pump._unwritten), FinishedJob.objects.count()) == (4, 0)
    settings["HOST"] = host
    pump._retry_at = 0.0
    turn(pump)
    assert (len(pump._unwritten), FinishedJob.objects.count()) == (0, 4)
    assert caplog.text.count("The pump cannot work with the database") == 1


def test_jobs_fetched_ahead_go_back_when_no_slot_comes_free(pump, monkeypatch):
    enqueue_many(app.noop, [()] * 20)
    pump._speed.prefetch = 10
    pump._speed._since += 3600  # the speed of this machine is not to matter
    turn(pump)
    turn(pump)
    assert len(pump.slots.accepted) == 10, "in halves of the work ahead; too little room is left for another one"
    monkeypatch.setattr("django_pgqueue.runtime.pump.STALLED_SECONDS", 0.0)
    time.sleep(0.001)
    turn(pump)
    turn(pump)
    assert len(pump.slots.accepted) == 4
    assert Job.objects.filter(status="queued", attempts=0).count() == 16


def test_idle_slots_keep_the_job_they_are_given_after_a_quiet_time(pump):
    """A slot that has only just been given a job has not stalled, however long nothing happened before."""
    pump._progress_at -= 60
    pump.slots.concurrency = 0  # every accepted job counts as waiting for a slot
    pump._speed.prefetch = 4
    enqueue_many(app.noop, [()] * 2)
    turn(pump)
    assert len(pump.slots.accepted) == 2
    turn(pump)
    assert len(pump.slots.accepted) == 2
    assert Job.objects.filter(status="running", attempts=1).count() == 2


def test_stop_gives_back_what_waits_and_takes_no_more(pump):
    enqueue_many(app.noop, [()] * 20)
    pump._speed.prefetch = 10
    turn(pump)
    pump.stop()
    turn(pump)
    assert Job.objects.filter(status="running").count() == 4
    for _ in range(4):
        pump.slots.finish()
    pump.run()
    assert (FinishedJob.objects.count(), Job.objects.filter(status="queued", attempts=0).count()) == (4, 16)


def test_busy_pump_waits_instead_of_spinning(pump):
    enqueue_many(app.noop, [()] * 4)
    turn(pump)
    assert len(pump.slots.accepted) == 4
    pump._intake.hear(None)
    assert pump._patience() > 0.5, "with all slots busy there is nothing to look for"
    pump.stop()
    turn(pump)
    assert pump._patience() > 0.5, "while the last jobs finish there is nothing to do"
    for _ in range(4):
        pump.slots.finish()
    pump.run()


def test_old_run_of_a_job_ends_beside_the_new_one(pump, sql):
    """The job lost its lease, and this very process claimed it again while the old run went on."""
    enqueue_many(app.noop, [()])
    turn(pump)
    sql("UPDATE pgqueue_jobs SET status = 'queued', lease_token = 0, worker_id = 0")
    turn(pump)
    assert len(pump.slots.accepted) == 2
    pump.slots.finish(result='"old"')
    turn(pump)
    assert pump._held() == 1
    assert FinishedJob.objects.count() == 0
    pump.slots.finish(result='"new"')
    turn(pump)
    assert FinishedJob.objects.get().result == "new"
    assert len(pump._cells) == CAPACITY


@pytest.mark.parametrize("first", ["old", "new"])
def test_both_runs_of_a_job_may_end_before_one_flush(pump, sql, first):
    enqueue_many(app.noop, [()])
    turn(pump)
    sql("UPDATE pgqueue_jobs SET status = 'queued', lease_token = 0, worker_id = 0")
    turn(pump)
    if first == "new":
        pump.slots.accepted.reverse()
    for result in (first, {"old": "new", "new": "old"}[first]):
        pump.slots.finish(result=f'"{result}"')
    turn(pump)
    turn(pump)
    assert FinishedJob.objects.get().result == "new"
    assert len(pump._cells) == CAPACITY


def test_schema_change_under_a_prepared_statement_harms_no_outcome(pump, sql):
    for _ in range(5):
        enqueue_many(app.noop, [()] * 4)
        turn(pump)
        for _ in range(4):
            pump.slots.finish()
    sql("ALTER TABLE pgqueue_jobs ALTER COLUMN queue TYPE varchar(200)")
    try:
        for _ in range(3):
            pump._retry_at = 0.0
            turn(pump)
        assert (FinishedJob.objects.count(), DeadJob.objects.count()) == (20, 0)
    finally:
        sql("ALTER TABLE pgqueue_jobs ALTER COLUMN queue TYPE text")


def test_prepared_statements_that_are_gone_harm_no_outcome(pump):
    for _ in range(5):
        enqueue_many(app.noop, [()] * 4)
        turn(pump)
        for _ in range(4):
            pump.slots.finish()
    pump.database.autocommit().execute("DEALLOCATE ALL", prepare=False)
    for _ in range(3):
        pump._retry_at = 0.0
        turn(pump)
    assert (FinishedJob.objects.count(), DeadJob.objects.count()) == (20, 0)


def test_server_that_was_read_only_is_left_for_a_new_connection(pump, sql):
    enqueue_many(app.noop, [()])
    turn(pump)
    pump.slots.finish()
    name = connection.settings_dict["NAME"]
    sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    try:
        pump.database.close()
        turn(pump)
        assert pump._failures == 1
    finally:
        sql("SET default_transaction_read_only = off")
        sql(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
    pump._retry_at = 0.0
    turn(pump)
    assert FinishedJob.objects.count() == 1


def test_flush_that_takes_too_long_is_made_smaller(pump, settings):
    enqueue_many(app.noop, [()] * 4)
    turn(pump)
    for _ in range(4):
        pump.slots.finish()
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION pgqueue_slow() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN PERFORM pg_sleep(0.4); RETURN OLD; END $$"
        )
        cursor.execute("CREATE TRIGGER slow BEFORE DELETE ON pgqueue_jobs FOR EACH ROW EXECUTE FUNCTION pgqueue_slow()")
    settings.PGQUEUE = {"STATEMENT_TIMEOUT_SECONDS": 1}
    try:
        for _ in range(6):
            pump._retry_at = 0.0
            turn(pump)
        assert FinishedJob.objects.count() == 4
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION pgqueue_slow CASCADE")


def test_pump_claims_nothing_when_the_lease_of_its_process_has_passed(pump):
    pump._marks.extend(now() - 1)
    enqueue_many(app.noop, [()])
    turn(pump)
    assert (pump.slots.accepted, Job.objects.get().status) == ([], "queued")


def test_job_is_not_started_after_the_lease_of_its_process(transactional_db):
    marks = Marks()
    marks.extend(now() - 1)
    outbox = stdlib_queue.SimpleQueue()
    pump = Pump(1, (), Slots(2, marks, outbox), marks)
    enqueue_many(app.record, [("x",)])
    [job] = claim(pump.database, "default", limit=1, worker_id=1)
    cell = pump._cells.pop()
    pump.slots.accept(cell, job)
    released = outbox.get(timeout=10)
    assert (released[0], released[1].fate) == (cell, Fate.RELEASED)
    outbox.put(released)
    pump.stop()
    pump.run()
    assert (Job.objects.get().status, Job.objects.get().attempts) == ("queued", 0)
    for thread in threading.enumerate():
        assert "pgqueue" not in thread.name or thread.daemon


def test_prefetch_follows_the_speed_of_the_jobs():
    speed = Speed()
    speed._since -= 1.0
    speed.measure(turns=0.005, finished=10_000)
    assert 250 < speed.prefetch < 350, "about 30 ms of 10,000 jobs a second"
    speed._since -= 1.0
    speed.measure(turns=0.005, finished=100)
    assert 120 < speed.prefetch < 180, "what is fast for a moment is not believed for long"
    speed.forget()
    assert speed.prefetch == 0


def test_speed_is_known_within_few_jobs_after_an_idle_time():
    speed = Speed()
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


def test_refused_outcome_is_found_without_pipelines_too(pump, monkeypatch):
    monkeypatch.setattr(psycopg.Pipeline, "is_supported", classmethod(lambda cls: False))
    enqueue_many(app.noop, [()] * 4)
    turn(pump)
    for number in range(4):
        pump.slots.finish(result="no json" if number == 2 else "1")
    for _ in range(3):
        turn(pump)
    assert (FinishedJob.objects.count(), DeadJob.objects.count(), pump._failures) == (3, 1, 0)
