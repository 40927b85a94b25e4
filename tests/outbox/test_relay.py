"""The relay hands each call over once, whatever ends in between."""

import contextlib
import datetime as dt
import math
import re
import time

import pytest
from asgiref.sync import async_to_sync
from django.core.management import call_command
from django.db import OperationalError, connections, transaction
from django.db.models.functions import Now

import tests.app.tasks as app
from django_pgqueue import jobs, services
from django_pgqueue.conf import conf
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.models import Job
from django_pgqueue.outbox import relay as module
from django_pgqueue.outbox.models import HandedOver, OutboxCall
from django_pgqueue.outbox.relay import Relay
from django_pgqueue.outbox.writing import job_id_of
from django_pgqueue.services import ServiceRunner
from django_pgqueue.states import JobStatus
from django_pgqueue.testing import run_jobs
from tests.support.plans import explain
from tests.support.results import end, end_soon
from tests.support.waiting import PATIENCE_SECONDS, beside, eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


@pytest.fixture
def relay(outbox, settings, monkeypatch):
    """A relay whose passes look at all of their calls, however long that takes."""
    monkeypatch.setattr(module, "SPLIT_SECONDS", PATIENCE_SECONDS)
    settings.PGQUEUE = settings.PGQUEUE | {"STATEMENT_TIMEOUT_SECONDS": int(PATIENCE_SECONDS)}
    with contextlib.closing(Relay("default", "other")) as made:
        yield made


def put(*calls):
    with transaction.atomic(using="other"):
        return [call.enqueue() for call in calls]


def left() -> list[int]:
    return [
        job_id_of(0, 5, row) for row in OutboxCall.objects.using("other").order_by("pk").values_list("pk", flat=True)
    ]


def ids() -> list[int]:
    return [*Job.objects.order_by("pk").values_list("pk", flat=True)]


def test_job_from_an_outbox_has_the_columns_of_any_other():
    inserted = [
        set(re.findall(r"\w+", re.search(r"INSERT INTO pgqueue_jobs \((.*?)\)", statement(name), re.DOTALL)[1]))
        for name in ("hand_over", "enqueue_keyed_calls")
    ]
    assert inserted[0] == inserted[1] | {"id", "enqueued_at"}


def test_calls_become_jobs_with_their_ids_and_options(relay):
    later = dt.datetime(2999, 1, 1, tzinfo=dt.UTC)
    handles = put(
        app.record.using(queue="mail", priority=7, max_attempts=3, metadata={"by": "eve"}, tags=["a", "b"]).bind("ü"),
        app.noop.using(run_at=later, timeout=90).bind(),
        app.noop.using(limit_key="tenant", fair_key="a", expires=3600).bind(),
    )
    assert relay.pass_once() > 0
    assert ids() == [handle.id for handle in handles]
    assert left() == []
    first, second, third = Job.objects.order_by("pk")
    assert (first.args, first.queue, first.priority, first.max_attempts) == (["ü"], "mail", 7, 3)
    assert (first.metadata, first.tags, first.status) == ({"by": "eve"}, ["a", "b"], "queued")
    assert (second.run_at, second.status, second.timeout_seconds) == (later, "scheduled", 90)
    assert (third.status, third.concurrency_key, third.fair_key) == ("limited", "tenant", "a")
    assert third.expires_at - third.enqueued_at == dt.timedelta(hours=1)
    assert [jobs.get(handle.id).status() for handle in handles] == ["queued", "scheduled", "limited"]


def test_handed_over_jobs_run(relay):
    [handle] = put(app.record.bind("x"))
    relay.pass_once()
    run_jobs()
    assert handle.result() == "recorded x"


def test_delay_counts_from_the_call(relay, sql):
    [handle] = put(app.noop.using(delay=60).bind())
    with connections["other"].cursor() as cursor:
        cursor.execute("UPDATE pgqueue_outbox SET enqueued_at = enqueued_at - interval '1 hour'")
    relay.pass_once()
    job = Job.objects.get()
    assert job.run_at - job.enqueued_at == dt.timedelta(minutes=1)
    assert handle.status() is JobStatus.QUEUED


