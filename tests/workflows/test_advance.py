"""Stages close in the transaction of the outcome that ends them, and once, with any other session in between."""

import itertools
import math
import threading

import pytest
from django.db import connection, transaction

from django_pgqueue import Unique, batch, chain, group, workflow
from django_pgqueue.db.connections import CallerConnection, QueueConnection
from django_pgqueue.db.notify import MAINTAIN, Notification
from django_pgqueue.db.queries import statement
from django_pgqueue.jobs import ack
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import Job, Stage, StageResult, SucceededJob, Workflow
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.states import DeathReason
from django_pgqueue.workflows.advance import TRIES, Advanced, StageRequests, advance
from tests.app.tasks import noop
from tests.support.consumers import accepted, cycle
from tests.support.slots import ended
from tests.support.waiting import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _slots_end():
    with ended():
        yield


def statuses() -> dict[str, str]:
    return {stage.name: stage.status for stage in Stage.objects.order_by("id")}


def members_of(new) -> list[Job]:
    new.enqueue()
    return list(Job.objects.order_by("id"))


def die(consumer) -> None:
    consumer.slots.finish(Fate.DIED, reason=DeathReason.EXHAUSTED, error={"kind": "failed", "error": "ValueError"})


def test_next_of_a_chain_is_claimed_in_the_transaction_of_the_outcome_before(consumer):
    first, second = (job.id for job in members_of(chain(noop.bind(), noop.bind())))
    cycle(consumer)
    assert accepted(consumer) == [first]
    consumer.slots.finish()
    cycle(consumer)
    assert accepted(consumer) == [second]
    consumer.slots.finish()
    cycle(consumer)
    assert Workflow.objects.get().status == "succeeded"
    assert consumer._stages.wait_until() == math.inf


def test_claim_says_what_members_are(consumer):
    with workflow("w") as flow:
        flow.add(noop.bind(), name="plain")
        flow.add(noop.bind(), name="collects", collect=True)
    noop.enqueue()
    cycle(consumer)
    jobs = [job for _, job in consumer.slots.accepted]
    assert [job.flags & 12 for job in jobs] == [4, 12, 0]
    assert [job.stage_id for job in jobs] == [*Stage.objects.order_by("id").values_list("id", flat=True), None]


def test_results_are_collected_also_where_nothing_is_kept(consumer, settings):
    settings.PGQUEUE = {**getattr(settings, "PGQUEUE", {}), "RETENTION_DAYS": 0}
    group([noop.bind(), noop.using(keep_result=False).bind()], collect=True).enqueue()
    cycle(consumer)
    for result in ("1", '{"a": 2}'):
        consumer.slots.finish(result=result)
    cycle(consumer)
    assert list(StageResult.objects.order_by("job_id").values_list("result", flat=True)) == [1, {"a": 2}]
    assert not SucceededJob.objects.exists()


def test_member_that_holds_its_key_after_success_is_no_member_any_more(consumer):
    chain(noop.using(unique=Unique(hold=600)).bind(), noop.bind()).enqueue()
    cycle(consumer)
    consumer.slots.finish()
    cycle(consumer)
    assert statuses() == {"noop": "ended", "noop 2": "open"}
    assert list(Job.objects.filter(status="reserved").values_list("stage_id", flat=True)) == [None]


@pytest.mark.parametrize(
    ("rule", "expected", "at_last"),
    [
        ("wait", {"members": "open", "then": "blocked", "ended": "blocked", "died": "open"}, "open"),
        ("stop", {"members": "ended", "then": "skipped", "ended": "open", "died": "open"}, "failed"),
        ("go_on", {"members": "ended", "then": "open", "ended": "open", "died": "open"}, "succeeded"),
    ],
)
def test_rule_of_a_death(consumer, rule, expected, at_last):
    calls = {"then": noop.bind(), "ended": noop.bind(), "died": noop.bind()}
    handle = batch([noop.bind(), noop.bind()], **calls, on_death=rule).enqueue()
    cycle(consumer)
    die(consumer)
    consumer.slots.finish()
    cycle(consumer)
    assert statuses() == expected
    assert handle.status() == "open"
    while consumer.slots.accepted:
        consumer.slots.finish()
        cycle(consumer)
    assert handle.status() == at_last


def test_alarm_rings_while_others_of_the_stage_run(consumer):
    batch([noop.bind(), noop.bind()], died=noop.bind()).enqueue()
    cycle(consumer)
    die(consumer)
    cycle(consumer)
    assert statuses() == {"members": "open", "died": "open"}


def test_workflow_goes_on_by_itself_when_the_dead_member_is_retried(consumer):
    handle = chain(noop.bind(), noop.bind()).enqueue()
    cycle(consumer)
    die(consumer)
    cycle(consumer)
    assert handle.state().is_stuck
    assert handle.retry(by="anna") == 1
    for _ in range(2):
        cycle(consumer)
        consumer.slots.finish()
    cycle(consumer)
    assert handle.status() == "succeeded"


