"""Ids of stages, and what states of workflows say of themselves."""

import datetime as dt

import pytest

from django_pgqueue.states import MOST_STAGES
from django_pgqueue.workflows import StageState, WorkflowState
from django_pgqueue.workflows.records import stage_id_of, workflow_id_of

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize("workflow_id", [1, 2**40])
@pytest.mark.parametrize("number", [0, 1, MOST_STAGES - 1])
@pytest.mark.parametrize("collects", [False, True])
def test_id_of_a_stage_tells_workflow_number_and_collecting(workflow_id, number, collects):
    stage_id = stage_id_of(workflow_id, number, collects=collects)
    assert stage_id < 2**63
    assert workflow_id_of(stage_id) == stage_id >> 16 == workflow_id
    assert (stage_id & 0xFFFF) >> 1 == number
    assert bool(stage_id & 1) is collects


def stage(status="open", members=3, live=0, dead=0, is_stuck=False) -> StageState:
    counts, rest = (members, live, dead), (None, None, None, None, is_stuck, [])
    return StageState.of((1 << 16, "s", status, "succeeded", True, *counts, *rest), {})


def state(*stages, status="open", on_death="wait") -> WorkflowState:
    return WorkflowState.of((1, "w", status, on_death, None, NOW, None, None, "", None, "{}"), stages)


def test_workflow_is_stuck_where_a_stage_is():
    assert state(stage(), stage(is_stuck=True)).is_stuck
    assert not state(stage(dead=1)).is_stuck


def test_members_are_done_that_are_neither_alive_nor_dead():
    assert stage(members=5, live=2, dead=1).done == 2
    assert stage(members=0, live=1).done == 0
