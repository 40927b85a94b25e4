"""Workers carry out bulk actions, slice by slice."""

import datetime as dt

import pytest
from django.db import OperationalError
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.db.notify import ADMIT, CHANNEL, KILLS
from django_pgqueue.insights.history import title_of
from django_pgqueue.jobs.actions import (
    ACTIONS,
    KILL,
    MOVE,
    PURGE,
    PURGE_SUCCEEDED,
    RETRY,
    RUN_NOW,
    SET_PRIORITY,
    Action,
)
from django_pgqueue.jobs.bulk_actions import begin, stop
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.dead_letter import DeadLetter, dead_letter
from django_pgqueue.jobs.search import Filter
from django_pgqueue.maintenance import bulk_runner, pruner
from django_pgqueue.maintenance.bulk_runner import carry_on
from django_pgqueue.maintenance.pending_work import pending_work
from django_pgqueue.models import BulkAction, DeadJob, Job, SucceededJob
from django_pgqueue.signals import job_killed, job_retried, sent_elsewhere
from django_pgqueue.states import DeathReason
from tests.support.bulk_actions import bury, ended, work
from tests.support.many import enqueued_ids
from tests.support.waiting import beside, eventually, until_gone


def worked_off(queue, bulk_action_id: int) -> BulkAction:
    """Do slices until it has ended: one that fails breaks its session off, which keeps its locks for a moment."""

    def look() -> BulkAction | None:
        work(queue)
        return BulkAction.objects.filter(pk=bulk_action_id, ended_at__isnull=False).first()

    return eventually(look)


# Slices


def test_each_dead_job_is_retried_once_and_its_history_says_by_whom(queue):
    ids = bury(queue, 2500)
    bulk_action_id = begin(RETRY, Filter(), by="ann")
    assert work(queue) == 3
    bulk_action = ended(bulk_action_id)
    assert (bulk_action.done, bulk_action.outcome, bulk_action.skipped) == (2500, {"retried": 2500}, {})
    assert bulk_action.looked >= 2500
    assert bulk_action.started_at <= bulk_action.ended_at
    assert (bulk_action.last_error, DeadJob.objects.count()) == ("", 0)
    jobs = Job.objects.order_by("id")
    assert [job.pk for job in jobs] == ids
    assert {title_of(job.errors[-1]) for job in jobs} == {"died (exhausted), retried by ann"}
    assert {len(job.errors) for job in jobs} == {2}


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: f"{action.name} {action.source.name}")
def test_every_action_can_be_done_in_the_background(queue, sql, action: Action):
    app.noop.using(delay=dt.timedelta(hours=1)).enqueue()
    [dead_id] = bury(queue, 1)
    columns = (
        "id, enqueued_at, run_at, first_started_at, started_at, worker_id, priority, attempts, lost, queue, task, "
    )
    columns += "backend, args, kwargs, metadata, errors"
    sql(
        f"INSERT INTO pgqueue_succeeded_jobs ({columns}, run_seconds) "
        f"SELECT 1000000, {columns.partition(', ')[2]}, 1 FROM pgqueue_dead_jobs"
    )
    bulk_action_id = begin(action, Filter(), by="ann", params={"queue": "new", "priority": 7})
    work(queue)
    assert ended(bulk_action_id).done == 1
    done = {
        RETRY: lambda: Job.objects.filter(pk=dead_id).exists(),
        RUN_NOW: lambda: Job.objects.filter(status="queued", errors__0__by="ann").exists(),
        KILL: lambda: DeadJob.objects.filter(reason="killed", killed_by="ann").exists(),
        MOVE: lambda: Job.objects.filter(queue="new").exists(),
        SET_PRIORITY: lambda: Job.objects.filter(priority=7).exists(),
        PURGE: lambda: not (DeadJob.objects.exists() or Job.objects.filter(pk=dead_id).exists()),
        PURGE_SUCCEEDED: lambda: not SucceededJob.objects.exists(),
    }
    assert [candidate.name for candidate, was_done in done.items() if was_done()] == [action.name]


