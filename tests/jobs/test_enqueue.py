"""Jobs are enqueued in the caller's transaction, and workers woken after its commit."""

import asyncio
import contextlib
import datetime as dt
import warnings

import pytest
from asgiref.sync import async_to_sync
from django.db import ProgrammingError, connection, transaction
from django.test import TestCase, TransactionTestCase
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import Limit, aenqueue_many, enqueue, enqueue_many, middleware, registry, tasks
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.db.notify import Notification
from django_pgqueue.exceptions import ConfigurationError, InvalidArguments, InvalidOption, TaskDoesNotExist
from django_pgqueue.jobs.enqueue import insert_calls
from django_pgqueue.models import Job
from django_pgqueue.signals import job_enqueued
from tests.support.keyed import keyed
from tests.support.many import enqueued_ids
from tests.support.sleeping import fall_asleep
from tests.support.waiting import eventually

HOUR = dt.timedelta(hours=1)


@pytest.fixture
def notifications(queue: QueueConnection):
    """Return a function that gives the payloads announced since it was last asked."""
    listening, heard = queue.autocommit(), []
    listening.add_notify_handler(lambda notify: heard.append(notify.payload))
    listening.execute("LISTEN pgqueue_jobs")
    fall_asleep(listening)

    def so_far() -> list[str]:
        listening.execute("SELECT pg_notify('pgqueue_jobs', 'so far')")  # they come in the order of their commits
        eventually(lambda: listening.execute("SELECT 1") and "so far" in heard)
        announced = heard[: heard.index("so far")]
        heard.clear()
        return announced

    return so_far


@pytest.mark.django_db
def test_enqueue_stores_arguments_and_options():
    handle = app.record.using(
        queue="mail", priority=7, max_attempts=3, timeout=1.5, lease=90, keep_result=False, metadata={"order": 1}
    ).enqueue(label="x")
    job = Job.objects.get(pk=handle.id)
    assert (handle.task, handle.queue, handle.database) == ("tests.app.tasks.record", "mail", "default")
    assert (job.task, job.args, job.kwargs, job.status) == ("tests.app.tasks.record", [], {"label": "x"}, "queued")
    assert (job.queue, job.priority, job.max_attempts, job.timeout_seconds, job.lease_seconds) == ("mail", 7, 3, 2, 90)
    assert (job.keep, job.keep_seconds, job.metadata, job.parent_id) == (False, None, {"order": 1}, None)


@pytest.mark.django_db
def test_enqueue_by_name_is_the_same():
    assert Job.objects.get(pk=enqueue("tests.app.tasks.record", "x").id).args == ["x"]
    assert Job.objects.get(pk=enqueue(app.record, "y").id).args == ["y"]


@pytest.mark.django_db
def test_enqueue_is_one_statement_beside_its_wake_up(django_assert_num_queries):
    with django_assert_num_queries(1):
        app.record.enqueue("x")


@pytest.mark.django_db
def test_future_run_at_is_scheduled_by_the_clock_of_the_database():
    for when in ({"run_at": timezone.now() + dt.timedelta(hours=1)}, {"delay": 3600}, {"delay": dt.timedelta(hours=1)}):
        job = Job.objects.get(pk=app.noop.using(**when).enqueue().id)
        assert job.status == "scheduled"
        assert dt.timedelta(minutes=59) < job.run_at - timezone.now() < dt.timedelta(minutes=61)
    for when in ({"run_at": timezone.now() - dt.timedelta(seconds=1)}, {"delay": 0}, {"delay": None}):
        assert Job.objects.get(pk=app.noop.using(**when).enqueue().id).status == "queued"


@pytest.mark.django_db
def test_naive_run_at_is_local_time_without_use_tz(settings):
    settings.USE_TZ = False
    handle = app.noop.using(run_at=dt.datetime(2040, 1, 1, 12)).enqueue()
    settings.USE_TZ = True
    assert Job.objects.get(pk=handle.id).run_at == dt.datetime(2040, 1, 1, 11, tzinfo=dt.UTC)


@pytest.mark.django_db
def test_bad_input_inserts_nothing():
    for error, call in (
        (TaskDoesNotExist, lambda: enqueue("no.such.task")),
        (InvalidArguments, lambda: app.sleep.enqueue()),
        (InvalidArguments, lambda: app.record.enqueue("\0")),
        (InvalidArguments, lambda: app.record.enqueue(float("nan"))),
        (InvalidArguments, lambda: app.record.enqueue({1})),
        (InvalidArguments, lambda: app.record.enqueue("x" * 5_000_000)),
        (InvalidArguments, lambda: app.noop.using(metadata={"a": float("nan")}).enqueue()),
        (InvalidArguments, lambda: enqueued_ids(app.record, ["x"])),
    ):
        with pytest.raises(error):
            call()
    assert Job.objects.count() == 0


