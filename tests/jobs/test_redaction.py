"""Sensitive arguments of a job are in its row and nowhere else."""

import functools
import json
import logging
from decimal import Decimal
from urllib.parse import quote_plus

import pytest
from django.test import Client
from django.views.decorators.debug import sensitive_variables

import tests.app.tasks as app
from django_pgqueue import Snooze, enqueue, tasks
from django_pgqueue.exceptions import InvalidArguments, InvalidOption
from django_pgqueue.jobs.failure import LONGEST_TEXT, error_entry
from django_pgqueue.jobs.redaction import MOST, REDACTED, scrubber, shown, shown_by_name
from django_pgqueue.models import DeadJob, Job
from django_pgqueue.records import Fate, Outcome
from tests.support.claimed import job, outcome_of
from tests.support.many import enqueued_ids

SECRET = "hunter2 & 'co' ä"


def task_of(func, sensitive=()) -> tasks.Task:
    return tasks.make(func, name="t", sensitive_parameters=sensitive)


def pay(order, card, *rest, note="", **more): ...


def log_in(user, password, payload=None): ...


@pytest.mark.parametrize(
    ("task", "args", "kwargs", "expected"),
    [
        (task_of(log_in), ["ann", "x"], {}, (["ann", REDACTED], {})),
        (task_of(log_in), ["ann"], {"password": "x"}, (["ann"], {"password": REDACTED})),
        (
            task_of(log_in),
            ["ann", {"a": 1}, {"headers": [{"X-Api-Key": 1, "Accept": "*"}], "accessToken": "x"}],
            {},
            (["ann", REDACTED, {"headers": [{"X-Api-Key": REDACTED, "Accept": "*"}], "accessToken": REDACTED}], {}),
        ),
        (task_of(log_in), ["ann", "x", {}, "too many"], {}, (["ann", REDACTED, {}, REDACTED], {})),
        (task_of(pay), [1, "4111", 2], {"note": "x"}, ([1, "4111", 2], {"note": "x"})),
        (task_of(pay, {"card"}), [{"card": 1}, "4111"], {}, ([{"card": REDACTED}, REDACTED], {})),
        (task_of(pay, {"rest"}), [1, "4111", 2, 3], {}, ([1, "4111", REDACTED, REDACTED], {})),
        (task_of(pay, {"pin"}), [1], {"pin": "x", "note": ["y"]}, ([1], {"pin": REDACTED, "note": ["y"]})),
        (task_of(pay, True), [1], {"note": "y"}, (REDACTED, REDACTED)),
        (task_of(pay, True), [], {}, ([], {})),
        (None, [1], {}, (REDACTED, {})),
        (task_of(pay), {"not": "a list"}, {}, (REDACTED, {})),
    ],
)
def test_arguments_are_shown_without_what_is_sensitive(task, args, kwargs, expected):
    assert shown(task, args, kwargs) == expected


def test_setting_says_which_names_are_sensitive(settings):
    settings.PGQUEUE = {"SENSITIVE_PARAMETERS": ["^iban$", "^pin"]}
    value = {"IBAN": 1, "iban_country": 2, "Pin1": 3, "password": 4}
    assert shown_by_name(value) == {"IBAN": REDACTED, "iban_country": 2, "Pin1": REDACTED, "password": 4}
    settings.PGQUEUE = {"SENSITIVE_PARAMETERS": []}
    assert shown_by_name(value) == value


@pytest.mark.parametrize("wrong", ["card", [1], [""], 5])
def test_names_that_are_no_names_are_refused(wrong):
    with pytest.raises((InvalidOption, TypeError)):
        tasks.task(name="t", sensitive_parameters=wrong)(log_in)


def test_sensitive_variables_of_django_are_redacted():
    @sensitive_variables("pin", "card")
    def plain(order, card, pin): ...

    @sensitive_variables("card")
    async def coroutine(order, card): ...

    @sensitive_variables()
    def everything(order): ...

    @sensitive_variables()
    async def aeverything(order): ...

    @functools.cache
    @sensitive_variables("card")
    def below_another(order, card): ...

    def undecorated(order): ...

    assert task_of(plain).sensitive_parameters == {"pin", "card"}
    assert task_of(plain, ["order"]).sensitive_parameters == {"pin", "card", "order"}
    assert task_of(coroutine, ["order"]).sensitive_parameters == {"card", "order"}
    assert task_of(below_another).sensitive_parameters == {"card"}
    assert [task_of(one).sensitive_parameters for one in (everything, aeverything)] == [True, True]
    assert task_of(plain, True).sensitive_parameters is True
    assert task_of(undecorated).sensitive_parameters == set()
    assert shown(task_of(plain), [1, 2], {"pin": 3}) == ([1, REDACTED], {"pin": REDACTED})


