"""Jobs that wait too long or in vain, and queues whose attempts fail, are found."""

import importlib

import pytest
from django.db import connections, transaction
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue.doctor import findings
from django_pgqueue.outbox.relay import LOCKED
from tests.support.doctor import diagnosis, found, insert, is_healthy, only
from tests.support.schedules import make
from tests.support.waiting import eventually
from tests.support.worker_rows import ALIVE, worker

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("minutes", "is_found"), [(10, False), (16, True)])
def test_job_that_waits_too_long_is_found_where_its_queue_is_served(sql, minutes, is_found):
    app.noop.enqueue_many([()] * 2)
    sql(
        "UPDATE pgqueue_jobs SET run_at = now() - make_interval(mins => %s), enqueued_at = now() - interval '1 h'",
        minutes,
    )
    assert not found("oldest-job")
    worker()
    assert bool(found("oldest-job")) is is_found


def test_job_waits_too_long_where_the_settings_say_so(sql, settings):
    settings.PGQUEUE = {**settings.PGQUEUE, "QUEUES": {"mail": {"start_within": 600}, "reports": {}}}
    worker(queues=["mail", "reports"])
    for name in ("mail", "reports"):
        app.noop.using(queue=name).enqueue()
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '5 min', enqueued_at = now() - interval '1 h'")
    assert not found("oldest-job")
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '11 min'")
    assert only("oldest-job").facts["queues"] == ["mail"]


def test_queue_that_takes_no_more_jobs_is_found(settings):
    settings.PGQUEUE = {**settings.PGQUEUE, "QUEUES": {"mail": {"max_backlog": 2}, "reports": {"max_backlog": 2}}}
    worker(queues=["mail", "reports"])
    app.noop.using(queue="reports").enqueue()
    app.noop.using(queue="mail").enqueue()
    assert not found("queue-full")
    app.noop.using(queue="mail").enqueue()
    assert only("queue-full").facts["queues"] == {"mail": 2}


@pytest.mark.parametrize(("succeeded", "failed", "is_found"), [(5, 5, True), (6, 5, False), (0, 9, False)])
def test_queue_whose_attempts_mostly_fail_is_found(sql, succeeded, failed, is_found):
    sql(
        "INSERT INTO pgqueue_stats (minute, queue, task, succeeded, failed) VALUES "
        "(date_trunc('minute', statement_timestamp()) - interval '2 minutes', 'mail', 't', %s, %s)",
        succeeded,
        failed,
    )
    assert bool(found("failing")) is is_found
    if is_found:
        assert "mail (50 % of 10)" in only("failing").what


def test_unknown_tasks_are_found_among_queued_and_scheduled_jobs(sql):
    app.noop.enqueue_many([()] * 3)
    assert not found("unknown-tasks")
    sql("INSERT INTO pgqueue_jobs (task) VALUES ('gone.a'), ('gone.a')")
    sql("INSERT INTO pgqueue_jobs (task, status, run_at) VALUES ('<gone>.b', 'scheduled', now() + interval '1 min')")
    finding = only("unknown-tasks")
    assert set(finding.facts["tasks"]) == {"gone.a", "<gone>.b"}
    assert "3 jobs" in finding.what


@pytest.mark.usefixtures("living")
def test_backend_that_cannot_be_made_stops_no_other_look(sql, settings, caplog):
    """Its jobs are of an unknown task, as they are to workers."""
    settings.TASKS = {**settings.TASKS, "broken": {"BACKEND": f"{__name__}.NoBroker"}}
    insert(sql, "mail.send", backend="'broken'")
    found, code = diagnosis()
    assert (list(found), code) == (["unknown-tasks"], 0)
    assert "The backend broken cannot find the task mail.send" in caplog.messages
    assert "there is no broker" in caplog.text


class NoBroker:
    def __init__(self, alias, params):
        raise RuntimeError("there is no broker")


def among_workers(test):
    """Let a test commit, and workers be alive in it."""
    return pytest.mark.django_db(transaction=True)(pytest.mark.usefixtures("living")(test))


@among_workers
def test_arguments_that_no_longer_fit_are_found_and_the_next_signature_may_take_them(registry_of, sql):
    def send(order_id, copy=False): ...

    registry_of(send, name="shop.send", aliases=["shop.mail"])
    insert(sql, "shop.send", args="'[7]'")
    insert(sql, "shop.send", args="'[7]'", kwargs="""'{"copy": true}'""", status="'scheduled'")
    insert(sql, "shop.mail", kwargs="""'{"order_id": 7}'""", queue="'mail'")
    eventually(lambda: is_healthy(sql))

    def send(order, *, language): ...

    registry_of(send, name="shop.send", aliases=["shop.mail"])
    found, code = diagnosis()
    assert code == 1
    assert "3 jobs" in found["arguments-unfit"]["what"]
    problems = {name: told["problem"] for name, told in found["arguments-unfit"]["facts"]["tasks"].items()}
    assert problems["shop.send"].endswith("argument: 'language'")
    assert set(problems) == {"shop.send", "shop.mail"}

    def send(order_id=None, copy=False, *, order=None, language="en"): ...

    registry_of(send, name="shop.send", aliases=["shop.mail"])
    eventually(lambda: is_healthy(sql))


@among_workers
def test_schedule_that_was_made_in_the_admin_is_found_before_it_fires(registry_of, sql):
    def send(order_id): ...

    registry_of(send, name="shop.send")
    soon = timezone.now() + ALIVE
    make("fits", task="shop.send", args=[7], next_at=soon)
    make("of code", task="gone", source="code", next_at=soon)
    make("paused", task="gone", is_enabled=False, next_at=soon)
    eventually(lambda: is_healthy(sql))
    make("gone", task="gone", next_at=soon)
    make("edited", task="shop.send", kwargs={"order": 7}, source="code", edited_at=timezone.now(), next_at=soon)
    found, code = diagnosis()
    assert (list(found), code) == (["schedules-unfit"], 1)
    assert found["schedules-unfit"]["facts"]["schedules"] == {
        "gone": "this code does not know gone",
        "edited": "missing a required argument: 'order_id'",
    }


