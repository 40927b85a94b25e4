"""Jobs that wait too long or in vain, and queues whose attempts fail, are found."""

import pytest

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from tests.support.doctor import diagnosis, found, insert, only
from tests.support.worker_rows import worker

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("minutes", "is_found"), [(14, False), (16, True)])
def test_job_that_waits_too_long_is_found_where_its_queue_is_served(sql, minutes, is_found):
    enqueue_many(app.noop, [()] * 2)
    sql("UPDATE pgqueue_jobs SET run_at = statement_timestamp() - make_interval(mins => %s)", minutes)
    assert not found("oldest-job")
    worker()
    assert bool(found("oldest-job")) is is_found


@pytest.mark.parametrize(("succeeded", "failed", "is_found"), [(5, 5, True), (6, 5, False), (0, 9, False)])
def test_queue_whose_attempts_mostly_fail_is_found(sql, succeeded, failed, is_found):
    sql(
        "INSERT INTO pgqueue_stats (minute, queue, task, succeeded, failed) VALUES "
        "(date_trunc('minute', statement_timestamp()) - interval '2 minutes', 'mail', 't', %s, %s)",
        succeeded,
        failed,
    )
    assert bool(found("failing")) is is_found
    if is_found:
        assert "mail (50 % of 10)" in only("failing").what


def test_unknown_tasks_are_found_among_queued_and_scheduled_jobs(sql):
    enqueue_many(app.noop, [()] * 3)
    assert not found("unknown-tasks")
    sql("INSERT INTO pgqueue_jobs (task) VALUES ('gone.a'), ('gone.a')")
    sql("INSERT INTO pgqueue_jobs (task, status, run_at) VALUES ('<gone>.b', 'scheduled', now() + interval '1 min')")
    finding = only("unknown-tasks")
    assert set(finding.facts["tasks"]) == {"gone.a", "<gone>.b"}
    assert "3 jobs" in finding.what


@pytest.mark.usefixtures("living")
def test_backend_that_cannot_be_made_stops_no_other_look(sql, settings, caplog):
    """Its jobs are of an unknown task, as they are to workers."""
    settings.TASKS = {**settings.TASKS, "broken": {"BACKEND": f"{__name__}.NoBroker"}}
    insert(sql, "mail.send", backend="'broken'")
    found, code = diagnosis()
    assert (list(found), code) == (["unknown-tasks"], 0)
    assert "The backend broken cannot find the task mail.send" in caplog.messages
    assert "there is no broker" in caplog.text


class NoBroker:
    def __init__(self, alias, params):
        raise RuntimeError("there is no broker")
