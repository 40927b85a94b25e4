"""Usage that cannot be read is unknown."""

import subprocess
import sys

from django_pgqueue.bench.usage import cpu_seconds, wal_bytes


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