def test_other_options_keep_what_a_task_has_declared():
    assert task_of(pay, frozenset({"card"})).using(priority=5).sensitive_parameters == {"card"}


# In what is written down


@pytest.mark.parametrize(
    "spelled", [SECRET, repr([SECRET]), json.dumps(SECRET), quote_plus(SECRET), f"'{SECRET[:-1]}\\xe4'"]
)
def test_values_are_found_however_they_are_spelled(spelled):
    scrub = scrubber(task_of(log_in), ["ann", SECRET], {})
    assert "hunter2" not in scrub(f"ann: wrong {spelled}!").replace(f"'{SECRET[:-1]}\\xe4'", "")
    assert scrub(f"ann: wrong {SECRET}!") == f"ann: wrong {REDACTED}!"


def test_values_inside_of_what_is_sensitive_are_found_each():
    scrub = scrubber(task_of(log_in), ["ann", {"pin": 4711, "words": ["swordfish", None, True], "no": 42}], {})
    assert scrub("ann 4711 swordfish None True 42") == f"ann {REDACTED} {REDACTED} None True 42"  # 42: too short


def test_key_of_many_lines_is_found_line_by_line():
    scrub = scrubber(task_of(log_in), [], {"private_key": "-----BEGIN-----\nMIIEvQIBADAN\n-----END-----"})
    assert "MIIEvQIBADAN" not in scrub("  | -----BEGIN-----\n  | MIIEvQIBADAN\n  | -----END-----")


def test_where_too_much_is_sensitive_nothing_of_a_text_is_kept():
    assert scrubber(task_of(pay, True), [[f"value {number}" for number in range(MOST + 1)]], {})("a text") == REDACTED


def test_few_values_of_very_many_lines_are_too_much_too():
    lines = "\n".join(f"{number:08}" for number in range(6 * MOST))
    assert scrubber(task_of(log_in), [], {"password": lines})("a text") == REDACTED


def containing_itself():
    value = []
    value.append(value)
    return value


@pytest.mark.django_db
@pytest.mark.parametrize("make", [containing_itself, lambda: 10**5000], ids=["circle", "number"])
def test_what_cannot_be_gone_through_is_refused_as_what_it_is(make):
    with pytest.raises(InvalidArguments, match="nested too deeply, or cannot be written"):
        enqueue(task_of(log_in), "ann", make())


def test_failure_is_described_without_the_values():
    def log_in(user, password):
        try:
            raise KeyError(password)
        except KeyError as error:
            raise ValueError(f"{user}/{password}") from error

    outcome = outcome_of(log_in, job(json.dumps(["ann", "hunter2"])))
    assert outcome.error["message"] == f"ann/{REDACTED}"
    assert f"KeyError: '{REDACTED}'" in outcome.error["traceback"]
    assert "hunter2" not in str(outcome.error)


def test_value_that_is_cut_in_two_is_no_longer_there():
    def log_in(password):
        raise ValueError("x" * 500 + password + "y" * 1020)

    outcome = outcome_of(log_in, job(json.dumps(["hunter2hunter2"])))
    assert "ter2" not in outcome.error["message"]


def test_arguments_that_cannot_be_read_let_nothing_of_a_text_through():
    deep = "[" * 100_000 + "]" * 100_000
    outcome = outcome_of(lambda password: None, job(deep))
    assert (outcome.fate, outcome.error["message"]) == (Fate.RETRIED, REDACTED)


def test_log_lines_do_not_have_the_values(caplog):
    caplog.set_level(logging.INFO, "django_pgqueue.jobs")

    def put_off(password):
        raise Snooze(1, f"{password} is locked")

    def answer(password):
        return {"of": (password, object()), "token": Decimal(4711)}

    outcome_of(put_off, job('["hunter2"]'))
    outcome_of(answer, job('["hunter2"]'), sensitive_parameters=True)
    outcome_of(lambda: {"token": Decimal(4711)})
    assert f"snoozes for 1 s: {REDACTED} is locked" in caplog.text
    assert f"result['token'] is the Decimal {REDACTED}" in caplog.text
    assert "hunter2" not in caplog.text
    assert "4711" not in caplog.text


