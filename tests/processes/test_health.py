"""Real workers answer probes, whatever happens to them and to their database."""

import datetime as dt
import http.client
import json
import os
import signal
from pathlib import Path

import pytest
from django.db import connection, connections
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue.models import Job
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


class Probed:
    """A worker that answers probes."""

    def __init__(self, start_worker, folder: Path, *options: str) -> None:
        self.port = free_port()
        self.file = folder / "health"
        self.worker = start_worker(
            *("--health-port", str(self.port), "--health-file", str(self.file), *options), LEASE_SECONDS="3"
        )

    def get(self, path: str) -> tuple[int, list[str]]:
        """Return status and problems; status 0 without an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, json.loads(response.read())["problems"]
        except ConnectionRefusedError:
            return 0, []
        finally:
            connection.close()

    def written(self) -> dict:
        """Return what the file says: what probes were told within the last second or so."""
        return json.loads(self.file.read_text()) if self.file.exists() else {}

    def wait_until_ready(self) -> "Probed":
        eventually(lambda: self.get("/ready") == (200, []))
        return self

    def wait_until_told(self, *words: str) -> None:
        """Wait until a probe is told of all this at once."""
        eventually(lambda: (told := " + ".join(self.get("/ready")[1])) and all(word in told for word in words))


@pytest.fixture
def probed(start_worker, tmp_path):
    return lambda *options: Probed(start_worker, tmp_path, *options)


class Outage:
    """Takes the database away from all sessions, by way of another one, and gives it back."""

    def __init__(self) -> None:
        self.name = connection.settings_dict["NAME"]

    def begin(self) -> None:
        connection.close()
        self._run(f"ALTER DATABASE {self.name} ALLOW_CONNECTIONS false")
        self._run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self.name}'")

    def end(self) -> None:
        self._run(f"ALTER DATABASE {self.name} ALLOW_CONNECTIONS true")

    def _run(self, text: str) -> None:
        with connections["other"].cursor() as cursor:
            cursor.execute(text)


@pytest.fixture
def outage(transactional_db):
    outage = Outage()
    yield outage
    outage.end()


def test_worker_is_unready_but_alive_while_its_database_is_away(probed, outage):
    probed = probed("--health-max-age", "600").wait_until_ready()
    eventually(lambda: probed.written() == {"live": True, "ready": True, "problems": []})
    [child] = eventually(probed.worker.children)  # it may be at work before a heartbeat names it
    outage.begin()
    away = "cannot work with the database (failure"
    who = ("the heartbeat", "the look at the backlog", f"process {child}")
    probed.wait_until_told("the last heartbeat was", *(f"{one} {away}" for one in who))
    assert probed.get("/live") == (200, [])
    eventually(lambda: probed.written().get("ready") is False)
    outage.end()
    probed.wait_until_ready()
    assert probed.worker.children() == [child]


def test_worker_is_unready_while_it_does_not_do_its_work_and_alive_to_the_end(probed, sql):
    """A job waits for a slot that another has taken; the process is frozen; the command is told to stop."""
    app.sleep.using(queue="a", priority=1).enqueue(600)
    probed = probed("--queue", "a", "--concurrency", "1", "--health-max-age", "600", "--shutdown-timeout", "600")
    probed.wait_until_ready()
    eventually(lambda: sql("SELECT status FROM pgqueue_jobs") == [("running",)])
    overdue = dict.fromkeys(("run_at", "enqueued_at"), timezone.now() - dt.timedelta(minutes=20))
    Job.objects.create(task="x", queue="b", **overdue)
    Job.objects.create(task="x", queue="a", priority=5, run_at=timezone.now())
    overdue = Job.objects.create(task="x", queue="a", **overdue)
    probed.wait_until_told("a job that could run has waited for 12")
    overdue.delete()
    probed.wait_until_ready()

    [child] = eventually(probed.worker.children)
    os.kill(child, signal.SIGSTOP)
    probed.wait_until_told(f"process {child} has not looked for jobs for")
    assert probed.get("/live") == (200, [])
    os.kill(child, signal.SIGCONT)
    probed.wait_until_ready()

    probed.worker.signal(signal.SIGTERM)
    eventually(lambda: probed.get("/ready")[1] == ["stopping"])
    assert probed.get("/live") == (200, [])
    probed.worker.signal(signal.SIGTERM)
    assert probed.worker.wait() == 0
    assert not probed.file.exists()
