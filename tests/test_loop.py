"""Pauses of a supervisor's thread after a pass that has failed."""

from django.db import OperationalError

from django_pgqueue.services import ServiceRunner
from django_pgqueue.worker.config import WorkerConfig
from django_pgqueue.worker.supervisor import Supervisor


def fail() -> float:
    raise OperationalError("The server is away.")


def pauses(loop: ServiceRunner) -> list[float]:
    """Return the longest pauses, after many failures."""
    return [loop._guarded_pass() for _ in range(12)]


def test_pauses_grow_up_to_two_seconds_or_so():
    waits = pauses(ServiceRunner("duty", fail))
    assert waits[0] < 0.2
    assert 1.7 < waits[-1] < 2.3  # 2.2 at most, as the docs say


def test_heart_tries_again_before_others_may_judge(settings):
    """They may after a full lease in touch, however short that is: a live worker must have said so by then."""
    settings.PGQUEUE = {"LEASE_SECONDS": 3}
    plan = WorkerConfig(queues=(), processes=1, concurrency=1)
    loop = Supervisor(plan)._heartbeat_loop
    loop._pass_once = fail
    assert max(pauses(loop)) == 1.0


def test_trouble_that_lasts_takes_few_lines(caplog):
    """The first failure, every tenth, every other reason, and the end."""
    reasons = iter(["away"] * 12 + ["full"] * 8 + [None])

    def fail_for_a_reason() -> float:
        if reason := next(reasons):
            raise OperationalError(reason)
        return 0.0

    loop = ServiceRunner("duty", fail_for_a_reason)
    for _ in range(21):
        loop._guarded_pass()
    assert [record.message.removeprefix("The duty ") for record in caplog.records] == [
        "failed and is tried again (failure 1): away",
        "failed and is tried again (failure 11): away",
        "failed and is tried again (failure 13): full",
        "works again after 20 failures",
    ]
