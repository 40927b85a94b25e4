"""The table of actions on jobs: what each is called, needs and may change."""

import pytest
from django.db import transaction

import tests.app.tasks as app
from django_pgqueue import jobs
from django_pgqueue.db.connections import MaintenanceConnection
from django_pgqueue.db.notify import CHANNEL
from django_pgqueue.exceptions import InvalidBulkAction, InvalidOption
from django_pgqueue.jobs import move, set_priority
from django_pgqueue.jobs.actions import ACTIONS, JobChange, SkipReason, action_named, lock_with_status
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.search import Source
from django_pgqueue.models import Job
from docs.facts import subparsers_of
from tests.support.died import died
from tests.support.many import enqueued_ids


def test_reserved_is_left_alone(put):
    held = put(Source.LIVE, status="'reserved'")
    assert move([held], queue="new", by="eve") == []
    assert set_priority([held], priority=1, by="eve") == []
    for name in ("kill", "move", "run_now"):
        assert action_named(name, "live").why_skipped([held], where=None) == {held: SkipReason.RESERVED}


def test_job_that_began_meanwhile_has_no_longer_the_status_that_was_chosen(queue):
    first, second = enqueued_ids(app.noop, [()] * 2)
    claim(queue, "default", limit=1, worker_id=1)
    with transaction.atomic():
        assert lock_with_status([first, second], ["queued", "scheduled"]) == [second]


def test_every_action_is_found_by_name_and_source():
    for action in ACTIONS:
        assert action_named(action.name, action.source) is action
    for name, source in (("kill", "dead"), ("drop", "live"), ("purge", "live"), ("retry", "nowhere")):
        with pytest.raises(InvalidBulkAction, match=f"no action '{name}' for '{source}' jobs"):
            action_named(name, source)


def test_what_an_action_needs_is_checked():
    action_named("move", "live").check({"queue": "bulk"})
    action_named("kill", "live").check({})
    for name, params in (
        ("move", {}),
        ("move", {"queue": ""}),
        ("set_priority", {"priority": 101}),
        ("set_priority", {}),
    ):
        with pytest.raises(InvalidOption):
            action_named(name, "live").check(params)


def test_action_tells_what_it_did_and_why_others_were_skipped(queue):
    waits, runs = enqueued_ids(app.noop, [(), ()])
    queue.rows("UPDATE pgqueue_jobs SET status='running', lease_token=1 WHERE id=%(id)s RETURNING id", {"id": runs})
    params = {"queue": "bulk"}
    done = action_named("move", "live").do([waits, runs, 10**9], by="eve", params=params, statuses=(), where=None)
    assert done == ({JobChange.MOVED: [waits]}, {runs: SkipReason.RUNNING, 10**9: SkipReason.GONE})


def test_action_spares_jobs_that_are_not_what_they_were_chosen_for(queue):
    job_id = app.noop.enqueue().id
    queue.rows("UPDATE pgqueue_jobs SET status='running', lease_token=1 RETURNING id", {})
    done = action_named("kill", "live").do([job_id], by="eve", params={}, statuses=("queued",), where=None)
    assert done == ({JobChange.KILLED: [], JobChange.ASKED: []}, {job_id: SkipReason.RUNNING})
    assert Job.objects.get().kill_requested_at is None


def test_pass_of_maintenance_announces_what_its_actions_did_after_its_commit(queue):
    ids = died(queue, 2)
    connection = MaintenanceConnection(queue)
    with queue.transaction():
        done = action_named("retry", "dead").do(ids, by="eve", params={}, statuses=(), where=connection)
        assert Job.objects.count() == 0
    assert sorted(done.done[JobChange.RETRIED]) == ids
    assert connection.announcements == {CHANNEL: {"default"}}
    assert Job.objects.count() == 2


def test_an_action_has_one_name_in_code_commands_and_permissions():
    """Purging is what Django calls deleting; its permission is there for each of the two tables."""
    subcommands = {name.replace("-", "_") for name in subparsers_of("pgqueue_jobs").choices}
    for action in ACTIONS:
        assert callable(getattr(jobs, action.name))
        assert action.name in subcommands
        name, _, model = action.permission.rpartition("_")
        assert name == {"purge": "delete"}.get(action.name, action.name)
        assert model in {"job", "deadjob", "succeededjob"}