def test_only_what_matches_is_changed(queue):
    mail, other = bury(queue, 3, queue="mail"), bury(queue, 3)
    begin(RETRY, Filter(queues=("mail",)), by="ann")
    work(queue)
    assert sorted(Job.objects.values_list("pk", flat=True)) == mail
    assert sorted(DeadJob.objects.values_list("pk", flat=True)) == other


def test_smaller_slice_looks_at_fewer_jobs_whether_they_match_or_not(queue):
    bury(queue, 25)
    mail = bury(queue, 3, queue="mail")
    bulk_action_id = begin(RETRY, Filter(queues=("mail",)), by="ann")
    carry_on(queue, limit=2)
    assert (BulkAction.objects.get(pk=bulk_action_id).looked, Job.objects.count()) == (20, 0)
    work(queue)
    assert (BulkAction.objects.get(pk=bulk_action_id).looked, Job.objects.count()) == (28, len(mail))


def test_jobs_chosen_by_status_are_spared_once_they_run(queue, sql):
    waits, runs = enqueued_ids(app.noop, [(), ()])
    sql("UPDATE pgqueue_jobs SET status = 'running', lease_token = 1 WHERE id = %s", runs)
    begin(KILL, Filter(kinds=("queued",)), by="ann")
    work(queue)
    assert [job.pk for job in DeadJob.objects.all()] == [waits]
    assert Job.objects.get(pk=runs).kill_requested_at is None


def test_jobs_of_a_status_that_the_action_is_not_for_are_not_even_looked_at(queue):
    app.noop.enqueue_many([()] * 5)
    app.noop.using(delay=dt.timedelta(hours=1)).enqueue()
    for kinds in ((), ("queued", "scheduled")):
        Job.objects.filter(errors__0__by="ann").update(status="scheduled")
        bulk_action_id = begin(RUN_NOW, Filter(kinds=kinds), by="ann")
        work(queue)
        assert (ended(bulk_action_id).done, ended(bulk_action_id).skipped) == (1, {})
    bulk_action_id = begin(RUN_NOW, Filter(kinds=("queued",)), by="ann")
    work(queue)
    assert (ended(bulk_action_id).done, ended(bulk_action_id).skipped) == (0, {"queued": 6})


def test_next_bulk_action_is_found_along_its_index(queue, sql):
    sql(
        "INSERT INTO pgqueue_bulk_actions (action, source, by, ended_at) "
        "SELECT 'kill', 'live', 'ann', now() FROM generate_series(1, 5000)"
    )
    begin(RETRY, Filter(), by="ann")
    sql("ANALYZE pgqueue_bulk_actions")
    for name, parameters in (("take_bulk_action", {"id": None}), ("pending_work", {"is_idle": True})):
        with queue.transaction():
            plan = queue.rows(f"EXPLAIN {bulk_runner.statement(name)}", parameters)
        text = "\n".join(line for (line,) in plan)
        assert "pgqueue_bulk_actions_open" in text, text
        assert "Seq Scan on pgqueue_bulk_actions" not in text, text


def test_why_jobs_were_left_alone_is_counted(queue, sql):
    held, free = bury(queue, 2)
    sql("UPDATE pgqueue_dead_jobs SET unique_key = 'k', unique_until = 'end' WHERE id = %s", held)
    sql("INSERT INTO pgqueue_jobs (task, unique_key, unique_until) VALUES ('x', 'k', 'end')")
    bulk_action_id = begin(RETRY, Filter(), by="ann")
    work(queue)
    bulk_action = ended(bulk_action_id)
    assert (bulk_action.outcome, bulk_action.skipped) == ({"retried": 1}, {"key_held": 1})
    assert Job.objects.filter(pk=free).exists()