def test_calls_are_taken_in_batches(relay, monkeypatch):
    monkeypatch.setattr(services, "LARGEST_SLICE", 2)
    relay._batch.size = 2
    handles = put(*[app.noop.bind()] * 5)
    assert [relay.pass_once() == 0.0 for _ in range(3)] == [True, True, False]
    assert ids() == [handle.id for handle in handles]


def test_call_with_a_unique_key_meets_the_job_that_holds_it(relay):
    keyed = app.record.using(unique_key="k")
    holder = keyed.enqueue("first")
    met, also = put(keyed.bind("second"), keyed.using(on_conflict="replace").bind("third"))
    relay.pass_once()
    assert ids() == [holder.id]
    assert left() == []
    assert holder.state().args == ["third"]
    assert met.state().id == also.state().id == holder.id
    run_jobs()
    assert met.result() == "recorded third"


def test_calls_for_one_key_make_one_job(relay):
    keyed = app.record.using(unique_key="k")
    first, second = put(keyed.bind("first"), keyed.bind("second"))
    relay.pass_once()
    assert ids() == [first.id] == [second.state().id]


class Ended(BaseException):
    """The process has ended here: nothing of it goes on."""


class Steps:
    """The steps of a relay: each statement, before and after it, and each commit. It ends at one of them."""

    def __init__(self, patch: pytest.MonkeyPatch, last: int) -> None:
        self._left = last
        self.names: list[str] = []
        rows, transact = QueueConnection.rows, QueueConnection.transaction

        def run(database, sql, parameters):
            name = f"{database.alias}: {sql[:40]}"
            self._pass(f"before {name}")
            answer = rows(database, sql, parameters)
            self._pass(f"after {name}")
            return answer

        @contextlib.contextmanager
        def commit(database, **options):
            with transact(database, **options):
                yield
                self._pass(f"before the commit on {database.alias}")
            self._pass(f"after the commit on {database.alias}")

        patch.setattr(QueueConnection, "rows", run)
        patch.setattr(QueueConnection, "transaction", commit)

    def _pass(self, name: str) -> None:
        self.names.append(name)
        if not self._left:
            raise Ended
        self._left -= 1


def test_relay_that_ends_at_any_step_hands_over_once(outbox, monkeypatch):
    """Jobs that are over by the time the relay comes again do not come again, either."""
    ends: list[str] = []
    while True:
        holder = app.record.using(unique_key="k").enqueue("holder")
        handles = put(app.record.bind("a"), app.record.using(unique_key="k").bind("met"), app.record.bind("b"))
        with monkeypatch.context() as patch, contextlib.closing(Relay("default", "other")) as relay:
            steps = Steps(patch, len(ends))
            with contextlib.suppress(Ended):
                relay.pass_once()
                break
        ends.append(steps.names[-1])
        is_done = not left()
        were_jobs = [job_id for job_id in ids() if job_id != holder.id]
        assert were_jobs in ([], [handles[0].id, handles[2].id]), ends[-1]
        run_jobs()
        with contextlib.closing(Relay("default", "other")) as relay:
            # the session of the one that has ended may hold its rows yet, which are passed over then
            eventually(lambda: [relay.pass_once()] and not left())
        run_jobs()
        labels = sorted(app.Mark.objects.values_list("label", flat=True))
        # the job that held the key is over where the call comes only now
        assert labels == ["a", "b", "holder"] + ["met"] * (not were_jobs), ends[-1]
        assert handles[0].result() == "recorded a"
        assert left() == []
        assert is_done or ends[-1] != "after the commit on other"
        app.Mark.objects.all().delete()
    assert {"before the commit on default", "after the commit on default"} <= set(ends)
    assert {"before the commit on other", "after the commit on other"} <= set(ends)
    assert len(ends) > 20


def lose_rows(relay, sql):
    """End the session that holds the rows of a relay, and let another relay hand them over, and the jobs run."""
    pid = relay._calls.autocommit().info.backend_pid
    sql("SELECT pg_terminate_backend(%s, 30000)", pid)
    with contextlib.closing(Relay("default", "other")) as other:
        other.pass_once()
    run_jobs()


def test_relay_that_has_lost_its_rows_to_another_makes_no_jobs_of_them(relay, sql, monkeypatch, caplog):
    """Jobs of the other one may be over by then, and forgotten."""
    put(app.record.bind("a"))

    def stall(*args):
        lose_rows(relay, sql)
        return hand_over(*args)

    hand_over = relay._hand_over
    monkeypatch.setattr(relay, "_hand_over", stall)
    with pytest.raises(OperationalError):
        relay.pass_once()
    assert (left(), ids()) == ([], [])
    assert "is refused" not in caplog.text
    assert list(app.Mark.objects.values_list("label", flat=True)) == ["a"]


