"""Stages that crashes leave open are closed, late workflows fail, ended ones are pruned."""

import contextlib
from collections import Counter
from collections.abc import Iterator

import pytest
from django.db import OperationalError, transaction

from django_pgqueue import batch, chain, group, task, workflow
from django_pgqueue.db.connections import QueueConnection, fence
from django_pgqueue.db.queries import statement
from django_pgqueue.jobs import ack
from django_pgqueue.jobs.claim import claim
from django_pgqueue.maintenance import stages
from django_pgqueue.maintenance.pruner import Pruner, delete_slice
from django_pgqueue.maintenance.stages import fail_late, move_slices, sweep_stages
from django_pgqueue.models import DeadJob, Job, KeptCall, Stage, StageAddition, StageEdge, StageResult, Workflow
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.states import DeathReason, WorkflowStatus
from django_pgqueue.testing import run_jobs
from django_pgqueue.workflows import advance, members
from django_pgqueue.workflows.handle import WorkflowHandle
from django_pgqueue.workflows.members import MOST_ENDED
from tests.app.tasks import noop
from tests.support.passes import run_service
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)


def end(queue, fate=Fate.SUCCEEDED, *, number=1, **details) -> None:
    """Write outcomes, and die before the look behind them."""
    jobs = claim(queue, "default", limit=number, worker_id=1)
    ack.write(queue, [Outcome(job, fate, **details) for job in jobs])


def die(queue) -> None:
    end(queue, Fate.DIED, reason=DeathReason.EXHAUSTED, error={"kind": "failed", "error": "ValueError"})


def test_sweep_closes_what_a_crash_has_left(queue):
    handle = chain(noop.bind(), noop.using(queue="mails").bind(), noop.bind()).enqueue()
    end(queue)
    assert handle.state().stages[1].status == "blocked"
    swept = sweep_stages(queue)
    assert (len(swept.found), swept.last, swept.opened.queues) == (1, 0, {"mails"})
    assert [stage.status for stage in handle.state().stages] == ["ended", "open", "blocked"]
    assert sweep_stages(queue).found == ()


def test_members_that_are_ended_like_plain_jobs_hang_no_workflow(queue):
    """As by a worker that knows no workflows: results are not collected, and all else goes on."""
    handle = batch([noop.bind(), noop.bind()], then=noop.bind(), collect=True).enqueue()
    jobs = claim(queue, "default", limit=2, worker_id=1)
    assert len(queue.rows(statement("finish"), fence(jobs))) == 2
    assert handle.state().stage("then").status == "blocked"
    assert sweep_stages(queue).opened.queues == {"default"}
    assert handle.state().stage("then").status == "open"
    assert list(handle.results("members")) == []


def test_sweep_reports_deaths_of_crashed_workers(queue):
    batch([noop.bind(), noop.bind()], died=noop.bind()).enqueue()
    die(queue)
    assert len(sweep_stages(queue).found) == 1
    assert Stage.objects.get(name="died").status == "open"
    assert sweep_stages(queue).found == ()


def test_sweep_passes_over_what_waits(queue):
    group([noop.bind()]).enqueue()
    die(queue)
    batch([], sealed=False).enqueue()
    chain(noop.bind(), noop.bind()).enqueue()
    assert sweep_stages(queue).found == ()


def test_sweep_goes_on_behind_the_last_of_a_thousand(queue):
    with workflow("wide") as flow:
        for number in range(1005):
            flow.add_many([], name=f"stage {number}", sealed=False)
    Stage.objects.filter(name__in=["stage 0", "stage 1004"]).update(is_sealed=True)
    swept = sweep_stages(queue)
    assert (len(swept.found), swept.last) == (1, Stage.objects.get(name="stage 999").id)
    assert len(sweep_stages(queue, after=swept.last).found) == 1


def test_maintenance_sweeps_moves_and_fails(queue, maintenance_runner, sql):
    first = chain(noop.bind(), noop.bind()).enqueue()
    end(queue)
    late = chain(noop.using(queue="late").bind(), noop.bind(), deadline=3600).enqueue()
    sql("UPDATE pgqueue_workflows SET deadline_at = statement_timestamp() WHERE id = %s", late.id)
    runner = maintenance_runner()
    runner.services.pass_once()
    run_service(runner.services, "read_pending")
    run_service(runner.services, "move_members")
    assert first.state().stages[0].status == "ended"
    assert late.status() == "failed"
    assert list(DeadJob.objects.values_list("reason", "queue")) == [("killed", "late")]


def test_late_workflow_whose_lock_is_held_fails_the_next_time(queue, other_queue, sql):
    handle = group([noop.bind()], deadline=60).enqueue()
    assert fail_late(queue) == 0
    sql("UPDATE pgqueue_workflows SET deadline_at = statement_timestamp()")
    with other_queue.transaction():
        other_queue.rows(advance.statement("share_workflow"), {"workflow_id": handle.id})
        assert fail_late(queue) == 0
    assert fail_late(queue) == 1
    assert handle.state().status == "failed"


