"""Spans and events of real worker processes."""

import json
from collections import Counter

import pytest

import tests.app.tasks as app
from tests.app import contract

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SETTINGS = "tests.processes.watched_settings"


@pytest.fixture
def drain(start_worker, tmp_path):
    """Let a worker run what there is, in threads and lanes side by side; return what it has written, by file."""

    def run():
        worker = start_worker("--drain", "--concurrency=4", DJANGO_SETTINGS_MODULE=SETTINGS, WATCHED_IN=str(tmp_path))
        assert worker.wait() == 0, worker.text()
        return {name: lines(tmp_path / name) for name in ("spans", "events")}

    return run


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_spans_of_every_attempt_are_out_when_the_worker_has_ended(drain):
    """Two failed attempts and a success, in the trace that the enqueuer has begun; exported in no hurry."""
    jobs = [
        task.using(metadata={"traceparent": PARENT}).enqueue(3).id for task in (app.fail_until, contract.fail_until)
    ]
    spans = drain()["spans"]
    assert {span["context"]["trace_id"] for span in spans} == {f"0x{PARENT.split('-')[1]}"}
    assert {span["parent_id"] for span in spans} == {f"0x{PARENT.split('-')[2]}"}
    ended = sorted(
        (int(one["messaging.message.id"]), one["pgqueue.attempt"], one["pgqueue.outcome"])
        for one in (span["attributes"] for span in spans)
    )
    outcomes = list(enumerate(["retried", "retried", "succeeded"], start=1))
    assert ended == [(int(job_id), *outcome) for job_id in jobs for outcome in outcomes]


def test_each_failed_attempt_is_one_event(drain):
    for number in range(5):
        app.fail.enqueue(f"luck {number}")
        contract.afail.enqueue(f"fortune {number}")
    events = drain()["events"]
    assert Counter(event["exception"]["values"][-1]["value"] for event in events) == Counter(
        {f"luck {number}": 3 for number in range(5)} | {f"fortune {number}": 1 for number in range(5)}
    )
    for event in events:
        assert event["contexts"]["job"]["args"] == [event["exception"]["values"][-1]["value"]]
        assert event["tags"]["job.task"] == event["transaction"]
