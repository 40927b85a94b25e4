"""Health of a command: the verdict, and the probes that show it over HTTP, in a file and to systemd."""

import json
import os
import socket
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from django_pgqueue.validation import UNNAMED
from django_pgqueue.worker.config import WorkerConfig
from django_pgqueue.worker.health import HealthFacts, HealthStatus, LoopFacts, Probes, ProcessFacts, evaluate, write

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


@pytest.mark.parametrize("by", ["ann", ""])
def test_quiet_command_is_alive_and_not_ready(by):
    verdict = evaluate(replace(WELL, quiet_by=by))
    assert verdict == HealthStatus((), (f"quiet, as {by or UNNAMED} has asked for: it claims no jobs",))


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


def test_probes_get_their_half_of_the_verdict(probes):
    assert probes.get("/live") == (503, {"ok": False, "problems": ["no check of health has been made yet"]})
    probes.tell(HealthStatus((), ("stopping",)), True)
    assert probes.get("/live") == (200, {"ok": True, "problems": []})
    assert probes.get("/ready?verbose") == (503, {"ok": False, "problems": ["stopping"]})
    probes.tell(HealthStatus(("stuck",), ("stuck", "and more")), True)
    assert probes.get("/live") == (503, {"ok": False, "problems": ["stuck"]})
    assert probes.get("/metrics")[0] == 404


def test_verdict_that_is_not_renewed_is_none(probes, monkeypatch):
    monkeypatch.setattr("django_pgqueue.worker.health.FRESH_SECONDS", 0.0)
    probes.tell(HealthStatus((), ()), True)
    assert probes.get("/live") == (503, {"ok": False, "problems": ["checks of health have stopped"]})


def test_file_is_there_while_the_command_is_alive(tmp_path: Path):
    path = tmp_path / "health"
    write(path, HealthStatus((), ("stopping",)))
    assert json.loads(path.read_text()) == {"live": True, "ready": False, "problems": ["stopping"]}
    write(path, HealthStatus(("stuck",), ("stuck",)))
    assert list(tmp_path.iterdir()) == []


def test_file_is_not_written_through_a_planted_link(tmp_path: Path):
    precious, path = tmp_path / "precious", tmp_path / "health"
    precious.write_text("mine")
    path.with_name(f"health.{os.getpid()}").symlink_to(precious)
    write(path, HealthStatus((), ()))
    assert (precious.read_text(), path.is_symlink()) == ("mine", False)
    assert json.loads(path.read_text())["live"]


def test_systemd_hears_once_of_the_start_and_again_and_again_of_life(monkeypatch):
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,  # the address of a socket has 107 bytes
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd,
    ):
        systemd.bind(f"{folder}/notify")
        systemd.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", f"{folder}/notify")
        probes = Probes(WorkerConfig())
        assert probes.are_wanted
        heard = []
        for verdict, is_at_work in (
            (HealthStatus((), ("0 of 1 processes are at work",)), False),
            (HealthStatus((), ()), True),
            (HealthStatus((), ()), True),
            (HealthStatus(("stuck",), ("stuck",)), True),
        ):
            probes.tell(verdict, is_at_work)
            heard.append(systemd.recv(1000).decode())
        probes.stopping()
        heard.append(systemd.recv(1000).decode())
        probes.close()
    assert heard == [
        "STATUS=0 of 1 processes are at work\nWATCHDOG=1",
        "STATUS=at work\nREADY=1\nWATCHDOG=1",
        "STATUS=at work\nWATCHDOG=1",
        "STATUS=stuck",
        "STOPPING=1",
    ]


def test_message_to_systemd_that_does_not_arrive_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "missing"))
    Probes(WorkerConfig()).stopping()