@pytest.fixture
def stalled(relay, sql, monkeypatch):
    """A relay that stalls once it has held its rows for certain; another one has had them before it goes on."""
    make_jobs = relay._make_jobs

    def stall(*args):
        lose_rows(relay, sql)
        make_jobs(*args)

    monkeypatch.setattr(relay, "_make_jobs", stall)
    return relay


def test_relay_that_stalls_before_it_notes_its_calls_makes_no_jobs_of_them_again(stalled):
    put(app.record.bind("a"), app.record.bind("b"))
    with pytest.raises(OperationalError):
        stalled.pass_once()
    assert (left(), ids()) == ([], [])
    assert sorted(app.Mark.objects.values_list("label", flat=True)) == ["a", "b"]


def test_relay_that_stalls_until_the_notes_of_its_calls_are_gone_makes_no_jobs_of_them(stalled, monkeypatch):
    monkeypatch.setattr(module, "FORGET_SECONDS", 0)
    put(app.record.bind("a"))
    make_jobs = stalled._make_jobs

    def too_late(calls, begun_at, lock_milliseconds):
        make_jobs(calls, begun_at - dt.timedelta(seconds=module.NOTE_SECONDS), lock_milliseconds)

    monkeypatch.setattr(stalled, "_make_jobs", too_late)
    with pytest.raises(OperationalError, match="not noted within 60 s"):
        stalled.pass_once()
    assert not HandedOver.objects.exists()
    assert (left(), ids()) == ([], [])
    assert list(app.Mark.objects.values_list("label", flat=True)) == ["a"]


def test_calls_that_were_noted_too_late_are_handed_over_by_the_next_pass(relay, monkeypatch):
    [handle] = put(app.noop.bind())
    with monkeypatch.context() as patch:
        patch.setattr(module, "NOTE_SECONDS", 0)
        with pytest.raises(OperationalError, match="not noted within 0 s"):
            relay.pass_once()
    assert (left(), ids()) == ([handle.id], [])
    # the session that was left may hold its rows yet, which are passed over then
    eventually(lambda: [relay.pass_once()] and not left())
    assert ids() == [handle.id]


def test_note_outlives_its_row_for_longer_than_a_relay_may_stall(relay, monkeypatch):
    assert module.FORGET_SECONDS > module.NOTE_SECONDS
    handles = put(app.noop.bind(), app.noop.bind())
    relay.pass_once()
    relay.pass_once()
    assert [*HandedOver.objects.order_by("pk").values_list("pk", flat=True)] == [handle.id for handle in handles]
    monkeypatch.setattr(module, "FORGET_SECONDS", 0)
    relay.pass_once()
    assert not HandedOver.objects.exists()


def test_relay_whose_commit_is_not_answered_hands_nothing_over_twice(relay, monkeypatch):
    handles = put(app.record.bind("a"), app.record.bind("b"))
    transact = QueueConnection.transaction

    @contextlib.contextmanager
    def unanswered(self, **options):
        with transact(self, **options):
            yield
        if self.alias == "default" and options:
            raise OperationalError("the connection was lost after COMMIT")

    with monkeypatch.context() as patch:
        patch.setattr(QueueConnection, "transaction", unanswered)
        with pytest.raises(OperationalError):
            relay.pass_once()
    assert left() == ids() == [handle.id for handle in handles]
    # the session that was left may hold its rows yet, which are passed over then
    eventually(lambda: [relay.pass_once()] and not left())
    assert ids() == [handle.id for handle in handles]


def test_two_relays_share_the_calls(relay, monkeypatch):
    handles = put(*[app.noop.bind()] * 3)
    make = Relay._make_jobs

    def meanwhile(self, *args):
        monkeypatch.setattr(Relay, "_make_jobs", make)
        put(app.noop.bind())
        with contextlib.closing(Relay("default", "other")) as other:
            other.pass_once()
        assert len(ids()) == 1  # the others are locked
        make(self, *args)

    monkeypatch.setattr(Relay, "_make_jobs", meanwhile)
    relay.pass_once()
    assert ids()[:3] == [handle.id for handle in handles]
    assert len(ids()) == 4