def test_jobs_that_a_session_is_changing_are_left_alone_without_waiting(queue, other_queue):
    locked, free = bury(queue, 2)
    bulk_action_id = begin(RETRY, Filter(), by="ann")
    with other_queue.transaction():
        other_queue.rows("SELECT id FROM pgqueue_dead_jobs WHERE id = %(id)s FOR UPDATE", {"id": locked})
        work(queue)
    assert (ended(bulk_action_id).done, ended(bulk_action_id).skipped) == (1, {"changing": 1})
    assert Job.objects.filter(pk=free).exists()


def test_what_actions_announce_is_handed_over_after_the_commit(queue, sql):
    app.noop.using(delay=dt.timedelta(hours=1), queue="mail").enqueue_many([(), ()])
    app.noop.using(delay=dt.timedelta(hours=1), limit_key="k").enqueue()
    begin(RUN_NOW, Filter(), by="ann")
    assert carry_on(queue).announcements == {CHANNEL: {"mail", ADMIT + "k"}}
    sql("UPDATE pgqueue_jobs SET status = 'running', lease_token = 1, concurrency_slot = 1 WHERE queue = 'default'")
    begin(KILL, Filter(queues=("default",)), by="ann")
    assert carry_on(queue).announcements == {CHANNEL: {KILLS}}


# Rate


def test_slice_takes_no_more_than_the_rate_allows_in_a_second_and_the_next_waits(queue):
    bury(queue, 25)
    bulk_action_id = begin(RETRY, Filter(), by="ann", rate=10)
    assert carry_on(queue).done == 10
    bulk_action = BulkAction.objects.get(pk=bulk_action_id)
    assert bulk_action.next_at - bulk_action.started_at == dt.timedelta(seconds=1)
    BulkAction.objects.update(next_at=timezone.now() + dt.timedelta(hours=1))  # that second may be over by now
    assert carry_on(queue).bulk_action_id is None
    assert 0 < pending_work(queue).bulk_action_seconds <= 3600
    BulkAction.objects.update(next_at=timezone.now())
    assert carry_on(queue).done == 10
    BulkAction.objects.update(next_at=timezone.now())
    assert carry_on(queue).done == 5
    assert ended(bulk_action_id).done == 25


def test_rate_below_one_takes_a_job_and_then_longer_than_a_second(queue):
    bury(queue, 2)
    bulk_action_id = begin(RETRY, Filter(), by="ann", rate=0.25)
    assert carry_on(queue).done == 1
    bulk_action = BulkAction.objects.get(pk=bulk_action_id)
    assert bulk_action.next_at - bulk_action.started_at == dt.timedelta(seconds=4)


def test_jobs_that_are_left_alone_take_nothing_from_the_rate(queue, sql):
    bury(queue, 20)
    sql("UPDATE pgqueue_dead_jobs SET unique_key = 'k' || id, unique_until = 'end'")
    sql(
        "INSERT INTO pgqueue_jobs (task, unique_key, unique_until) "
        "SELECT 'x', unique_key, 'end' FROM pgqueue_dead_jobs ORDER BY id LIMIT 10"
    )
    begin(RETRY, Filter(), by="ann", rate=10)
    assert [carry_on(queue).done for _ in range(2)] == [0, 10]


# No circles


def test_job_that_was_retried_and_died_again_is_not_retried_again(queue):
    ids = bury(queue, 30)
    bulk_action_id = begin(RETRY, Filter(), by="ann")
    for _ in range(100):
        if carry_on(queue, limit=10).bulk_action_id is None:
            break
        again = list(Job.objects.values_list("pk", flat=True))
        dead_letter(queue, [DeadLetter(job_id, 0, DeathReason.EXHAUSTED, {"error": "Again"}) for job_id in again])
    assert ended(bulk_action_id).done == 30
    assert sorted(DeadJob.objects.values_list("pk", flat=True)) == ids