@pytest.mark.django_db(databases=["default", "lite"])
@pytest.mark.django_db(databases=["default", "other"])
@pytest.mark.parametrize("options", [{}, {"unique_key": "k"}], ids=["plain", "with a key"])
def test_enqueue_before_the_migration_says_what_to_run(options):
    with pytest.raises(ProgrammingError, match="does not exist") as caught:
        app.noop.using(database="other", **options).enqueue()
    [note] = caught.value.__notes__
    assert note.startswith(
        "The queue is on 'default', and migrations make no tables of it on 'other'. Use that, or name"
    )


def test_queue_on_another_vendor_is_a_clear_error(settings):
    settings.PGQUEUE = {"DATABASE": "lite"}
    with pytest.raises(
        ConfigurationError, match=r"'lite' is sqlite. Set PGQUEUE\['DATABASE'\] to the alias of a Postgre"
    ):
        app.noop.enqueue()
    settings.PGQUEUE = {"DATABASE": "nowhere"}
    with pytest.raises(
        ConfigurationError, match=r"'nowhere' is not in DATABASES. Set PGQUEUE\['DATABASE'\] to one of 'default', 'li"
    ):
        app.noop.enqueue()
    settings.PGQUEUE = {}
    with pytest.raises(ConfigurationError, match=r"'nowhere' is not in DATABASES. Name one of 'default', 'lite', 'oth"):
        app.noop.using(database="nowhere").enqueue()


@pytest.mark.django_db
def test_enqueue_many_returns_handles_in_the_order_of_the_calls(django_assert_num_queries):
    calls = [(str(number),) if number % 2 else {"label": str(number)} for number in range(10_000)]
    with django_assert_num_queries(1):
        ids = enqueued_ids(app.record, calls)
    stored = Job.objects.in_bulk(ids)
    assert [(stored[job_id].args or [stored[job_id].kwargs["label"]])[0] for job_id in ids] == [
        str(number) for number in range(10_000)
    ]


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"delay": 3}, r" Options go into using\(delay=…\)\."),
        ({"queue": "x", "priority": 3}, r" Options go into using\(priority=…, queue=…\)\."),
        ({"countdown": 3}, r" Options go into using\(…\); for countdown use delay, seconds or a timedelta\."),
        ({"colour": 3}, ""),
    ],
)
def test_option_among_the_arguments_is_sent_where_it_goes(options, hint):
    with pytest.raises(InvalidArguments, match=rf"unexpected keyword argument '\w+'\.{hint}$"):
        app.record.enqueue("x", **options)


@pytest.mark.django_db
def test_enqueue_many_checks_each_shape_of_call_once_and_no_shape_less():
    with pytest.raises(InvalidArguments, match="do not fit"):
        app.record.enqueue_many([("a",), {"label": "b"}, ("c",), ("too", "many")])
    with pytest.raises(InvalidArguments, match="do not fit"):
        app.record.enqueue_many([{"label": "b"}, {"lable": "c"}])
    assert Job.objects.count() == 0


@pytest.mark.django_db
def test_enqueue_many_of_nothing_does_nothing(django_assert_num_queries):
    with django_assert_num_queries(0):
        assert enqueued_ids(app.record, []) == []


@pytest.mark.django_db
def test_task_that_workers_will_not_load_is_told_once(registry_of, caplog):
    late = tasks.task(name="shop.jobs.elsewhere")(elsewhere)
    late.using(queue="mail").enqueue()
    late.enqueue()
    late.enqueue_many([()])
    app.noop.enqueue()
    [line] = [record.getMessage() for record in caplog.records if record.name == "django_pgqueue"]
    assert line == (
        "The task shop.jobs.elsewhere was declared after Django was set up, so workers do not know it. Move it to the "
        "tasks.py of an installed app, or import tests.jobs.test_enqueue there or in an AppConfig.ready()."
    )


def elsewhere(): ...


@pytest.mark.django_db
def test_task_that_is_declared_again_is_one_that_workers_load(monkeypatch, caplog):
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    registry.register(app.noop)
    app.noop.enqueue()
    assert not caplog.records


@pytest.mark.django_db
def test_enqueue_many_names_the_call_that_is_wrong():
    with pytest.raises(InvalidArguments, match=r"calls\[1\]\[0\] is nan"):
        app.record.enqueue_many([("fine",), (float("nan"),)])
    with pytest.raises(InvalidArguments, match=r"calls\[0\] is of the type int. Each call is a tuple"):
        app.record.enqueue_many([5])