def test_large_stages_count_for_more(queue, sql):
    """By the members that they have, whether they were declared or added."""
    wide(260)
    end(queue)
    sql(
        "INSERT INTO pgqueue_jobs (task, queue, args, kwargs, status, max_attempts, lease_seconds, stage_id) "
        "SELECT task, queue, args, kwargs, status, max_attempts, lease_seconds, stage_id "
        "FROM pgqueue_jobs CROSS JOIN generate_series(1, 100) WHERE stage_id IS NOT NULL"
    )
    assert advance.advance(queue, advance.sweep(queue).stages).has_more
    assert statuses() == {"ended": 1, "open": 250, "blocked": 11}
    move_until_nothing_moves(queue)
    assert statuses() == {"ended": 1, "open": 260, "blocked": 1}


def test_many_members_of_a_killed_workflow_are_cleared_in_slices(queue, monkeypatch):
    monkeypatch.setattr(members, "MOST_SLICES", 1)
    handle = chain(noop.bind(), [noop.bind()] * 2500).enqueue()
    [running] = claim(queue, "default", limit=1, worker_id=1)
    assert handle.kill(by="anna")
    assert Job.objects.count() == 1501
    while moved := move_slices(queue).moved:
        assert moved <= 1001
    assert list(Job.objects.values_list("id", "killed_by")) == [(running.id, "anna")]


def wide(number: int):
    """Begin a workflow in which as many stages wait for one, and one for all of them."""
    with workflow("wide") as flow:
        first = flow.add(noop.bind(), name="first")
        middle = [flow.add(noop.bind(), after=first, name=f"s{one}") for one in range(number)]
        flow.add(noop.bind(), after=middle, name="last")
    return flow.handle


def statuses() -> dict[str, int]:
    return dict(Counter(Stage.objects.values_list("status", flat=True)))


def test_many_stages_behind_one_open_in_parts(queue):
    handle = wide(1200)
    end(queue)
    assert advance.advance(queue, advance.sweep(queue).stages).has_more
    assert statuses() == {"ended": 1, "open": 499, "blocked": 702}
    assert Job.objects.filter(status="queued").count() == 499
    assert [stage.status for stage in advance.moving_stages(queue)] == ["blocked"]
    assert advance.sweep(queue).stages == []
    assert move_slices(queue).moved >= 500
    assert statuses() == {"ended": 1, "open": 999, "blocked": 202}
    while move_slices(queue).moved:
        pass
    assert statuses() == {"ended": 1, "open": 1200, "blocked": 1}
    assert Job.objects.filter(status="queued").count() == 1200
    assert not Stage.objects.filter(moves_after__isnull=False).exists()
    assert handle.skip("s1199")


def test_stages_that_are_left_for_later_are_skipped_and_killed_like_others(queue):
    handle = wide(600)
    end(queue)
    sweep_stages(queue)
    assert handle.skip("s550")
    assert handle.kill(stage="s560")
    while move_slices(queue).moved:
        pass
    state = handle.state()
    assert [state.stage(name).status for name in ("s550", "s560", "last")] == ["skipped", "skipped", "skipped"]
    assert statuses() == {"ended": 1, "open": 598, "skipped": 3}
    assert Job.objects.filter(status="queued").count() == 598
    assert handle.kill()
    while move_slices(queue).moved:
        pass
    assert not Job.objects.exists()


def test_stages_that_are_left_for_later_wait_for_code_that_adds_members(queue, other_queue):
    handle = wide(600)
    end(queue)
    sweep_stages(queue)
    with other_queue.transaction():
        other_queue.rows(advance.statement("share_workflow"), {"workflow_id": handle.id})
        assert move_slices(queue).moved == 0
    assert move_slices(queue).moved >= 101
    assert statuses() == {"ended": 1, "open": 600, "blocked": 1}


def test_worker_that_is_killed_amid_many_stages_leaves_none_blocked(queue, start_worker):
    handle = wide(600)
    end(queue)
    sweep_stages(queue)
    start_worker()
    eventually(lambda: handle.status() == "succeeded")


def test_members_of_a_large_stage_that_is_killed_are_killed_in_slices(queue, monkeypatch):
    monkeypatch.setattr(members, "MOST_SLICES", 1)
    handle = batch([noop.bind()] * 2500, then=noop.bind(), ended=noop.bind()).enqueue()
    claim(queue, "default", limit=1, worker_id=1)
    assert handle.kill(stage="members", by="anna")
    assert Job.objects.count() == 1503
    while moved := move_slices(queue).moved:
        assert moved <= 1000
    [running, *behind] = Job.objects.order_by("id")
    assert (running.killed_by, [job.status for job in behind]) == ("anna", ["blocked", "blocked"])
    assert DeadJob.objects.filter(reason="killed", killed_by="anna").count() == 2499
    sweep_stages(queue)
    assert handle.state().stage("members").status == "open"


