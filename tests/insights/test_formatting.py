"""Numbers, durations and texts, as people read them."""

import pytest

from django_pgqueue.insights import formatting
from django_pgqueue.insights.formatting import brief, columns, compact, cut, duration, named, say, short, text_of, width


@pytest.mark.parametrize(
    ("number", "digits", "words"),
    [(100, 2, "100"), (99.96, 2, "100"), (1234.5, 3, "1230"), (0.000012, 3, "0.000012"), (1.25, 3, "1.25")],
)
def test_short_numbers_have_no_exponent(number, digits, words):
    assert short(number, digits) == words


def test_text_is_cut_by_its_width():
    assert width("寿司") == 4
    assert width("e\u0301") == 1
    assert cut("寿司寿司寿司", 7) == "寿…寿司" or width(cut("寿司寿司寿司", 7)) <= 7
    assert cut("shop.tasks.send_receipt", 11) == "shop.…ceipt"
    assert columns(["name", "n"], [["寿司", 1], ["ab", 2]]).splitlines() == ["name  n", "寿司  1", "ab    2"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0 ms"),
        (0.5, "500 ms"),
        (0.0121, "13 ms"),
        (2.5, "2.5 s"),
        (59, "59 s"),
        (90, "1 min 30 s"),
        (3600, "1 h"),
        (3605, "1 h"),
        (7200, "2 h"),
        (93_784, "1 day 2 h"),
        (36 * 3600, "1 day 12 h"),
        (172_800, "2 days"),
    ],
)
def test_length_of_time_is_told_by_its_two_largest_units(seconds, words):
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0.0004, "<1ms"), (0.012, "12ms"), (1.24, "1.2s"), (59.4, "59s"), (60, "1m"), (75, "1m15s")),
        *((3725, "1h2m"), (90_000, "1d1h"), (86_400, "1d")),
    ],
)
def test_duration_of_a_table_is_short(seconds, text):
    assert compact(seconds) == text


@pytest.mark.parametrize(("seconds", "words"), [(0.4, "< 1 s"), (2.5, "2 s"), (90.2, "1 min 30 s")])
def test_brief_duration_has_no_fractions(seconds, words):
    assert brief(seconds) == words


def test_sentence_is_told_with_its_parts_and_nothing_that_is_to_be_hidden():
    told = say(
        "Job {job} waits for {key}, {number} before it.",
        job=formatting.job(17),
        key=named("key", "of hunter22"),
        number=1500,
    )
    assert text_of(told) == "Job 17 waits for 'of hunter22', 1,500 before it."
    scrubbed = text_of(told, lambda text: text.replace("hunter22", "[redacted]"))
    assert scrubbed == "Job 17 waits for 'of [redacted]', 1,500 before it."
