"""While slots of keys move between two databases, a key counts as it does on one.

Hypothesis makes the stories up. Two processes enqueue, each by the settings that it was deployed with, so that one
may have old ones; workers claim on both databases and end jobs; staff retry dead ones; and slots move, in the two
steps of docs/how-to/several-databases.md.
"""

import contextlib
from typing import Any

import pytest
from django.test import override_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import tests.app.tasks as app
from django_pgqueue import Limit, Unique
from django_pgqueue.conf import SLOTS, conf
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.exceptions import ShardUnavailable
from django_pgqueue.flow import concurrency
from django_pgqueue.jobs import ack, claim, dead_letter
from django_pgqueue.jobs.routing import slot_of
from django_pgqueue.models import DeadJob, Job
from django_pgqueue.records import ClaimedJob, Fate, Outcome
from django_pgqueue.states import DeathReason, Status

HERE, THERE = "default", "other"
PRODUCERS = ("web", "cron")
LABELS = ("a", "b", "c", "d")
KINDS = {
    "unique": app.record.using(queue="spread", unique=Unique("label")),
    "limited": app.record.using(queue="spread", limit=Limit("label")),
    "both": app.record_atomic.using(queue="spread", unique=Unique("label"), limit=Limit("label"), shard_by="label"),
}
RANGES = {"lower half": range(SLOTS // 2), "upper half": range(SLOTS // 2, SLOTS), "all": range(SLOTS)}

Slots = dict[str, frozenset[int]]  # by alias


def settings_with(slots: Slots) -> dict[str, Any]:
    shards = {
        alias: {"number": number, "queues": ["spread"], "slots": sorted(slots[alias])}
        for number, alias in enumerate((HERE, THERE))
    }
    return {"NOTIFY": False, "SHARDS": shards}


class MovingSlots(RuleBasedStateMachine):
    """``deployed`` has the number of settings that each process has; the last ones are those to be deployed next."""

    def __init__(self):
        super().__init__()
        for alias in (HERE, THERE):
            for model in (Job, DeadJob):
                model.objects.using(alias).all().delete()
        self.maps: list[Slots] = [{HERE: frozenset(range(SLOTS)), THERE: frozenset()}]
        self.deployed = dict.fromkeys(PRODUCERS, 0)
        self.moving: tuple[str, frozenset[int]] | None = None  # from where, and which
        self.running: list[ClaimedJob] = []
        self.cleanup = contextlib.ExitStack()
        self.cleanup.enter_context(override_settings(PGQUEUE=settings_with(self.maps[0])))
        self.workers = {
            alias: self.cleanup.enter_context(contextlib.closing(QueueConnection(alias, "worker")))
            for alias in (HERE, THERE)
        }

    def teardown(self):
        self.cleanup.close()

    # Deployments

    @initialize(slots=st.sampled_from(["lower half", "upper half", "all"]))
    def begin(self, slots):
        mine = frozenset(RANGES[slots])
        self.maps = [{HERE: mine, THERE: frozenset(range(SLOTS)) - mine}]

    @rule(source=st.sampled_from([HERE, THERE]), slots=st.sampled_from([*RANGES]))
    def go_on(self, source, slots):
        """Do what comes next: one process after the other gets the new settings; then comes the other step."""
        if stale := [one for one in PRODUCERS if self.deployed[one] < self.newest]:
            self.deployed[stale[0]] = self.newest
        elif self.moving is None:
            self.take(source, slots)
        elif self.has_keys(self.moving[0]):
            self.work_off(self.moving[0])
        else:
            self.give()

    @property
    def newest(self) -> int:
        return len(self.maps) - 1

    def take(self, source: str, slots: str) -> None:
        """Prepare settings in which slots are on no database."""
        taken = self.maps[-1][source] & frozenset(RANGES[slots])
        if taken:
            self.moving = source, taken
            self.maps.append({**self.maps[-1], source: self.maps[-1][source] - taken})

    def give(self) -> None:
        """Prepare settings in which they are on the other."""
        source, taken = self.moving
        target = THERE if source == HERE else HERE
        self.maps.append({**self.maps[-1], target: self.maps[-1][target] | taken})
        self.moving = None

    def has_keys(self, alias: str) -> bool:
        """Whether a job that is live or dead has a key; of those that live, reserved rows of keys are some."""
        of_queue = (model.objects.using(alias).filter(queue="spread") for model in (Job, DeadJob))
        return any(rows.exclude(unique_key=None, concurrency_key=None).exists() for rows in of_queue)

    def work_off(self, alias: str) -> None:
        """Let workers and staff leave no job with a key."""
        while True:
            self.claim(alias, 4)
            found = [job for job in self.running if job.database == alias]
            if not found:
                break
            for job in found:
                self.write(job, dies=False)
        DeadJob.objects.using(alias).all().delete()

    # Jobs

    @rule(producer=st.sampled_from(PRODUCERS), kind=st.sampled_from([*KINDS]), label=st.sampled_from(LABELS))
    def enqueue(self, producer, kind, label):
        slots = self.maps[self.deployed[producer]]
        with override_settings(PGQUEUE=settings_with(slots)):
            slot = slot_of(key_of(kind, label))
            owner = next((alias for alias in (HERE, THERE) if slot in slots[alias]), None)
            if owner is None:
                with pytest.raises(ShardUnavailable):
                    KINDS[kind].enqueue(label)
            else:
                assert conf.database_of(KINDS[kind].enqueue(label).id) == owner

    @rule(alias=st.sampled_from([HERE, THERE]), limit=st.integers(1, 4))
    def claim(self, alias, limit):
        database = self.workers[alias]
        with database.transaction():
            concurrency.send_admission(database, self.limit_keys(alias)).read()
            self.running += claim.send(database, "spread", limit=limit, worker_id=1).jobs()

    @rule(place=st.integers(0, 9), dies=st.booleans())
    def end(self, place, dies):
        if self.running:
            self.write(self.running[place % len(self.running)], dies=dies)

    def write(self, job: ClaimedJob, *, dies: bool) -> None:
        self.running.remove(job)
        outcome = Outcome(job, Fate.SUCCEEDED)
        if dies:
            entry = {"kind": "failed", "error": "ValueError", "attempt": job.attempt}
            outcome = Outcome(job, Fate.DIED, reason=DeathReason.EXHAUSTED, error=entry)
        database = self.workers[job.database]
        with database.transaction():
            answers = ack.send(database, [outcome])
        assert not ack.receipt(database, [outcome], answers).stale

    @rule(alias=st.sampled_from([HERE, THERE]))
    def retry(self, alias):
        ids = list(DeadJob.objects.using(alias).values_list("pk", flat=True))
        if ids:
            dead_letter.retry(ids, database=alias)

    def limit_keys(self, alias: str) -> list[str]:
        found = Job.objects.using(alias).exclude(concurrency_key=None)
        return sorted(set(found.values_list("concurrency_key", flat=True)))

    # What holds after each step

    @invariant()
    def no_key_counts_twice(self):
        live = self.keys("unique_key")
        assert len(live) == len(set(live)), "two live jobs have a unique key"
        running = self.keys("concurrency_key", status=Status.RUNNING)
        assert len(running) == len(set(running)), "two running jobs have a concurrency key of which one may run"

    def keys(self, field: str, **which: Any) -> list[str]:
        """Return the keys of the jobs of both databases, each as often as there are jobs with it."""
        return [
            key
            for alias in (HERE, THERE)
            for key in Job.objects.using(alias).filter(**which).exclude(**{field: None}).values_list(field, flat=True)
        ]


def key_of(kind: str, label: str) -> str:
    """Return the key whose slot says the database."""
    if kind == "both":
        return KINDS[kind].shard_by(label)
    unique, limited, _ = KINDS[kind].keys_of((label,), {})
    return limited if unique is None else unique


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
@pytest.mark.usefixtures("shard")
class TestMovingSlots(MovingSlots.TestCase):
    pass


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
@pytest.mark.parametrize(
    ("kind", "words"), [("unique", "two live jobs have a unique key"), ("limited", "two running jobs")]
)
def test_move_without_the_wait_is_noticed(shard, kind, words):
    """The same, where the slots are given away at once: the invariant is able to fail."""
    story = MovingSlots()
    story.begin("all")
    story.enqueue("web", kind, "a")
    story.claim(HERE, 1)
    story.take(HERE, "all")
    story.deployed["web"] = story.newest
    story.give()
    story.deployed["web"] = story.newest
    story.enqueue("web", kind, "a")
    story.claim(shard, 1)
    with pytest.raises(AssertionError, match=words):
        story.no_key_counts_twice()
    story.teardown()
