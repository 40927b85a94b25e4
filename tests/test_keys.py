"""Keys of jobs are computed from their arguments."""

import dataclasses
import datetime as dt
import json
import re

import pytest

import tests.app.tasks as app
from django_pgqueue import Limit, Unique
from django_pgqueue.exceptions import ConfigurationError, InvalidArguments, InvalidOption
from django_pgqueue.keys import as_json
from django_pgqueue.models import Job
from tests.support.keyed import keyed


@pytest.mark.django_db
def test_key_is_computed_by_a_function_of_the_arguments():
    declared = keyed(fair=str.upper)
    declared.enqueue("ann")
    assert Job.objects.get().fair_key == "ANN"


@pytest.mark.django_db
def test_key_is_made_of_arguments_by_their_names_and_the_task():
    declared = keyed(unique="label", limit=Limit(("label",)))
    declared.enqueue(label="ann")
    job = Job.objects.get()
    assert (job.unique_key, job.concurrency_key) == (f'{declared.name}:label="ann"',) * 2


@pytest.mark.django_db
def test_key_of_a_call_goes_before_the_computed_one():
    keyed(unique="label").using(unique_key="mine").enqueue("ann")
    assert Job.objects.get().unique_key == "mine"


@pytest.mark.django_db
def test_function_may_return_no_key():
    declared = keyed(unique=lambda label: None)
    assert declared.enqueue("ann").id != declared.enqueue("ann").id


def test_names_that_are_no_arguments_are_refused():
    with pytest.raises(ConfigurationError, match=r"unique is .* of which there are label; not \['nmae'\]"):
        keyed(unique=("nmae",))


# Unique


def pair(label: str, number: int = 1) -> None:
    """No worker runs it."""


def nothing() -> None:
    """No worker runs it."""


def many(*args: int, **kwargs: int) -> None:
    """No worker runs it."""


def unique_key(*args, func=pair, **options) -> str | None:
    return keyed(func, **options).keys_of(args, {}).unique


@pytest.mark.parametrize(
    ("unique", "key"),
    [
        ((), "tests.keyed.pair"),
        (Unique(()), "tests.keyed.pair"),
        ("label", 'tests.keyed.pair:label="a"'),
        (["number", "label"], 'tests.keyed.pair:number=1,label="a"'),
        (lambda label, number=1: label.upper(), "tests.keyed.pair:A"),
        (Unique("label", group="letters"), 'letters:"a"'),
        (Unique(lambda label: label, group="letters"), "letters:a"),
        (Unique((), group="letters"), "letters"),
        (False, None),
        (None, None),
    ],
    ids=str,
)
def test_unique_key_is_made_of_what_unique_names(unique, key):
    assert unique_key("a", unique=unique) == key


@pytest.mark.parametrize("unique", [True, Unique()], ids=str)
def test_unique_key_of_all_arguments_differs_with_each_and_shows_none(unique):
    task = keyed(many, unique=unique)
    calls = [((1, 2), {"a": 3}), ((1,), {"a": 3}), ((1, 2), {"a": 4}), ((1, 2), {}), ((), {})]
    keys = [task.keys_of(*call).unique for call in calls]
    assert len(set(keys)) == len(calls)
    assert keys[0] == task.keys_of((1, 2), {"a": 3}).unique
    assert {key.partition(":")[0] for key in keys} == {"tests.keyed.many"}
    assert {len(key) for key in keys} == {len("tests.keyed.many:") + 64}
    assert unique_key("a", unique=unique) == unique_key("a", 1, unique=unique), "a default is the same as its value"
    assert unique_key(func=nothing, unique=unique) == "tests.keyed.nothing"


def test_long_values_become_a_digest_which_differs_where_they_do():
    long, other = (unique_key("x" * 600 + end, unique="label") for end in "ab")
    assert long.startswith("tests.keyed.pair:")
    assert long != other
    assert {len(long), len(other)} == {len("tests.keyed.pair:") + 64}