# Calls of several tasks


@pytest.mark.django_db
def test_arguments_of_calls_are_compared_with_the_signature_only_when_they_are_bound(monkeypatch):
    calls = [app.record.bind("a"), app.record.bind("b")]
    monkeypatch.setattr(app.record, "shapes", set())
    assert [handle.queue for handle in enqueue_many(calls)] == ["default"] * 2
    assert not app.record.shapes


@pytest.mark.django_db
def test_calls_of_many_tasks_and_options_are_one_statement(django_assert_num_queries):
    mail = app.record.using(queue="mail", priority=7, metadata={"a": "é"}, timeout=3, keep_result=False, max_attempts=2)
    later = app.noop.using(delay=HOUR, lease=90)
    with django_assert_num_queries(1):
        handles = enqueue_many([mail.bind("a"), later.bind(), app.record.bind(label="b"), mail.bind("c")])
    rows = [Job.objects.get(pk=handle.id) for handle in handles]
    assert [handle.id for handle in handles] == sorted(handle.id for handle in handles)
    assert [(job.task.rpartition(".")[2], job.queue, job.args, job.kwargs) for job in rows] == [
        ("record", "mail", ["a"], {}),
        ("noop", "default", [], {}),
        ("record", "default", [], {"label": "b"}),
        ("record", "mail", ["c"], {}),
    ]
    assert [(handle.task, handle.queue) for handle in handles] == [(job.task, job.queue) for job in rows]
    first, second, *_ = rows
    assert (first.priority, first.metadata, first.timeout_seconds, first.keep, first.max_attempts) == (
        7,
        {"a": "é"},
        3,
        False,
        2,
    )
    assert (second.status, second.lease_seconds) == ("scheduled", 90)
    assert dt.timedelta(minutes=59) < second.run_at - timezone.now() < dt.timedelta(minutes=61)


@pytest.mark.django_db
def test_thousands_of_calls_with_options_of_their_own_keep_their_order():
    calls = [app.record.using(priority=number % 200 - 100).bind(str(number)) for number in range(3000)]
    ids = [handle.id for handle in enqueue_many(calls)]
    assert list(Job.objects.filter(pk__in=ids).order_by("pk").values_list("args", "priority")) == [
        ([str(number)], number % 200 - 100) for number in range(3000)
    ]


@pytest.mark.django_db
def test_calls_are_walked_as_often_for_many_tasks_as_for_one():
    class Walked(list):
        walks = 0

        def __iter__(self):
            self.walks += 1
            return super().__iter__()

    alike, apart = app.noop.using(priority=1), (app.noop.using(priority=number) for number in range(50))
    of_one, of_many = Walked(alike.bind() for _ in range(50)), Walked(one.bind() for one in apart)
    for calls in (of_one, of_many):
        insert_calls(calls)
    assert of_many.walks == of_one.walks


@pytest.mark.django_db
def test_mixed_calls_that_cannot_be_enqueued_insert_nothing_and_name_the_call():
    fine = app.noop.bind()
    for message, wrong in (
        (r"calls\[1\]\[0\] is nan", app.record.bind(float("nan"))),
        (r"calls\[1\] is of the type tuple. Each call is made by bind\(\)", ("x",)),
        (r"calls\[1\] is of the type Task", app.noop),
        ("tests.app.tasks.noop is enqueued on 'default', tests.app.tasks.noop on 'other'", on_other.bind()),
    ):
        with pytest.raises((InvalidArguments, InvalidOption), match=message):
            enqueue_many([fine, wrong])
    assert Job.objects.count() == 0


on_other = app.noop.using(database="other")


@pytest.mark.django_db
def test_no_calls_are_no_statement(django_assert_num_queries):
    with django_assert_num_queries(0):
        assert enqueue_many([]) == []


def test_mixed_calls_wake_the_queues_that_have_work(transactional_db, notifications):
    enqueue_many([app.noop.bind(), app.noop.using(queue="mail").bind(), app.noop.using(queue="b", delay=HOUR).bind()])
    assert sorted(notifications()) == ["default", "mail"]


