"""Fair keys take turns, whatever order their jobs come in."""

import datetime as dt
import heapq
from itertools import count

import pytest
from django.db import connection, transaction
from hypothesis import given, settings
from hypothesis import strategies as st

import tests.app.tasks as app
from django_pgqueue.flow import fairness
from django_pgqueue.flow.fairness import START, advance_fair_keys
from django_pgqueue.jobs.claim import claim
from django_pgqueue.maintenance.promoter import promote
from django_pgqueue.models import Job, QueueHead
from tests.support.many import enqueued_ids

HOUR = dt.timedelta(hours=1)


@pytest.fixture
def take(queue):
    """Claim some jobs; return their fair keys in the order of the claim, as one string."""

    def run(number, size=4, name="default"):
        keys = dict(Job.objects.values_list("id", "fair_key"))
        claims = [claim(queue, name, limit=size, worker_id=1) for _ in range(number // size)]
        return "".join(keys[job.id] or "-" for jobs in claims for job in jobs)

    return run


def add(key, number=1, **options):
    return enqueued_ids(app.noop.using(fair_key=key, **options), [()] * number)


def test_late_key_takes_turns_with_a_backlog_of_another(take):
    add("a", 100)
    assert take(40) == "a" * 40
    add("b", 10)
    assert take(40) == "ab" * 10 + "a" * 20


@pytest.mark.django_db
def test_jobs_of_one_key_are_due_a_turn_apart_and_those_of_another_in_between():
    many = app.noop.using(fair_key="a")
    ids = enqueued_ids(many, [()] * 100)
    late = enqueued_ids(app.noop.using(fair_key="b"), [()] * 3)
    more = many.enqueue().id
    order = list(Job.objects.order_by("run_at", "id").values_list("id", flat=True))
    assert order == [ids[0], late[0], ids[1], late[1], ids[2], late[2], *ids[3:], more]


def test_key_that_was_served_owes_nothing_and_one_that_was_idle_has_nothing_saved(take):
    add("a", 8)
    assert take(8) == "a" * 8
    add("b", 20)
    assert take(8) == "b" * 8
    add("a", 8)
    assert take(16) == "ba" * 8


def test_turns_are_those_of_one_queue_and_priority(take):
    add("a", 20)
    add("b", 4, queue="mail")
    add("b", 4, priority=1)
    assert take(8) == "bbbbaaaa"
    assert take(4, name="mail") == "bbbb"


def test_jobs_that_become_due_together_get_turns_when_they_are_promoted(queue, take, sql):
    add("a", 1500, delay=HOUR)
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '1 min'")
    add("b", 4)
    assert promote(queue).queues == {"default": 1000}
    assert promote(queue).queues == {"default": 500}
    add("c", 4)
    assert sorted(take(12)) == list("aaaabbbbcccc")
    a = list(Job.objects.filter(status="queued").order_by("id").values_list("run_at", flat=True))
    assert len(set(a)) == len(a), "each has a turn of its own"
    assert a == sorted(a)


def test_plain_jobs_keep_their_time_when_they_are_promoted(queue, sql):
    [job_id] = enqueued_ids(app.noop.using(delay=HOUR), [()])
    add("a", 3)
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '1 min' WHERE id = %s", job_id)
    [(due,)] = sql("SELECT run_at FROM pgqueue_jobs WHERE id = %s", job_id)
    promote(queue)
    assert Job.objects.get(pk=job_id).run_at == due


def late_commit(key, number):
    """Jobs enqueued an hour ago, in a transaction that has committed only now."""
    add(key, number)
    Job.objects.filter(fair_key=key).update(run_at=connection_now() - HOUR)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgqueue_jobs AS job SET run_at = run_at + (turn.number * interval '1 microsecond') FROM "
            "(SELECT id, row_number() OVER (ORDER BY id) AS number FROM pgqueue_jobs WHERE fair_key = %s) AS turn "
            "WHERE job.id = turn.id",
            [key],
        )


def connection_now():
    with connection.cursor() as cursor:
        cursor.execute("SELECT now()")
        return cursor.fetchone()[0]


def test_backlog_that_was_committed_late_does_not_put_others_off(queue, take):
    add("b", 300)
    late_commit("a", 1000)
    assert take(40) == "a" * 40
    assert advance_fair_keys(queue) == (2, 1, START)
    assert take(80) == "a" * 19 + "ba" * 30 + "b", "that many stood before it"
    add("c", 4)
    assert sorted(take(12)) == list("aaaabbbbcccc")


def test_turns_of_keys_that_take_them_are_left_alone(queue):
    add("a", 300)
    claim(queue, "default", limit=100, worker_id=1)
    add("b", 10)
    add("c", 300)
    before = dict(Job.objects.values_list("id", "run_at"))
    assert advance_fair_keys(queue) == (3, 0, START)
    assert dict(Job.objects.values_list("id", "run_at")) == before


def test_keys_catch_up_but_for_rows_that_are_locked(queue):
    [first, second] = add("b", 2)
    late_commit("a", 200)
    before = dict(Job.objects.values_list("id", "run_at"))
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=first)
        assert advance_fair_keys(queue).late == 1
    moved = {job_id for job_id, run_at in Job.objects.values_list("id", "run_at") if run_at != before[job_id]}
    assert moved == {second}