def test_job_and_outcome_are_printed_without_arguments_and_result():
    secret = job('["hunter2"]', '{"password": "hunter2"}')
    assert repr(secret) == "<ClaimedJob 1 (t) attempt 1>"
    assert "hunter2" not in repr(Outcome(secret, Fate.SUCCEEDED, result='"hunter2"'))


def test_arguments_that_are_no_json_are_refused_without_their_values():
    with pytest.raises(InvalidArguments, match="array and kwargs a JSON object, not str and dict"):
        raise_error(outcome_of(log_in, job('"hunter2"')))


def raise_error(outcome):
    raise InvalidArguments(outcome.error["message"])


@pytest.mark.django_db
@pytest.mark.parametrize(
    "refused",
    [
        lambda: enqueue(app.log_in, "ann", b"hunter2"),
        lambda: enqueue(app.log_in, "ann", password=Decimal("4711.5")),
        lambda: enqueued_ids(app.log_in, [("ann", "fine"), ("ann", {"a": b"hunter2"})]),
        lambda: enqueue(app.log_in, "ann", "fine", {"auth_token": b"hunter2"}),
        lambda: enqueue(app.log_in, "ann", "hunter2", {}, "4711.5"),
        lambda: enqueue(app.log_in, "ann", b"hunter2" * 100),
        lambda: enqueue(app.log_in, "ann", {"hunter2", "4711.5"}),
        lambda: enqueued_ids(app.log_in, [b"hunter2"]),
    ],
)
def test_refused_arguments_are_named_without_their_values(refused):
    with pytest.raises(InvalidArguments) as caught:
        refused()
    assert "hunter2" not in str(caught.value)
    assert "4711" not in str(caught.value)


# Where people look


@pytest.mark.django_db
def test_admin_shows_a_job_without_what_is_sensitive(admin_client: Client):
    entry = {"kind": "failed", "error": "ValueError", "message": "ann/hunter2", "traceback": "hunter2", "attempt": 7777}
    values = {
        "args": ["ann", "hunter2", {"q": "open"}],
        "kwargs": {"api_key": 7777},
        "metadata": {"cookie": "chocolate"},
    }
    live = Job.objects.create(task=app.log_in.name, errors=[entry], **values)
    dead = DeadJob.objects.create(
        pk=live.pk + 1,
        reason="exhausted",
        task=app.log_in.name,
        run_at=live.run_at,
        enqueued_at=live.enqueued_at,
        errors=[entry],
        **values,
    )
    strange = Job.objects.create(task="unknown.task", args=["hunter2"], kwargs={"a": "chocolate"})
    for url in (f"job/{live.pk}", f"deadjob/{dead.pk}", f"job/{strange.pk}"):
        page = admin_client.get(f"/admin/pgqueue/{url}/change/").content.decode()
        assert "hunter2" not in page
        assert "chocolate" not in page
        assert REDACTED in page
        if url != f"job/{strange.pk}":
            assert "ann" in page
            assert "open" in page
            assert "Attempt 7777" in page


@pytest.mark.parametrize("length", [70_000, LONGEST_TEXT - 1, LONGEST_TEXT + 1, 210_000])
@pytest.mark.parametrize("times", [1, 2])
def test_long_secret_is_not_found_in_the_end_of_a_message_or_traceback(length, times):
    """However little of it is left where a text is cut."""
    secret = ("0123456789abcdef" * length)[:length]
    scrub = scrubber(task_of(log_in), ["ann", secret], {})
    for before, after in ((0, 0), (300_000, 0), (10, 5000)):
        error = ValueError("x" * before + f"cannot parse {' and '.join([secret] * times)}" + "y" * after)
        told = json.dumps(error_entry(error, scrub))
        assert "0123456789" not in told
        assert REDACTED in told


def test_nesting_that_no_stack_bears_hides_all_of_it():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    assert shown(task_of(pay), [deep], {"note": "x"}) == (REDACTED, REDACTED)
    assert shown_by_name({"a": deep}) == REDACTED
