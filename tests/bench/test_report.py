"""Durations are summed up, and use of resources is read where that can be done."""

import subprocess
import sys

import pytest

from django_pgqueue.bench.report import Load, cpu_seconds, spread, wal_bytes


@pytest.mark.parametrize(("count", "p50", "p99"), [(1, 1, 1), (2, 1, 2), (100, 50, 99), (101, 51, 100)])
def test_spread_is_the_nearest_rank(count, p50, p99):
    found = spread([number / 1000 for number in range(count, 0, -1)])
    assert (found.p50_ms, found.p99_ms, found.samples) == (p50, p99, count)


def test_what_a_server_does_not_tell_is_unknown(sql):
    assert wal_bytes("default") > 0
    sql("CREATE ROLE pgqueue_bench_stranger")
    sql("REVOKE EXECUTE ON FUNCTION pg_current_wal_insert_lsn() FROM PUBLIC")
    sql("SET LOCAL ROLE pgqueue_bench_stranger")
    assert wal_bytes("default") is None
    assert sql("SELECT 1") == [(1,)]


def test_processor_time_of_a_process_that_is_gone_is_unknown():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert cpu_seconds([gone.pid]) is None


# Load


def test_slots_are_what_sleeping_handlers_allow():
    assert Load(processes=2, concurrency=4, sleep_ms=(1, 3)).slots_per_second == 4000
    assert Load().slots_per_second is None
