"""Progress of jobs while real workers run them."""

import pytest

import tests.app.tasks as app
from django_pgqueue.jobs import waiter
from django_pgqueue.models import Job
from tests.support.waiting import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("task", [app.report_until_told, app.areport_until_told, app.report_atomic_until_told])
def test_others_see_progress_and_metadata_while_a_job_runs(start_worker, tmp_path, task):
    """Whatever transaction it is in; and the last of all when it has ended, though that came in a rush."""
    start_worker("--concurrency=2").wait_until_ready()
    path = tmp_path / "go"
    handle = task.using(metadata={"tenant": 5}).enqueue(str(path))
    eventually(lambda: Job.objects.get().progress)
    state = handle.state()
    assert (state.status, state.progress["done"], state.progress["total"]) == ("running", 0, 1000)
    assert eventually(lambda: len(handle.state().metadata) == 3 and handle.state().metadata) == {
        "tenant": 5,
        "path": str(path),
        "done": 0,
    }
    path.touch()
    try:
        assert handle.result(PATIENCE_SECONDS) is None
    finally:
        waiter.stop_all()
    state = handle.state()
    assert (state.status, state.progress["done"], state.progress["message"]) == ("succeeded", 1000, "at 1000")
    assert state.metadata["done"] == 1000