@pytest.mark.parametrize("unique", [True, "label"], ids=str)
def test_value_has_the_key_of_the_form_in_which_it_is_stored(settings, unique):
    settings.PGQUEUE = {**settings.PGQUEUE, "JSON_ENCODER": "django.core.serializers.json.DjangoJSONEncoder"}
    instant = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    assert unique_key(instant, unique=unique) == unique_key("2024-01-01T00:00:00Z", unique=unique)
    assert unique_key(Ellipsis, unique=unique) == unique_key("Ellipsis", unique=unique)


@pytest.mark.parametrize("unique", [True, "label"], ids=str)
@pytest.mark.parametrize(
    "value",
    [
        {1: "a", 10: "b", 2: "c"},
        {1: "a", "b": 2},
        {None: 1, "a": [{2: 3, "c": 4}]},
        {True: 1, 1.5: 2},
        (1, [2, (3,)]),
        [1e16, 1.5e22, -0.0, 1e-7, 5.0],
        -0.0,
    ],
    ids=str,
)
@pytest.mark.django_db
def test_job_has_the_same_key_again_when_it_is_computed_from_its_row(unique, value):
    task = keyed(pair, unique=unique)
    task.enqueue(value)
    job = Job.objects.get()
    assert task.keys_of(tuple(job.args), job.kwargs).unique == job.unique_key


@pytest.mark.parametrize("unique", [True, "label"], ids=str)
@pytest.mark.django_db
@pytest.mark.parametrize("encoder", [None, "django.core.serializers.json.DjangoJSONEncoder"])
def test_value_that_is_no_json_is_an_invalid_argument_of_a_task_with_a_key_too(settings, unique, encoder):
    settings.PGQUEUE = {**settings.PGQUEUE, "JSON_ENCODER": encoder}
    with pytest.raises(InvalidArguments, match="Cannot be stored as JSON: label: keys must be"):
        keyed(pair, unique=unique).enqueue({(1, 2): 3})


def pay(label: str, card: object = None) -> None:
    """No worker runs it."""


@pytest.mark.parametrize(
    "rule",
    [
        {"unique": "card"},
        {"unique": True},
        {"unique": Unique("card", group="cards")},
        {"limit": Limit("card")},
        {"fair": "card"},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("value", "options"),
    [
        ("hunter2", {"sensitive_parameters": ("card",)}),
        ("hunter2", {"sensitive_parameters": True}),
        ([{"pin": "hunter2"}], {}),
        ({"owner": [{"iban": {"no": "hunter2"}}]}, {}),
    ],
    ids=str,
)
def test_sensitive_value_stands_in_keys_as_a_digest_that_no_one_can_guess(settings, rule, value, options):
    task = keyed(pay, **rule, **options)
    [key], [same], [other] = (list(filter(None, task.keys_of(("a", card), {}))) for card in (value, value, "x"))
    assert key == same != other
    assert "hunter2" not in key
    assert key.endswith(tuple("0123456789abcdef"))
    settings.SECRET_KEY = "another"
    assert key not in task.keys_of(("a", value), {})


def test_value_with_an_ordinary_name_stands_in_keys_beside_a_sensitive_one():
    task = keyed(pay, unique=("label", "card"), sensitive_parameters=("card",))
    assert re.fullmatch(r'tests\.keyed\.pay:label="a",card=[0-9a-f]{64}', task.keys_of(("a", 4711), {}).unique)


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("hunter2" * 100, "of 1 to 500 characters; this one has 700"),
        ("", "this one has 0"),
        ("hunter2\0", "contains NUL"),
        ("hunter2\ud800", "lone surrogate"),
        (["hunter2"], "not of the type list"),
    ],
    ids=["long", "empty", "NUL", "surrogate", "list"],
)
@pytest.mark.parametrize("option", ["unique", "limit", "fair"])
def test_key_that_cannot_be_is_refused_without_being_shown(option, key, problem):
    rule = Limit(lambda label: key) if option == "limit" else lambda label: key
    with pytest.raises(InvalidOption, match=problem) as caught:
        keyed(**{option: rule}).keys_of(("a",), {})
    assert f"key of {option}" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_keys_stay_what_they_were_when_a_task_is_renamed():
    before = keyed(pair, unique="label")
    renamed = keyed(pair, unique="label", aliases=[before.name, "tests.later"], name="tests.renamed")
    assert renamed.keys_of(("a",), {}).unique == before.keys_of(("a",), {}).unique


