"""Each attempt has one line in the log, with fields, and its traceback while developing."""

import logging

import pytest

import tests.app.tasks as app
from django_pgqueue.log_lines import FAILURES, FIELDS, this_worker
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.states import DeathReason
from django_pgqueue.worker import job_log
from tests.support.claimed import job
from tests.support.log_records import attempt, fields_of
from tests.support.running import run_claimed


def test_each_attempt_has_one_line_with_fields(queue, caplog):
    caplog.set_level(logging.INFO, "django_pgqueue.jobs")
    app.fail_until.using(metadata={"a": 1}, queue="mail").enqueue(2)
    app.fail.using(max_attempts=1, queue="mail").enqueue("bad luck")
    for _ in range(3):
        [outcome] = run_claimed(queue, "mail")
        job_log.report_all([outcome], stale=())
    done, failed, dead = sorted(caplog.records, key=lambda record: (record.levelno, record.args[0]))
    seconds = [vars(record).pop("run_seconds") for record in (done, failed, dead)]
    assert all(0 <= one < 60 for one in seconds)
    common = {"queue": "mail", "worker": this_worker()}
    raised = {"error": "ValueError"}
    assert fields_of(done) == common | {
        "job": done.args[0],
        "task": "tests.app.tasks.fail_until",
        "attempt": 2,
        "max_attempts": 10,
        "outcome": "succeeded",
    } | {"max_attempts": 3}
    assert fields_of(failed) == common | raised | {
        "job": done.args[0],
        "task": "tests.app.tasks.fail_until",
        "attempt": 1,
        "max_attempts": 3,
        "outcome": "retried",
        "delay_seconds": 0.0,
        "error_message": "not before attempt 2",
    }
    assert fields_of(dead) == common | raised | {
        "job": dead.args[0],
        "task": "tests.app.tasks.fail",
        "attempt": 1,
        "max_attempts": 1,
        "outcome": "died",
        "reason": "exhausted",
        "error_message": "bad luck",
    }
    assert [record.levelname for record in (done, failed, dead)] == ["INFO", "WARNING", "ERROR"]
    assert {failed.name, dead.name} == {FAILURES}
    assert failed.msg == "Failed: job %s (%s) attempt %d of %d, again in %.0f s: %s"


@pytest.mark.parametrize(
    ("outcome", "stale", "line"),
    [
        (Outcome(job(), Fate.SUCCEEDED), {1}, ("WARNING", "django_pgqueue.jobs", "Stale result dropped")),
        (Outcome(job(), Fate.RECORDED), (), ("INFO", "django_pgqueue.jobs", "Done")),
        (Outcome(job(), Fate.DIED, reason=DeathReason.UNKNOWN_TASK), (), ("ERROR", "django_pgqueue.jobs", "Dead")),
        (Outcome(job(), Fate.DIED, reason=DeathReason.DISCARDED), (), ("ERROR", FAILURES, "Dead")),
    ],
    ids=["stale", "recorded", "unknown task", "discarded"],
)
def test_other_ends_have_their_line(caplog, outcome, stale, line):
    caplog.set_level(logging.INFO, "django_pgqueue.jobs")
    job_log.report_all([outcome], stale=stale)
    [record] = caplog.records
    assert (record.levelname, record.name, record.getMessage().partition(":")[0]) == line
    assert set(FIELDS) < set(fields_of(record))


@pytest.mark.parametrize("how", ["DEBUG", "level"])
def test_line_of_a_failure_has_the_traceback_while_developing(queue, caplog, settings, how):
    caplog.set_level(logging.DEBUG if how == "level" else logging.INFO, "django_pgqueue.jobs")
    settings.DEBUG = how == "DEBUG"
    app.fail.using(max_attempts=2).enqueue("bad luck")
    failed, dead = attempt(queue) + attempt(queue)
    for record, outcome in zip(caplog.records, (failed, dead), strict=True):
        line, trace = record.getMessage().split("\n", 1)
        assert line.endswith("ValueError: bad luck")
        assert trace == outcome.error["traceback"].rstrip()
        first, at, *_ = trace.splitlines()
        assert first == "Traceback (most recent call last):"
        assert at.endswith("in fail")  # the frames of the queue, which all tracebacks would begin with, are left out
        assert "app/tasks.py" in at
        assert vars(record)["error_message"] == "bad luck"


def test_line_of_a_failure_is_one_line_in_production(queue, caplog):
    caplog.set_level(logging.INFO, "django_pgqueue.jobs")
    app.fail.using(max_attempts=1).enqueue("bad luck")
    attempt(queue)
    assert "\n" not in caplog.records[0].getMessage()


def test_nothing_is_made_of_successes_where_info_is_off(monkeypatch, caplog):
    caplog.set_level(logging.WARNING, "django_pgqueue.jobs")
    made = []
    monkeypatch.setattr(job_log, "report", lambda *args, **_: made.append(args))
    job_log.report_all([Outcome(job(), Fate.SUCCEEDED)] * 3, stale=())
    assert made == []
    job_log.report_all([Outcome(job(), Fate.RETRIED)], stale=())
    assert len(made) == 1
