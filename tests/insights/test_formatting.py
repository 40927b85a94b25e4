"""Numbers, durations and texts, as people read them."""

import pytest

from django_pgqueue.insights.formatting import short


@pytest.mark.parametrize(
    ("number", "digits", "words"),
    [(100, 2, "100"), (99.96, 2, "100"), (1234.5, 3, "1230"), (0.000012, 3, "0.000012"), (1.25, 3, "1.25")],
)
def test_short_numbers_have_no_exponent(number, digits, words):
    assert short(number, digits) == words
