"""Numbers, durations and texts, as people read them."""

import pytest

from django_pgqueue.insights.formatting import columns, cut, short, width


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