def test_member_that_is_tried_again_keeps_its_stage_open(consumer):
    chain(noop.bind(), noop.bind()).enqueue()
    cycle(consumer)
    consumer.slots.finish(Fate.RETRIED, delay_seconds=0.0, error={"kind": "failed"})
    cycle(consumer)
    assert statuses() == {"noop": "open", "noop 2": "blocked"}


def test_job_that_repeats_stays_a_member(consumer):
    chain(noop.bind(), noop.bind()).enqueue()
    cycle(consumer)
    consumer.slots.finish(Fate.REPEATED)
    cycle(consumer)
    assert statuses() == {"noop": "open", "noop 2": "blocked"}
    assert Job.objects.exclude(status="blocked").get().stage_id == Stage.objects.earliest("id").id


def test_member_that_has_ended_in_its_own_transaction_owes_its_stage_a_look(consumer):
    handle = chain(noop.bind(), noop.bind()).enqueue()
    cycle(consumer)
    _, job = consumer.slots.accepted[0]
    with transaction.atomic():
        assert ack.finish_alone(CallerConnection(), Outcome(job, Fate.SUCCEEDED))
    assert statuses() == {"noop": "open", "noop 2": "blocked"}
    consumer.slots.finish(Fate.RECORDED)
    cycle(consumer)
    assert handle.state().stage("noop 2").status == "open"


def test_thousands_of_members_are_opened_slice_by_slice(consumer, maintenance_runner):
    chain(noop.bind(), [noop.bind()] * 2500).enqueue()
    cycle(consumer)
    consumer.slots.finish()
    cycle(consumer)
    assert Job.objects.filter(status="blocked").count() == 1500
    runner = maintenance_runner()
    while Job.objects.filter(status="blocked").exists():
        runner.services.pass_once()
    assert not Stage.objects.filter(moves_after__isnull=False).exists()


@pytest.mark.parametrize(("members", "announced"), [(1000, [("pgqueue_control", MAINTAIN)]), (999, [])])
def test_maintenance_is_told_of_members_behind_the_first_thousand(consumer, other_queue, members, announced):
    """Else they would wait for its next pass, a second."""
    chain(noop.bind(), [noop.bind()] * members).enqueue()
    listening, heard = other_queue.autocommit(), []
    listening.add_notify_handler(lambda one: heard.append((one.channel, one.payload)))
    listening.execute("LISTEN pgqueue_control")
    cycle(consumer)
    consumer.slots.finish()
    cycle(consumer)
    listening.execute("SELECT pg_notify('pgqueue_control', 'so far')")
    eventually(lambda: listening.execute("SELECT 1") and heard[-1:] == [("pgqueue_control", "so far")])
    assert heard[:-1] == announced


def test_maintenance_is_told_after_the_commit_of_a_caller(django_capture_on_commit_callbacks):
    with transaction.atomic(), django_capture_on_commit_callbacks() as hooks, workflow("large") as new:
        new.add_many([noop.bind()] * 1000, after=new.add_many([]))
    assert Notification("default", (MAINTAIN,)) in hooks


def test_locked_members_are_opened_by_the_next_slice(consumer, other_queue, maintenance_runner):
    _, second, _ = (job.id for job in members_of(chain(noop.bind(), [noop.bind(), noop.bind()])))
    cycle(consumer)
    with other_queue.transaction():
        other_queue.rows("SELECT FROM pgqueue_jobs WHERE id = %(id)s FOR UPDATE", {"id": second})
        consumer.slots.finish()
        cycle(consumer)
    assert set(Job.objects.filter(status="blocked").values_list("id", flat=True)) == {second}
    maintenance_runner().services.pass_once()
    assert not Job.objects.filter(status="blocked").exists()


# Two that write the last outcomes at once


class Closer:
    """A worker that writes the outcome of one member, one statement after the other."""

    def __init__(self, job, number: int) -> None:
        self.database = QueueConnection("default", f"closer {number}")
        self._requests = StageRequests()
        self._job = job
        self._number = number

    def steps(self):
        """Write the outcome and look; yield where another session may come in between."""
        outcome = Outcome(self._job, Fate.SUCCEEDED)
        self._requests.request([(self._job.stage_id, False)])
        with self.database.transaction():
            ack.receipt(self.database, [outcome], ack.send(self.database, [outcome]))
            yield
            pending = self._look()
            yield
        self._requests.record(pending)
        yield
        while pending:
            self._requests._again_at = 0.0
            with self.database.transaction():
                pending = self._look()
                yield
            if pending:
                self._requests.record(pending)
            yield

    def _look(self):
        pending = self._requests.send(self.database, worker_id=self._number)
        return pending and pending._replace(answer=Answered(pending.answer.fetchall()))


class Answered(list):
    def fetchall(self):
        return self


ORDERS = sorted(set(itertools.permutations("aaaabbbb")))