def test_refused_call_stays_and_lets_others_go_on(relay, caplog):
    good, bad, last = put(app.noop.bind(), app.noop.bind(), app.noop.bind())
    with connections["other"].cursor() as cursor:
        cursor.execute(
            "UPDATE pgqueue_outbox SET call = jsonb_set(call, '{options,priority}', '101') WHERE id = %s",
            [bad.id & (2**40 - 1)],
        )
    relay.pass_once()
    assert ids() == [good.id, last.id]
    assert left() == [bad.id]
    assert "pgqueue_jobs_priority" in OutboxCall.objects.using("other").get().error
    assert "in the outbox on 'other' is refused, and stays there" in caplog.text
    with connections["other"].cursor() as cursor:
        cursor.execute("UPDATE pgqueue_outbox SET call = jsonb_set(call, '{options,priority}', '1'), next_at = now()")
    relay.pass_once()
    assert ids() == [good.id, bad.id, last.id]


def age(seconds: int) -> None:
    """Let calls have waited for some time."""
    OutboxCall.objects.using("other").update(enqueued_at=Now() - dt.timedelta(seconds=seconds))


def now_there() -> dt.datetime:
    with connections["other"].cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        return cursor.fetchone()[0]


def test_call_whose_key_an_open_transaction_has_taken_is_put_off(relay, monkeypatch):
    monkeypatch.setattr(module, "LOCK_MILLISECONDS", 20)
    keyed, other = put(app.noop.using(unique_key="k").bind(), app.noop.bind())
    age(3600)
    with transaction.atomic():
        app.noop.using(unique_key="k").enqueue()
        relay.pass_once()
        assert left() == [keyed.id]
        assert relay.pass_once() == 1.0
        assert relay.empty_at == -math.inf  # a drain waits for it
        transaction.set_rollback(True)
    call = OutboxCall.objects.using("other").get()
    assert call.error == module.LOCKED
    OutboxCall.objects.using("other").update(next_at=call.enqueued_at)
    relay.pass_once()
    assert ids() == [keyed.id, other.id]


@pytest.mark.parametrize(
    ("conflict", "seconds", "bounds"),
    [
        ("keep", 0, (1, 60)),
        ("keep", 30, (15, 60)),
        ("keep", 3600, (60, 60)),
        ("replace", 3600, (1, 10)),
        ("later", 3600, (1, 10)),
    ],
)
def test_call_that_is_locked_is_put_off_for_half_its_age_within_bounds(relay, monkeypatch, conflict, seconds, bounds):
    """One that changes the job with its key for the least time, so that none that comes later passes it for long."""
    monkeypatch.setattr(module, "LOCK_MILLISECONDS", 20)
    put(app.noop.using(unique_key="k", on_conflict=conflict).bind())
    age(seconds)
    before = now_there()
    with transaction.atomic():
        app.noop.using(unique_key="k").enqueue()
        relay.pass_once()
        transaction.set_rollback(True)
    next_at = OutboxCall.objects.using("other").get().next_at
    least, most = (dt.timedelta(seconds=one) for one in bounds)
    assert before + least <= next_at <= now_there() + most


def test_times_of_calls_with_one_key_are_compared_as_instants(relay):
    keyed = app.record.using(unique_key="k", on_conflict="later")
    app.record.using(unique_key="k").enqueue("old")
    latest = dt.datetime(2100, 1, 1, 11, tzinfo=dt.UTC)
    earlier = (latest - dt.timedelta(hours=1)).astimezone(dt.timezone(dt.timedelta(hours=2)))  # 12:00 there
    put(keyed.using(run_at=latest).bind("x"), keyed.using(run_at=earlier).bind("x"))
    relay.pass_once()
    assert Job.objects.get().run_at == latest


def test_drain_waits_for_a_call_whose_key_was_locked(relay, monkeypatch):
    monkeypatch.setattr(module, "LOCK_MILLISECONDS", 20)
    [keyed] = put(app.noop.using(unique_key="k").bind())
    with transaction.atomic():
        app.noop.using(unique_key="k").enqueue()
        relay.pass_once()
        transaction.set_rollback(True)
    eventually(lambda: [relay.pass_once()] and relay.empty_at > -math.inf)
    assert ids() == [keyed.id]


