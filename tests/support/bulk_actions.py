"""Bulk actions, and dead jobs for them."""

import tests.app.tasks as app
from django_pgqueue.jobs.dead_letter import DeadLetter, dead_letter
from django_pgqueue.maintenance.bulk_runner import carry_on
from django_pgqueue.models import BulkAction
from django_pgqueue.states import DeathReason
from tests.support.many import enqueued_ids


def bury(database, number: int, /, **options) -> list[int]:
    """Make dead jobs."""
    ids = enqueued_ids(app.noop.using(**options), [()] * number)
    dead_letter(database, [DeadLetter(job_id, 0, DeathReason.EXHAUSTED, {"error": "ValueError"}) for job_id in ids])
    return ids


def work(queue, *, limit: int = 1000) -> int:
    """Do slices until none is due; return how many there were."""
    slices = 0
    while carry_on(queue, limit=limit).bulk_action_id is not None:
        slices += 1
    return slices


def ended(bulk_action_id: int) -> BulkAction:
    bulk_action = BulkAction.objects.get(pk=bulk_action_id)
    assert bulk_action.ended_at is not None
    return bulk_action
