"""One live job for each unique key: conflicting jobs, rows that reserve it, transactions of callers."""

import contextlib
import datetime as dt
import functools
import json
import os
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import OperationalError, ProgrammingError, connection, transaction
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import Limit, Unique, enqueue_many, queues
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.flow.concurrency import admit
from django_pgqueue.jobs import ack, claim, kill, retry, run_now
from django_pgqueue.jobs.dead_letter import expired_entry
from django_pgqueue.jobs.enqueue import insert_many
from django_pgqueue.jobs.leases import release
from django_pgqueue.maintenance.expirer import expire
from django_pgqueue.maintenance.promoter import promote
from django_pgqueue.maintenance.unique_keys import prune_reserved, reacquire_keys
from django_pgqueue.models import DeadJob, Job, SucceededJob
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.states import DeathReason
from tests.app.models import Mark
from tests.support.keyed import keyed
from tests.support.many import enqueued_ids
from tests.support.unique import HOUR, claimed, enqueue, fail, succeed
from tests.support.waiting import LONG_PATIENCE_SECONDS, PATIENCE_SECONDS, beside, eventually

WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND wait_event_type = 'Lock'
"""


def hours_ahead(job_id) -> int:
    return round((Job.objects.get(pk=job_id).run_at - timezone.now()) / HOUR)


# One live job per key


@pytest.mark.django_db
def test_key_of_a_call_is_stored_with_its_scope():
    handle = app.noop.using(unique_key="daily", unique=Unique(hold=60)).enqueue()
    job = Job.objects.get()
    assert (handle.created, job.unique_key, job.unique_until, job.unique_hold_seconds) == (True, "daily", "end", 60)


@pytest.mark.django_db
def test_longest_keys_of_the_longest_queue_are_stored():
    key = "\U0001f600" * 500
    queue = "\U0001f600" * 128
    app.noop.using(queue=queue, unique_key=key, limit_key=key, fair_key=key).enqueue()
    app.noop.using(queue=queue, fair_key=key).enqueue()
    assert Job.objects.count() == 2


@pytest.mark.django_db
def test_second_job_of_a_key_is_the_first():
    first = app.record.using(unique_key="k").enqueue("ann")
    second = app.record.using(unique_key="k").enqueue("bob")
    assert (second.id, second.created) == (first.id, False)
    assert Job.objects.get().args == ["ann"]


@pytest.mark.django_db
def test_bulk_returns_the_id_of_each_call_in_their_order():
    first = app.record.using(unique_key="letters:c").enqueue("old").id
    declared = keyed(unique=Unique(lambda name: None if name == "x" else name, group="letters"))
    ids = enqueued_ids(declared, [("d",), ("x",), ("c",), ("b",), ("x",), ("d",)])
    names = dict(Job.objects.values_list("id", "args"))
    assert [names[job_id] for job_id in ids] == [["d"], ["x"], ["old"], ["b"], ["x"], ["d"]]
    assert (ids[2], ids[0]) == (first, ids[5])
    assert len(set(ids)) == 5


# Calls of several tasks


@pytest.mark.django_db
def test_mixed_calls_meet_the_jobs_that_have_their_keys():
    old = app.record.using(unique_key="b").enqueue("old")
    handles = enqueue_many(
        [
            app.noop.using(unique_key="c", queue="mail").bind(),
            app.record.using(unique_key="b").bind("new"),
            app.noop.bind(),
            app.record.using(unique_key="a", unique=Unique(until="start"), limit_key="k").bind("x"),
            app.record.using(unique_key="c").bind("same key"),
        ]
    )
    assert [handle.created for handle in handles] == [True, False, True, True, False]
    assert handles[1].id == old.id
    assert handles[4].id == handles[0].id
    stored = {job.pk: job for job in Job.objects.all()}
    assert [(stored[one.id].task, stored[one.id].unique_key, stored[one.id].unique_until) for one in handles] == [
        ("tests.app.tasks.noop", "c", "end"),
        ("tests.app.tasks.record", "b", "end"),
        ("tests.app.tasks.noop", None, None),
        ("tests.app.tasks.record", "a", "start"),
        ("tests.app.tasks.noop", "c", "end"),
    ]
    assert (stored[handles[3].id].status, stored[handles[3].id].concurrency_limit) == ("limited", 1)
    assert len(stored) == 4


@pytest.mark.django_db
def test_mixed_calls_settle_each_conflict_by_their_own_options():
    jobs = {key: enqueue("old", key=key, delay=HOUR).id for key in ("left", "new", "later", "sooner", "other")}
    handles = enqueue_many(
        [
            app.record.using(unique_key="left").bind("new"),
            app.record.using(unique_key="later", on_conflict="later", delay=2 * HOUR).bind("new"),
            app.record.using(unique_key="new", on_conflict="replace", metadata={"is": "new"}).bind("new"),
            app.record.using(unique_key="sooner", on_conflict="earlier", delay=HOUR / 100).bind("new"),
            app.noop.using(unique_key="other", on_conflict="replace").bind(),
        ]
    )
    assert [handle.id for handle in handles] == [jobs[key] for key in ("left", "later", "new", "sooner", "other")]
    assert {job.unique_key: (job.args, hours_ahead(job.pk)) for job in Job.objects.all()} == {
        "left": (["old"], 1),
        "new": (["new"], 1),
        "later": (["old"], 2),
        "sooner": (["old"], 0),
        "other": (["old"], 1),
    }
    assert Job.objects.get(unique_key="new").metadata == {"is": "new"}


@pytest.mark.django_db
def test_last_call_of_mixed_ones_replaces_those_of_its_task():
    replaces = app.record.using(unique_key="k", on_conflict="replace", metadata={"is": "new"}, queue="b")
    of_another = app.noop.using(unique_key="k", on_conflict="replace")
    handles = enqueue_many([app.record.using(unique_key="k").bind("old"), replaces.bind("new"), of_another.bind()])
    job = Job.objects.get()
    assert {handle.id for handle in handles} == {job.pk}
    assert (job.args, job.metadata, job.queue) == (["new"], {"is": "new"}, "default")


def changed(**options):
    return app.record.using(unique_key="k", **options)


KEPT, OF_ANOTHER = changed().bind("kept"), app.noop.using(unique_key="k", on_conflict="replace").bind()
REPLACED = changed(on_conflict="replace").bind("replaced")
AT_ONCE, DELAYED = changed(on_conflict="earlier").bind("x"), changed(delay=2 * HOUR).bind("first")
LATER, MUCH_LATER = (changed(on_conflict="later", delay=number * HOUR).bind("x") for number in (3, 5))


@pytest.mark.parametrize(
    "calls",
    [
        (REPLACED, KEPT),
        (REPLACED, OF_ANOTHER),
        (REPLACED, REPLACED, LATER, KEPT),
        (LATER, REPLACED, OF_ANOTHER),
        (DELAYED, AT_ONCE),
        (DELAYED, AT_ONCE, LATER, KEPT),
        (MUCH_LATER, LATER, REPLACED),
        (MUCH_LATER, AT_ONCE, REPLACED, LATER),
        (AT_ONCE, LATER, AT_ONCE),
    ],
)
@pytest.mark.parametrize("is_free", [False, True])
@pytest.mark.django_db
def test_calls_with_one_key_do_in_a_bulk_what_they_do_one_by_one(calls, is_free):
    stored = []
    for enqueue_all in (enqueue_many, lambda given: [call.enqueue() for call in given]):
        Job.objects.all().delete()
        before = [] if is_free else [enqueue("old", delay=2 * HOUR), enqueue("other", key="a"), enqueue(key="z")]
        others = [app.record.using(unique_key=key).bind("x") for key in "az"]
        handles = enqueue_all([others[0], *calls, others[1]])[1:-1]
        job = Job.objects.get(unique_key="k")
        assert {handle.id for handle in handles} == {job.pk}
        assert [handle.created for handle in handles] == [not before, *[False] * (len(calls) - 1)]
        stored.append((job.task, job.args, job.status, hours_ahead(job.pk)))
    assert stored[0] == stored[1]


@pytest.mark.django_db
def test_calls_move_the_job_that_takes_a_key_from_an_expired_one(sql, django_assert_max_num_queries):
    expired = enqueue("old", expires=HOUR)
    sql("UPDATE pgqueue_jobs SET expires_at = run_at")
    with django_assert_max_num_queries(20):
        handles = enqueue_many([KEPT, LATER])
    assert [handle.created for handle in handles] == [True, False]
    assert handles[0].id == handles[1].id != expired.id
    assert hours_ahead(handles[0].id) == 3


@pytest.mark.django_db
def test_calls_of_one_key_with_the_same_change_are_settled_together(django_assert_num_queries):
    enqueue("old")
    with django_assert_num_queries(7):  # four for savepoints
        enqueue_many([changed(on_conflict="replace").bind(f"{number}") for number in range(100)])
    assert Job.objects.get().args == ["99"]


@pytest.mark.parametrize(("conflict", "hours"), [("later", range(3, 53)), ("earlier", range(-1, -51, -1))])
@pytest.mark.django_db
def test_calls_that_move_a_job_further_each_time_are_settled_together(django_assert_num_queries, conflict, hours):
    enqueue("old", delay=2 * HOUR)
    now = timezone.now()
    at = [now + dt.timedelta(hours=number) for number in hours]
    with django_assert_num_queries(7):
        enqueue_many([changed(on_conflict=conflict, run_at=one).bind("x") for one in at])
    assert Job.objects.get().run_at == at[-1]


@pytest.mark.django_db
def test_mixed_calls_take_their_keys_in_order_whatever_their_tasks(django_assert_num_queries):
    """One statement inserts them: two callers with the same keys would deadlock if each task came by itself."""
    calls = [(app.noop if number % 2 else app.record).using(unique_key=f"{number:03}") for number in range(100)]
    random.Random(1).shuffle(calls)
    with django_assert_num_queries(3):  # two for the savepoint
        enqueue_many([call.bind("x") if call.name == app.record.name else call.bind() for call in calls])
    in_order = Job.objects.order_by("pk").values_list("unique_key", flat=True)
    assert list(in_order) == [f"{number:03}" for number in range(100)]


def test_mixed_calls_are_all_or_none_where_a_key_comes_and_goes(db, monkeypatch):
    def explode(*_):
        raise ZeroDivisionError

    enqueue("old", key="b")
    monkeypatch.setattr("django_pgqueue.jobs.unique._Insertion.resolve_conflict", explode)
    with pytest.raises(ZeroDivisionError):
        enqueue_many([app.record.using(unique_key="a").bind("x"), app.noop.using(unique_key="b").bind()])
    assert Job.objects.get().args == ["old"]


@pytest.mark.django_db
def test_fair_jobs_of_mixed_calls_take_turns_in_their_queue():
    one, other = app.noop.using(fair_key="one"), app.record.using(fair_key="other")
    handles = enqueue_many([one.bind(), one.bind(), other.bind("x"), one.bind(), other.using(queue="b").bind("y")])
    turns = dict(Job.objects.values_list("pk", "run_at"))
    of_one = [turns[handles[position].id] for position in (0, 1, 3)]
    assert of_one == [of_one[0] + number * dt.timedelta(microseconds=1) for number in range(3)]
    assert turns[handles[2].id] == of_one[0]


@pytest.mark.django_db
def test_job_with_a_concurrency_key_waits_to_be_admitted(queue):
    app.noop.using(limit_key="k", limit=Limit(running=3)).enqueue()
    job = Job.objects.get()
    assert (job.status, job.concurrency_limit, job.concurrency_slot) == ("limited", 3, None)
    assert claim.claim(queue, "default", limit=1, worker_id=1) == []


@pytest.mark.django_db
def test_expiry_is_counted_from_when_the_job_is_due():
    app.noop.using(expires=60, delay=dt.timedelta(hours=1)).enqueue()
    job = Job.objects.get()
    assert job.expires_at - job.run_at == dt.timedelta(seconds=60)


# Replace


def test_replace_gives_a_job_that_waits_the_new_arguments_and_metadata(queue):
    first = enqueue("old", metadata={"of": "old"}, tags=("old",), delay=HOUR, priority=5)
    second = enqueue("new", on_conflict="replace", metadata={"of": "new"}, tags=("new",))
    job = Job.objects.get()
    assert (second.id, second.created) == (first.id, False) == (job.id, False)
    assert (job.args, job.metadata, job.tags) == (["new"], {"of": "new"}, ["new"])
    assert (job.status, job.priority) == ("scheduled", 5)


@pytest.mark.parametrize("conflict", ["keep", "replace", "later", "earlier"])
def test_job_that_runs_is_left_alone(queue, conflict):
    first = enqueue("old")
    [job] = claimed(queue)
    before = Job.objects.values().get()
    again = enqueue("new", on_conflict=conflict, after=HOUR if conflict == "later" else -HOUR)
    assert (again.id, again.created) == (first.id, False)
    assert Job.objects.values().get() == before
    succeed(queue, job)


def test_replace_leaves_a_job_of_another_task_alone(db):
    first = enqueue("old")
    assert app.noop.using(unique_key="k", on_conflict="replace").enqueue().id == first.id
    assert Job.objects.get().args == ["old"]


def test_last_call_of_a_bulk_replaces(db):
    """Those before it in the same call, and what was there."""
    declared = keyed(pair, unique=Unique(lambda label, number: label, on_conflict="replace"))
    older = declared.enqueue("b", 0).id
    ids = enqueued_ids(declared, [("b", 1), ("a", 2), ("b", 3), ("a", 4), ("c", 5)])
    assert ids[:2] == ids[2:4]
    assert ids[0] == older
    assert sorted(Job.objects.values_list("args", flat=True)) == [["a", 4], ["b", 3], ["c", 5]]


def test_last_who_replaces_has_waited_for_the_first(queue):
    enqueue("old")
    with contextlib.ExitStack() as later:  # noqa: SIM117 - the transaction ends first
        with transaction.atomic():
            enqueue("second", on_conflict="replace")
            later.enter_context(beside(in_thread(lambda: enqueue("third", on_conflict="replace"))))
            eventually(lambda: queue.rows(WAITING, {}) == [(1,)])
    assert Job.objects.get().args == ["third"]


@pytest.mark.parametrize("conflict", ["replace", "later", "earlier"])
def test_job_that_starts_while_it_is_waited_for_is_not_locked(queue, sql, conflict):
    """Its worker writes the outcome while the caller's transaction is still open."""
    first, done, found = enqueue("old", after=-HOUR).id, threading.Event(), []

    def change_and_stay() -> None:
        with transaction.atomic():
            time = -2 * HOUR if conflict == "earlier" else HOUR
            found.append(enqueue("new", on_conflict=conflict, after=time).id)
            assert done.wait(PATIENCE_SECONDS)

    with contextlib.ExitStack() as later:
        with queue.transaction():
            queue.rows("SELECT id FROM pgqueue_jobs FOR NO KEY UPDATE", {})  # as a claim does first
            later.enter_context(beside(in_thread(change_and_stay)))
            later.callback(done.set)
            eventually(lambda: sql(WAITING) == [(1,)])
            [job] = claim.send(queue, "default", limit=1, worker_id=1).jobs()
        eventually(lambda: found)
        succeed(queue, job)
    assert found == [first]
    assert SucceededJob.objects.get().args == ["old"]