@pytest.mark.django_db
def test_one_job_of_a_task_at_all():
    digest = keyed(unique=())
    assert digest.enqueue("ann").id == digest.enqueue("bob").id


def test_call_may_have_another_rule_or_none():
    task = keyed(pair, unique=Unique("label", until="start"))
    assert task.using(unique=False).keys_of(("a",), {}).unique is None
    assert task.using(unique="number").keys_of(("a",), {}).unique == "tests.keyed.pair:number=1"
    changed = task.using(on_conflict="replace")
    assert (changed.options.conflict, changed.options.unique_rule.until) == ("replace", "start")
    assert changed.keys_of(("a",), {}).unique == task.keys_of(("a",), {}).unique


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"by": 7}, "unique is True, a function, or names of arguments, not 7"),
        ({"by": ["a", 7]}, "unique is True, a function, or names of arguments, not 7"),
        ({"until": "started"}, "until of unique is one of 'end', 'start', not 'started'"),
        ({"on_conflict": "fail"}, "on_conflict is one of 'keep', 'replace', 'later', 'earlier', not 'fail'"),
        ({"hold": 0}, "hold of unique is a number of seconds above 0"),
        ({"hold": 60, "until": "start"}, "hold keeps the key after success, until='start' gives it up before"),
        ({"group": ""}, "group of unique is a name of 1 to 500 characters"),
    ],
    ids=str,
)
def test_unique_checks_itself(given, message):
    with pytest.raises(InvalidOption, match=message):
        Unique(**given)
    with pytest.raises(InvalidOption, match=message):
        app.noop.using(unique=given)


def test_unique_of_a_mapping_names_what_it_has_not():
    with pytest.raises(InvalidOption, match="unique has no scope; it has by, until, hold, on_conflict, group"):
        app.noop.using(unique={"scope": "x"})


def test_unique_is_a_value():
    assert Unique("label", hold=60) == Unique(["label"], hold=60)
    assert {Unique("label"): 1}[Unique(("label",))] == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        Unique().until = "start"


@pytest.mark.parametrize("unique", [Unique(), Unique((), hold=dt.timedelta(minutes=1)), Unique(["a"], until="start")])
def test_unique_comes_back_from_json(unique):
    back = Unique.of("unique", json.loads(json.dumps(unique.as_json())))
    assert back.as_json() == unique.as_json()
    assert back.hold_seconds == unique.hold_seconds


@pytest.mark.parametrize("option", ["unique_key", "on_conflict", "limit_key", "fair_key"])
def test_options_of_calls_are_refused_in_a_declaration(option):
    with pytest.raises(InvalidOption, match=rf"no option {option}: it belongs to calls, using\({option}=…\)"):
        keyed(**{option: "keep"})


# Limit


@pytest.mark.parametrize(
    ("limit", "key"),
    [
        (Limit(), "tests.keyed.pair"),
        (Limit("label"), 'tests.keyed.pair:label="a"'),
        (Limit(["number", "label"], running=3), 'tests.keyed.pair:number=1,label="a"'),
        (Limit(lambda label, number=1: label.upper()), "tests.keyed.pair:A"),
        (Limit(lambda label: None), None),
        (Limit("label", group="accounts"), 'accounts:"a"'),
        (Limit(lambda label: label, group="accounts"), "accounts:a"),
        (Limit(group="accounts"), "accounts"),
        ([Limit("label")], 'tests.keyed.pair:label="a"'),
        ([], None),
        (None, None),
    ],
    ids=str,
)
def test_concurrency_key_is_made_of_what_limit_names(limit, key):
    assert keyed(pair, limit=limit).keys_of(("a",), {}).concurrency == key