def test_what_came_after_the_bulk_action_was_asked_for_is_left_out(queue):
    alive = enqueued_ids(app.noop, [()] * 5)  # their ids are lower than those of the dead
    dead = bury(queue, 5)
    begin(PURGE, Filter(), by="ann")
    dead_letter(queue, [DeadLetter(job_id, 0, DeathReason.EXHAUSTED, {"error": "Late"}) for job_id in alive])
    bury(queue, 5)
    work(queue)
    left = sorted(DeadJob.objects.values_list("pk", flat=True))
    assert left[:5] == alive
    assert not set(left) & set(dead)
    assert len(left) == 10


def test_jobs_enqueued_while_it_runs_are_left_out(queue):
    app.noop.enqueue_many([()] * 20)
    bulk_action_id = begin(MOVE, Filter(), by="ann", params={"queue": "bulk"})
    while carry_on(queue, limit=5).bulk_action_id is not None:
        app.noop.enqueue_many([()] * 20)
    assert ended(bulk_action_id).done == Job.objects.filter(queue="bulk").count() == 20


def test_age_counts_from_when_the_bulk_action_was_asked_for(queue, sql):
    old, young = bury(queue, 2)
    sql("UPDATE pgqueue_dead_jobs SET died_at = now() - interval '61 minutes' WHERE id = %s", old)
    sql("UPDATE pgqueue_dead_jobs SET died_at = now() - interval '59 minutes' WHERE id = %s", young)
    begin(PURGE, Filter(older_than_seconds=3600), by="ann")
    BulkAction.objects.update(created_at=timezone.now() - dt.timedelta(minutes=1, seconds=30))
    work(queue)
    assert set(DeadJob.objects.values_list("pk", flat=True)) == {old, young}
    begin(PURGE, Filter(older_than_seconds=3600), by="ann")
    work(queue)
    assert set(DeadJob.objects.values_list("pk", flat=True)) == {young}


# Several at once


def test_bulk_action_that_a_worker_is_at_is_left_to_it(queue, other_queue):
    bury(queue, 3)
    bulk_action_id = begin(RETRY, Filter(), by="ann")
    with other_queue.transaction():
        other_queue.rows("SELECT id FROM pgqueue_bulk_actions FOR UPDATE", {})
        assert carry_on(queue).bulk_action_id is None
    assert carry_on(queue).bulk_action_id == bulk_action_id


def test_two_workers_share_a_bulk_action_and_do_each_job_once(queue, other_queue):
    ids = bury(queue, 3000)
    bulk_action_id = begin(RETRY, Filter(), by="ann")

    def help_out():
        eventually(
            lambda: carry_on(other_queue, limit=50).bulk_action_id is None and not open_bulk_actions(other_queue)
        )

    with beside(help_out):
        eventually(lambda: carry_on(queue, limit=70).bulk_action_id is None and not open_bulk_actions(queue))
    assert ended(bulk_action_id).outcome == {"retried": 3000}
    assert sorted(Job.objects.values_list("pk", flat=True)) == ids
    assert {len(errors) for errors in Job.objects.values_list("errors", flat=True)} == {2}


def open_bulk_actions(database: QueueConnection) -> bool:
    return bool(database.rows("SELECT id FROM pgqueue_bulk_actions WHERE ended_at IS NULL", {}))


def test_bulk_actions_take_turns(queue):
    bury(queue, 4)
    app.noop.enqueue_many([()] * 4)
    one, two = begin(PURGE, Filter(), by="ann"), begin(MOVE, Filter(), by="bob", params={"queue": "bulk"})
    order = [carry_on(queue, limit=2).bulk_action_id for _ in range(4)]
    assert order[0] != order[1]
    assert set(order) == {one, two}
    assert order == order[:2] * 2


# A worker that dies