def test_keys_that_are_locked_leave_time_for_what_is_done_to_be_committed(relay, monkeypatch):
    """However many they are: each pass comes further, even if all its time is over at once."""
    monkeypatch.setattr(module, "LOCK_MILLISECONDS", 20)
    monkeypatch.setattr(module, "SPLIT_SECONDS", 0)
    held = [app.noop.using(unique_key=f"k{number}") for number in range(3)]
    calls = [call for task in held for call in (task.bind(), app.noop.bind())]
    handles = put(*calls)
    age(3600)
    with transaction.atomic():
        for task in held:
            task.enqueue()
        numbers = []
        while len(left()) > 3:
            pause = relay.pass_once()
            numbers.append(OutboxCall.objects.using("other").filter(next_at__lte=Now()).count())
            assert (pause == 0.0) is (numbers[-1] > 0)
        assert left() == [handle.id for handle in handles[::2]]
        transaction.set_rollback(True)
    assert numbers == sorted(numbers, reverse=True)
    assert len({6, *numbers}) == len(numbers) + 1 > 2


def test_pass_splits_its_calls_for_no_longer_than_its_transaction_may_take(relay, monkeypatch):
    monkeypatch.setattr(module, "SPLIT_SECONDS", 2 * PATIENCE_SECONDS)
    hand_over, left_seconds = relay._hand_over, []

    def look(calls, lock_milliseconds, until):
        left_seconds.append(until - time.monotonic())
        return hand_over(calls, lock_milliseconds, until)

    monkeypatch.setattr(relay, "_hand_over", look)
    put(app.noop.bind())
    relay.pass_once()
    assert max(left_seconds) <= conf.statement_timeout_seconds


def test_batch_that_takes_too_long_is_smaller_the_next_time(relay, sql):
    handles = put(*[app.noop.bind()] * 4)
    relay._batch.size = 4
    sql(
        "CREATE FUNCTION take_long() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN IF (SELECT count(*) FROM made) > 1 "
        "THEN RAISE 'too slow' USING ERRCODE = 'query_canceled'; END IF; RETURN NULL; END$$;"
        "CREATE TRIGGER take_long AFTER INSERT ON pgqueue_jobs REFERENCING NEW TABLE AS made "
        "FOR EACH STATEMENT EXECUTE FUNCTION take_long()"
    )
    try:
        with pytest.raises(OperationalError, match="too slow"):
            relay.pass_once()
        assert relay._batch.size == 2
    finally:
        sql("DROP TRIGGER take_long ON pgqueue_jobs")
        sql("DROP FUNCTION take_long()")
    # the session that was left may hold its rows yet, which are passed over then
    eventually(lambda: [relay.pass_once()] and not left())
    assert ids() == [handle.id for handle in handles]


@pytest.fixture
def note(sql):
    """Insert a note of a call, with the job that it has become or met, that is some hours old."""

    def insert(call_id: int, job_id: int, hours: int) -> None:
        sql(
            "INSERT INTO pgqueue_handed_over (id, job_id, at) VALUES (%s, %s, now() - make_interval(hours => %s))",
            *(call_id, job_id, hours),
        )

    return insert


def notes() -> set[int]:
    return {*HandedOver.objects.values_list("pk", flat=True)}


def test_notes_that_are_left_are_pruned_once_their_rows_are_gone(relay, note):
    [waiting] = put(app.noop.using(delay=0).bind())
    with connections["other"].cursor() as cursor:
        cursor.execute("UPDATE pgqueue_outbox SET next_at = now() + interval '1 day'")
    gone, fresh = job_id_of(0, 5, 2**39), job_id_of(0, 5, 2**39 + 1)
    for job_id, hours in ((waiting.id, 2), (gone, 2), (fresh, 0), (job_id_of(0, 6, 1), 2)):
        note(job_id, job_id, hours)
    relay.pass_once()
    assert notes() == {waiting.id, fresh, job_id_of(0, 6, 1)}


def test_notes_are_pruned_in_slices_between_which_calls_are_handed_over(relay, note, monkeypatch):
    monkeypatch.setattr(module, "MOST_PRUNED", 2)
    old = [job_id_of(0, 5, 2**39 + place) for place in range(3)]
    for job_id in old:
        note(job_id, job_id, 2)
    assert relay.pass_once() == 0.0
    assert len(notes()) == 1
    [handle] = put(app.noop.bind())
    assert relay.pass_once() > 0
    assert (notes(), ids()) == ({handle.id}, [handle.id])


