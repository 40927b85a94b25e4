"""Jobs publish to brokers as docs/how-to/publish-to-a-broker.md says, by the clients of its pieces of code.

NATS is the real server. Kafka's is the cluster that its client has for tests, and SQS that of moto.
"""

import contextlib
import functools
import json
import logging
import os
import random
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.foreign.environment import INSIDE, Foreign
from tests.support import needs
from tests.support.pages import DOCS
from tests.support.pieces import pieces
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_SECONDS, eventually

REQUIREMENTS = "brokers"

logger = logging.getLogger(__name__)

PIECES = pieces(DOCS / "how-to" / "publish-to-a-broker.md")

KEYS = 12
EVENTS = 300
ALL = KEYS * EVENTS
KILLS = 12

ENQUEUE = f"""
from django.db import transaction
from shop.tasks import publish
with transaction.atomic():
    numbers = [(key, version) for version in range({EVENTS}) for key in range({KEYS})]
    publish.enqueue_many([("orders", str(key), {{"version": version}}) for key, version in numbers])
"""

TOO_LARGE = """
from shop.tasks import publish
publish.enqueue_many([("orders", "17", {"version": 1, "note": "x" * 10_000}), ("orders", "17", {"version": 2})])
"""

MAKE_STREAM = "import asyncio; from shop import tasks; asyncio.run(tasks.make_stream('orders'))"
"""What the page says."""

FAILS = """

import random

reach = connect


async def connect():
    if random.random() < 0.01:
        raise ConnectionError("not this time")
    return await reach()
"""
"""Makes one attempt in a hundred fail."""

BY_SQS = """
import boto3, json
from django.db import transaction
from django_pgqueue.testing import run_jobs
from moto import mock_aws
from moto.core import patch_client
from shop import tasks
with mock_aws(), transaction.atomic():
    patch_client(tasks.sqs)
    url = tasks.sqs.create_queue(QueueName="orders.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    tasks.publish.enqueue_many([(url, "17", {"version": 1}), (url, "17", {"version": 2})])
    run_jobs()
    got = tasks.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"])["Messages"]
    for one in got:
        about = one["Attributes"]
        print(json.dumps([about["MessageGroupId"], json.loads(one["Body"]), about["MessageDeduplicationId"]]))
    transaction.set_rollback(True)
"""


BY_KAFKA = """
from shop.tasks import publish
publish.enqueue_many([("orders", "17", {"version": 1}), ("orders", "17", {"version": 2})])
"""


class Project:
    """A project with an app whose tasks are those of the page, below a heading."""

    def __init__(self, foreign: Foreign, folder: Path, heading: str, **variables: str) -> None:
        shop = folder / "shop"
        shop.mkdir()
        (shop / "__init__.py").touch()
        (shop / "tasks.py").write_text(PIECES[heading])
        self.folder = folder
        self.variables = variables
        self._foreign = foreign
        self._fixed = {
            "DJANGO_SETTINGS_MODULE": "brokers_settings",
            "PYTHONPATH": os.pathsep.join([str(folder), *foreign.path]),
        }

    def shell(self, code: str) -> list[str]:
        return self.manage("shell", "-v", "0", "-c", code).splitlines()

    def manage(self, *arguments: str) -> str:
        return self._foreign.run("-m", "django", *arguments, **self._fixed, **self.variables)

    def python(self, file: str, *arguments: str) -> list[str]:
        return self._foreign.run(str(INSIDE / file), *arguments, **self._fixed, **self.variables).splitlines()

    def statuses(self) -> Counter[str]:
        jobs = json.loads(self.manage("pgqueue_jobs", "list", "--json", "--limit", "1000"))["jobs"]
        return Counter(job["status"] for job in jobs)

    @contextlib.contextmanager
    def running(self, *arguments: str, name: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        """Run Python, with its output in a file, until the block is left."""
        log = self.folder / name
        process = self._foreign.start(*arguments, cwd=self.folder, log=log, **self._fixed, **self.variables)
        try:
            yield process, log
        finally:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE_SECONDS)
            process.kill()
            process.wait()


