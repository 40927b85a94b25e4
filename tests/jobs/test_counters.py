"""Sums that a supervisor reads while its children add to them, and when they are gone."""

import multiprocessing
import os
import signal

import pytest

from django_pgqueue.jobs import counters as meters
from django_pgqueue.jobs.counters import ENQUEUED, ROW_WIDTH, ProcessCounters
from django_pgqueue.jobs.stats import LOST, SUCCEEDED
from tests.support.waiting import PATIENCE_SECONDS


def kept(meter) -> dict:
    return {(queue, task): sums[SUCCEEDED] for queue, task, sums in meter.rows()}


def test_rows_are_kept_apart_and_found_again():
    meter = ProcessCounters()
    for queue, task, number in (("a", "x", 1), ("a", "y", 2), ("b", "x", 4), ("a", "x", 8)):
        meter.row(queue, task)[SUCCEEDED] += number
    assert kept(meter) == {("a", "x"): 9, ("a", "y"): 2, ("b", "x"): 4}


def test_rows_without_any_sum_are_left_out():
    meter = ProcessCounters()
    meter.row("a", "x")
    assert not list(meter.rows())
    meter.row("a", "x")[LOST] += 1
    [(_queue, _task, sums)] = meter.rows()
    assert len(sums) == ROW_WIDTH
    assert sum(sums) == 1


def test_names_may_be_any_text():
    meter = ProcessCounters()
    meter.row('"quoted"\n', "Aufgabe ü 🦆")[SUCCEEDED] += 1
    assert kept(meter) == {('"quoted"\n', "Aufgabe ü 🦆"): 1}


@pytest.mark.parametrize("queue", ["full", "long" * 1000])
def test_what_finds_no_room_is_summed_up_without_names(queue, monkeypatch):
    monkeypatch.setattr(meters, "ROWS", 3)
    meter = ProcessCounters()
    for number in range(2):
        meter.row(f"queue {number}", "x")[SUCCEEDED] += 1
    meter.row(queue, "x")[SUCCEEDED] += 5
    meter.row(queue, "y")[SUCCEEDED] += 5
    assert kept(meter) == {("queue 0", "x"): 1, ("queue 1", "x"): 1, ("", ""): 10}


def test_what_finds_no_room_takes_no_memory_either():
    """With a queue for each tenant there is no end of names."""
    meter = ProcessCounters()
    for number in range(2 * meters.ROWS):
        meter.row(f"queue {number}", "x")[SUCCEEDED] += 1
        meter.enqueued("long" * 1000, f"task {number}", 1)
    assert len(meter._rows) < meters.ROWS
    assert kept(meter)["", ""] == meters.ROWS + 1


def add(meter):
    meter.row("a", "x")[SUCCEEDED] += 7
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_process_has_added_stays_when_it_is_killed():
    context = multiprocessing.get_context("spawn")
    meter = ProcessCounters(context)
    process = context.Process(target=add, args=(meter,))
    process.start()
    process.join(PATIENCE_SECONDS)
    assert process.exitcode == -signal.SIGKILL
    assert kept(meter) == {("a", "x"): 7}


def test_copy_of_a_process_counts_nothing():
    meter = ProcessCounters()
    meter.enqueued("a", "x", 2)
    meter.disown()
    meter.enqueued("a", "x", 40)
    [(_, _, row)] = meter.rows()
    assert row[ENQUEUED] == 2
