"""A load says how much its slots could do."""

from django_pgqueue.bench.load import Load


def test_slots_are_what_sleeping_handlers_allow():
    assert Load(processes=2, concurrency=4, sleep_ms=(1, 3)).slots_per_second == 4000
    assert Load().slots_per_second is None