def test_others_of_a_bulk_are_changed_when_one_starts_while_it_is_waited_for(queue, sql):
    declared = keyed(pair, unique=Unique(lambda label, number: label, on_conflict="replace"))
    calls = [(label, 1) for label in "cbaed"]
    ids = enqueued_ids(declared, calls)
    sql("UPDATE pgqueue_jobs SET priority = 9 WHERE id = %s", ids[1])
    with contextlib.ExitStack() as later:  # noqa: SIM117 - the transaction ends first
        with queue.transaction():
            queue.rows("SELECT id FROM pgqueue_jobs WHERE priority = 9 FOR NO KEY UPDATE", {})
            again = later.enter_context(ThreadPoolExecutor()).submit(
                in_thread(lambda: enqueued_ids(declared, [(label, 2) for label, _ in calls]))
            )
            eventually(lambda: sql(WAITING) == [(1,)])
            [job] = claim.send(queue, "default", limit=1, worker_id=1).jobs()
    assert again.result() == ids
    numbers = dict(Job.objects.values_list("args__0", "args__1"))
    assert numbers == {"a": 2, "b": 1, "c": 2, "d": 2, "e": 2}
    succeed(queue, job)


# Later and earlier


@pytest.mark.parametrize(
    ("first", "conflict", "time", "expected"),
    [
        ({}, "later", HOUR, ("scheduled", 1)),
        ({"after": -2 * HOUR}, "later", -HOUR, ("queued", -1)),
        ({"delay": 2 * HOUR}, "later", HOUR, ("scheduled", 2)),
        ({"delay": 2 * HOUR}, "later", 3 * HOUR, ("scheduled", 3)),
        ({"delay": 2 * HOUR}, "later", None, ("scheduled", 2)),
        ({"limit_key": "c"}, "later", HOUR, ("scheduled", 1)),
        ({"delay": 2 * HOUR}, "earlier", HOUR, ("scheduled", 1)),
        ({"delay": 2 * HOUR}, "earlier", 3 * HOUR, ("scheduled", 2)),
        ({"delay": 2 * HOUR}, "earlier", None, ("queued", 0)),
        ({"delay": 2 * HOUR}, "earlier", -HOUR, ("queued", -1)),
        ({"delay": 2 * HOUR, "limit_key": "c"}, "earlier", None, ("limited", 0)),
        ({"delay": 2 * HOUR, "fair_key": "f"}, "earlier", None, ("scheduled", 0)),
        ({}, "earlier", HOUR, ("queued", 0)),
        ({"limit_key": "c"}, "earlier", -HOUR, ("limited", -1)),
        ({"delay": 2 * HOUR}, "keep", None, ("scheduled", 2)),
    ],
)
@pytest.mark.django_db
def test_conflict_is_moved(first, conflict, time, expected):
    job_id = enqueue("old", **first).id
    assert enqueue("new", on_conflict=conflict, after=time).id == job_id
    assert (Job.objects.get().status, hours_ahead(job_id)) == expected
    assert Job.objects.get().args == ["old"]