def test_stage_whose_killed_members_end_without_a_look_is_found_by_the_sweep(queue):
    handle = batch([noop.bind()] * 2, then=noop.bind(), ended=noop.bind()).enqueue()
    [job] = claim(queue, "default", limit=1, worker_id=1)
    assert handle.kill(stage="members")
    Job.objects.filter(pk=job.id).delete()  # as by a worker that dies between the outcome and the look
    sweep_stages(queue)
    state = handle.state()
    assert {stage.name: stage.status for stage in state.stages} == {
        "members": "ended",
        "then": "skipped",
        "ended": "open",
    }


def test_kills_of_maintenance_are_announced(queue):
    handle = group([noop.bind()]).enqueue()
    claim(queue, "default", limit=1, worker_id=1)
    with queue.transaction():
        assert advance.try_to_end(queue, handle.id, WorkflowStatus.KILLED, by="anna").ended == (handle.id,)
    assert move_slices(queue).announcements == {"pgqueue_jobs": {""}}


def test_many_stages_are_looked_at_in_parts(queue, monkeypatch):
    monkeypatch.setattr(stages, "AT_ONCE", 2)
    for _ in range(5):
        chain(noop.bind(), noop.bind()).enqueue()
    end(queue, number=5)
    assert len(sweep_stages(queue).found) == 5
    assert Stage.objects.filter(status="open").count() == 5


@pytest.fixture
def slow_stage(sql):
    """Let each statement fail that ends the stage with this id, as one that takes too long."""
    sql(
        "CREATE FUNCTION pgqueue_fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF NEW.status = 'ended' AND NEW.id = TG_ARGV[0]::bigint THEN "
        "RAISE EXCEPTION 'too slow' USING ERRCODE = '57014'; END IF; RETURN NEW; END $$"
    )
    yield lambda stage_id: sql(
        f"CREATE TRIGGER fail BEFORE UPDATE ON pgqueue_stages FOR EACH ROW EXECUTE FUNCTION pgqueue_fail({stage_id})"
    )
    sql("DROP FUNCTION pgqueue_fail CASCADE")


def test_stage_that_takes_too_long_keeps_no_other_one_open(queue, slow_stage):
    slow, *others = [group([noop.bind()]).enqueue() for _ in range(3)]
    end(queue, number=3)
    slow_stage(slow.state().stages[0].id)
    with pytest.raises(OperationalError, match="too slow"):
        sweep_stages(queue)
    assert [one.status() for one in (slow, *others)] == ["open", "succeeded", "succeeded"]


# Retention


def age(sql) -> None:
    sql("UPDATE pgqueue_workflows SET ended_at = ended_at - INTERVAL '100 days'")
    sql("UPDATE pgqueue_dead_jobs SET died_at = died_at - INTERVAL '1000 days'")


def test_dead_members_stay_as_long_as_their_workflow_is_open(queue, sql):
    handle = group([noop.bind()]).enqueue()
    die(queue)
    age(sql)
    assert delete_slice(queue, "prune_dead", limit=10, days=30) == 0
    assert handle.kill()
    assert delete_slice(queue, "prune_dead", limit=10, days=30) == 1


def test_workflows_are_pruned_behind_their_members(queue, sql, settings):
    settings.PGQUEUE = {**getattr(settings, "PGQUEUE", {}), "DEAD_RETENTION_DAYS": 200}
    open_one = chain(noop.using(queue="later").bind(), noop.bind()).enqueue()
    ended = batch([noop.bind(), noop.bind()], then=noop.bind(), collect=True, sealed=False, keep_calls=True).enqueue()
    ended.add(noop.bind(), stage="members")
    ended.seal("members")
    for number in (3, 1):
        end(queue, number=number)
        sweep_stages(queue)
    with_dead = group([noop.bind()]).enqueue()
    die(queue)
    assert with_dead.skip("members")
    assert (ended.status(), with_dead.status()) == ("succeeded", "succeeded")
    pruner = Pruner(queue)
    pruner.prune()
    assert Workflow.objects.count() == 3
    sql("UPDATE pgqueue_workflows SET ended_at = ended_at - INTERVAL '100 days'")
    pruner.prune()
    assert set(Workflow.objects.values_list("id", flat=True)) == {open_one.id, with_dead.id}
    assert Stage.objects.count() == 3
    assert StageEdge.objects.count() == 1
    assert not StageResult.objects.exists()
    assert not StageAddition.objects.exists()
    assert not KeptCall.objects.exists()
    age(sql)
    pruner.prune()
    pruner.prune()
    assert set(Workflow.objects.values_list("id", flat=True)) == {open_one.id}