def kill_while(command: subprocess.Popen[bytes], arrived: Callable[[], int]) -> None:
    """SIGKILL one of the command's processes each time that a part of the events has arrived."""
    for number in range(KILLS):
        eventually(lambda number=number: arrived() > ALL * number // (KILLS + 1))
        random.choice(eventually(lambda: worker_processes(command))).kill()
    assert arrived() < ALL, "the last one was killed too late"


def worker_processes(command: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return the processes in which jobs run: not the one that forks them, nor any that has ended."""
    children = psutil.Process(command.pid).children(recursive=True)
    ended = {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    with contextlib.suppress(psutil.NoSuchProcess):
        return [one for one in children if one.name() != "pgqueue-fork" and one.status() not in ended]
    return []


def told(log: Path) -> list[list]:
    """Return the complete lines of JSON that a process has printed so far."""
    return [
        json.loads(line) for line in log.read_text().splitlines(keepends=True) if line[0] == "[" and line[-1] == "\n"
    ]


def versions(events: list[list]) -> dict[str, list[int]]:
    """Return the versions of each key, in the order of the events."""
    found: dict[str, list[int]] = {}
    for key, event, *_ in events:
        found.setdefault(key, []).append(event["version"])
    return found


AWS = {"AWS_DEFAULT_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "only"}


@pytest.fixture(scope="module")
def migrated(foreign, tmp_path_factory) -> Project:
    project = Project(foreign, tmp_path_factory.mktemp("migrated"), "SQS", **AWS)
    project.manage("migrate", "-v", "0")
    return project


@pytest.fixture
def make_project(foreign, migrated, tmp_path) -> Iterator[Callable[..., Project]]:
    """Make a project with the tasks below a heading of the page; no job of it is left for another test."""
    yield functools.partial(Project, foreign, tmp_path)
    migrated.manage("pgqueue_jobs", "kill", "--all", "--yes")


@pytest.fixture
def nats_server(tmp_path) -> Iterator[str]:
    """A NATS server with JetStream; give its URL."""
    if not (binary := shutil.which("nats-server")):
        pytest.skip(needs.NATS)
    port = free_port()
    (tmp_path / "limits").write_text("max_payload: 4096")
    server = subprocess.Popen(
        [
            *(binary, "-js", "-sd", tmp_path / "stream", "-a", "127.0.0.1", "-p", str(port)),
            *("-l", tmp_path / "log", "-c", tmp_path / "limits"),
        ]
    )
    yield f"nats://127.0.0.1:{port}"
    server.terminate()
    server.wait(PATIENCE_SECONDS)


def test_events_of_a_key_reach_nats_in_order_while_processes_are_killed(make_project, nats_server):
    """Of each key no later event arrives before an earlier one, none is lost, and the stream has each once."""
    project = make_project("NATS", NATS_URL=nats_server)
    assert MAKE_STREAM in (DOCS / "how-to" / "publish-to-a-broker.md").read_text()
    project.shell(MAKE_STREAM)
    with (project.folder / "shop" / "tasks.py").open("a") as tasks:
        tasks.write(FAILS)
    reader = str(INSIDE / "nats_stream.py")
    worker = ["-m", "django", "pgqueue_worker", "--queue", "outbox", "--processes", "4"]
    with project.running(reader, nats_server, "arriving", name="arrivals") as (_, arrivals):
        eventually(lambda: "ready" in arrivals.read_text())
        project.shell(ENQUEUE)
        with project.running(*worker, name="worker") as (command, log):
            kill_while(command, lambda: len(told(arrivals)))
            eventually(lambda: not project.statuses() or project.statuses()["dead"])
        assert not project.statuses(), log.read_text()
        in_stream = versions([json.loads(line) for line in project.python("nats_stream.py", nats_server, "stored")])
        arrived = versions(told(arrivals))
    assert in_stream == {f"orders.{key}": [*range(EVENTS)] for key in range(KEYS)}
    for key, numbers in arrived.items():
        assert [*dict.fromkeys(numbers)] == [*range(EVENTS)], f"{key}: {numbers}"
    again = sum(map(len, arrived.values())) - ALL
    logger.info("%s of %s events arrived again after %s kills", again, ALL, KILLS)


def test_event_that_is_too_large_for_nats_is_dead_and_the_next_one_of_its_key_arrives(make_project, nats_server):
    project = make_project("NATS", NATS_URL=nats_server)
    project.shell(MAKE_STREAM)
    project.shell(TOO_LARGE)
    project.manage("pgqueue_worker", "--drain")
    [dead] = json.loads(project.manage("pgqueue_jobs", "list", "--reason", "discarded", "--json"))["jobs"]
    assert dead["status"] == "dead"
    in_stream = versions([json.loads(line) for line in project.python("nats_stream.py", nats_server, "stored")])
    assert in_stream == {"orders.17": [2]}


def test_kafka_has_the_events_that_jobs_have_confirmed(make_project):
    project = make_project("Kafka")
    with project.running(str(INSIDE / "kafka_cluster.py"), name="cluster") as (_, log):
        told_address = eventually(lambda: re.search(r"^(127\.0\.0\.1:\d+)\n", log.read_text(), re.MULTILINE))
        project.variables["KAFKA"] = told_address[1]
        project.shell(BY_KAFKA)
        project.manage("pgqueue_worker", "--drain")
        assert not project.statuses()
        events = [json.loads(line) for line in project.python("kafka_topic.py", "2")]
        assert versions(events) == {"17": [1, 2]}
        assert len({key for *_, key in events}) == len(events)
    project.shell(BY_KAFKA)
    project.manage("pgqueue_worker", "--drain")
    assert project.statuses() == {"scheduled": 1, "limited": 1}, "without a broker nothing is confirmed"


def test_sqs_has_the_events_in_the_group_of_their_key(make_project):
    project = make_project("SQS", **AWS)
    events = [json.loads(line) for line in project.shell(BY_SQS)]
    assert versions(events) == {"17": [1, 2]}
    assert len({key for *_, key in events}) == len(events)
