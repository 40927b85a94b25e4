"""Any JSON that a row can hold is read, and what Python cannot hold is a text in its place."""

import datetime as dt
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_pgqueue.jobs.serialization import deep_path, is_deep
from django_pgqueue.stored_values import (
    DEEPEST,
    MOST_DIGITS,
    NO_JSON,
    TOO_DEEP,
    Unreadable,
    is_whole,
    read,
    read_exactly,
    read_object,
    seconds_between,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def nested(depth: int, opening: str = "[", closing: str = "]") -> str:
    return opening * depth + closing * depth


@given(VALUES)
def test_what_python_has_written_is_read_as_it_was(value):
    text = json.dumps(value)
    assert read(text) == read_exactly(text) == value
    assert is_whole(read(text))
    assert not is_deep(text)
    assert deep_path(value) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9" * MOST_DIGITS, int("9" * MOST_DIGITS)),
        ("9" * (MOST_DIGITS + 1), "9" * (MOST_DIGITS + 1)),
        ("-1e999", "-1e999"),
        ('{"a": [1e400, 1]}', {"a": ["1e400", 1]}),
        ("", NO_JSON),
        ("{", NO_JSON),
        ('{"a": 1} x', NO_JSON),
    ],
    ids=lambda value: str(value)[:20],
)
def test_number_that_is_too_large_and_text_that_is_no_json_are_texts(text, value):
    assert read(text) == value
    assert is_whole(read(text)) == isinstance(value, int)


def test_programs_get_every_number_that_python_has():
    digits = "9" * (MOST_DIGITS + 1)
    assert read_exactly(digits) == int(digits)
    assert isinstance(read(digits), Unreadable)
    assert read_exactly("9" * 5000) == "9" * 5000, "Python does not read that many digits"


@pytest.mark.parametrize("reader", [read, read_exactly])
def test_what_is_nested_too_deeply_is_cut_off_there(reader):
    deepest = nested(DEEPEST)
    assert reader(deepest) == json.loads(deepest)
    cut = value = reader(nested(DEEPEST + 1))
    for _ in range(DEEPEST - 1):
        [value] = value
    assert value == [TOO_DEEP]
    assert not is_whole(cut)


@pytest.mark.parametrize("reader", [read, read_exactly])
@pytest.mark.parametrize("depth", [DEEPEST + 1, 3000, 1_000_000])
def test_no_depth_raises_and_what_comes_back_can_be_written(reader, depth):
    value = reader(nested(depth, '{"a":', "}").replace('"a":}', '"a":1}', 1))
    assert "nested too deeply" in json.dumps(value)


def test_beside_what_is_too_deep_the_rest_is_read():
    value = read(f'{{"deep": {nested(DEEPEST + 5)}, "plain": 5}}')
    assert value["plain"] == 5
    assert not is_whole(value)


@pytest.mark.parametrize("text", [None, "", "[1]", "5", "null", "{", nested(3000)], ids=lambda text: str(text)[:10])
def test_what_is_no_object_is_an_empty_one(text):
    assert read_object(text) == {}


def test_object_is_read_as_one():
    assert read_object('{"a": [1]}') == {"a": [1]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9" * 5000, "9" * 5000),
        ("-" + "9" * 5000, "-" + "9" * 5000),
        ("1e400", "1" + "0" * 400),
        ('{"a": 1, "a": 2}', {"a": 2}),
        ('"\\u00e9"', "é"),
        ("0.1", 0.1),
    ],
    ids=lambda given: str(given)[:10],
)
def test_whatever_jsonb_accepts_is_read_from_a_row(sql, text, value):
    [(stored,)] = sql("SELECT %s::jsonb::text", text)
    assert read(stored) == value


def test_row_that_is_nested_too_deeply_is_cut_off(sql):
    [(stored,)] = sql("SELECT %s::jsonb::text", nested(3000))
    assert TOO_DEEP in json.dumps(read(stored))


def test_time_between_two_instants_is_exact_where_clocks_are_put_back_between_them(settings):
    settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Berlin"
    before, after = dt.datetime(2031, 10, 26, 1, 30), dt.datetime(2031, 10, 26, 3, 30)
    assert seconds_between(before, after) == 3 * 3600
    assert seconds_between(after, before) == -3 * 3600