class Death(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("line", range(40))
def test_worker_may_die_between_any_two_statements(queue, monkeypatch, line):
    """Whatever was reached, each job is retried once and the counts agree."""
    ids = bury(queue, 30)
    bulk_action_id = begin(RETRY, Filter(), by="ann")
    dying = QueueConnection("default", "dying")
    session = dying.autocommit().info.backend_pid
    statements = iter(range(line))
    rows = dying.rows

    def run(text, parameters):
        if next(statements, None) is None:
            raise Death
        return rows(text, parameters)

    monkeypatch.setattr(dying, "rows", run)
    try:
        while carry_on(dying, limit=10).bulk_action_id is not None:
            pass
    except Death:
        pass
    dying.close()
    until_gone(queue, session)
    bulk_action = BulkAction.objects.get(pk=bulk_action_id)
    assert bulk_action.done == Job.objects.count() == 30 - DeadJob.objects.count()
    work(queue, limit=10)
    assert ended(bulk_action_id).outcome == {"retried": 30}
    assert sorted(Job.objects.values_list("pk", flat=True)) == ids
    assert {len(errors) for errors in Job.objects.values_list("errors", flat=True)} == {2}


# Trouble


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"action": "drop"}, "no action 'drop' for 'dead' jobs"),
        ({"source": "live"}, "no action 'retry' for 'live' jobs"),
        ({"filter": {"colour": "red"}}, "unknown: colour"),
        ({"filter": ["mail"]}, "no object"),
        ({"filter": {"queues": [{"a": 1}]}}, "filter"),
        ({"filter": {"older_than_seconds": "long"}}, "older_than_seconds"),
        ({"action": "move", "source": "live"}, "queue is a name"),
        ({"action": "set_priority", "source": "live", "params": {"priority": 500}}, "priority is a whole number"),
    ],
)
def test_bulk_action_that_can_never_be_done_ends_and_says_why(queue, wrong, error):
    bury(queue, 2)
    bulk_action_id = begin(RETRY, Filter(), by="ann")
    BulkAction.objects.filter(pk=bulk_action_id).update(**wrong)
    bulk_action = worked_off(queue, bulk_action_id)
    assert bulk_action.done == 0
    assert bulk_action.last_error
    if error not in {"filter", "older_than_seconds"}:
        assert error in bulk_action.last_error
    assert DeadJob.objects.count() == 2


def test_filter_that_the_database_cannot_read_ends_its_bulk_action_and_holds_up_no_other(queue):
    bury(queue, 2)
    wrong, other = begin(PURGE_SUCCEEDED, Filter(), by="ann"), begin(PURGE, Filter(), by="ann")
    BulkAction.objects.filter(pk=wrong).update(filter={"day": "some day"})
    assert 'invalid input syntax for type date: "some day"' in worked_off(queue, wrong).last_error
    assert worked_off(queue, other).done == 2


def test_receiver_that_leaves_does_not_keep_jobs_from_being_retried(queue):
    def leave(**_):
        raise SystemExit("a broken receiver")

    bury(queue, 2)
    bulk_action_id = begin(RETRY, Filter(), by="ann")
    job_retried.connect(leave)
    try:
        work(queue)
    finally:
        job_retried.disconnect(leave)
    assert ended(bulk_action_id).done == 2


def test_job_that_the_database_refuses_is_left_alone_and_the_others_are_done(queue, sql):
    ids = bury(queue, 40)
    sql("""UPDATE pgqueue_dead_jobs SET errors = '{"error": "no list"}' WHERE id = %s""", ids[17])
    bulk_action_id = begin(RETRY, Filter(), by="ann")
    work(queue)
    bulk_action = ended(bulk_action_id)
    assert (bulk_action.outcome, bulk_action.skipped) == ({"retried": 39}, {"refused": 1})
    assert bulk_action.last_error.startswith(f"Job {ids[17]}: DataError")
    assert [job.pk for job in DeadJob.objects.all()] == [ids[17]]


