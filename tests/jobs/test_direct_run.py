"""The function of a task is called for a job that no worker has claimed."""

import pytest

import tests.app.tasks as app
from django_pgqueue import is_in_job
from django_pgqueue.jobs.context import CurrentJob
from django_pgqueue.jobs.direct_run import NO_ROW, call_here, make_job
from tests.app.models import Mark


def test_a_job_without_a_row_has_the_options_of_its_task():
    job = make_job(app.fail, attempt=2, run_at=7.0, metadata={"a": 1})
    assert (job.id, job.task, job.attempt, job.max_attempts) == (NO_ROW, app.fail.name, 2, 3)
    assert (job.run_at, job.rest) == (7.0, '{"metadata": {"a": 1}}')


@pytest.mark.django_db
@pytest.mark.parametrize("task", [app.record, app.arecord])
def test_plain_and_async_functions_have_the_job_for_the_current_one(task):
    job = make_job(task, attempt=2, run_at=0.0, args='["x"]', id=17)
    assert call_here(task, job, CurrentJob(job)) == "recorded x"
    assert list(Mark.objects.values_list("job_id", "attempt", "label")) == [(17, 2, "x")]
    assert not is_in_job()


@pytest.mark.django_db
def test_an_atomic_task_that_fails_is_rolled_back(registry_of):
    def half_done():
        Mark.objects.create(job_id=1)
        raise ValueError

    task = registry_of(half_done, atomic=True)
    job = make_job(task, attempt=1, run_at=0.0)
    with pytest.raises(ValueError):
        call_here(task, job, CurrentJob(job))
    assert not Mark.objects.exists()