@pytest.mark.parametrize("strict_backoff", [False, True])
def test_job_moved_into_the_future_gives_its_slot_back_unless_it_backs_off_with_it(sql, strict_backoff):
    job_id = enqueue(limit_key="c", limit=Limit(strict=strict_backoff)).id
    status = "scheduled" if strict_backoff else "queued"
    sql("UPDATE pgqueue_jobs SET status = %s, concurrency_slot = 1", status)
    enqueue(on_conflict="later", delay=HOUR)
    job = Job.objects.get(pk=job_id)
    assert (job.status, job.concurrency_slot) == ("scheduled", 1 if strict_backoff else None)
    enqueue(on_conflict="earlier")
    assert Job.objects.get(pk=job_id).status == ("queued" if strict_backoff else "limited")


def test_moved_job_expires_by_the_call_that_moved_it_later(db):
    enqueue(expires=60)
    enqueue(on_conflict="later", delay=HOUR, expires=120)
    job = Job.objects.get()
    assert job.expires_at - job.run_at == dt.timedelta(seconds=120)
    enqueue(on_conflict="later", delay=2 * HOUR)
    assert Job.objects.get().expires_at == job.expires_at, "which that one does not say"


def test_workers_are_woken_where_the_job_is_due(db, django_capture_on_commit_callbacks):
    enqueue("old", queue="mail", delay=HOUR)
    enqueue("old", key="limited", limit_key="c", delay=HOUR)
    with django_capture_on_commit_callbacks() as hooks:
        enqueue(on_conflict="earlier")
        enqueue(key="limited", on_conflict="earlier")
    assert [hook.payloads for hook in hooks] == [("mail",), ("?+c",)]