@pytest.mark.django_db
def test_tasks_with_the_same_names_do_not_limit_each_other_unless_they_name_a_group():
    apart = [keyed(func, limit=Limit(by)) for func, by in ((pair, "label"), (app.record.func, "label"))]
    together = [task.using(limit=Limit("label", group="letters")) for task in apart]
    for task in (*apart, *together):
        task.enqueue("a")
    keys = [*Job.objects.order_by("pk").values_list("concurrency_key", flat=True)]
    assert len({*keys[:2]}) == 2
    assert keys[2:] == ['letters:"a"'] * 2


@pytest.mark.django_db
def test_limit_is_written_into_the_job_of_a_key_that_the_call_gives_too():
    task = keyed(pair, limit=Limit("label", running=3, strict=True))
    task.enqueue("a")
    task.using(limit_key="mine").enqueue("a")
    app.noop.using(limit_key="mine").enqueue()
    task.using(limit=False).enqueue("a")
    columns = ("concurrency_key", "concurrency_limit", "concurrency_strict")
    assert [*Job.objects.order_by("pk").values_list(*columns)] == [
        (f'{task.name}:label="a"', 3, True),
        ("mine", 3, True),
        ("mine", 1, False),
        (None, None, False),
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"by": True}, "limit is a function, or names of arguments, not True"),
        ({"by": None}, "limit is a function, or names of arguments, not None"),
        ({"running": 0}, "running of limit is a whole number from 1 to 1000, not 0"),
        ({"running": 1001}, "running of limit is a whole number from 1 to 1000, not 1001"),
        ({"strict": 1}, "strict of limit is True or False, not 1"),
        ({"group": ""}, "group of limit is a name of 1 to 500 characters"),
    ],
    ids=str,
)
def test_limit_checks_itself(given, message):
    with pytest.raises(InvalidOption, match=message):
        Limit(**given)
    with pytest.raises(InvalidOption, match=message):
        app.noop.using(limit=given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, r"limit is Limit\(…\), as in Limit\('account_id', running=3\), or a list, not 3"),
        ("label", r"limit is Limit\(…\).* not 'label'"),
        (["label"], r"limit is Limit\(…\).* not \['label'\]"),
        (True, r"limit is Limit\(…\).* not True"),
        ([Limit(), Limit("label")], "limit has 2 limits; a job has one at most"),
    ],
    ids=str,
)
def test_anything_else_is_no_limit(given, message):
    with pytest.raises(InvalidOption, match=message):
        keyed(pair, limit=given)


def test_limits_come_back_from_json():
    limits = [Limit(["label"], running=3, group="letters")]
    assert Limit.of("limit", json.loads(json.dumps(as_json(limits)))).as_json() == limits[0].as_json()


# Fair


@pytest.mark.parametrize(
    ("fair", "key"),
    [
        ("label", 'label="a"'),
        (["number", "label"], 'number=1,label="a"'),
        (lambda label, number=1: label.upper(), "A"),
        (lambda label: None, None),
        (False, None),
        (None, None),
    ],
    ids=str,
)
def test_fair_key_is_shared_by_all_tasks_that_make_it_of_the_same(fair, key):
    one, other = (keyed(pair, fair=fair, name=name) for name in ("tests.one", "tests.other"))
    assert one.keys_of(("a",), {}).fair == other.keys_of(("a",), {}).fair == key


def test_call_may_take_turns_by_something_else():
    task = keyed(pair, fair="label")
    assert task.using(fair="number").keys_of(("a",), {}).fair == "number=1"
    assert task.using(fair=False).keys_of(("a",), {}).fair is None
    assert task.using(fair_key="mine").keys_of(("a",), {}).fair == "mine"


@pytest.mark.parametrize("fair", [(), True, 7, [7]])
def test_what_makes_no_turns_is_refused(fair):
    with pytest.raises(InvalidOption, match="fair is a function, or names of arguments, not "):
        keyed(pair, fair=fair)