def test_key_that_two_workers_have_found_behind_is_brought_forward_once(queue, monkeypatch):
    ids = add("b", 60)
    late_commit("a", 200)
    catch_up, found = fairness._catch_up, []
    monkeypatch.setattr(fairness, "_catch_up", lambda _, late: found.append(late))
    for _ in range(2):
        advance_fair_keys(queue)
    catch_up(queue, found[0])
    moved = dict(Job.objects.filter(pk__in=ids).values_list("id", "run_at"))
    catch_up(queue, found[1])
    assert dict(Job.objects.filter(pk__in=ids).values_list("id", "run_at")) == moved
    assert not advance_fair_keys(queue).late


def test_round_goes_over_all_keys_in_bounded_slices(queue):
    for key in "abcde":
        add(key)
    add("a", queue="mail")
    done = advance_fair_keys(queue, limit=4)
    assert done == (4, 0, ("default", "d", 0))
    assert advance_fair_keys(queue, after=done.next, limit=4) == (2, 0, START)


def test_maintenance_lets_keys_catch_up_again_and_again(queue, monkeypatch, maintenance_runner):
    monkeypatch.setattr("django_pgqueue.flow.fairness.LATE_SECONDS", 0.0)
    add("b", 150)
    late_commit("a", 200)
    behind = Job.objects.filter(fair_key="b", run_at__gt=connection_now() - HOUR / 2)
    maintenance = maintenance_runner()
    maintenance.pass_once()
    assert behind.count() == 50
    Job.objects.filter(fair_key="b").exclude(pk__in=list(behind.values_list("pk", flat=True))).delete()  # they ran
    maintenance.pass_once()
    assert behind.count() == 0


def test_head_that_was_slow_to_find_is_noted_for_those_who_enqueue(queue, monkeypatch, sql):
    monkeypatch.setattr("django_pgqueue.flow.fairness.SLOW_SECONDS", 0.0)
    add("a", 10)
    claim(queue, "default", limit=4, worker_id=1)
    advance_fair_keys(queue)
    [head] = QueueHead.objects.all()
    assert head.run_at == Job.objects.filter(status="queued").earliest("run_at").run_at
    sql("UPDATE pgqueue_queue_heads SET run_at = run_at + interval '3 microseconds'")
    add("b", 2)
    assert Job.objects.filter(fair_key="b").earliest("run_at").run_at - head.run_at == dt.timedelta(microseconds=3)
    claim(queue, "default", limit=4, worker_id=1)
    advance_fair_keys(queue)
    assert QueueHead.objects.get().run_at > head.run_at


TURN_OF_A = (
    "SELECT extract(epoch FROM min(turn)) * 1000000 FROM pgqueue_turns('default', 0::smallint, ARRAY['a']) AS turn"
)