@pytest.mark.parametrize("conflict", ["keep", "replace", "later"])
@pytest.mark.parametrize(("status", "told"), [("queued", ["mail"]), ("limited", ["?+c"]), ("scheduled", [])])
def test_job_that_workers_have_stepped_over_is_announced(
    sql, django_capture_on_commit_callbacks, conflict, status, told
):
    """They leave it alone while it is locked."""
    concurrency_key = "c" if status == "limited" else None
    enqueue("old", queue="mail", unique=Unique(until="start"), limit_key=concurrency_key, delay=HOUR)
    sql("UPDATE pgqueue_jobs SET status = %s, run_at = now() - interval '2 hours'", status)
    with django_capture_on_commit_callbacks() as hooks:
        enqueue("new", unique=Unique(until="start"), on_conflict=conflict, after=-HOUR)
    assert [payload for hook in hooks for payload in hook.payloads] == told


@pytest.mark.parametrize("conflict", ["keep", "later", "earlier"])
@pytest.mark.parametrize("scope", ["end", "start"])
def test_job_that_needs_no_change_is_locked_only_if_its_start_would_miss_one(queue, conflict, scope):
    job_id = enqueue(delay=HOUR, unique=Unique(until=scope)).id
    options = {"on_conflict": conflict, "delay": {"later": None, "earlier": 2 * HOUR}.get(conflict)}
    with transaction.atomic():
        assert enqueue(**options).id == job_id
        assert enqueued_ids(app.record.using(unique_key="k", **options), [("a",)]) == [job_id]
        free = queue.rows("SELECT id FROM pgqueue_jobs FOR NO KEY UPDATE SKIP LOCKED", {})
        assert len(free) == (1 if scope == "end" else 0)


# Which job a call may meet: one that has its work before it, and not one that is over


def pick(order_id: int) -> None:
    """No worker runs it."""


def from_python(key, number=0, *, until="end") -> int:
    return keyed(pick, limit=Limit("order_id"), unique=Unique(until=until)).using(unique_key=key).enqueue(number).id


def from_sql(key, number=0, *, until="end") -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pgqueue_enqueue('x', jsonb_build_array(%s), unique_key => %s, unique_until => %s, "
            "concurrency_key => %s)",
            [number, key, until, f"tests.keyed.pick:order_id={number}"],
        )
        return cursor.fetchone()[0]


BOTH_WAYS = pytest.mark.parametrize("enqueue_keyed", [from_python, from_sql])


def index_orders(queue, indexed) -> None:
    """Be a worker for a moment: let in and run what is there, each job with the version of its order that it sees."""
    waiting = queue.rows("SELECT concurrency_key FROM pgqueue_jobs WHERE status = 'limited'", {})
    admit(queue, {key for (key,) in waiting})
    for job in claim.claim(queue, "default", limit=10, worker_id=1):
        [order] = json.loads(job.args)
        [(indexed[order],)] = queue.rows("SELECT label FROM app_mark WHERE job_id = %(order)s", {"order": order})
        succeed(queue, job)


@BOTH_WAYS
def test_no_change_is_missed_by_jobs_that_hold_their_key_until_they_start(queue, enqueue_keyed):
    """Wherever a worker comes by: of forty orders, six times between the call and the commit."""
    indexed = {}
    for order in range(40):
        turn = order % 7
        Mark.objects.create(job_id=order, label="old")
        enqueue_keyed(f"index {order}", order, until="start")
        with transaction.atomic():
            if turn == 0:
                index_orders(queue, indexed)
            Mark.objects.filter(job_id=order).update(label="new")
            if turn == 1:
                index_orders(queue, indexed)
            enqueue_keyed(f"index {order}", order, until="start")
            if turn == 2:
                index_orders(queue, indexed)
        if turn == 3:
            index_orders(queue, indexed)
    while Job.objects.exists():
        index_orders(queue, indexed)
    assert [order for order in range(40) if indexed[order] == "old"] == []


@BOTH_WAYS
def test_calls_that_meet_a_job_do_not_wait_for_each_other(queue, enqueue_keyed):
    first, met = enqueue_keyed("k", until="start"), []
    with transaction.atomic():
        assert enqueue_keyed("k", until="start") == first
        with beside(in_thread(lambda: met.append(enqueue_keyed("k", until="start")))):
            pass
    assert met == [first]


def test_call_outside_of_a_transaction_needs_no_lock(transactional_db, django_assert_num_queries):
    """What it is about is committed before, so a later run sees it. In a transaction it is locked, by a savepoint."""
    enqueue(unique=Unique(until="start"))
    with django_assert_num_queries(2):
        assert not enqueue(unique=Unique(until="start")).created
    with transaction.atomic(), django_assert_num_queries(5):
        assert not enqueue(unique=Unique(until="start")).created


@pytest.mark.parametrize("how", ["BEGIN", "psycopg"])
@pytest.mark.parametrize("conflict", ["keep", "replace"])
def test_transaction_of_which_django_does_not_know_is_one(queue, sql, how, conflict):
    first = enqueue("old", unique=Unique(until="start")).id
    task = app.record.using(unique_key="k", unique=Unique(until="start"), on_conflict=conflict)
    with beneath_django(how):
        assert task.enqueue("new").id == first
        assert enqueued_ids(task, [("new",), ("newer",)]) == [first, first]
        assert claimed(queue) == []
        assert Job.objects.get().args == (["newer"] if conflict == "replace" else ["old"])
    assert [job.id for job in claimed(queue)] == [first]


@pytest.mark.parametrize("how", ["BEGIN", "psycopg"])
def test_job_that_starts_while_such_a_transaction_waits_for_it_is_not_locked(queue, sql, how):
    first, done, got = enqueue("old", unique=Unique(until="start")).id, threading.Event(), []

    def call_and_stay() -> None:
        with beneath_django(how):
            got.append(enqueue("new", unique=Unique(until="start")).id)
            assert done.wait(PATIENCE_SECONDS)

    with contextlib.ExitStack() as later:
        with queue.transaction():
            queue.rows("SELECT id FROM pgqueue_jobs FOR NO KEY UPDATE", {})
            later.enter_context(beside(in_thread(call_and_stay)))
            later.callback(done.set)
            eventually(lambda: sql(WAITING) == [(1,)])
            [job] = claim.send(queue, "default", limit=1, worker_id=1).jobs()
        eventually(lambda: got)
        succeed(queue, job)
    assert Job.objects.get().id == got[0] != first