def test_notes_that_cannot_be_pruned_keep_no_call_and_no_drain_waiting(relay, note, sql, caplog):
    note(job_id_of(0, 5, 2**39), job_id_of(0, 5, 2**39), 48)
    sql(
        "CREATE FUNCTION keep_note() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'kept'; END$$;"
        "CREATE TRIGGER keep_note BEFORE DELETE ON pgqueue_handed_over FOR EACH ROW EXECUTE FUNCTION keep_note()"
    )
    try:
        assert relay.pass_once() > 0
    finally:
        sql("DROP FUNCTION keep_note() CASCADE")
    assert relay.empty_at > -math.inf
    assert "Notes of calls in the outbox on 'other' are not pruned, and tried again in an hour: kept" in caplog.text


def test_note_of_a_job_that_was_met_is_kept_while_that_can_be_found_and_for_the_retention(relay, note, queue):
    def another(**options) -> int:
        return app.noop.using(**options).enqueue().id

    succeeded = another()
    end(queue, result="5")
    dead = another()
    jobs.kill([dead])
    met = {
        job_id_of(0, 5, 2**39 + place): job_id for place, job_id in enumerate((succeeded, dead, another(delay=3600)))
    }
    recent, over = (job_id_of(0, 5, 2**39 + place) for place in (10, 11))
    for call_id, job_id, days in ((recent, 2**46, 6), (over, 2**46, 8), *((key, met[key], 8) for key in met)):
        note(call_id, job_id, 24 * days)
    relay.pass_once()
    assert notes() == {recent, *met}
    assert {call_id: jobs.get(call_id).state().id for call_id in met} == met


def test_jobs_that_were_met_are_looked_for_one_by_one(queue, sql):
    """Tables of ended jobs are large; their statistics may say that they are not."""
    first = job_id_of(0, 5, 0)
    sql(
        "INSERT INTO pgqueue_handed_over (id, job_id, at) "
        "SELECT %s + number, number, now() - interval '8 days' FROM generate_series(1, 2000) AS number",
        first,
    )
    for name in ("handed_over", "jobs", "dead_jobs"):
        sql(f"ANALYZE pgqueue_{name}")
    bounds = {"first": first, "last": first + 2**40 - 1, "seconds": 3600.0, "met_days": 7, "limit": 1000}
    nodes = explain(queue, statement("old_handed_over"), bounds)
    assert "hashed" not in str(nodes)
    indexes = {node["Index Name"]: node["Actual Loops"] for node in nodes if "Index Name" in node}
    assert {"pgqueue_jobs_pkey": 1000, "pgqueue_dead_jobs_pkey": 1000}.items() <= indexes.items()


@pytest.fixture
def serving(outbox, settings):
    """A relay in a thread of its own, which does not poll again once it has looked."""
    settings.PGQUEUE = settings.PGQUEUE | {"POLL_SECONDS": 3600}
    relay = Relay("default", "other")
    runner = ServiceRunner("relay", relay.serve_once, stop=relay.stop)
    runner.start()
    eventually(lambda: relay.empty_at > -math.inf)
    yield relay
    runner.stop()
    runner.join(PATIENCE_SECONDS)
    assert not runner.is_alive()
    relay.close()


def test_relay_that_waits_is_told_of_calls_when_they_are_committed(serving):
    for _ in range(3):
        [handle] = put(app.noop.bind())
        eventually(lambda handle=handle: handle.id in ids())
    eventually(lambda: serving.handed_over == 3)


def test_relay_whose_connection_is_lost_while_it_waits_listens_again(serving):
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgqueue relay'"
    with connections["other"].cursor() as cursor:
        cursor.execute(f"{end} AND datname = current_database()")
        assert (True,) in cursor.fetchall()  # that of the test before may be ending yet
    [handle] = put(app.noop.bind())
    eventually(lambda: handle.id in ids())


def test_relay_that_waits_can_be_woken(serving):
    before = serving.empty_at
    serving.wake()
    eventually(lambda: serving.empty_at > before)


