"""Whatever is done to jobs, in any order, by any actor: the database has them where the model says.

Hypothesis makes the stories up. Workers claim, run, and write down what runs came to, also of runs whose lease is long
gone; reapers act on what they read a while ago; staff kill and retry; any of them may be inside a transaction,
which then commits or breaks off. Time passes by moving the rows.

With ``HYPOTHESIS_PROFILE=soak`` there are more and longer stories.
"""

import contextlib
import datetime as dt
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import override_settings
from django.utils import timezone
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, precondition, rule

import tests.app.tasks as app
from django_pgqueue import Discard, Limit, Retry, Snooze, Unique
from django_pgqueue.db.queries import statement
from django_pgqueue.flow import concurrency
from django_pgqueue.jobs import ack, claim, kill, run_now
from django_pgqueue.jobs import leases as heartbeat
from django_pgqueue.jobs.context import CurrentJob
from django_pgqueue.jobs.dead_letter import retry
from django_pgqueue.jobs.executor import run
from django_pgqueue.jobs.failure import unknown_task
from django_pgqueue.jobs.interrupts import ThreadInterrupts
from django_pgqueue.jobs.leases import release
from django_pgqueue.maintenance import reaper
from django_pgqueue.maintenance.promoter import promote
from django_pgqueue.maintenance.reaper import forget_workers
from django_pgqueue.maintenance.unique_keys import MOST_LOCKED, prune_reserved, reacquire_keys
from django_pgqueue.records import KEEP_RESULT, ClaimedJob, Fate, Lease, Outcome, Receipt
from django_pgqueue.states import DeathReason
from django_pgqueue.tasks import Task, make
from tests.lifecycle.model import HOUR, Job, Model, Process
from tests.lifecycle.parties import Parties
from tests.support.many import enqueued_ids
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.worker_rows import reap_all, running_workers

INSERT = """
INSERT INTO pgqueue_jobs (task, queue, run_at, max_attempts, lease_seconds)
VALUES ('x', %s, statement_timestamp() + make_interval(hours => %s), 2, 3600)
RETURNING id
"""
SETTINGS = {"STATEMENT_TIMEOUT_SECONDS": PATIENCE_SECONDS, "NOTIFY": False}
PROCESS_LEASE_HOURS = 1
MOST_SNOOZES = 2  # of the task that has a bound


def ending(error: Exception | None, **options: int) -> Task:
    """Make a task that ends like this."""

    def call() -> None:
        if error is not None:
            raise error

    return make(call, name="ending", **options)


def start(delay: int) -> dict[str, Any]:
    """Return the option for a start that many hours from now."""
    return {"delay": delay * HOUR} if delay >= 0 else {"run_at": timezone.now() + dt.timedelta(hours=delay)}


ENDINGS = {
    "succeed": ending(None),
    "fail": ending(ValueError("no luck")),
    "retry": ending(Retry(HOUR, "no luck")),
    "snooze": ending(Snooze(HOUR)),
    "snooze twice": ending(Snooze(HOUR), max_snoozes=MOST_SNOOZES),
    "discard": ending(Discard("no such order")),
}


def chosen(rest):
    """Return what the model calls its options in the words of ``using()``."""
    return {"keep_result" if name == "keep" else name: value for name, value in rest.items()}


@dataclass(frozen=True)
class Run:
    """One claimed job in the hands of its worker, for ever: it may come back with an outcome when all is over."""

    job: ClaimedJob
    current: CurrentJob

    def __repr__(self) -> str:
        return f"<attempt {self.job.attempt} of job {self.job.id}>"


jobs, workers, runs = Bundle("jobs"), Bundle("workers"), Bundle("runs")
sightings = Bundle("sightings")  # leases that a reaper has read, and may act on at any later time

# Any worker may do all that workers do; "inside" begins a transaction, in which the party then stays until its end.
actors = st.sampled_from(["one", "two", "one inside", "two inside"])
staff = st.sampled_from(["staff", "staff", "staff inside"])
any_jobs = st.lists(st.one_of(jobs, runs.map(lambda attempt: attempt.job.id)), min_size=1, max_size=5)
queues = st.sampled_from(["default", "default", "default", "default", "mail"])
options = st.fixed_dictionaries(
    {
        "queue": queues,
        "priority": st.sampled_from([0, 0, 5]),
        "delay": st.sampled_from([0, 0, 0, 1, -1]),
        "max_attempts": st.sampled_from([10, 1, 2, 3]),
        "lease": st.integers(1, 2),
        "keep": st.booleans(),
    }
)
unique = st.tuples(
    st.sampled_from(["a", "a", "b"]),
    st.sampled_from(["end", "start", "start"]),
    st.sampled_from(["keep", "later", "earlier"]),
    st.sampled_from([0, 1]),  # hours for which the key is held after success
)
limited = st.tuples(st.sampled_from(["x", "x", "y"]), st.sampled_from([1, 1, 2, 3]), st.booleans())
claims = st.fixed_dictionaries({"queue": queues, "limit": st.sampled_from([3, 6, 1]), "is_full": st.booleans()})
ways_to_end = st.sampled_from([*ENDINGS, "fail", "give back", "unknown"])
ended_runs = st.lists(st.tuples(runs, ways_to_end, st.sampled_from([0, 0, 1, 2])), min_size=1, max_size=4)