@contextlib.contextmanager
def beneath_django(how):
    """Open a transaction in a way that Django does not see, and commit it."""
    connection.ensure_connection()
    if how == "psycopg":
        with connection.connection.transaction():
            yield
        return
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        try:
            yield
        finally:
            cursor.execute("COMMIT")


def test_bulk_outside_of_a_transaction_waits_for_no_lock_either(queue, sql):
    """That it opens one itself does not count."""
    first = enqueue(unique=Unique(until="start")).id
    bulk = app.record.using(unique_key="k", unique=Unique(until="start"))
    with queue.transaction():
        queue.rows("SELECT id FROM pgqueue_jobs FOR NO KEY UPDATE", {})
        with transaction.atomic(), pytest.raises(OperationalError, match="lock timeout"), transaction.atomic():
            sql("SET LOCAL lock_timeout = 50")
            bulk.enqueue_many([("a",), ("b",)])
        sql("SET lock_timeout = 50")
        try:
            assert enqueued_ids(bulk, [("a",), ("b",)]) == [first, first]
        finally:
            sql("RESET lock_timeout")


@BOTH_WAYS
def test_job_that_starts_while_a_call_waits_for_it_is_not_met(queue, sql, enqueue_keyed):
    """The call gets a job of its own, and the worker writes the outcome while the caller's transaction is open."""
    first, done, got = enqueue_keyed("k", until="start"), threading.Event(), []
    sql("UPDATE pgqueue_jobs SET status = 'queued', concurrency_slot = 1")

    def call_and_stay() -> None:
        with transaction.atomic():
            got.append(enqueue_keyed("k", until="start"))
            assert done.wait(PATIENCE_SECONDS)

    with contextlib.ExitStack() as later:
        with queue.transaction():
            queue.rows("SELECT id FROM pgqueue_jobs FOR NO KEY UPDATE", {})  # as a claim does first
            later.enter_context(beside(in_thread(call_and_stay)))
            later.callback(done.set)
            eventually(lambda: sql(WAITING) == [(1,)])
            [job] = claim.send(queue, "default", limit=1, worker_id=1).jobs()
        eventually(lambda: got)
        succeed(queue, job)
    assert Job.objects.get().id == got[0] != first


def let_expire(queue, sql, job_id) -> None:
    sql("UPDATE pgqueue_jobs SET expires_at = now() - interval '1 s' WHERE id = %s", job_id)


def fail_once_killed(queue, sql, job_id) -> None:
    """Ask it to stop while it runs, let it fail by itself, and to be tried again in an hour; with its key again."""
    sql("UPDATE pgqueue_jobs SET concurrency_slot = 1 WHERE id = %s AND concurrency_key IS NOT NULL", job_id)
    sql("UPDATE pgqueue_jobs SET status = 'queued' WHERE id = %s", job_id)
    [job] = claimed(queue)
    sql("UPDATE pgqueue_jobs SET unique_until = 'start' WHERE id = %s AND unique_until = 'started'", job_id)
    assert kill([job.id], by="eve").requested == [job.id]
    fail(queue, job)


def end_all(queue, sql) -> None:
    """Look after all jobs as maintenance does, when all that is scheduled is due."""
    sql("UPDATE pgqueue_jobs SET run_at = now() WHERE status = 'scheduled'")
    expire(queue)
    reacquire_keys(queue)
    promote(queue)
    admit(queue, ["tests.keyed.pick:order_id=0"])
    for job in claimed(queue):
        assert job.id not in set(DeadJob.objects.values_list("id", flat=True))
        fate = Fate.DIED if job.timeout_seconds < 0 else Fate.SUCCEEDED
        ack.write(queue, [Outcome(job, fate, result="1", reason=DeathReason.KILLED, error={"error": "killed"})])


@pytest.mark.parametrize("scope", ["end", "start"])
@pytest.mark.parametrize("ends", [let_expire, fail_once_killed])
@BOTH_WAYS
def test_job_that_will_not_run_any_more_is_not_met(queue, sql, enqueue_keyed, ends, scope):
    """It dies of what it would have died of, and gets its key again when it is retried."""
    first = enqueue_keyed("k", until=scope)
    ends(queue, sql, first)
    second = enqueue_keyed("k", until=scope)
    assert second != first
    assert enqueue_keyed("k", until=scope) == second
    assert reacquire_keys(queue) == (0, (), 0, 0)
    while Job.objects.exists():
        end_all(queue, sql)
    reason = {let_expire: "expired", fail_once_killed: "killed"}[ends]
    assert list(DeadJob.objects.values_list("id", "reason")) == [(first, reason)]
    assert SucceededJob.objects.get().id == second
    assert retry([first], by="eve").ids == [first]
    assert Job.objects.get().unique_until == scope
    assert enqueue_keyed("k", until=scope) == first


@pytest.mark.parametrize("conflict", ["keep", "replace", "later", "earlier"])
@pytest.mark.parametrize("ends", [let_expire, fail_once_killed])
def test_call_changes_nothing_about_a_job_that_will_not_run_any_more(queue, sql, conflict, ends):
    first = enqueue("old", after=-HOUR).id
    ends(queue, sql, first)
    before = Job.objects.values().get()
    [second, third] = enqueued_ids(app.record.using(unique_key="k", on_conflict=conflict), [("a",), ("b",)])
    assert first != second == third
    assert Job.objects.get(pk=second).args == (["b"] if conflict == "replace" else ["a"])
    assert Job.objects.filter(pk=first).values().get() == before | {"unique_until": "given_up"}


def test_job_that_runs_is_met_though_it_has_expired_or_is_asked_to_stop(queue, sql):
    first = enqueue().id
    [job] = claimed(queue)
    kill([job.id], by="eve")
    let_expire(queue, sql, first)
    assert not enqueue().created
    succeed(queue, job)


