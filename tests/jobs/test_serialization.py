"""Arguments and results are stored as JSON, or refused by the path of the value."""

import datetime as dt
import json
import re
import uuid
from decimal import Decimal
from enum import Enum
from pathlib import Path

import pytest
from django.contrib.auth.models import User

import tests.app.tasks as app
from django_pgqueue.exceptions import InvalidArguments
from django_pgqueue.jobs.serialization import check_signature, deep_path, encode, encode_many, is_deep
from django_pgqueue.states import UniqueUntil
from django_pgqueue.stored_values import DEEPEST, may_not_be_deep


class Plain(Enum):
    ONE = 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, float("nan")], r"args\[1\] is nan, which JSON has no word for"),
        ([{"a": [float("inf")]}], r"args\[0\]\['a'\]\[0\] is inf"),
        (["x\0y"], r"args\[0\] contains a NUL character"),
        ([{"k\0": 1}], r"the key 'k\\x00' of args\[0\] contains a NUL"),
        (["\ud800"], r"args\[0\] contains the lone surrogate '\\ud800'"),
        ([{1, 2}], r"args\[0\] is the set \{1, 2\}; pass something JSON knows"),
        ([b"x"], r"args\[0\] is the bytes b'x'"),
        (
            [dt.date(2026, 1, 2)],
            r"\[0\] is the date .*; pass its text, or set PGQUEUE\['JSON_ENCODER'\] to '.*Encoder'; either way the ",
        ),
        ([uuid.UUID(int=1)], r"args\[0\] is the UUID"),
        ([[Decimal(1)]], r"args\[0\]\[0\] is the Decimal"),
    ],
    ids=ascii,
)
def test_value_that_cannot_be_stored_is_named_by_its_path(value, message):
    with pytest.raises(InvalidArguments, match=message):
        encode(value, what="args")


@pytest.mark.parametrize(
    "value", [["\\u0000"], ["a\\\\u0000"], [{"\\u0000": 1}], ["😀"], [2**70], [1.5, True, None]], ids=ascii
)
def test_value_that_only_looks_suspicious_is_stored(value, sql):
    text = encode(value, what="args")
    [(stored,)] = sql("SELECT %s::jsonb", text)
    import json

    assert json.loads(stored) == value


@pytest.mark.parametrize("encoder", [None, "django.core.serializers.json.DjangoJSONEncoder"])
@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (User(pk=7), "pass its primary key, and get the object in the task"),
        (User.objects.none(), r"pass primary keys, as in list\(….values_list\('pk', flat=True\)\), and get the"),
        (User.objects, "pass primary keys"),
        (Path("/tmp/x"), r"pass its text, as str\(\) returns it"),
        (UniqueUntil, "pass its key or text"),
        (Plain.ONE, "pass its value"),
        (object(), "pass its key or text"),
    ],
    ids=["model", "queryset", "manager", "path", "class", "enum", "object"],
)
def test_remedy_is_one_that_helps(settings, encoder, value, remedy):
    settings.PGQUEUE = {"JSON_ENCODER": encoder}
    with pytest.raises(InvalidArguments, match=rf"; {remedy}") as caught:
        encode([value], what="args")
    assert "DjangoJSONEncoder'" not in str(caught.value)  # which takes none of them


def test_encoder_that_is_set_is_named(settings):
    settings.PGQUEUE = {"JSON_ENCODER": "django.core.serializers.json.DjangoJSONEncoder"}
    with pytest.raises(
        InvalidArguments, match=r"let PGQUEUE\['JSON_ENCODER'\], DjangoJSONEncoder, return what JSON knows"
    ):
        encode([object()], what="args")


class Stumbling(json.JSONEncoder):
    def default(self, o):
        return o.to_dict()


class Unshowable:
    def __repr__(self):
        raise RuntimeError("not now")


def test_encoder_that_raises_anything_refuses_the_value(settings):
    settings.PGQUEUE = {"JSON_ENCODER": "tests.jobs.test_serialization.Stumbling"}
    with pytest.raises(InvalidArguments, match=r"args\[0\] is the object .*; pass its key or text, or let PGQUEUE"):
        encode([object()], what="args")
    with pytest.raises(InvalidArguments, match=r"kwargs\[0\]\['a'\] is the object"):
        encode_many([{"a": object()}, {}], what="kwargs")
    with pytest.raises(InvalidArguments, match=r"no attribute 'to_dict'"):
        encode([Unshowable()], what="args")


def test_declared_encoder_makes_dates_storable(settings):
    settings.PGQUEUE = {"JSON_ENCODER": "django.core.serializers.json.DjangoJSONEncoder"}
    assert encode([dt.date(2026, 1, 2)], what="args") == '["2026-01-02"]'
    with pytest.raises(InvalidArguments, match=r"args\[0\] is the set"):
        encode([{1}], what="args")