@pytest.mark.django_db
def test_mixed_calls_are_told_by_task_and_seen_by_hooks(monkeypatch):
    told, seen = [], []

    @contextlib.contextmanager
    def watching(jobs):
        jobs.metadata["seen"] = "yes"
        yield
        seen.append(jobs.ids)

    def receive(sender, ids, queue, **_):
        told.append((ids, queue))

    monkeypatch.setattr(middleware, "around_inserts", [watching])
    job_enqueued.connect(receive)
    try:
        mail = app.noop.using(queue="mail")
        first, second, third = (handle.id for handle in enqueue_many([mail.bind(), app.record.bind("x"), mail.bind()]))
    finally:
        job_enqueued.disconnect(receive)
    assert told == [([first, third], "mail"), ([second], "default")]
    assert seen == [[second], [first, third]]  # the first is outermost
    assert {metadata["seen"] for metadata in Job.objects.values_list("metadata", flat=True)} == {"yes"}


def test_calls_are_enqueued_from_async_code(transactional_db):
    async def view():
        alone = await app.record.bind("a").aenqueue()
        return [alone, *await aenqueue_many([app.record.bind("b"), app.noop.bind()])]

    assert len(async_to_sync(view)()) == Job.objects.count() == 3


def test_many_of_a_task_are_enqueued_from_async_code(transactional_db):
    async def view():
        return await app.record.aenqueue_many([("a",), {"label": "b"}])

    assert [handle.task for handle in async_to_sync(view)()] == ["tests.app.tasks.record"] * 2


def test_aenqueue_joins_the_sync_connection_of_its_context(transactional_db):
    async def view():
        return await app.record.aenqueue("x")

    handle = async_to_sync(view)()
    assert Job.objects.get(pk=handle.id).args == ["x"]


def test_signal_tells_of_new_jobs(db):
    heard = []

    def receiver(**kwargs):
        heard.append((kwargs["task"], kwargs["ids"]))

    job_enqueued.connect(receiver)
    try:
        handle = app.noop.enqueue()
    finally:
        job_enqueued.disconnect(receiver)
    assert heard == [("tests.app.tasks.noop", [handle.id])]


# Transactions: the job exists if and only if they commit


def test_rolled_back_transaction_leaves_no_job_and_no_wake_up(notifications):
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        app.noop.enqueue()
        1 / 0  # noqa: B018
    assert Job.objects.count() == 0
    assert notifications() == []


def test_committed_transaction_leaves_exactly_one_job_and_one_wake_up(notifications):
    with transaction.atomic():
        app.noop.enqueue()
        assert notifications() == []
    assert Job.objects.count() == 1
    assert notifications() == ["default"]


def test_other_connections_never_see_the_job_before_the_commit(queue):
    count = "SELECT count(*) FROM pgqueue_jobs"
    with transaction.atomic():
        app.noop.enqueue()
        assert queue.rows(count, {}) == [(0,)]
    assert queue.rows(count, {}) == [(1,)]


def test_autocommit_wakes_at_once(notifications):
    app.noop.enqueue()
    assert notifications() == ["default"]


def test_one_wake_up_for_each_queue_and_transaction(notifications):
    with transaction.atomic():
        for _ in range(5):
            app.noop.enqueue()
            app.noop.using(queue="mail").enqueue()
        app.noop.enqueue_many([()] * 5)
        assert len(connection.run_on_commit) == 2
    assert sorted(notifications()) == ["default", "mail"]


def test_savepoint_that_rolls_back_takes_its_job_and_its_wake_up_along(notifications):
    with transaction.atomic(), pytest.raises(ZeroDivisionError), transaction.atomic():
        app.noop.enqueue()
        1 / 0  # noqa: B018
    assert Job.objects.count() == 0
    assert notifications() == []


def test_wake_up_survives_an_earlier_savepoint_that_rolled_back(notifications):
    with transaction.atomic():
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            app.noop.enqueue()
            1 / 0  # noqa: B018
        app.noop.enqueue()
    assert Job.objects.count() == 1
    assert notifications() == ["default"]


def test_wake_up_of_the_outer_block_survives_an_inner_one_that_rolls_back_later(notifications):
    with transaction.atomic():
        with transaction.atomic():
            app.noop.enqueue()
        app.noop.enqueue()
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            app.noop.enqueue()
            1 / 0  # noqa: B018
        assert len(connection.run_on_commit) == 1
    assert Job.objects.count() == 2
    assert notifications() == ["default"]


def test_enqueue_with_autocommit_switched_off_follows_the_commit(notifications):
    transaction.set_autocommit(False)
    try:
        app.noop.enqueue()
        transaction.rollback()
        app.noop.enqueue()
        assert notifications() == []
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert Job.objects.count() == 1
    assert notifications() == ["default"]