@pytest.mark.parametrize("scope", ["end", "start"])
@pytest.mark.parametrize("ends", [let_expire, fail_once_killed])
@pytest.mark.parametrize("send", [claim.send, functools.partial(claim.send, above=(-1, 0.0, 0)), claim.send_limited])
@BOTH_WAYS
def test_job_that_is_claimed_only_to_die_is_not_met(queue, sql, enqueue_keyed, *, ends, scope, send):
    """Its worker may be frozen before it has written that down, and give the job back when it thaws."""
    first = enqueue_keyed("k", until=scope)
    ends(queue, sql, first)
    if send is claim.send_limited:
        queues.limit("default", max_running=5)
    sql("UPDATE pgqueue_jobs SET status = 'queued', run_at = now(), concurrency_slot = 1")
    with queue.transaction():
        sent = send(queue, "default", limit=1, worker_id=1)
    [job] = sent.jobs()
    assert job.timeout_seconds < 0
    second = enqueue_keyed("k", until=scope)
    assert second != first
    release(queue, [job])
    assert enqueue_keyed("k", until=scope) == second


def test_reserved_of_a_job_that_was_asked_to_stop_in_vain_is_met(queue):
    first = enqueue(unique=Unique(hold=HOUR)).id
    [job] = claimed(queue)
    kill([job.id], by="eve")
    succeed(queue, job)
    assert enqueue().id == first
    assert from_sql("k") == first


@pytest.mark.parametrize("conflict", ["keep", "replace", "later", "earlier"])
def test_bulk_makes_one_job_of_a_key_even_if_that_expires_at_once(db, conflict):
    past = timezone.now() - HOUR
    bulk = app.record.using(unique_key="k", on_conflict=conflict, expires=past)
    inserted = insert_many(bulk, [((label,), {}) for label in "abc"])
    assert (len(set(inserted.ids)), inserted.created) == (1, [True, False, False])
    assert enqueued_ids(bulk, [("d",)]) != inserted.ids[:1]


@BOTH_WAYS
def test_job_that_is_claimed_to_die_while_a_call_waits_for_it_is_not_locked(queue, sql, enqueue_keyed):
    first, done, got = enqueue_keyed("k"), threading.Event(), []
    sql("UPDATE pgqueue_jobs SET status = 'queued', concurrency_slot = 1, expires_at = now() - interval '1 s'")

    def call_and_stay() -> None:
        with transaction.atomic():
            got.append(enqueue_keyed("k"))
            assert done.wait(PATIENCE_SECONDS)

    with contextlib.ExitStack() as later:
        with queue.transaction():
            queue.rows("SELECT id FROM pgqueue_jobs FOR NO KEY UPDATE", {})
            later.enter_context(beside(in_thread(call_and_stay)))
            later.callback(done.set)
            eventually(lambda: sql(WAITING) == [(1,)])
            [job] = claim.send(queue, "default", limit=1, worker_id=1).jobs()
        eventually(lambda: got)
        ack.write(queue, [Outcome(job, Fate.DIED, reason=DeathReason.EXPIRED, error=expired_entry())])
    assert DeadJob.objects.get().id == first
    assert got == [Job.objects.get().id]


@BOTH_WAYS
def test_job_that_is_moved_later_while_a_call_waits_for_it_keeps_its_key(queue, sql, enqueue_keyed):
    """It had expired when it was looked up, and has not any more when it is locked."""
    first, got = enqueue_keyed("k"), []
    let_expire(queue, sql, first)
    with contextlib.ExitStack() as later:  # noqa: SIM117 - the transaction ends first
        with queue.transaction():
            queue.rows("SELECT id FROM pgqueue_jobs FOR NO KEY UPDATE", {})
            later.enter_context(beside(in_thread(lambda: got.append(enqueue_keyed("k")))))
            eventually(lambda: sql(WAITING) == [(1,)])
            queue.rows("UPDATE pgqueue_jobs SET expires_at = NULL RETURNING id", {})
    assert got == [first]
    assert Job.objects.get().unique_until == "end"


@BOTH_WAYS
def test_job_that_expires_while_a_call_waits_for_it_is_not_met(queue, sql, enqueue_keyed):
    """The time of the lock counts, not that of the call."""
    first, got = enqueue_keyed("k", until="start"), []

    def call() -> None:
        with transaction.atomic():
            got.append(enqueue_keyed("k", until="start"))

    with contextlib.ExitStack() as later:  # noqa: SIM117 - the transaction ends first
        with queue.transaction():
            queue.rows("SELECT id FROM pgqueue_jobs FOR NO KEY UPDATE", {})
            later.enter_context(beside(in_thread(call)))
            eventually(lambda: sql(WAITING) == [(1,)])
            queue.rows("UPDATE pgqueue_jobs SET expires_at = clock_timestamp() RETURNING id", {})
    assert Job.objects.get(unique_until="start").id == got[0] != first


@pytest.mark.parametrize("conflict", ["replace", "later", "earlier"])
def test_job_that_expires_while_a_call_waits_to_change_it_is_not_changed(queue, sql, conflict):
    first, got = enqueue("old", after=-HOUR).id, []
    time = -2 * HOUR if conflict == "earlier" else HOUR
    with contextlib.ExitStack() as later:  # noqa: SIM117 - the transaction ends first
        with queue.transaction():
            queue.rows("SELECT id FROM pgqueue_jobs FOR NO KEY UPDATE", {})
            call = functools.partial(enqueue, "new", on_conflict=conflict, after=time)
            later.enter_context(beside(in_thread(lambda: got.append(call().id))))
            eventually(lambda: sql(WAITING) == [(1,)])
            queue.rows("UPDATE pgqueue_jobs SET expires_at = clock_timestamp() RETURNING id", {})
    assert Job.objects.get(unique_until="end").id == got[0] != first
    assert Job.objects.get(pk=first).args == ["old"]


def test_function_goes_by_the_clock_and_not_by_the_start_of_the_outermost_statement(sql):
    first = from_sql("k")
    sql(
        "DO $$ BEGIN UPDATE pgqueue_jobs SET expires_at = clock_timestamp(); "
        "PERFORM pgqueue_enqueue('x', unique_key => 'k'); END $$"
    )
    assert Job.objects.get(unique_until="end").id != first


@pytest.mark.parametrize("ends", [let_expire, fail_once_killed])
def test_job_is_not_superseded_by_one_that_will_not_run_any_more(queue, sql, ends):
    """Else neither would."""
    first = enqueue("old", unique=Unique(until="start"), priority=9).id
    [job] = claimed(queue)
    conflict = enqueue("new", unique=Unique(until="start")).id
    ends(queue, sql, conflict)
    fail(queue, job)
    assert reacquire_keys(queue) == (0, (), 0, 0)
    Job.objects.filter(pk=conflict).delete()
    assert reacquire_keys(queue) == (1, (), 0, 0)
    assert enqueue().id == first