def test_size_is_counted_in_bytes_and_the_limit_is_named(settings):
    settings.PGQUEUE = {"MAX_PAYLOAD_BYTES": 10}
    assert encode(["ä" * 3], what="args")
    with pytest.raises(
        InvalidArguments, match=r"args is 12 bytes as JSON, more than PGQUEUE\['MAX_PAYLOAD_BYTES'\] = 10"
    ):
        encode(["ä" * 4], what="args")


def test_payload_of_five_megabytes_is_refused():
    with pytest.raises(InvalidArguments, match=r"5,000,004 bytes.*1,048,576.*Store the data in a model or a file"):
        encode(["x" * 5_000_000], what="args")


def test_deep_nesting_is_refused_not_crashing():
    value = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(InvalidArguments):
        encode(value, what="args")


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((1, 2), {}), ((), {"seconds": 1, "minutes": 1}), ((1,), {"seconds": 2})],
)
def test_arguments_that_do_not_bind_are_refused(args, kwargs):
    with pytest.raises(InvalidArguments, match=r"tests\.app\.tasks\.sleep takes \(seconds: float\)"):
        check_signature(app.sleep, args, kwargs)


def test_refusals_are_type_errors_and_value_errors():
    with pytest.raises(TypeError):
        check_signature(app.sleep, (), {})
    with pytest.raises(ValueError):
        encode([float("nan")], what="args")


def test_many_values_are_one_array(settings):
    assert encode_many([(), ()], what="calls") is None
    assert json.loads(encode_many([(1, "ä"), (), ("\\u0000",)], what="calls")) == [[1, "ä"], [], ["\\u0000"]]
    settings.PGQUEUE = {"MAX_PAYLOAD_BYTES": 20}
    assert json.loads(encode_many([("x" * 10,), ("y" * 10,)], what="calls")) == [["x" * 10], ["y" * 10]]


@pytest.mark.parametrize(
    ("culprit", "says"),
    [
        (object(), "calls[1][0] is the object"),
        ("\0", "calls[1][0] contains a NUL"),
        ("\ud800", "calls[1][0] contains the lone surrogate"),
        (float("nan"), "calls[1][0] is nan"),
        ("x" * 2**20, "calls[1] is 1,048,580 bytes"),
    ],
)
def test_culprit_among_many_values_is_named(culprit, says):
    with pytest.raises(InvalidArguments, match=re.escape(says)):
        encode_many([(1,), (culprit,), (2,)], what="calls")


@pytest.mark.parametrize("encoded", [encode, lambda value, what: encode_many([value], what=what)], ids=["one", "many"])
def test_nesting_is_bounded_and_the_path_is_named(encoded):
    """By what can be shown and searched, in a stack that others use too; brackets in texts do not count."""
    at_the_bound = nested(DEEPEST)
    assert encoded(at_the_bound, what="args")
    assert encoded([("[" * 500, {"[{": "]"})] * 60, what="args")
    with pytest.raises(InvalidArguments, match=r"args(\[0\])+.* is nested deeper than 100 levels"):
        encoded([at_the_bound], what="args")
    with pytest.raises(InvalidArguments, match=r"'blob'.* is nested deeper than 100 levels"):
        encoded({"blob": nested(600)}, what="kwargs")


@pytest.mark.parametrize("encoded", [encode, lambda value, what: encode_many([value], what=what)], ids=["one", "many"])
def test_arrays_and_objects_in_turns_count_as_levels_too(encoded):
    value = []
    for level in range(DEEPEST - 1):
        value = {"a": value} if level % 2 else [value]
    assert encoded([value][0], what="args")
    with pytest.raises(InvalidArguments, match="is nested deeper than 100 levels"):
        encoded([{"a": value}], what="args")


@pytest.mark.parametrize(
    ("text", "deep"),
    [
        ("[" * DEEPEST + "]" * DEEPEST, False),
        ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), True),
        ('{"a":' * (DEEPEST + 1) + "1" + "}" * (DEEPEST + 1), True),
        (f"[{','.join(['[]'] * 1000)}]", False),
        (f'["{"[" * 1000}"]', True),  # a mistake that is allowed
    ],
    ids=["deepest", "arrays", "objects", "many", "brackets in a text"],
)
def test_depth_is_seen_in_the_brackets(text, deep):
    assert is_deep(text) is deep
    assert not (deep and may_not_be_deep(text))


def test_path_leads_to_the_first_value_that_is_too_deep():
    value: object = 5
    for _ in range(DEEPEST):
        value = (value,)
    assert deep_path(value) is None
    assert deep_path({"a": value}) == "['a']" + "[0]" * (DEEPEST - 1)
    assert deep_path([1, {"b": [value]}]) == "[1]['b']" + "[0]" * (DEEPEST - 2)


def nested(levels):
    value = []
    for _ in range(levels - 1):
        value = [value]
    return value
