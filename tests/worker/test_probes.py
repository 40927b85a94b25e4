"""Probes of health as others see them: over HTTP, in a file, at systemd."""

import json
import os
import socket
from pathlib import Path

from django_pgqueue.worker.config import WorkerConfig
from django_pgqueue.worker.health import HealthStatus
from django_pgqueue.worker.probes import Probes, write


def test_probes_get_their_half_of_the_verdict(probes):
    assert probes.get("/live") == (503, {"ok": False, "problems": ["no check of health has been made yet"]})
    probes.tell(HealthStatus((), ("stopping",)), True)
    assert probes.get("/live") == (200, {"ok": True, "problems": []})
    assert probes.get("/ready?verbose") == (503, {"ok": False, "problems": ["stopping"]})
    probes.tell(HealthStatus(("stuck",), ("stuck", "and more")), True)
    assert probes.get("/live") == (503, {"ok": False, "problems": ["stuck"]})
    assert probes.get("/metrics")[0] == 404


def test_verdict_that_is_not_renewed_is_none(probes, monkeypatch):
    monkeypatch.setattr("django_pgqueue.worker.probes.FRESH_SECONDS", 0.0)
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


def test_systemd_hears_once_of_the_start_and_again_and_again_of_life(tmp_path: Path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
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