@among_workers
@pytest.mark.parametrize(
    ("args", "kwargs", "kinds"),
    [('"ab"', "{}", "string and object"), ("[1, 2]", "[]", "array and array"), ("null", "7", "null and number")],
)
def test_schedule_whose_arguments_are_of_another_kind_is_found(sql, registry_of, args, kwargs, kinds):
    """A string has a length, and an empty array names nothing: by them a function could be called."""
    registry_of(lambda_of_two, name="two")
    make("odd", task="two", next_at=timezone.now() + ALIVE)
    sql("UPDATE pgqueue_schedules SET args = %s::jsonb, kwargs = %s::jsonb", args, kwargs)
    problem = diagnosis()[0]["schedules-unfit"]["facts"]["schedules"]["odd"]
    assert problem == f"args and kwargs are {kinds}, not array and object"


@among_workers
def test_arguments_of_another_kind_are_unfit_for_any_function(sql):
    insert(sql, "tests.app.tasks.record", args="""'{"label": "x"}'""")
    insert(sql, "tests.app.tasks.record", args="""'["x"]'""", kwargs="'[]'", status="'running'", lease_token="7")
    [told] = diagnosis()[0]["arguments-unfit"]["facts"]["tasks"].values()
    assert told["problem"] == "args and kwargs are object and object, not array and object"


@among_workers
def test_jobs_behind_those_that_come_next_are_looked_at_too(sql, registry_of):
    """The newest ones are, those that wait for a key, and those that are scheduled."""
    registry_of(lambda_of_two, name="two")
    app.noop.enqueue_many([()] * 1100)
    insert(sql, "two", priority="-1")
    assert "arguments-unfit" in diagnosis()[0]
    sql("UPDATE pgqueue_jobs SET id = -id, priority = -2 WHERE task = 'two'")
    assert "arguments-unfit" not in diagnosis()[0]
    sql("UPDATE pgqueue_jobs SET status = 'limited', concurrency_key = 'k', concurrency_limit = 1 WHERE task = 'two'")
    assert "arguments-unfit" in diagnosis()[0]


def lambda_of_two(one, two): ...


@among_workers
def test_tasks_of_the_framework_are_found_where_their_backend_finds_them(sql, fresh):
    """One is declared for another backend. The context is the framework's business: no job has it."""
    importlib.import_module("tests.app.elsewhere")
    insert(sql, "tests.app.elsewhere.lent", backend="'default'", args="'[1]'")
    insert(sql, "tests.app.contract.tell", backend="'default'", args="'[1, 2]'")
    eventually(lambda: is_healthy(sql))
    insert(sql, "tests.app.elsewhere.lent", backend="'default'", args="'[1, 2]'")
    insert(sql, "tests.app.elsewhere.gone", backend="'default'")
    found, _code = diagnosis()
    assert list(found["arguments-unfit"]["facts"]["tasks"]) == ["tests.app.elsewhere.lent"]
    assert list(found["unknown-tasks"]["facts"]["tasks"]) == ["tests.app.elsewhere.gone"]


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_call_that_waits_in_an_outbox_is_found(outbox):
    assert found("outbox-old") == []
    with transaction.atomic(using=outbox):
        app.noop.enqueue()
    assert found("outbox-old") == []
    with connections[outbox].cursor() as cursor:
        cursor.execute("UPDATE pgqueue_outbox SET enqueued_at = now() - interval '1 hour'")
        finding = only("outbox-old")
        assert finding.what == "A call in the outbox on other has waited for 1 h and has become no job."
        assert "look whether one runs" in finding.remedy
        cursor.execute("UPDATE pgqueue_outbox SET error = 'too long'")
        assert only("outbox-old").remedy.startswith("The database of the queue refuses it: too long.")
        cursor.execute("UPDATE pgqueue_outbox SET error = %s", [LOCKED])
        assert "such as that of its unique key: end that transaction" in only("outbox-old").remedy
    assert found("not-looked-at") == []


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_call_for_a_database_that_no_setting_names_is_found(outbox):
    with transaction.atomic(using=outbox):
        app.noop.enqueue()
    assert found("outbox-orphaned") == []
    with connections[outbox].cursor() as cursor:
        cursor.execute("UPDATE pgqueue_outbox SET number = 3")
    finding = only("outbox-orphaned")
    assert finding.what == "Calls in the outbox on other are for a number that no database has: 3."
    assert finding.facts == {"outbox": "other", "numbers": [3]}
    assert found("not-looked-at") == []


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_outbox_that_does_not_answer_hides_no_other_finding(settings, sql):
    """As where its database is away; here it has no table."""
    settings.PGQUEUE = settings.PGQUEUE | {"OUTBOXES": {"other": 6, "default": 5}}
    worker()
    app.noop.enqueue()
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '1 h', enqueued_at = now() - interval '1 h'")
    sql("INSERT INTO pgqueue_outbox (number, call) VALUES (3, '{}')")
    names = {finding.name for finding in findings()}
    assert {"oldest-job", "outbox-orphaned", "not-looked-at"} <= names
    assert only("not-looked-at").what.startswith("The database did not answer the question for outbox other: ")


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_outbox_without_its_table_is_told(settings):
    settings.PGQUEUE = settings.PGQUEUE | {"OUTBOXES": {"other": 0}}
    assert 'relation "pgqueue_outbox" does not exist' in only("not-looked-at").what
