"""Sums of what the processes of a command have counted, and of jobs enqueued in this one."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections, transaction

import tests.app.tasks as app
from django_pgqueue.jobs.stats import CLAIMED, SUCCEEDED
from django_pgqueue.signals import job_enqueued
from django_pgqueue.worker.metrics import CommandCounters


def succeeded(made: CommandCounters) -> dict:
    return {kind: row[SUCCEEDED] for kind, row in made.sums().rows.items()}


def test_what_a_process_has_counted_stays_when_it_has_ended():
    made = CommandCounters()
    first, second = made.made(), made.made()
    for meter, number in ((first, 5), (second, 2)):
        meter.row("a", "x")[SUCCEEDED] += number
        meter.count_cycle(0.002, claimed=number, acked=0)
    before = made.sums()
    made.retire(first)
    assert made.sums() == before
    second.row("a", "x")[SUCCEEDED] += 1
    assert succeeded(made) == {("a", "x"): 8}
    assert made.sums().histograms[CLAIMED][0] == 7


def test_sums_are_told_under_the_same_names_for_ever():
    """With more tasks than are told apart, some share a name; none of them changes it when its process ends."""
    made = CommandCounters(most=4)
    processes = [made.made() for _ in range(3)]
    for number, meter in enumerate(processes):
        for task in range(3):
            meter.row("a", f"{number}.{task}")[SUCCEEDED] += 1
    before = succeeded(made)
    assert len(before) == 5
    assert before["", ""] == 5
    for meter in reversed(processes):
        made.retire(meter)
        assert succeeded(made) == before


@pytest.mark.django_db(transaction=True)
def test_jobs_count_as_enqueued_when_they_are_committed(counted):
    app.noop.using(queue="a").enqueue_many([()] * 3)
    with transaction.atomic():
        app.record.enqueue("kept")
        with pytest.raises(RuntimeError), transaction.atomic():
            app.record.enqueue("gone")
            raise RuntimeError
        assert counted == [("a", app.noop.name, 3)]
    assert counted == [("a", app.noop.name, 3), ("default", app.record.name, 1)]


@pytest.mark.django_db(transaction=True)
def test_jobs_count_at_once_where_autocommit_is_off(counted):
    transaction.set_autocommit(False)
    try:
        app.noop.enqueue()
        assert counted == [("default", app.noop.name, 1)]
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


@pytest.mark.django_db(transaction=True)
def test_counting_opens_no_connection(counted):
    """A worker's maintenance announces jobs that it has enqueued on a connection of its own."""
    named = {"ids": [1], "queue": "default", "task": app.noop.name, "database": "default"}

    def announce_elsewhere() -> None:
        job_enqueued.send(app.noop.name, **named)
        assert connections["default"].connection is None

    with ThreadPoolExecutor(1) as pool:
        pool.submit(announce_elsewhere).result()
    assert counted == [("default", app.noop.name, 1)]
