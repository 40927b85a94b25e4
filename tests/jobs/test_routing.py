"""Jobs of a queue that is on several databases: where each is put, also while one of them is away."""

import collections
import copy
import hashlib
import os
import signal
import time
from pathlib import Path

import psycopg
import pytest
from django.db import OperationalError, connections, transaction

import tests.app.tasks as app
from django_pgqueue import Limit, Unique, enqueue_many, jobs, queues
from django_pgqueue.conf import SLOTS, conf
from django_pgqueue.exceptions import InvalidArguments, InvalidOption, PgQueueError, ShardUnavailable
from django_pgqueue.jobs import routing
from django_pgqueue.jobs.routing import shard_key_of, slot_of
from django_pgqueue.models import Job, Queue
from django_pgqueue.outbox.models import OutboxCall
from django_pgqueue.testing import run_jobs
from tests.app import contract
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

SPREAD = app.record.using(queue="spread")
KEYED = SPREAD.using(unique="label")


@pytest.fixture
def lower() -> str:
    """A label whose key is in the lower half of the slots: its jobs are on ``default``."""
    return next(label for label in map(str, range(100)) if slot_of(key_of(label)) < SLOTS // 2)


@pytest.fixture
def upper() -> str:
    """The same for the upper half, which is on ``far``."""
    return next(label for label in map(str, range(100)) if slot_of(key_of(label)) >= SLOTS // 2)


def key_of(label: str) -> str:
    key = shard_key_of(KEYED, (label,), {})
    assert key is not None
    return key


# Slots


def test_slot_of_a_key_is_the_same_in_every_process():
    assert [slot_of(key) for key in ("", "a", "tenant=7", "ß")] == [
        int(hashlib.sha256(key.encode()).hexdigest()[:8], 16) % 1024 for key in ("", "a", "tenant=7", "ß")
    ]
    assert slot_of("tenant=7") == 115


def test_slots_share_keys_evenly():
    quarters = collections.Counter(slot_of(f"tenant={number}") * 4 // SLOTS for number in range(40_000))
    assert all(9_500 < number < 10_500 for number in quarters.values())


def test_new_database_gets_no_key_before_it_has_slots(far, settings):
    before = [conf.database_with(slot, "spread") for slot in range(SLOTS)]
    shards = {**settings.PGQUEUE["SHARDS"], "new": {"number": 2, "queues": ["spread"]}}
    settings.PGQUEUE = settings.PGQUEUE | {"SHARDS": shards}
    assert [conf.database_with(slot, "spread") for slot in range(SLOTS)] == before


def test_without_slots_all_keys_are_on_the_first(far, settings):
    for given in (shards := copy.deepcopy(settings.PGQUEUE["SHARDS"])).values():
        del given["slots"]
    settings.PGQUEUE = settings.PGQUEUE | {"SHARDS": shards}
    assert {KEYED.enqueue(str(number)).database for number in range(20)} == {"default"}
    assert {SPREAD.enqueue(str(number)).database for number in range(40)} == {"default", far}


# Keys


def test_jobs_with_a_key_are_on_the_database_with_its_slot(far):
    handles = [KEYED.enqueue(str(number)) for number in range(40)]
    wanted = ["default" if slot_of(key_of(str(number))) < SLOTS // 2 else far for number in range(40)]
    assert [one.database for one in handles] == wanted
    assert {one.database for one in handles} == {"default", far}
    assert [jobs.get(one.id).database for one in handles] == wanted
    again = [KEYED.enqueue(str(number)) for number in range(40)]
    assert (again, {one.created for one in again}) == (handles, {False})
    assert [KEYED.bind(str(number)).find() for number in range(40)] == handles


def test_concurrency_key_says_the_database_too(far):
    limited = SPREAD.using(limit=Limit("label"))
    assert len({limited.enqueue("a").database for _ in range(10)}) == 1
    with_key = SPREAD.using(limit_key="k")
    assert {with_key.enqueue(str(number)).database for number in range(10)} == {
        conf.database_with(slot_of("k"), "spread")
    }


def test_shard_by_goes_before_other_keys(far):
    task = SPREAD.using(unique=True, limit=Limit("label"), shard_by=lambda label: label[0])
    by_letter = {(label[0], task.enqueue(label).database) for label in ("a1", "a2", "a3", "b1", "b2", "c1", "d1", "e1")}
    assert len(by_letter) == 5
    named = SPREAD.using(shard_by="label")
    assert shard_key_of(named, ("x",), {}) == shard_key_of(named, (), {"label": "x"}) == 'label="x"'
    assert len({named.enqueue("x").database for _ in range(10)}) == 1


def test_job_without_a_key_of_its_own_has_the_one_of_its_unique_key(far):
    task = KEYED.using(shard_by=lambda label: None)
    assert shard_key_of(task, ("a",), {}) == key_of("a")
    assert shard_key_of(SPREAD.using(shard_by=lambda label: None), ("a",), {}) is None


def test_two_keys_without_a_common_one_are_refused(far):
    with pytest.raises(InvalidOption, match=r"unique key and a concurrency key.*shard_by='account_id'"):
        KEYED.using(limit=Limit("label")).enqueue("a")
    assert app.record.using(unique=True, limit=Limit("label")).enqueue("a").database == "default"


def test_wrong_arguments_are_told_before_a_database_is_chosen(far):
    with pytest.raises(InvalidArguments):
        KEYED.enqueue("a", "b")
    with pytest.raises(InvalidOption, match=r"shard_by is a function, or names of arguments, not \(\)"):
        app.record.using(shard_by=())


def test_named_database_is_taken_as_it_is(far, upper):
    assert KEYED.using(database="default").enqueue(upper).database == "default"


def test_slot_that_is_on_no_database_takes_no_job(far, settings, lower, upper):
    shards = {"default": settings.PGQUEUE["SHARDS"]["default"], far: {"number": 1, "queues": ["spread"]}}
    settings.PGQUEUE = settings.PGQUEUE | {"SHARDS": shards}
    assert KEYED.enqueue(lower).database == "default"
    with pytest.raises(ShardUnavailable, match=rf"The slot {slot_of(key_of(upper))} of keys is on none of the databa"):
        KEYED.enqueue(upper)
    shards["default"] = shards["default"] | {"slots": []}  # all are being moved: they do not go to the first meanwhile
    settings.PGQUEUE = settings.PGQUEUE | {"SHARDS": shards}
    with pytest.raises(ShardUnavailable):
        KEYED.enqueue(lower)


# Many at once


def test_many_with_keys_are_on_several_databases_in_their_order(far):
    numbers = [str(number) for number in range(30)]
    handles = KEYED.enqueue_many([(number,) for number in numbers])
    assert [one.state().args for one in handles] == [[number] for number in numbers]
    assert {one.database for one in handles} == {"default", far}
    mixed = enqueue_many([KEYED.bind("1"), app.noop.bind(), KEYED.bind("x")])
    assert (mixed[0], [one.created for one in mixed]) == (handles[1], [False, True, True])
    native = contract.add.native.using(queue="spread", unique=True)
    assert {one.database for one in native.enqueue_many([(number, 1) for number in range(20)])} == {"default", far}


def test_many_without_a_key_are_together(far):
    assert len({one.database for one in SPREAD.enqueue_many([()] * 20)}) == 1
    assert len({one.database for one in enqueue_many([SPREAD.bind(), SPREAD.using(priority=1).bind()])}) == 1


def test_many_on_several_databases_are_all_in_or_none(far, lower, upper):
    with connections[far].cursor() as cursor:
        cursor.execute("ALTER TABLE pgqueue_jobs ADD CONSTRAINT none CHECK (queue <> 'spread') NOT VALID")
    try:
        with pytest.raises(Exception, match="none"):
            KEYED.enqueue_many([(lower,), (upper,)])
    finally:
        with connections[far].cursor() as cursor:
            cursor.execute("ALTER TABLE pgqueue_jobs DROP CONSTRAINT none")
    assert not Job.objects.exists()
    assert not Job.objects.using(far).exists()


def test_many_that_stay_though_the_caller_rolls_back_are_told(far, lower, upper):
    with transaction.atomic():
        with pytest.warns(UserWarning, match=f"on '{far}' inside atomic.. on 'default'"):
            KEYED.enqueue_many([(lower,), (upper,)])
        transaction.set_rollback(True)
    assert (Job.objects.count(), Job.objects.using(far).count()) == (0, 1)


def test_many_go_by_an_outbox_only_in_a_transaction_of_the_caller(far, settings, lower, upper):
    settings.PGQUEUE = settings.PGQUEUE | {"OUTBOXES": {"default": 5}}
    KEYED.enqueue_many([(lower,), (upper,)])
    assert not OutboxCall.objects.exists()
    assert (Job.objects.count(), Job.objects.using(far).count()) == (1, 1)
    with transaction.atomic():
        KEYED.enqueue_many([(lower,), (upper,)])
        assert OutboxCall.objects.count() == 1
        transaction.set_rollback(True)


def test_framework_finds_results_of_tasks_on_several_databases(far, settings):
    shards = {alias: {**given, "queues": ["default"]} for alias, given in settings.PGQUEUE["SHARDS"].items()}
    settings.PGQUEUE = settings.PGQUEUE | {"SHARDS": shards}
    task = contract.add.using(unique=True, backend="default")
    results = [task.enqueue(number, 1) for number in range(20)]
    results += task.get_backend().enqueue_many(task, [(number, 2) for number in range(20)])
    assert {conf.database_of(int(one.id)) for one in results} == {"default", far}
    assert [task.get_result(one.id).args for one in results] == [one.args for one in results]
    assert task.enqueue(1, 1).id == results[1].id


# Without a key


def test_job_is_committed_with_the_transaction_that_is_open_on_one(far):
    for alias in ("default", far):
        with transaction.atomic(using=alias):
            assert {SPREAD.enqueue().database for _ in range(10)} == {alias}


def test_job_of_a_job_is_on_its_database(far):
    for alias in ("default", far):
        job = app.enqueue_on.using(database=alias).enqueue("spread", 10)
        run_jobs(database=alias)
        assert job.result() == [alias]


def test_actions_on_the_queue_are_done_on_each(far):
    assert queues.pause("spread", reason="test")
    queues.limit("spread", max_running=2)
    for alias in ("default", far):
        row = Queue.objects.using(alias).get(name="spread")
        assert (bool(row.paused_at), row.max_running) == (True, 2)
    assert queues.resume("spread", database=far)
    assert queues.resume("spread") is True
    assert queues.resume("spread") is False


# One of them is away


def test_jobs_without_a_key_go_elsewhere_and_with_one_are_refused(far, other_server, lower, upper):
    assert KEYED.enqueue(upper).database == far  # its connection is open, and breaks
    other_server.stop()
    assert {SPREAD.enqueue().database for _ in range(20)} == {"default"}
    assert KEYED.enqueue(lower).database == "default"
    with pytest.raises(
        ShardUnavailable, match="are on 'other' alone, which cannot be reached: nothing was enq"
    ) as caught:
        KEYED.enqueue(upper)
    assert isinstance(caught.value, OperationalError)
    assert isinstance(caught.value, PgQueueError)
    with pytest.raises(ShardUnavailable):
        KEYED.enqueue_many([(lower,), (upper,), ("new",)])
    assert Job.objects.count() == 21
    other_server.restart("fast")
    eventually(lambda: far in {SPREAD.enqueue().database for _ in range(20)})
    assert KEYED.enqueue(upper).created is False
    assert routing._outages == {}


def test_forked_process_tries_what_a_thread_was_trying(far):
    routing._outages[far] = routing.Outage(float("inf"), "under way")
    child = os.fork()
    if not child:
        os._exit(len(routing._outages))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert far in routing._outages


def test_all_away_is_told(far, other_server, monkeypatch):
    connections["default"].close()
    monkeypatch.setitem(connections["default"].settings_dict, "HOST", "/nowhere")
    other_server.stop()
    with pytest.raises(ShardUnavailable, match=r"None of the databases of the queue 'spread' can be reached.*nowhere"):
        SPREAD.enqueue()


def test_silent_server_is_given_up_after_its_connect_timeout(far, other_server, lower, upper, monkeypatch):
    connections[far].close()
    with other_server.connect() as session:
        [(pid,)] = session.execute("SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int").fetchall()
    with monkeypatch.context() as patch:
        patch.setitem(connections.settings[far]["OPTIONS"], "connect_timeout", 2)
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(ShardUnavailable):
                KEYED.enqueue(upper)
            assert {SPREAD.enqueue().database for _ in range(10)} == {"default"}
        finally:
            os.kill(pid, signal.SIGCONT)
    eventually(lambda: far in {SPREAD.enqueue().database for _ in range(20)})


def test_server_that_takes_no_writes_is_away(far, other_server, upper):
    def reads_only(word: str) -> None:
        with other_server.connect() as session:
            session.execute(f"ALTER SYSTEM SET default_transaction_read_only = {word}")
            session.execute("SELECT pg_reload_conf()")

    connections[far].close()
    reads_only("on")
    try:
        eventually(lambda: cannot_enqueue(upper))
        assert {SPREAD.enqueue().database for _ in range(10)} == {"default"}
    finally:
        with psycopg.connect(host=other_server.host, user="postgres", dbname="postgres", autocommit=True) as session:
            session.execute("SET default_transaction_read_only = off")
            session.execute("ALTER SYSTEM RESET default_transaction_read_only")
            session.execute("SELECT pg_reload_conf()")


def cannot_enqueue(label: str) -> bool:
    try:
        KEYED.enqueue(label)
    except ShardUnavailable:
        return True
    connections["other"].close()
    return False


def test_job_whose_commit_was_not_answered_goes_nowhere_else(far, other_server):
    """It may be there, so that the caller is told and no other database gets it."""
    proxy = Proxy(lambda: Path(other_server.host) / ".s.PGSQL.5432")
    connections[far].close()
    connections[far].settings_dict |= {"HOST": "127.0.0.1", "PORT": proxy.port}
    try:
        with pytest.raises(OperationalError) as caught, transaction.atomic(using=far):
            SPREAD.enqueue("once")
            proxy.lose_answer(None, b"COMMIT")
        assert not isinstance(caught.value, ShardUnavailable)
    finally:
        proxy.close()
        connections[far].close()
        connections[far].settings_dict |= {"HOST": other_server.host, "PORT": ""}
    assert (Job.objects.count(), Job.objects.using(far).count()) == (0, 1)


def test_unique_job_is_never_on_two(far, other_server, upper):
    handles = []
    for is_up in (True, False, True):
        other_server.restart("fast") if is_up else other_server.stop()
        for _ in range(5):
            with_trouble(lambda: handles.append(KEYED.using(unique=Unique("label")).enqueue(upper)))
    eventually(lambda: with_trouble(lambda: handles.append(KEYED.enqueue(upper))))
    assert len({one.id for one in handles}) == 1
    assert (Job.objects.count(), Job.objects.using(far).count()) == (0, 1)


def with_trouble(call) -> bool:
    try:
        call()
    except ShardUnavailable:
        return False
    return True


def test_try_to_connect_that_is_interrupted_anywhere_leaves_a_database_away_for_a_while_only(far, monkeypatch):
    class Interrupted(BaseException):
        pass

    class Lock:
        def __enter__(self):
            pass

        def __exit__(self, *_):
            raise Interrupted

    connections[far].close()
    routing._outages[far] = routing.Outage(0.0, "away")
    monkeypatch.setattr(routing, "_lock", Lock())
    with pytest.raises(Interrupted):
        routing._why_not(far)
    assert routing._outages[far].until <= time.monotonic() + routing.TRYING_SECONDS


def test_database_that_a_caller_was_interrupted_at_is_still_away(far, monkeypatch):
    class Interrupted(BaseException):
        pass

    def interrupt(_connection):
        raise Interrupted

    connections[far].close()
    known = routing._outages[far] = routing.Outage(0.0, "away")
    with monkeypatch.context() as patch:
        patch.setattr(routing, "_open", interrupt)
        with pytest.raises(Interrupted):
            routing._why_not(far)
    assert routing._outages == {far: known}
    assert routing._why_not(far) is None
    assert routing._outages == {}