@BOTH_WAYS
@pytest.mark.parametrize("is_over", [False, True])
def test_web_server_may_meet_jobs_with_the_rights_of_the_docs(sql, enqueue_keyed, is_over, project):
    page = (project / "docs/how-to/privileges.md").read_text()
    grants = re.findall(r"```sql\n(.*?)```", page[page.index("## The web server") :], re.DOTALL)[:2]
    sql("CREATE ROLE shop_web")  # in the test's transaction
    sql("".join(grants))
    sql("SET LOCAL ROLE shop_web")
    first = enqueue_keyed("k", until="start")
    if is_over:
        sql("RESET ROLE")
        sql("UPDATE pgqueue_jobs SET expires_at = now() - interval '1 s'")
        sql("SET LOCAL ROLE shop_web")
    assert (enqueue_keyed("k", until="start") == first) is not is_over


@BOTH_WAYS
def test_lock_on_a_job_that_is_met_takes_the_right_to_update_a_column(sql, enqueue_keyed, project):
    page = (project / "docs/how-to/privileges.md").read_text()
    [base] = re.findall(r"```sql\n(.*?)```", page[page.index("## The web server") :], re.DOTALL)[:1]
    sql("CREATE ROLE shop_web")  # in the test's transaction
    sql(base + "GRANT SELECT (concurrency_key, concurrency_slot) ON pgqueue_jobs TO shop_web")
    sql("SET LOCAL ROLE shop_web")
    met = enqueue_keyed("live")
    assert enqueue_keyed("live") == met
    enqueue_keyed("k", until="start")
    with pytest.raises(ProgrammingError, match="permission denied"), transaction.atomic():
        enqueue_keyed("k", until="start")


# Reserved rows


@pytest.mark.parametrize("is_atomic", [False, True])
@pytest.mark.parametrize("history", [True, False])
def test_success_leaves_a_reserved_that_has_the_key(queue, settings, history, is_atomic):
    settings.PGQUEUE = {"RETENTION_DAYS": 7 if history else 0}
    first = enqueue("secret", unique=Unique(hold=HOUR), metadata={"a": 1}, expires=60)
    [job] = claimed(queue)
    if is_atomic:
        with transaction.atomic():
            assert ack.finish_alone(CallerConnection(), Outcome(job, Fate.SUCCEEDED, result='"done"'))
    else:
        succeed(queue, job)
    row = Job.objects.get()
    assert (row.id, row.status, row.lease_token, row.worker_id) == (first.id, "reserved", 0, 0)
    assert (row.args, row.kwargs, row.metadata, row.errors, row.expires_at) == ([], {}, {}, [], None)
    assert hours_ahead(row.id) == 1
    kept = [["secret"]] if history else []
    assert list(SucceededJob.objects.filter(result="done").values_list("args", flat=True)) == kept
    for conflict in ("keep", "replace", "later", "earlier"):
        again = enqueue("new", on_conflict=conflict, delay=2 * HOUR if conflict == "later" else None)
        assert (again.id, again.created) == (first.id, False)
    assert (kill([first.id], by="eve"), run_now([first.id], by="eve")) == (([], []), [])
    assert claimed(queue) == []


def test_reserved_gives_its_slot_back(queue, sql):
    enqueue(unique=Unique(hold=HOUR), limit_key="c")
    sql("UPDATE pgqueue_jobs SET status = 'queued', concurrency_slot = 1")
    [job] = claimed(queue)
    succeed(queue, job)
    assert Job.objects.get().concurrency_slot is None


def test_job_that_dies_leaves_no_reserved(queue):
    enqueue(unique=Unique(hold=HOUR))
    [job] = claimed(queue)
    ack.write(queue, [Outcome(job, Fate.DIED, reason=DeathReason.DISCARDED, error={"error": "x"})])
    assert enqueue(unique=Unique(hold=HOUR)).created


def test_reserved_whose_time_is_over_is_no_conflict_even_where_no_worker_has_come_by(queue, sql):
    enqueue(unique=Unique(hold=HOUR))
    [job] = claimed(queue)
    succeed(queue, job)
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '1 s'")
    assert enqueued_ids(app.record.using(unique_key="k", on_conflict="replace"), [("a",), ("b",)])[0] != job.id
    assert Job.objects.get(unique_until="end").args == ["b"]
    assert reacquire_keys(queue) == (0, (), 0, 0)
    assert prune_reserved(queue) == 1


def test_reserved_whose_time_is_over_is_no_conflict_from_sql_either(queue, sql):
    enqueue(unique=Unique(hold=HOUR))
    [job] = claimed(queue)
    succeed(queue, job)
    call = "SELECT pgqueue_enqueue('shop.send', unique_key => 'k')"
    assert sql(call) == [(job.id,)]
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '1 s'")
    [(new_id,)] = sql(call)
    assert Job.objects.get(status="queued").id == new_id != job.id
    assert sql(call) == [(new_id,)]


# Transactions of the caller


@pytest.mark.parametrize("conflict", ["keep", "replace", "later", "earlier"])
def test_job_that_an_open_transaction_changes_is_stepped_over_by_workers(queue, sql, conflict):
    first, other = enqueue(delay=HOUR).id, enqueue(key="other", delay=HOUR).id
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '1 s'")
    with transaction.atomic():
        enqueue("new", on_conflict=conflict, after={"later": HOUR, "earlier": -HOUR}.get(conflict))
        assert promote(queue).queues == {"default": 2 if conflict == "keep" else 1}
        assert other in {job.id for job in claim.claim(queue, "default", limit=2, worker_id=1)}
    assert Job.objects.filter(pk=first).exists()


def test_key_is_free_again_after_a_savepoint_that_rolled_back(db):
    with transaction.atomic():
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            enqueue("lost")
            1 / 0  # noqa: B018
        assert enqueue("kept").created
        assert not enqueue("late", on_conflict="replace").created
    assert Job.objects.get().args == ["late"]


def test_change_rolls_back_with_its_savepoint(db):
    enqueue("old")
    with transaction.atomic():
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            enqueue("new", on_conflict="replace")
            1 / 0  # noqa: B018
        assert not connection.needs_rollback
    assert Job.objects.get().args == ["old"]


def test_change_stands_behind_a_savepoint_with_autocommit_off_too(transactional_db):
    enqueue("old")
    connection.set_autocommit(False)
    try:
        assert not enqueue("new", on_conflict="replace").created
        connection.rollback()
        assert not enqueue("newer", on_conflict="replace").created
        connection.commit()
    finally:
        connection.rollback()
        connection.set_autocommit(True)
    assert Job.objects.get().args == ["newer"]


