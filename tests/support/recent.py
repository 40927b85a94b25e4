"""Counts of the last minutes."""

import datetime as dt

import pytest

NOW = dt.datetime(2026, 3, 1, 12, 7, 30, tzinfo=dt.UTC)


@pytest.fixture
def stat(sql):
    """Write counts down for a minute some minutes back."""

    def write(minutes_ago, queue="default", task="t", **values):
        columns = ", ".join(values)
        sql(
            f"INSERT INTO pgqueue_stats (minute, queue, task, {columns}) VALUES "
            f"(date_trunc('minute', %s) - make_interval(mins => %s), %s, %s, {', '.join(['%s'] * len(values))})",
            *(NOW, minutes_ago, queue, task, *values.values()),
        )

    return write
