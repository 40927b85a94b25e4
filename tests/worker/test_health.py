"""The verdict on the health of a command: dead, unready or well."""

from dataclasses import replace

import pytest

from django_pgqueue.worker.health import HealthFacts, HealthStatus, LoopFacts, ProcessFacts, evaluate

WELL = HealthFacts(
    is_stopping=False,
    unwatched_seconds=1.0,
    unbeaten_seconds=10.0,
    lease_seconds=30,
    planned=1,
    loops=(LoopFacts(service="heartbeat", is_alive=True, pass_seconds=0.1, failures=0),),
    processes=(ProcessFacts(pid=7, is_at_work=True, stalled_seconds=1.1, failures=0),),
)


def with_loop(**changes) -> HealthFacts:
    return replace(WELL, loops=(replace(WELL.loops[0], **changes),))


def with_process(**changes) -> HealthFacts:
    return replace(WELL, processes=(replace(WELL.processes[0], **changes),))


def test_command_that_is_well_is_alive_and_ready():
    assert evaluate(WELL) == HealthStatus((), ())
    assert evaluate(replace(WELL, oldest_seconds=10**6, unasked_seconds=10**6)) == HealthStatus(
        (), ()
    )  # there is no port for probes
    assert not evaluate(with_process(stalled_seconds=3.0)).unready
    assert not evaluate(replace(WELL, unbeaten_seconds=20.0, unwatched_seconds=300.0)).unready


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        (replace(WELL, unwatched_seconds=300.1), "the supervisor has not checked its processes for 300 s"),
        (with_loop(is_alive=False), "the heartbeat has ended"),
        (with_loop(pass_seconds=300.1), "the heartbeat has been stuck for 300 s"),
        (with_process(stalled_seconds=300.1), "process 7 has been stuck for 300 s"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_restart_would_help_makes_a_command_dead_and_unready(facts, problem):
    verdict = evaluate(facts)
    assert verdict.dead == (problem,)
    assert problem in verdict.unready
    assert not evaluate(replace(facts, is_stopping=True)).dead  # the init system that stops it bounds the time


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        (replace(WELL, is_stopping=True), "stopping"),
        (replace(WELL, unbeaten_seconds=20.1), "the last heartbeat was 20 s ago"),
        (with_loop(failures=3), "the heartbeat cannot work with the database (failure 3)"),
        (replace(WELL, processes=()), "0 of 1 processes are at work"),
        (with_process(is_at_work=False, stalled_seconds=60), "0 of 1 processes are at work"),
        (with_process(stalled_seconds=3.1), "process 7 has not looked for jobs for 3 s"),
        (with_process(failures=2), "process 7 cannot work with the database (failure 2)"),
        (replace(WELL, max_age_seconds=60, oldest_seconds=60.6), "a job that could run has waited for 61 s"),
        (
            replace(WELL, max_age_seconds=60, unasked_seconds=16),
            "the database has not returned the age of the oldest job for 16 s",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_restart_would_not_help_makes_a_command_unready_only(facts, problem):
    assert evaluate(facts) == HealthStatus((), (problem,))