@pytest.mark.parametrize("name", ["prune_kept_calls", "prune_stage_results"])
def test_rows_of_many_workflows_are_removed_in_bounded_slices(queue, sql, name):
    for _ in range(3):
        group([noop.bind(), noop.bind()], collect=True, keep_calls=True).enqueue()
    end(queue, number=6)
    sweep_stages(queue)
    sql("UPDATE pgqueue_workflows SET ended_at = ended_at - INTERVAL '100 days'")
    assert [delete_slice(queue, name, limit=4, days=30) for _ in range(3)] == [4, 2, 0]


@pytest.mark.parametrize("name", ["prune_kept_calls", "prune_stage_results"])
def test_nothing_is_removed_of_a_workflow_that_is_just_rerun(queue, sql, name):
    handle = group([noop.bind()], collect=True, keep_calls=True).enqueue()
    end(queue)
    sweep_stages(queue)
    sql("UPDATE pgqueue_workflows SET ended_at = ended_at - INTERVAL '100 days'")
    with transaction.atomic():
        assert handle.rerun("members") == 1
        assert delete_slice(queue, name, limit=10, days=30) == 0
    assert delete_slice(queue, name, limit=10, days=30) == 0


def test_child_that_has_failed_stays_as_long_as_its_parent_waits_for_it(queue, sql, settings):
    """Else the stage would go on as if it had succeeded, which was not decided."""
    settings.PGQUEUE = {**getattr(settings, "PGQUEUE", {}), "DEAD_RETENTION_DAYS": 30}
    parent = chain(begin_stopping_child.bind(), noop.bind()).enqueue()
    run_jobs(errors="collect")
    assert parent.state().is_stuck
    age(sql)
    for _ in range(2):
        Pruner(queue).prune()
        sweep_stages(queue)
    assert not DeadJob.objects.exists()
    assert parent.state().is_stuck
    assert parent.skip("begin_stopping_child")
    age(sql)
    Pruner(queue).prune()
    assert [*Workflow.objects.values_list("id", flat=True)] == [parent.id]


@task
def begin_stopping_child() -> None:
    group([fail.bind()], child=True, on_death="stop").enqueue()


@task(max_attempts=1)
def fail() -> None:
    raise ValueError


def test_worker_that_is_killed_between_outcome_and_look_leaves_nothing_open(queue, start_worker):
    handle = chain(noop.bind(), noop.bind(), noop.bind()).enqueue()
    end(queue)
    start_worker()
    eventually(lambda: handle.status() == "succeeded")


def test_late_workflow_ends_once_it_is_not_locked_and_so_do_its_children(queue, other_queue, sql):
    parent = group([noop.bind()], deadline=60).enqueue()
    child = group([noop.bind()]).enqueue()
    sql("UPDATE pgqueue_workflows SET deadline_at = statement_timestamp() WHERE id = %s", parent.id)
    sql("UPDATE pgqueue_workflows SET parent_stage_id = %s WHERE id = %s", parent.state().stages[0].id, child.id)
    with locked(other_queue, parent):
        assert fail_late(queue) == 0
    assert fail_late(queue) == 1
    with locked(other_queue, child):
        move_until_nothing_moves(queue)
    assert (parent.status(), child.status()) == ("failed", "open")
    move_until_nothing_moves(queue)
    assert child.status() == "killed"
    assert not Job.objects.exists()


def test_more_children_than_the_server_has_locks_for_are_ended(queue, sql):
    """Each that is ended is locked to the end of a transaction, and many would fill the server's table of locks."""
    parent = group([noop.bind()]).enqueue()
    stage = parent.state().stages[0].id
    children = MOST_ENDED * 3
    for _ in range(children):
        group([noop.bind()]).enqueue()
    sql("UPDATE pgqueue_workflows SET parent_stage_id = %s WHERE id <> %s", stage, parent.id)
    with transaction.atomic():
        assert parent.kill(by="anna")
        [(locks,)] = sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
        assert locks <= MOST_ENDED
    assert Workflow.objects.filter(status="killed", ended_by="anna").count() == MOST_ENDED
    move_until_nothing_moves(queue)
    assert Workflow.objects.filter(status="killed", ended_by="anna").count() == 1 + children
    assert not Job.objects.exists()


def move_until_nothing_moves(queue: QueueConnection) -> None:
    while move_slices(queue).moved:
        pass


@contextlib.contextmanager
def locked(queue: QueueConnection, handle: WorkflowHandle) -> Iterator[None]:
    with queue.transaction():
        queue.rows(advance.statement("share_workflow"), {"workflow_id": handle.id})
        yield
