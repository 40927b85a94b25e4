"""Families of metrics: buckets as Prometheus wants them."""

from django_pgqueue.contrib.prometheus.families import observed


def test_buckets_are_told_as_prometheus_wants_them():
    assert observed((0.5, 1.0), [1, 2, 4, 0, 0]) == [("0.5", 1), ("1.0", 3), ("+Inf", 7)]
