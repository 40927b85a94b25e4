"""Health of a command: what makes it dead or unready, and the probes that say so."""

import contextlib
import http.client
import json
import os
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

import tests.app.tasks as app
from django_pgqueue.exceptions import ConfigurationError
from django_pgqueue.jobs.queue_selector import QueueSelector
from django_pgqueue.maintenance.pending_work import oldest_runnable
from django_pgqueue.worker.config import WorkerConfig
from django_pgqueue.worker.health import HealthFacts, HealthStatus, LoopFacts, ProcessFacts, evaluate
from django_pgqueue.worker.http import MOST_REQUESTS, PageServer
from django_pgqueue.worker.probes import Probes, write
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_SECONDS, eventually

WELL = HealthFacts(
    is_stopping=False,
    unwatched_seconds=1.0,
    unbeaten_seconds=10.0,
    lease_seconds=30,
    planned=1,
    loops=(LoopFacts(duty="heartbeat", is_alive=True, pass_seconds=0.1, failures=0),),
    processes=(ProcessFacts(pid=7, is_at_work=True, unturned_seconds=1.1, failures=0),),
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
    assert evaluate(with_process(unturned_seconds=3.0)).is_ready
    assert evaluate(replace(WELL, unbeaten_seconds=20.0, unwatched_seconds=300.0)).is_ready


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        (replace(WELL, unwatched_seconds=300.1), "the supervisor has not looked after its processes for 300 s"),
        (with_loop(is_alive=False), "the heartbeat has ended"),
        (with_loop(pass_seconds=300.1), "the heartbeat has been stuck for 300 s"),
        (with_process(unturned_seconds=300.1), "process 7 has been stuck for 300 s"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_restart_would_help_makes_a_command_dead_and_unready(facts, problem):
    verdict = evaluate(facts)
    assert verdict.dead == (problem,)
    assert problem in verdict.unready
    assert evaluate(replace(facts, is_stopping=True)).is_live  # the init system that stops it bounds the time


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        (replace(WELL, is_stopping=True), "stopping"),
        (replace(WELL, unbeaten_seconds=20.1), "the last heartbeat was 20 s ago"),
        (with_loop(failures=3), "the heartbeat cannot work with the database (failure 3)"),
        (replace(WELL, processes=()), "0 of 1 processes are at work"),
        (with_process(is_at_work=False, unturned_seconds=60), "0 of 1 processes are at work"),
        (with_process(unturned_seconds=3.1), "process 7 has not looked for jobs for 3 s"),
        (with_process(failures=2), "process 7 cannot work with the database (failure 2)"),
        (replace(WELL, max_age_seconds=60, oldest_seconds=60.6), "a job that could run has waited for 61 s"),
        (
            replace(WELL, max_age_seconds=60, unasked_seconds=16),
            "the database has not told the age of the oldest job for 16 s",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_restart_would_not_help_makes_a_command_unready_only(facts, problem):
    assert evaluate(facts) == HealthStatus((), (problem,))


@pytest.mark.django_db
def test_oldest_job_is_found_among_priorities_and_queues(queue_of_ages):
    assert oldest_runnable(queue_of_ages, QueueSelector()) == pytest.approx(500, abs=30)
    assert oldest_runnable(queue_of_ages, QueueSelector(["a"])) == pytest.approx(300, abs=30)
    assert oldest_runnable(queue_of_ages, QueueSelector(["c", "unknown"])) == 0.0
    assert oldest_runnable(queue_of_ages, QueueSelector(["*"], ["b*", "c"])) == pytest.approx(300, abs=30)


def test_fair_job_has_not_waited_for_longer_than_it_has_been_there(queue, sql):
    app.noop.using(fair_key="a").enqueue()
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '1 hour', enqueued_at = now() - interval '5 s'")
    assert oldest_runnable(queue, QueueSelector()) == pytest.approx(5, abs=30)


@pytest.fixture
def queue_of_ages(queue, sql):
    """Fill three queues with jobs whose age does not follow their priority; those of the last may not run yet."""
    sql(
        "INSERT INTO pgqueue_jobs (task, queue, priority, run_at) "
        "SELECT 'x', queue, priority, now() - make_interval(secs => seconds) FROM (VALUES "
        "('a', 9, 100), ('a', 9, 200), ('a', 0, 300), ('a', -9, 50), ('b', 5, 40), ('b', -5, 500), ('c', 0, -900)"
        ") AS job (queue, priority, seconds)"
    )
    return queue


# Telling others


@pytest.fixture
def probes():
    address = ("127.0.0.1", free_port())
    made = Probes(WorkerConfig(health_port=address[1]))
    pages = PageServer({address: made.pages})
    pages.start()
    made.address = address
    made.get = lambda path: get(address[1], path)
    yield made
    pages.close()


def get(port: int, path: str, method: str = "GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    connection.request(method, path)
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, json.loads(text) if text else None


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


def test_silent_client_keeps_no_other_from_an_answer(probes):
    probes.tell(HealthStatus((), ()), True)
    host, port = probes.address
    with socket.create_connection((host, port)):
        assert probes.get("/ready")[0] == 200
        assert get(port, "/ready", "HEAD") == (200, None)


def test_clients_that_hold_on_take_no_more_than_some_threads_and_not_for_long(probes, monkeypatch):
    probes.tell(HealthStatus((), ()), True)
    before = threading.active_count()
    with contextlib.ExitStack() as clients:
        connected = [clients.enter_context(socket.create_connection(probes.address)) for _ in range(60)]
        eventually(lambda: sum(is_hung_up(one) for one in connected) >= 60 - MOST_REQUESTS)
        assert threading.active_count() <= before + MOST_REQUESTS
        monkeypatch.setattr("django_pgqueue.worker.http.LONGEST_SECONDS", 0.0)
        eventually(lambda: all(map(is_hung_up, connected)))
    monkeypatch.undo()
    eventually(lambda: threading.active_count() <= before)
    assert probes.get("/ready")[0] == 200


def is_hung_up(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_port_that_is_taken_is_an_error_that_names_it(probes):
    port = probes.address[1]
    with pytest.raises(ConfigurationError, match=rf"^/live, /ready cannot .* '127.0.0.1' port {port}: .*in use"):
        PageServer({("127.0.0.1", free_port()): probes.pages, probes.address: probes.pages})


@pytest.mark.django_db
def test_worker_that_cannot_answer_probes_does_not_start(probes):
    with pytest.raises(CommandError, match="/live, /ready cannot be answered"):
        call_command("pgqueue_worker", health_port=probes.address[1], drain=True, verbosity=0)


@pytest.mark.django_db
def test_wrong_options_of_health_are_named():
    with pytest.raises(CommandError) as caught:
        call_command("pgqueue_worker", health_port=65536, health_max_age=-1.0, health_file="/no/such/folder/file")
    assert "--health-port must be 0 (none) to 65535, not 65536." in str(caught.value)
    assert "--health-max-age must be 0 (any) or more seconds, not -1.0." in str(caught.value)
    assert "--health-file is in a folder that is not there: '/no/such/folder/file'." in str(caught.value)


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


@pytest.mark.django_db(transaction=True)
def test_worker_inside_a_test_closes_what_it_opened(tmp_path):
    """A socket or a connection left open would be an error here."""
    path = tmp_path / "health"
    app.noop.enqueue()
    port = free_port()
    call_command(
        "pgqueue_worker", drain=True, verbosity=0, health_port=port, health_file=str(path), health_max_age=60.0
    )
    assert not path.exists()
    with pytest.raises(ConnectionRefusedError):
        get(port, "/live")