def test_key_that_another_transaction_is_just_taking_is_not_waited_for(queue, other_queue, sql):
    held, free = bury(queue, 2)
    sql("UPDATE pgqueue_dead_jobs SET unique_key = 'k', unique_until = 'end' WHERE id = %s", held)
    bulk_action_id = begin(RETRY, Filter(), by="ann")
    insert = "INSERT INTO pgqueue_jobs (task, unique_key, unique_until) VALUES ('x', 'k', 'end') RETURNING id"
    with other_queue.transaction():
        other_queue.rows(insert, {})
        work(queue)
    bulk_action = ended(bulk_action_id)
    assert (bulk_action.outcome, bulk_action.skipped) == ({"retried": 1}, {"changing": 1})
    assert DeadJob.objects.get().pk == held
    assert Job.objects.filter(pk=free).exists()


def test_transient_trouble_changes_nothing_and_is_told(queue, monkeypatch):
    bury(queue, 3)
    bulk_action_id = begin(RETRY, Filter(), by="ann")

    def fail(*_):
        raise OperationalError("the server is away")

    with monkeypatch.context() as patch:
        patch.setattr(bulk_runner, "_write", fail)
        with pytest.raises(OperationalError, match="the server is away"):
            carry_on(queue)
    assert (Job.objects.count(), BulkAction.objects.get().started_at) == (0, None)
    assert worked_off(queue, bulk_action_id).done == 3


def test_signals_of_a_slice_that_is_rolled_back_are_not_sent(queue, monkeypatch):
    ids = enqueued_ids(app.noop, [()] * 3)
    bulk_action_id = begin(KILL, Filter(), by="ann")
    killed, later = [], []
    receive = lambda ids, **_: killed.extend(ids)  # noqa: E731
    write = bulk_runner._write

    def fail_at_the_second(*given):
        if DeadJob.objects.exists():
            raise OperationalError("the server is away")
        write(*given)

    job_killed.connect(receive)
    try:
        with monkeypatch.context() as patch, sent_elsewhere(later.append):
            patch.setattr(bulk_runner, "_write", fail_at_the_second)
            carry_on(queue, limit=1)
            with pytest.raises(OperationalError, match="the server is away"):
                carry_on(queue, limit=2)
        for send in later:
            send()
        assert killed == ids[:1] == list(DeadJob.objects.values_list("pk", flat=True))
        assert worked_off(queue, bulk_action_id).done == 3
        assert killed == ids
    finally:
        job_killed.disconnect(receive)


# Pending and pruning


def test_open_bulk_actions_are_found_among_pending_work(queue):
    assert pending_work(queue).bulk_action_seconds is None
    bulk_action_id = begin(RETRY, Filter(), by="ann")
    assert pending_work(queue).bulk_action_seconds <= 0
    stop([bulk_action_id], by="bob")
    assert pending_work(queue).bulk_action_seconds is None


def test_bulk_actions_that_ended_a_month_ago_are_forgotten(queue):
    old, young, is_open = (begin(RETRY, Filter(), by="ann") for _ in range(3))
    BulkAction.objects.update(created_at=timezone.now() - dt.timedelta(days=99))
    for bulk_action_id, days in ((old, 31), (young, 29)):
        BulkAction.objects.filter(pk=bulk_action_id).update(ended_at=timezone.now() - dt.timedelta(days=days))
    assert pruner.look(queue, dead_days=None, stats_days=7).bulk_actions
    assert pruner.delete_slice(queue, "prune_bulk_actions", days=pruner.BULK_ACTION_DAYS, limit=1000) == 1
    assert not pruner.look(queue, dead_days=None, stats_days=7).bulk_actions
    assert set(BulkAction.objects.values_list("pk", flat=True)) == {young, is_open}


def test_claimed_jobs_are_asked_to_stop(queue):
    job_id = app.noop.enqueue().id
    claim(queue, "default", limit=1, worker_id=1)
    bulk_action_id = begin(KILL, Filter(), by="ann")
    work(queue)
    assert ended(bulk_action_id).outcome == {"asked": 1}
    assert Job.objects.get(pk=job_id).killed_by == "ann"