def test_jobs_whose_forerunners_share_a_turn_are_spread_and_others_not(sql):
    add("a", 40)
    last = Job.objects.latest("run_at").run_at
    following = {turn for _ in range(20) for (turn,) in sql(TURN_OF_A)}
    assert following == {round(last.timestamp() * 1_000_000) + 1}
    Job.objects.update(run_at=last)
    following = {turn for _ in range(20) for (turn,) in sql(TURN_OF_A)}
    assert len(following) > 1
    assert min(following) > last.timestamp() * 1_000_000


def test_turns_of_a_bulk_are_not_after_now_where_its_forerunners_share_one(sql):
    """As those that were retried together. Jobs in the future would not be claimed."""
    add("a", 40)
    sql("UPDATE pgqueue_jobs SET run_at = now()")
    [(seconds,)] = sql(
        "SELECT extract(epoch FROM max(turn) - statement_timestamp()) "
        "FROM pgqueue_turns('default', 0::smallint, array_fill('a'::text, ARRAY[10000])) AS turn"
    )
    assert seconds <= 0.01, "a microsecond for each of its jobs"


# The rule by which turns are given, in a simulation without a database

IDLE = 1000
"""What a clock gains on virtual time while the queue is empty."""


class Line:
    """One queue at one priority.

    Time goes by in jobs. A turn is 1; the head of the queue is its virtual time, as in start-time fair queueing.
    Source: https://doi.org/10.1109/90.649569
    """

    def __init__(self) -> None:
        self.jobs: list[tuple[int, int, str]] = []  # run_at, id, key
        self.clock = 0
        self.ids = count()

    def turns(self, key: str, number: int) -> list[int]:
        """Return what pgqueue_turns() would: from the head on, or after the key's own last job."""
        head = min(self.clock, self.jobs[0][0]) if self.jobs else self.clock
        last = max((run_at for run_at, _, other in self.jobs if other == key), default=head - 1)
        return [max(head, last + 1) + turn for turn in range(number)]

    def enqueue(self, key: str, number: int) -> None:
        for run_at in self.turns(key, number):
            heapq.heappush(self.jobs, (run_at, next(self.ids), key))

    def claim(self) -> str | None:
        if not self.jobs:
            self.clock += IDLE
            return None
        self.clock += 1
        return heapq.heappop(self.jobs)[2]

    def keys(self) -> set[str]:
        return {key for _, _, key in self.jobs}


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("abcde"), st.integers(1, 3)),
        st.tuples(st.just("z"), st.integers(50, 200)),
        st.integers(1, 60),
    ),
    max_size=30,
)


@settings(max_examples=300, deadline=None)
@given(events=EVENTS, few=st.integers(1, 10), rate=st.integers(0, 2))
def test_each_of_few_jobs_waits_for_one_of_every_other_key_and_no_more(events, few, rate):
    """Whatever has happened before, and however fast others go on."""
    line = Line()
    for event in events:
        if isinstance(event, tuple):
            line.enqueue(*event)
        else:
            for _ in range(event):
                line.claim()
    line.enqueue("late", few)
    others, before, done = line.keys() - {"late"}, 0, 0
    while done < few:
        for _ in range(rate):
            line.enqueue("z", 1)
            others.add("z")
        if line.claim() == "late":
            done += 1
        else:
            before += 1
        assert before <= (done + 1) * (len(others) + 1)


@settings(max_examples=300, deadline=None)
@given(events=EVENTS, keys=st.integers(2, 5), number=st.integers(5, 30))
def test_keys_that_always_have_jobs_get_as_many_as_each_other(events, keys, number):
    line = Line()
    for event in events:
        if isinstance(event, tuple):
            line.enqueue(*event)
        else:
            for _ in range(event):
                line.claim()
    names = [f"busy {key}" for key in range(keys)]
    for name in names:
        line.enqueue(name, number + 300)
    served = dict.fromkeys(names, 0)
    for _ in range(number * keys):
        key = line.claim()
        if key in served:
            served[key] += 1
        assert max(served.values()) - min(served.values()) <= 1
