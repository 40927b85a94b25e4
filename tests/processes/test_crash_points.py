"""Worker processes killed exactly between two steps of a job's way; three of them, so that another goes on at once.

All leases are an hour, and no worker may reap before one has passed: whatever happens is done by the supervisor, which
has seen the process end.
"""

from typing import NamedTuple

import pytest
from django.db import transaction

import tests.app.tasks as app
from django_pgqueue.models import DeadJob, Job, SucceededJob, Worker
from tests.app.models import Mark
from tests.support.crash_points import Point
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)

once = app.record.using(max_attempts=1)


class Story(NamedTuple):
    """What became of a job."""

    runs: int  # counted by the effects of the task that were committed
    end: str  # "succeeded", or the reason of a dead job
    attempts: int
    lost: int
    history: list[str]


ONE_RUN = Story(1, "succeeded", 1, 0, [])
RAN_AGAIN = Story(2, "succeeded", 2, 1, ["lost"])
FIRST_RUN_IN_VAIN = Story(1, "succeeded", 2, 1, ["lost"])


class Trial:
    """One command, whose processes are killed one after the other, each at a point that a job comes to."""

    def __init__(self, start_worker, folder) -> None:
        self.folder = folder
        self.crashed: dict[str, int] = {}
        self.worker = start_worker(
            *("--processes", "3", "--concurrency", "1"), CRASH_POINTS=str(folder), LEASE_SECONDS="3600"
        )

    def crash_at(self, name, task, *args) -> None:
        point = Point(self.folder, name)
        with transaction.atomic():
            job_id = task.using(lease=3600).enqueue(*args).id
            point.arm("kill")
        eventually(lambda: not point.is_armed and not Job.objects.filter(pk=job_id).exists())
        self.crashed[name] = job_id

    def stories(self) -> dict[str, Story]:
        """Wait until all that died are settled, so that nothing more can happen to their jobs; tell the whole."""
        eventually(lambda: self.worker.text().count("ended (killed by SIGKILL)") == len(self.crashed))
        eventually(lambda: Worker.objects.exclude(pid=0).count() == len(self.worker.children()))
        assert self.worker.process.poll() is None
        return {name: self._story(job_id) for name, job_id in self.crashed.items()}

    def _story(self, job_id: int) -> Story:
        succeeded = SucceededJob.objects.filter(pk=job_id).first()
        row = succeeded or DeadJob.objects.get(pk=job_id)
        end = "succeeded" if succeeded else row.reason
        history = [entry["kind"] for entry in row.errors]
        return Story(Mark.objects.filter(job_id=job_id).count(), end, row.attempts, row.lost, history)


@pytest.fixture
def trial(start_worker, tmp_path) -> Trial:
    return Trial(start_worker, tmp_path)


def test_process_killed_before_the_start_gives_the_attempt_back(trial):
    """A job that may start only once runs all the same: it has not started.

    It may be taken for what has ended its process, which the third time would be its end.
    """
    for point in ("claim sent", "claim committed", "job held", "start"):
        trial.crash_at(point, once, "x")
    stories = {point: story._replace(lost=0, history=[]) for point, story in trial.stories().items()}
    assert stories == dict.fromkeys(["claim sent", "claim committed", "job held", "start"], ONE_RUN)


def test_process_killed_after_the_start_has_spent_the_attempt(trial):
    """It is unknown how much was done; with atomic=True nothing was, for as long as its transaction is open."""
    trial.crash_at("started", app.record)
    trial.crash_at("ended", app.record)
    trial.crash_at("ack sent", app.record)
    trial.crash_at("row removed", app.record_atomic)  # last: its job is gone before the second run has passed "ended"
    assert trial.stories() == {
        "started": FIRST_RUN_IN_VAIN,
        "ended": RAN_AGAIN,
        "ack sent": RAN_AGAIN,
        "row removed": FIRST_RUN_IN_VAIN,
    }


def test_job_that_may_start_only_once_dies_with_its_process(trial):
    for point in ("started", "ended", "ack sent"):
        trial.crash_at(point, once)
    lost = Story(1, "lost", 1, 1, ["lost"])
    assert trial.stories() == {"started": lost._replace(runs=0), "ended": lost, "ack sent": lost}


def test_outcome_that_is_committed_stays_whichever_process_dies_before_reading_the_answer(trial):
    trial.crash_at("ack committed", app.record)
    trial.crash_at("ack received", app.record)
    trial.crash_at("ack settled", app.record)
    trial.crash_at("ended", app.record_atomic)  # its own transaction has removed the job
    assert trial.stories() == dict.fromkeys(["ack committed", "ack received", "ack settled", "ended"], ONE_RUN)


def test_failed_attempt_is_counted_once_whichever_process_dies_while_it_is_written_down(trial):
    """Either as what it was or as a lost worker, and not as both."""
    trial.crash_at("ack sent", app.fail_until, 2)
    trial.crash_at("ack committed", app.fail_until, 2)
    assert trial.stories() == {
        "ack sent": RAN_AGAIN,
        "ack committed": Story(2, "succeeded", 2, 0, ["failed"]),
    }
