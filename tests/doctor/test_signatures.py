"""Arguments of jobs and schedules that no longer fit their functions are found."""

import importlib

import pytest
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from tests.support.doctor import diagnosis, insert, is_healthy
from tests.support.schedules import make
from tests.support.waiting import eventually
from tests.support.worker_rows import ALIVE

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("living")]


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


def test_arguments_of_another_kind_are_unfit_for_any_function(sql):
    insert(sql, "tests.app.tasks.record", args="""'{"label": "x"}'""")
    insert(sql, "tests.app.tasks.record", args="""'["x"]'""", kwargs="'[]'", status="'running'", lease_token="7")
    [told] = diagnosis()[0]["arguments-unfit"]["facts"]["tasks"].values()
    assert told["problem"] == "args and kwargs are object and object, not array and object"


def test_jobs_behind_those_that_come_next_are_looked_at_too(sql, registry_of):
    """The newest ones are, those that wait for a key, and those that are scheduled."""
    registry_of(lambda_of_two, name="two")
    enqueue_many(app.noop, [()] * 1100)
    insert(sql, "two", priority="-1")
    assert "arguments-unfit" in diagnosis()[0]
    sql("UPDATE pgqueue_jobs SET id = -id, priority = -2 WHERE task = 'two'")
    assert "arguments-unfit" not in diagnosis()[0]
    sql("UPDATE pgqueue_jobs SET status = 'waiting', concurrency_key = 'k', concurrency_limit = 1 WHERE task = 'two'")
    assert "arguments-unfit" in diagnosis()[0]


def lambda_of_two(one, two): ...


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