@pytest.mark.parametrize("part", range(5))
def test_last_two_outcomes_close_the_stage_once_in_whatever_order_they_come(queue, part):
    for order in ORDERS[part::5]:
        handle = chain([noop.bind(), noop.bind()], noop.bind()).enqueue()
        [first] = claim(queue, "default", limit=1, worker_id=1)
        [second] = claim(queue, "default", limit=1, worker_id=2)
        closers = {"a": Closer(first, 1), "b": Closer(second, 2)}
        steps = {name: closer.steps() for name, closer in closers.items()}
        for name in order:
            next(steps[name], None)
        for left in steps.values():
            for _ in left:
                pass
        for closer in closers.values():
            closer.database.close()
        assert [stage.status for stage in handle.state().stages] == ["ended", "open"], order
        assert handle.kill()


def test_stage_of_a_locked_workflow_is_tried_again_and_then_left_to_the_sweep(queue, other_queue, maintenance_runner):
    handle = group([noop.bind()]).enqueue()
    [job] = claim(queue, "default", limit=1, worker_id=1)
    ack.write(queue, [Outcome(job, Fate.SUCCEEDED)])
    with other_queue.transaction():
        other_queue.rows(statement("share_workflow"), {"workflow_id": handle.id})
        assert looks(queue, job.stage_id) == TRIES
    assert handle.status() == "open"
    maintenance_runner().services.pass_once()
    assert handle.status() == "succeeded"


def looks(queue, stage_id) -> int:
    """Return how often a worker looks at a stage."""
    requests, number = StageRequests(), 0
    requests.request([(stage_id, False)])
    while requests.wait_until() < math.inf:
        requests._again_at = 0.0
        with queue.transaction():
            pending = requests.send(queue, worker_id=1)
        requests.record(pending)
        number += 1
    return number


def test_stage_whose_member_runs_elsewhere_is_looked_at_once_more_only(queue):
    group([noop.bind(), noop.bind()]).enqueue()
    [job] = claim(queue, "default", limit=1, worker_id=1)
    claim(queue, "default", limit=1, worker_id=2)
    ack.write(queue, [Outcome(job, Fate.SUCCEEDED)])
    assert looks(queue, job.stage_id) == 2


def test_member_that_waits_or_runs_here_needs_no_other_look(queue):
    group([noop.bind(), noop.bind(), noop.bind()]).enqueue()
    first, _ = claim(queue, "default", limit=2, worker_id=1)
    assert advance(queue, [first.stage_id], worker_id=1) == Advanced()
    claim(queue, "default", limit=1, worker_id=1)
    assert advance(queue, [first.stage_id], worker_id=1) == Advanced()


def test_callers_that_add_do_not_wait_for_each_other_and_no_stage_closes_under_them(queue):
    handle = batch([noop.bind()], then=noop.bind(), sealed=False).enqueue()
    [job] = claim(queue, "default", limit=1, worker_id=1)
    with transaction.atomic():
        handle.add(noop.bind(), stage="members")
        other = threading.Thread(target=add_and_seal, args=(handle,))
        other.start()
        other.join(PATIENCE_SECONDS)
        assert not other.is_alive()
        [second] = claim(queue, "default", limit=1, worker_id=1)
        ack.write(queue, [Outcome(job, Fate.SUCCEEDED), Outcome(second, Fate.SUCCEEDED)])
        assert advance(queue, [job.stage_id]).locked == {job.stage_id}
    assert advance(queue, [job.stage_id]) == Advanced()
    assert handle.state().stage("members").live == 1


def add_and_seal(handle) -> None:
    try:
        handle.add(noop.bind(), stage="members")
        handle.seal("members")
    finally:
        connection.close()


# Members that die, or are retried, between two statements


def wait_for_lock(queue) -> None:
    """Wait until a session waits for the lock of a table."""
    waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'relation' AND NOT granted)"
    eventually(lambda: queue.rows(waiting, {}) == [(True,)])


def test_member_that_is_retried_while_its_stage_is_looked_at_keeps_it_open(queue, other_queue):
    handle = chain([noop.bind(), noop.bind()], noop.bind()).enqueue()
    first, second = claim(queue, "default", limit=2, worker_id=1)
    died = Outcome(first, Fate.DIED, reason=DeathReason.EXHAUSTED, error={"kind": "failed", "error": "ValueError"})
    ack.write(queue, [died, Outcome(second, Fate.SUCCEEDED)])
    found: list[Advanced] = []
    closer = threading.Thread(target=lambda: found.append(advance(other_queue, [first.stage_id])))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("LOCK TABLE pgqueue_dead_jobs")  # the look comes to it with nothing alive seen so far
        closer.start()
        wait_for_lock(queue)
        cursor.execute(
            "WITH gone AS (DELETE FROM pgqueue_dead_jobs RETURNING *) INSERT INTO pgqueue_jobs (id, task, stage_id)"
            " SELECT gone.id, gone.task, gone.stage_id FROM gone"
        )
    closer.join()
    assert found == [Advanced()]
    assert [stage.status for stage in handle.state().stages] == ["open", "blocked"]


def test_death_that_was_not_written_rings_no_alarm(queue):
    batch([noop.bind()], died=noop.bind()).enqueue()
    [job] = claim(queue, "default", limit=1, worker_id=1)
    assert advance(queue, [job.stage_id], [job.stage_id], worker_id=1) == Advanced()
    assert Stage.objects.get(name="died").status == "blocked"