def test_repeatable_read_meets_what_it_sees_and_fails_for_what_it_does_not_see(queue, sql):
    seen = enqueue("old").id
    with transaction.atomic():
        sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert enqueue("new", on_conflict="replace").id == seen
        with beside(in_thread(lambda: enqueue(key="unseen"))):
            pass
        with pytest.raises(OperationalError, match="could not serialize"), transaction.atomic():
            enqueue(key="unseen")
    assert Job.objects.get(pk=seen).args == ["new"]


def test_keys_in_clashing_orders_are_a_deadlock_as_of_any_rows(transactional_db):
    """PostgreSQL ends one of the two, and the other goes on."""
    both, errors = threading.Barrier(2, timeout=PATIENCE_SECONDS), []

    def take(*keys) -> None:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SET LOCAL deadlock_timeout = '50ms'")
                enqueue(key=keys[0])
                both.wait()
                enqueue(key=keys[1])
        except OperationalError as error:
            errors.append(str(error))

    with beside(in_thread(lambda: take("a", "b"))):
        take("b", "a")
    [error] = errors
    assert "deadlock detected" in error
    assert Job.objects.count() == 2


def test_bulk_that_fails_at_a_conflict_has_inserted_nothing(queue, sql):
    bulk = keyed(unique=Unique(lambda label: label, on_conflict="replace"))
    bulk.enqueue("b")
    sql("SET lock_timeout = 100")
    try:
        with queue.transaction():
            queue.rows("SELECT id FROM pgqueue_jobs FOR UPDATE", {})
            with pytest.raises(OperationalError):
                bulk.enqueue_many([("a",), ("b",)])
    finally:
        sql("SET lock_timeout = 0")
    assert Job.objects.get().unique_key == "tests.keyed.record:b"


def test_bulks_do_not_deadlock_over_a_key_that_becomes_free(queue, sql):
    bulk, errors, got = keyed(unique=Unique(lambda label: label, on_conflict="replace")), [], []
    bulk.enqueue("a")

    def enqueue_both():
        try:
            with transaction.atomic():
                got.append(enqueued_ids(bulk, [("a",), ("b",)]))
        except OperationalError as error:
            errors.append(str(error))

    with contextlib.ExitStack() as threads, queue.transaction():
        queue.rows("SELECT id FROM pgqueue_jobs FOR UPDATE", {})
        threads.enter_context(beside(in_thread(enqueue_both)))  # has inserted b, and is to replace a
        eventually(lambda: sql(WAITING) == [(1,)])
        queue.rows("DELETE FROM pgqueue_jobs RETURNING id", {})
        threads.enter_context(beside(in_thread(enqueue_both)))
        eventually(lambda: sql(WAITING) == [(2,)])
    assert errors == []
    assert got[0] == got[1]


def test_bulks_do_not_deadlock_over_jobs_that_they_treat_differently(queue, sql):
    """Each is to replace its own jobs, and to keep that of the other task from starting."""
    options = {"unique": Unique(lambda key: key, until="start", on_conflict="replace", group="search")}
    one, other, errors = keyed(pick_one, **options), keyed(pick_other, **options), []
    one.enqueue_many([("b",), ("c",)])
    other.enqueue("a")

    def enqueue_all(task, *keys) -> None:
        try:
            with transaction.atomic():
                task.enqueue_many([(key,) for key in keys])
        except OperationalError as error:
            errors.append(str(error))

    with contextlib.ExitStack() as later:  # noqa: SIM117 - the transaction ends first
        with queue.transaction():
            queue.rows("SELECT id FROM pgqueue_jobs WHERE unique_key = 'search:b' FOR NO KEY UPDATE", {})
            later.enter_context(beside(in_thread(lambda: enqueue_all(one, "a", "b", "c"))))
            eventually(lambda: sql(WAITING) == [(1,)])
            later.enter_context(beside(in_thread(lambda: enqueue_all(other, "a", "c"))))
            eventually(lambda: sql(WAITING) == [(2,)])
    assert errors == []


def pick_one(key: str) -> None:
    """Never runs."""


def pick_other(key: str) -> None:
    """Never runs."""


# In threads, with connections of their own


def pair(label: str, number: int) -> None:
    """No worker runs it."""


def in_thread(target):
    """Return a target for a thread, which closes the connection that Django gives it."""

    def run():
        try:
            return target()
        finally:
            connection.close()

    return run


# Masses

CONNECTIONS, KEYS, TIMES = 16, 100, int(os.environ.get("UNIQUE_TIMES", "2"))


def test_many_who_enqueue_the_same_keys_again_and_again_get_one_job_for_each(transactional_db):
    """One key in a transaction, or all of them in a bulk; every third transaction rolls back.

    With UNIQUE_TIMES=100 in the environment it takes three minutes.
    """
    all_threads, got, errors = threading.Barrier(CONNECTIONS, timeout=PATIENCE_SECONDS), [], []
    declared = keyed(unique=lambda label: label)

    def enqueue_all(number: int) -> None:
        chosen = random.Random(number)
        mine = set()
        try:
            all_threads.wait()
            for times in range(TIMES):
                task = declared.using(on_conflict=("keep", "replace", "later", "earlier")[(number + times) % 4])
                keys = [f"k{key}" for key in chosen.sample(range(KEYS), KEYS)]
                for some in [keys] if number % 4 == 0 else [[key] for key in keys]:
                    mine |= enqueue_or_roll_back(task, some, commits=chosen.random() < 0.67)
        except Exception as error:
            errors.append(error)
            raise
        got.append(mine)

    with contextlib.ExitStack() as threads:
        for number in range(CONNECTIONS):
            threads.enter_context(
                beside(in_thread(functools.partial(enqueue_all, number)), seconds=LONG_PATIENCE_SECONDS)
            )
    assert not errors
    jobs = dict(Job.objects.values_list("unique_key", "id"))
    assert len(jobs) == Job.objects.count() == KEYS
    assert set.union(*got) == set(jobs.values())


class RolledBack(Exception):
    pass


def enqueue_or_roll_back(task, keys, *, commits: bool) -> set[int]:
    """Return the ids that were got in a transaction that committed."""
    try:
        with transaction.atomic():
            ids = [task.enqueue(keys[0]).id] if len(keys) == 1 else enqueued_ids(task, [(key,) for key in keys])
            assert len(ids) == len(keys)
            assert all(ids)
            if not commits:
                raise RolledBack
    except RolledBack:
        return set()
    return set(ids)
