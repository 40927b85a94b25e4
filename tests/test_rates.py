"""Rates as they are written."""

import pytest

from django_pgqueue.exceptions import InvalidLimit
from django_pgqueue.insights import formatting
from django_pgqueue.rates import rate_of


@pytest.mark.parametrize(
    ("written", "rate"),
    [
        (100, (100, 1.0)),
        ("100/s", (100, 1.0)),
        ("60/m", (60, 60.0)),
        ("5/10s", (5, 10.0)),
        ("3/1.5h", (3, 5400.0)),
        ("1/d", (1, 86400.0)),
        ("1000000/52w", (1_000_000, 52 * 7 * 86400.0)),
    ],
)
def test_rate_is_a_number_a_second_or_a_number_in_a_period(written, rate):
    assert rate_of(written) == rate
    assert rate_of(formatting.rate(*rate)) == rate


@pytest.mark.parametrize("written", ["60", "60 / m", "/m", "60/", "60/y", "-1/s", "1.5/s", "1/1e3s", 0.5, True, None])
def test_what_is_no_rate_is_refused(written):
    with pytest.raises(InvalidLimit, match=r"A rate is a whole number, of jobs a second, or a text as in 100/s"):
        rate_of(written)


@pytest.mark.parametrize("written", [0, -1, 1_000_001, "0/s", "1000001/s", "1/0s", "1/53w"])
def test_rate_out_of_range_is_refused(written):
    with pytest.raises(InvalidLimit, match=r"A rate is 1 to 1,000,000 jobs in a period above 0 and of a year at most"):
        rate_of(written)