def test_request_that_fails_under_atomic_requests_leaves_no_job(notifications, client, monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    client.raise_request_exception = False
    assert client.get("/order/?fail").status_code == 500
    assert (Job.objects.count(), notifications()) == (0, [])
    assert client.get("/order/").status_code == 200
    assert (Job.objects.count(), notifications()) == (1, ["default"])


def test_request_that_fails_without_atomic_requests_has_enqueued(transactional_db, client):
    client.raise_request_exception = False
    assert client.get("/order/?fail").status_code == 500
    assert Job.objects.count() == 1


def test_scheduled_job_wakes_no_worker(notifications):
    app.noop.using(delay=dt.timedelta(hours=1)).enqueue()
    assert notifications() == []


def test_job_due_in_the_past_wakes_at_once(notifications):
    app.noop.using(run_at=timezone.now() - dt.timedelta(hours=1)).enqueue()
    assert notifications() == ["default"]


def test_notify_can_be_switched_off(notifications, settings):
    settings.PGQUEUE = {"NOTIFY": False}
    app.noop.enqueue()
    assert notifications() == []


def test_failing_wake_up_does_not_reach_the_caller(notifications, transactional_db, monkeypatch, caplog):
    monkeypatch.setattr("django_pgqueue.db.notify.queue_payload", lambda name: "x" * 8000)  # more than PostgreSQL takes
    with transaction.atomic():
        app.noop.enqueue()
    assert Job.objects.count() == 1
    assert "payload string too long" in caplog.text


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_transaction_of_another_database_is_warned_of():
    with (
        pytest.warns(
            UserWarning, match=r"enqueued on 'default' inside atomic\(\) on 'other'.*enqueue_on_commit\("
        ) as caught,
        transaction.atomic(using="other"),
    ):
        app.noop.enqueue()
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with transaction.atomic(using="other"), transaction.atomic():
            app.noop.enqueue()


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_enqueue_on_commit_waits_for_the_other_database():
    with pytest.raises(ZeroDivisionError), transaction.atomic(using="other"):
        app.record.bind("x").enqueue_on_commit(using="other")
        1 / 0  # noqa: B018
    assert Job.objects.count() == 0
    with transaction.atomic(using="other"):
        app.record.bind("x").enqueue_on_commit(using="other")
        assert Job.objects.count() == 0
    assert Job.objects.get().args == ["x"]


@pytest.mark.django_db(databases=["default", "other"])
@pytest.mark.parametrize(
    ("task", "argument", "error"),
    [
        (app.record, float("nan"), InvalidArguments),
        (app.record.using(metadata={"a": float("nan")}), "x", InvalidArguments),
        (keyed(unique=lambda label: label * 600), "x", InvalidOption),
        (keyed(queue="several", unique=True, limit=Limit("label")), "x", InvalidOption),
    ],
    ids=["arguments", "metadata", "long key", "two shards"],
)
def test_enqueue_on_commit_checks_the_call_before_the_commit(settings, task, argument, error):
    settings.PGQUEUE = settings.PGQUEUE | {
        "SHARDS": {alias: {"number": place, "queues": ["several"]} for place, alias in enumerate(["default", "other"])}
    }
    with transaction.atomic(using="other"), pytest.raises(error):
        task.bind(argument).enqueue_on_commit(using="other")


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
@pytest.mark.parametrize("robust", [False, True])
def test_enqueue_on_commit_needs_earlier_functions_that_do_not_raise_or_are_robust(robust):
    """As the docs say: Django drops all behind one that raises."""

    def fail():
        raise ZeroDivisionError

    with contextlib.nullcontext() if robust else pytest.raises(ZeroDivisionError), transaction.atomic(using="other"):
        transaction.on_commit(fail, using="other", robust=robust)
        app.record.bind("x").enqueue_on_commit(using="other")
    assert Job.objects.count() == robust


class InsideTestCase(TestCase):
    def test_jobs_are_seen_and_wake_ups_captured(self):
        with self.captureOnCommitCallbacks() as callbacks:
            app.noop.enqueue()
            app.noop.enqueue()
        assert Job.objects.count() == 2
        assert callbacks == [Notification("default", ("default",))]

    def test_jobs_of_the_other_test_are_gone(self):
        assert Job.objects.count() == 0
        app.noop.enqueue()


class InsideTransactionTestCase(TransactionTestCase):
    def test_jobs_are_committed(self):
        app.noop.enqueue()
        assert Job.objects.count() == 1


def test_many_concurrent_async_callers(transactional_db):
    async def view():
        return await asyncio.gather(*(app.record.aenqueue(str(number)) for number in range(20)))

    handles = async_to_sync(view)()
    assert Job.objects.filter(pk__in=[handle.id for handle in handles]).count() == 20