def keeping_history(is_on: bool):
    return override_settings(PGQUEUE=SETTINGS | {"RETENTION_DAYS": 7 if is_on else 0})


class Lifecycle(RuleBasedStateMachine):
    """Each rule calls one action, or a few, and compares the answer with that of the model."""

    def __init__(self):
        super().__init__()
        self.cleanup = contextlib.ExitStack()
        self.cleanup.enter_context(override_settings(PGQUEUE=SETTINGS))
        self.model = Model()
        self.parties = Parties(self.model)
        self.house = self.parties.house
        self.tokens: set[int] = set()
        self.last_claims: dict[str, tuple] = {}  # by queue: the place of the last job taken, ours and the model's

    def teardown(self):
        self.parties.close()
        self.cleanup.close()

    @precondition(lambda self: self.model.books)
    @rule(commits=st.booleans())
    def end(self, commits):
        """An actor inside a transaction comes to its end, or to a broken connection."""
        for name in self.parties.members:
            self.parties.commit(name) if commits else self.parties.break_off(name)

    @rule(hours=st.sampled_from([1, 2, 25]))
    def advance(self, hours):
        self.pass_time(hours)

    def pass_time(self, hours):
        if hours:
            self.parties.advance(hours)
            self.last_claims.clear()

    # Enqueue

    @initialize(target=jobs, options=options)
    def enqueue_some(self, options):
        return self.enqueue("staff", options, 4)

    @initialize(target=runs, options=options, limited=limited)
    def enqueue_some_and_claim_them(self, options, limited):
        options = {**options, "queue": "default", "priority": 9, "delay": 0}
        self.enqueue("staff", options, 3)
        self.enqueue_limited("staff", options, limited, 3)
        self.admit("one", ["x", "y"])
        return self.claim("one", self.start_worker(), {"queue": "default", "limit": 6, "is_full": True})

    @rule(target=jobs, name=staff, options=options, number=st.integers(1, 4))
    def enqueue(self, name, options, number):
        delay, queue, lease = options["delay"], options["queue"], options["lease"]
        rest = {name: options[name] for name in ("priority", "max_attempts", "keep")}
        task = app.noop.using(queue=queue, **start(delay), lease=lease * HOUR, **chosen(rest))
        with self.parties.acting(name) as (_, book):
            ids = [task.enqueue().id] if number == 1 else enqueued_ids(task, [()] * number)
            due, state = self.model.due(delay), "scheduled" if delay > 0 else "queued"
            for job_id in ids:
                book.enqueue(Job(job_id, app.noop.name, queue, lease_hours=lease, state=state, due=due, **rest))
        assert (len(ids), ids) == (number, sorted(ids))
        return multiple(*ids)

    @rule(target=jobs, name=staff, options=options, unique=unique)
    def enqueue_unique(self, name, options, unique):
        """With a key that another job may have. Where an actor inside a transaction is at that, the call would wait."""
        key, scope, conflict, hours = unique
        delay, queue, lease = options["delay"], options["queue"], options["lease"]
        rest = {name: options[name] for name in ("priority", "max_attempts", "keep")}
        hold = hours * HOUR if hours and scope == "end" else None
        how = {"unique_key": key, "unique": Unique(until=scope, hold=hold, on_conflict=conflict)}
        task = app.noop.using(queue=queue, **start(delay), lease=lease * HOUR, **chosen(rest), **how)
        with self.parties.acting(name) as (_, book):
            if book.must_wait_for([key]):
                return multiple()
            book.give_up(key)
            holder, due = book.holder(key), self.model.due(delay)
            handle = task.enqueue()
            assert handle.created == (holder is None)
            if holder is not None:
                assert handle.id == holder.id
                book.meet(holder, conflict, due)
                return multiple()
            state, hours = "scheduled" if delay > 0 else "queued", hours if scope == "end" else 0
            keys = {"key": key, "scope": scope, "held_hours": hours}
            book.enqueue(Job(handle.id, app.noop.name, queue, lease_hours=lease, state=state, due=due, **rest, **keys))
        return handle.id

    @rule(target=jobs, name=staff, options=options, limited=limited, number=st.integers(1, 4))
    def enqueue_limited(self, name, options, limited, number):
        """With a concurrency key: it has to wait to be admitted."""
        key, limit, is_strict = limited
        delay, queue, lease = options["delay"], options["queue"], options["lease"]
        rest = {name: options[name] for name in ("priority", "max_attempts", "keep")}
        how = {"limit_key": key, "limit": Limit(running=limit, strict=is_strict)}
        task = app.noop.using(queue=queue, **start(delay), lease=lease * HOUR, **chosen(rest), **how)
        with self.parties.acting(name) as (_, book):
            ids, due = enqueued_ids(task, [()] * number), self.model.due(delay)
            keys = {"state": "scheduled" if delay > 0 else "limited", "limited_by": key, "limit": limit}
            for job_id in ids:
                job = Job(job_id, app.noop.name, queue, lease_hours=lease, due=due, is_strict=is_strict, **rest, **keys)
                book.enqueue(job)
        return multiple(*ids)

    @rule(name=actors, keys=st.sampled_from([["x", "y"], ["x"], ["y"]]))
    def admit(self, name, keys):
        with self.parties.acting(name) as (database, book), self.parties.one_transaction(name):
            assert concurrency.send_admission(database, keys).read() == book.admit(keys)

    @rule(hours=st.sampled_from([0, 0, 1]))
    def look_after_keys(self, hours):
        self.pass_time(hours)
        book = self.model.open()
        retaken = reacquire_keys(self.house)
        assert (*retaken._replace(superseded=len(retaken.superseded)),) == book.retake(most_locked=MOST_LOCKED)
        self.model.close(book, commits=True)
        book = self.model.open()
        assert prune_reserved(self.house) == book.prune()
        self.model.close(book, commits=True)

    @rule(target=jobs, name=staff, queue=queues, delay=st.sampled_from([0, 1]))
    def insert(self, name, queue, delay):
        """From another language, which knows nothing of statuses."""
        rest = {"priority": 0, "max_attempts": 2, "lease_hours": 1, "keep": True, "state": "queued"}
        with self.parties.acting(name) as (_, book), connection.cursor() as cursor:
            cursor.execute(INSERT, [queue, delay])
            [(job_id,)] = cursor.fetchall()
            book.enqueue(Job(job_id, "x", queue, due=self.model.due(delay), **rest))
        return job_id

    # Claim and ack

    @rule(target=runs, name=actors, worker=workers, wanted=claims)
    def claim(self, name, worker, wanted):
        with self.parties.acting(name) as (database, book), self.parties.one_transaction(name):
            return multiple(*self.take(database, book, worker, **wanted))

    @rule(name=actors, ended=ended_runs, history=st.booleans())
    def write(self, name, ended, history):
        outcomes = self.outcomes(ended)
        with (
            keeping_history(history),
            self.parties.acting(name) as (database, book),
            self.parties.one_transaction(name),
        ):
            answers = ack.send(database, outcomes)
            assert ack.receipt(database, outcomes, answers) == book.write(outcomes, history=history)

    @rule(target=runs, name=actors, worker=workers, ended=ended_runs, history=st.booleans(), wanted=claims)
    def turn(self, name, worker, ended, history, wanted):
        """As the consumer does: write, admit and claim in one transaction, then ask about what was not written."""
        outcomes = self.outcomes(ended)
        with keeping_history(history), self.parties.acting(name) as (database, book):
            with self.parties.one_transaction(name):
                answers = ack.send(database, outcomes)
                receipt = book.write(outcomes, history=history)
                assert concurrency.send_admission(database, ["x", "y"]).read() == book.admit(["x", "y"])
                claimed = self.take(database, book, worker, **wanted)
            assert ack.receipt(database, outcomes, answers) == receipt
        return multiple(*claimed)

    @rule(name=staff, attempt=runs, history=st.booleans())
    def finish_alone(self, name, attempt, history):
        """As a task declared atomic=True does, in a transaction of the caller's."""
        outcome = Outcome(attempt.job, Fate.SUCCEEDED)
        with keeping_history(history), self.parties.acting(name) as (database, book):
            with transaction.atomic():
                is_done = ack.finish_alone(database, outcome, patience_seconds=0)
            assert (book.write([outcome], history=history) == Receipt()) == is_done

    def take(self, database, book, worker, *, queue, limit, is_full):
        """Claim, from the best job on or after the last one taken, and compare."""
        above, after = (None, None) if is_full else self.last_claims.get(queue, (None, None))
        sent = claim.send(database, queue, limit=limit, worker_id=worker, above=above)
        claimed = sent.jobs()
        jobs = book.claim(queue, limit=limit, worker_id=worker, token=sent.lease_token, after=after)
        assert [job.id for job in claimed] == [job.id for job in jobs]
        self.check_claimed(claimed, jobs)
        if claimed:
            assert sent.lease_token not in {0, *self.tokens}
            self.tokens.add(sent.lease_token)
            self.last_claims[queue] = claimed[-1].place, jobs[-1].place
        return [Run(job, CurrentJob(job)) for job in claimed]

    def check_claimed(self, claimed, jobs):
        for row, job in zip(claimed, jobs, strict=True):
            assert (row.lease_token, row.attempt, row.max_attempts) == (job.token, job.attempts, job.max_attempts)
            assert (row.queue, row.priority, bool(row.flags & KEEP_RESULT), row.lost) == (
                job.queue,
                job.priority,
                job.keep,
                job.lost,
            )
            assert (row.was_killed, row.snoozes) == (job.is_kill_requested, job.snoozes)
            assert row.is_old == (self.model.now - job.first_started >= 24)
            assert 1 <= row.attempt <= row.max_attempts

    def outcomes(self, ended):
        """Run jobs to their endings; return one outcome for each job, as a batch of the consumer's has."""
        return [*{attempt.job.id: self.outcome(attempt, how, later) for attempt, how, later in ended}.values()]

    def outcome(self, attempt: Run, how: str, later: int) -> Outcome:
        job, current = attempt.job, attempt.current
        if how == "give back":
            return Outcome(job, Fate.RELEASED)
        current.is_kill_requested |= job.was_killed
        outcome = unknown_task(job) if how == "unknown" else run(ENDINGS[how], job, current, ThreadInterrupts())
        assert (outcome.fate, outcome.reason) == expected_ending(how, job, is_kill_requested=current.is_kill_requested)
        if outcome.fate is Fate.RETRIED:
            outcome.delay_seconds = later * HOUR
        elif outcome.fate is Fate.RELEASED:
            outcome.delay_seconds = HOUR
        elif outcome.fate is Fate.SNOOZED:
            assert outcome.delay_seconds == HOUR
        return outcome

    # Worker processes

    @initialize(target=workers)
    def start_two_workers(self):
        return multiple(self.start_worker(), self.start_worker())

    @rule(target=workers)
    def start_worker(self):
        worker_id = self.register(None)
        self.model.processes[worker_id] = Process(worker_id, self.model.now + PROCESS_LEASE_HOURS)
        return worker_id

    @rule(worker=workers)
    def beat(self, worker):
        """Renew its lease; one that others have forgotten is written down again."""
        standing = heartbeat.heartbeat(self.house, {worker: 4711}, lease_seconds=PROCESS_LEASE_HOURS * HOUR).standing
        assert standing == {worker} & self.model.processes.keys()
        if not standing:
            assert self.register(worker) == worker
        pid = 4711 if standing else 0
        self.model.processes[worker] = Process(worker, self.model.now + PROCESS_LEASE_HOURS, pid)

    @rule(worker=workers)
    def hear_of_kills(self, worker):
        """The process learns from its heartbeat which jobs are to stop, and tells the runs it holds."""
        leases = heartbeat.worker_leases(self.house, [worker])
        killed = {lease.run_id for lease in leases if lease.is_kill_requested}
        for reference in self.bundle("runs"):
            attempt = self.names_to_values[reference.name]
            attempt.current.is_kill_requested |= attempt.job.run_id in killed

    @rule(worker=workers, is_asked=st.booleans())
    def forget(self, worker, is_asked):
        """Remove the row of a process that has ended, or of all that have been silent for long."""
        if is_asked:
            heartbeat.deregister(self.house, [worker])
            self.model.processes.pop(worker, None)
            return
        silent = self.model.silent_processes()
        assert forget_workers(self.house) == len(silent)
        for worker_id in silent:
            del self.model.processes[worker_id]

    def register(self, worker_id):
        who = {"supervisor_id": 1, "host": "model", "name": "", "version": "1", "concurrency": 1, "queues": ()}
        return heartbeat.register(self.house, lease_seconds=PROCESS_LEASE_HOURS * HOUR, worker_id=worker_id, **who)

    # Workers that die, and those who see to what they leave

    @rule(target=sightings, name=actors, worker=workers)
    def look_at_process(self, name, worker):
        with self.parties.acting(name) as (database, book):
            leases = heartbeat.worker_leases(database, [worker])
            assert sorted(leases) == sorted(book.leases([worker]))
        return multiple(*[leases] if leases else [])

    @rule(target=sightings, name=actors, hours=st.sampled_from([0, 0, 2]))
    def look_at_lost_leases(self, name, hours):
        self.pass_time(hours)
        with self.parties.acting(name) as (database, book):
            parameters = {"worker_ids": running_workers(database)}
            leases = [Lease._make(row) for row in database.rows(statement("expired_leases"), parameters)]
            assert sorted(leases) == sorted(book.lost_leases())
        return multiple(*[leases] if leases else [])

    @rule(name=actors, hours=st.sampled_from([0, 0, 2]))
    def reap(self, name, hours):
        self.pass_time(hours)
        with self.parties.acting(name) as (database, book):
            lost = book.lost_leases()
            assert reap_all(database)[:4] == book.settle(lost)[:4]

    @rule(name=actors, leases=sightings, how=st.sampled_from(["settle", "release"]))
    def act_late(self, name, leases, how):
        """As a second reaper does, or one that was frozen; or a heartbeat, with what its process does not know."""
        with self.parties.acting(name) as (database, book):
            if how == "settle":
                assert reaper.settle(database, leases)[:4] == book.settle(leases)[:4]
            else:
                assert sorted(release(database, leases)) == sorted(job.id for job in book.release(leases))

    @rule(name=actors, leases=sightings, started=st.sets(st.integers(0, 3)), was_stopped=st.booleans())
    def settle_dead_process(self, name, leases, started, was_stopped):
        end = {
            "started": {lease.run_id for position, lease in enumerate(leases) if position in started},
            "was_stopped": was_stopped,
        }
        with self.parties.acting(name) as (database, book):
            settled = reaper.settle_dead_process(database, leases, **end)
            assert settled[:4] == book.settle_dead_process(leases, **end)[:4]

    # Staff, and what is due

    @rule(name=staff, action=st.sampled_from(["kill", "retry", "run now"]), ids=any_jobs)
    def intervene(self, name, action, ids):
        with self.parties.acting(name) as (_, book):
            match action:
                case "kill":
                    killed = kill(ids, by="eve")
                    assert (sorted(killed.dead), sorted(killed.requested)) == book.kill(ids, by="eve")
                case "retry":
                    if not book.must_wait_for(book.keys_of(ids)):
                        retried = retry(ids, by="eve")
                        assert (sorted(retried.ids), retried.held_by) == book.retry(ids, by="eve")
                case "run now":
                    assert sorted(run_now(ids, by="eve")) == book.run_now(ids, by="eve")

    @rule(name=actors, hours=st.sampled_from([0, 0, 1]))
    def promote(self, name, hours):
        self.pass_time(hours)
        with self.parties.acting(name) as (database, book):
            assert promote(database) == book.promote()

    # What holds after each step

    @invariant()
    def tables_are_as_the_model_says(self):
        for found, expected in zip(self.parties.found(), self.parties.expected(), strict=True):
            wrong = sorted(key for key in found | expected if found.get(key) != expected.get(key))
            assert not wrong, [f"{found.get(key)} should be {expected.get(key)}" for key in wrong]


def expected_ending(how: str, job: ClaimedJob, *, is_kill_requested: bool) -> tuple[Fate, DeathReason | None]:
    """Return the fate and the reason of a run that ends like this."""
    if how == "unknown" and not job.was_killed:
        return (Fate.DIED, DeathReason.UNKNOWN_TASK) if job.attempt == 1 and job.is_old else (Fate.RELEASED, None)
    if is_kill_requested:
        return Fate.DIED, DeathReason.KILLED
    if how in ("succeed", "discard"):
        return (Fate.SUCCEEDED, None) if how == "succeed" else (Fate.DIED, DeathReason.DISCARDED)
    if how.startswith("snooze"):
        is_last = how == "snooze twice" and job.snoozes >= MOST_SNOOZES
        return (Fate.DIED, DeathReason.EXHAUSTED) if is_last else (Fate.SNOOZED, None)
    return (Fate.DIED, DeathReason.EXHAUSTED) if job.attempt == job.max_attempts else (Fate.RETRIED, None)


@pytest.mark.django_db(transaction=True)
class TestLifecycle(Lifecycle.TestCase):
    """To tell a story again that failed, put the decorator that is printed with it on ``Lifecycle``."""
