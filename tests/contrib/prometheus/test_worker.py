"""Metrics of a worker, as Prometheus reads them."""

from django_pgqueue.contrib.prometheus.worker import WorkerCollector
from django_pgqueue.worker.metrics import CommandCounters
from tests.support.scraping import figures, sheet_of


def test_cycles_are_told_by_what_they_did():
    made = CommandCounters()
    meter = made.made()
    for claimed, acked in ((0, 0), (7, 0), (None, 3), (20, 30), (None, 0)):
        meter.count_cycle(0.003, claimed=claimed, acked=acked)
    sheet = sheet_of(WorkerCollector(lambda: figures(made)))
    assert {does: sheet.of("pgqueue_cycle_seconds_count", does=does) for does in ("claim", "ack", "both")} == {
        "claim": 2,
        "ack": 1,
        "both": 1,
    }
    assert sheet.of("pgqueue_cycle_seconds_bucket", does="claim", le="0.0025") == 0
    assert sheet.of("pgqueue_cycle_seconds_bucket", does="claim", le="0.005") == 2
    assert (sheet.of("pgqueue_claimed_jobs_sum"), sheet.of("pgqueue_claimed_jobs_count")) == (27, 3)
    assert sheet.of("pgqueue_claimed_jobs_bucket", le="0.0") == 1
    assert (sheet.of("pgqueue_acked_jobs_sum"), sheet.of("pgqueue_acked_jobs_count")) == (33, 2)