def test_relay_that_is_woken_more_often_than_it_looks_keeps_no_caller(relay):
    for _ in range(70_000):  # more than a pipe takes
        relay.wake()
    relay.stop()


def test_relay_is_told_of_calls_for_its_own_database_alone(relay):
    relay._due_at = math.inf
    relay._hear("1")
    assert not relay._is_told
    relay._hear("0")
    assert relay._is_told


def test_relay_polls_where_nothing_is_announced(relay, settings):
    settings.PGQUEUE = settings.PGQUEUE | {"NOTIFY": False, "POLL_SECONDS": 0.01}
    eventually(lambda: [relay.serve_once()] and relay._calls.is_listening and not relay._is_told)
    [handle] = put(app.noop.bind())
    eventually(lambda: [relay.serve_once()] and ids())
    assert ids() == [handle.id]


def test_calls_that_wait_for_a_database_that_is_away_are_not_looked_at(outbox):
    with transaction.atomic(using=outbox), connections[outbox].cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgqueue_outbox (number, call) SELECT 7, '{}' FROM generate_series(1, 2000);"
            "INSERT INTO pgqueue_outbox (number, call) SELECT 0, '{}' FROM generate_series(1, 10);"
            "ANALYZE pgqueue_outbox"
        )
        cursor.execute("SET LOCAL enable_seqscan = off")
        text = statement("take_from_outbox").replace("%(number)s", "0").replace("%(limit)s", "500")
        cursor.execute(f"EXPLAIN (ANALYZE, COSTS OFF, FORMAT JSON) {text}")
        [[plan]] = cursor.fetchone()
    assert "pgqueue_outbox_number" in str(plan)
    assert "Filter': '(number" not in str(plan)


def test_worker_hands_over_before_it_has_drained(outbox):
    handles = put(app.noop.bind(), app.noop.bind())
    call_command("pgqueue_worker", drain=True, verbosity=0)
    assert [handle.status() for handle in handles] == ["succeeded"] * 2


def test_job_on_its_way_is_waited_for(outbox):
    [handle] = put(app.record.bind("x"))
    for wait in (handle.result, async_to_sync(handle.aresult)):
        with pytest.raises(TimeoutError, match=f"Job {handle.id} has not ended within 0.1 s"):
            wait(timeout=0.1)
    results = []

    def work():
        results.append(handle.result(timeout=PATIENCE_SECONDS))
        connections.close_all()

    with beside(work):
        call_command("pgqueue_worker", drain=True, verbosity=0)
    assert results == ["recorded x"]
    assert async_to_sync(handle.aresult)(timeout=PATIENCE_SECONDS) == "recorded x"


@pytest.mark.parametrize("wait", [jobs.wait_all, async_to_sync(jobs.await_all)], ids=["wait_all", "await_all"])
def test_jobs_on_their_way_are_waited_for_together(outbox, wait):
    handles = put(app.record.bind("x"), app.record.bind("y"))
    with pytest.raises(TimeoutError, match="2 of 2 jobs have not ended within"):
        wait(handles, 0.1)
    results = []

    def work():
        results.extend(wait(handles, PATIENCE_SECONDS))
        connections.close_all()

    with beside(work):
        call_command("pgqueue_worker", drain=True, verbosity=0)
    assert results == ["recorded x", "recorded y"]


@pytest.mark.parametrize("wait", [jobs.wait_all, async_to_sync(jobs.await_all)], ids=["wait_all", "await_all"])
def test_so_many_on_their_way_that_each_look_takes_longer_than_the_pause_end_by_the_deadline(outbox, wait, settings):
    settings.PGQUEUE = {**settings.PGQUEUE, "POLL_SECONDS": 0.01}
    handles = put(*(app.record.bind("x") for _ in range(50)))
    with pytest.raises(TimeoutError, match="50 of 50 jobs have not ended within"):
        wait(handles, 0.2)


def test_call_that_has_met_a_job_is_waited_for_as_long_as_that(relay, queue):
    keyed = app.record.using(unique_key="k")
    keyed.enqueue("first")
    met = put(keyed.bind("second"))
    relay.pass_once()
    with pytest.raises(TimeoutError):
        jobs.wait_all(met, 0.1)
    end_soon(queue, result="5")
    assert jobs.wait_all(met, PATIENCE_SECONDS) == [5]
