"""Payloads of notifications, and the waiters that are told of a job's end."""

import pytest
from django.db import transaction
from hypothesis import given
from hypothesis import strategies as st

import tests.app.tasks as app
from django_pgqueue import Unique
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.db.notify import ECHO, KILLS, LIMITS, limits_in, queue_payload, queues_in
from django_pgqueue.jobs import ack, kill
from django_pgqueue.jobs.claim import claim
from django_pgqueue.maintenance.expirer import expire
from django_pgqueue.maintenance.unique_keys import supersede
from django_pgqueue.records import Fate, Outcome
from tests.support.many import enqueued_ids
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.worker_rows import reap_all

NAMES = st.sets(st.text(alphabet="?=|~ab ", min_size=1))


@given(queues=NAMES, limits=NAMES)
def test_payloads_are_told_apart_whatever_queues_are_called(queues, limits):
    payloads = {KILLS, f"{ECHO}12ab", *map(queue_payload, queues), *(LIMITS + name for name in limits)}
    assert queues_in(payloads) == queues
    assert limits_in(payloads) == limits


@pytest.mark.parametrize("how", ["reaped", "expired", "killed", "superseded"])
def test_waiters_are_told_of_a_death_that_no_consumer_writes_down(queue, sql, how):
    """Once it is committed, and of no other job's."""
    with QueueConnection("default", "ear").autocommit() as ear:
        ear.execute("LISTEN pgqueue_done")
        awaited, other = DEATHS[how](queue, sql)
        assert sorted(sql("SELECT id FROM pgqueue_dead_jobs")) == [(awaited,), (other,)]
        told = [notify.payload for notify in ear.notifies(timeout=PATIENCE_SECONDS, stop_after=1)]
        assert (told, list(ear.notifies(timeout=0.0))) == ([str(awaited)], [])


def expire_two(queue, sql):
    ids = [app.noop.using(expires=1).enqueue().id for _ in range(2)]
    sql("UPDATE pgqueue_jobs SET expires_at = now() - interval '1 s', has_waiters = id = %s", ids[0])
    expire(queue)
    return ids


def kill_two(queue, sql):
    ids = enqueued_ids(app.noop, [()] * 2)
    sql("UPDATE pgqueue_jobs SET has_waiters = id = %s", ids[0])
    with transaction.atomic():
        kill(ids, by="a test")
    return ids


def reap_two(queue, sql):
    ids = enqueued_ids(app.noop.using(max_attempts=1), [()] * 2)
    claim(queue, "default", limit=2, worker_id=1)
    sql("UPDATE pgqueue_jobs SET lease_until = now() - interval '1 s', has_waiters = id = %s", ids[0])
    reap_all(queue)
    return ids


def supersede_two(queue, sql):
    ids = [app.noop.using(unique_key=f"key {n}", unique=Unique(until="start")).enqueue().id for n in range(2)]
    jobs = claim(queue, "default", limit=2, worker_id=1)
    for n in range(2):
        app.noop.using(unique_key=f"key {n}", unique=Unique(until="start")).enqueue()
    sql("UPDATE pgqueue_jobs SET has_waiters = id = %s", ids[0])
    ack.write(queue, [Outcome(job, Fate.RETRIED, error={"error": "x"}) for job in jobs])
    supersede(queue)
    return ids


DEATHS = {"reaped": reap_two, "expired": expire_two, "killed": kill_two, "superseded": supersede_two}
