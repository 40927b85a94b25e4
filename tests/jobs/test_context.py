"""A task sees the job that it runs, and says when it is to run again."""

import datetime as dt

import pytest

import tests.app.tasks as app
from django_pgqueue import current_job
from django_pgqueue.exceptions import InvalidJob
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.context import CurrentJob
from tests.support.claimed import job, outcome_of


def test_current_job_is_known_while_it_runs_and_not_after():
    seen = []
    outcome_of(lambda: seen.append(current_job()), job(attempt=2))
    assert (seen[0].id, seen[0].attempt, seen[0].max_attempts, seen[0].is_cancelled) == (1, 2, 3, False)
    assert current_job() is None


@pytest.mark.django_db(transaction=True)
def test_current_job_knows_its_metadata(queue):
    for given in ({"order": {"id": 7}}, {}):
        app.noop.using(metadata=given).enqueue()
        [claimed] = claim(queue, "default", limit=1, worker_id=1)
        assert CurrentJob(claimed).metadata == given


@pytest.mark.parametrize(
    "when", [-1, -dt.timedelta(hours=1), float("nan"), float("inf"), 1e300, True, "soon", None, dt.timedelta(36501)]
)
def test_time_that_cannot_be_is_refused(when):
    with pytest.raises(InvalidJob):
        CurrentJob(None).run_again(when)


def test_naive_time_is_refused():
    with pytest.raises(InvalidJob, match="naive"):
        CurrentJob(None).run_again(dt.datetime(2026, 1, 1))
