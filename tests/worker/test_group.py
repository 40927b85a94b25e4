"""One command that serves several databases, one of which is away for a while."""

import collections
import io
import json
import logging
import signal
import threading
import urllib.request

import pytest
from django.core.management import CommandError, call_command
from django.db import Error, connections

import tests.app.tasks as app
from django_pgqueue.cli import arguments
from django_pgqueue.exceptions import ShardUnavailable
from django_pgqueue.management.commands import pgqueue_worker
from django_pgqueue.models import Job, SucceededJob, Worker
from django_pgqueue.worker.config import DatabaseFilter
from django_pgqueue.worker.group import SupervisorGroup
from django_pgqueue.worker.listener import Listener
from django_pgqueue.worker.supervisor import Supervisor
from tests.support.ports import free_port
from tests.support.proxy import Detour
from tests.support.stuck import Clock
from tests.support.waiting import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

SPREAD = app.noop.using(queue="spread")
KEYED = app.record.using(queue="spread", shard_by="label")
OF_TWO = {"DJANGO_SETTINGS_MODULE": "tests.processes.several_settings"}


@pytest.fixture(autouse=True)
def _log_as_before():
    yield
    logger = logging.getLogger("django_pgqueue.worker")
    logger.filters[:] = [one for one in logger.filters if not isinstance(one, DatabaseFilter)]


@pytest.fixture
def start(start_worker, other_server):
    """Start a command for both databases."""

    def started(*options: str, **environment: str):
        return start_worker(*options, OTHER_URL=other_server.url, **OF_TWO, **environment)

    return started


@pytest.fixture
def detour(transactional_db):
    made = Detour()
    yield made
    made.close()


def succeeded(alias: str) -> set[int]:
    try:
        return set(SucceededJob.objects.using(alias).values_list("pk", flat=True))
    except Error:
        connections[alias].close()
        return set()


def ask(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def is_ready(answer: tuple[int, str]) -> bool:
    """Whether a command serves all of its databases."""
    status, body = answer
    return status == 200 and json.loads(body)["problems"] == []


def test_command_drains_all_databases_of_the_project(shard, caplog):
    caplog.set_level(logging.INFO, "django_pgqueue")
    here, there = app.record.enqueue("a"), app.record.using(database=shard).enqueue("b")
    call_command("pgqueue_worker", drain=True)
    assert (here.result(), there.result()) == ("recorded a", "recorded b")
    for alias in ("default", shard):
        assert f"Drained (database {alias})" in caplog.messages
    started = [record for record in caplog.records if record.message.startswith("pgqueue worker")]
    assert sorted(record.database for record in started) == ["default", shard]


def test_command_serves_those_that_are_named(shard):
    here, there = app.record.enqueue("a"), app.record.using(database=shard).enqueue("b")
    call_command("pgqueue_worker", database=[shard], drain=True, verbosity=0)
    assert there.result() == "recorded b"
    assert Job.objects.get().pk == here.id
    call_command("pgqueue_worker", "--database=default", f"--database={shard}", "--drain", verbosity=0)
    assert here.result() == "recorded a"


def test_command_for_one_database_names_none(caplog):
    caplog.set_level(logging.INFO, "django_pgqueue")
    call_command("pgqueue_worker", drain=True)
    assert "Drained" in caplog.messages


def test_database_without_tables_ends_the_command(settings, monkeypatch):
    settings.PGQUEUE = settings.PGQUEUE | {"SHARDS": {"other": {"number": 1}}}
    connections["other"].close()
    monkeypatch.setitem(connections.settings["other"], "NAME", "postgres")
    with pytest.raises(CommandError, match="There is no table pgqueue_jobs"):
        call_command("pgqueue_worker", drain=True, verbosity=0)
    connections["other"].close()


def test_all_away_ends_the_command(far, other_server, monkeypatch):
    other_server.stop()
    with pytest.raises(CommandError, match="The database of alias 'other' cannot be reached"):
        call_command("pgqueue_worker", database=far, drain=True, verbosity=0)


def test_database_that_is_away_at_the_start_is_served_once_it_is_there(far, other_server, start):
    there = app.noop.using(database=far).enqueue()
    connections[far].close()
    other_server.stop()
    worker = start()
    eventually(lambda: "'other' cannot be reached, and is served once it can be" in worker.text())
    here = app.noop.enqueue()
    eventually(lambda: here.id in succeeded("default") or worker.must_live())
    other_server.restart("fast")
    eventually(lambda: there.id in succeeded(far) or worker.must_live())
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert "Stopped (database other)" in worker.text()


def test_alias_of_django_itself_that_is_away_at_the_start_stops_none_of_the_others(far, detour, start):
    here, there = app.noop.enqueue(), app.noop.using(database=far).enqueue()
    detour.go_away()
    worker = start(DATABASE_URL=detour.url())
    eventually(lambda: there.id in succeeded(far) or worker.must_live())
    detour.come_back()
    eventually(lambda: here.id in succeeded("default") or worker.must_live())
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


def test_drain_leaves_a_database_out_that_is_away_and_asks_it_once(far, other_server, monkeypatch, caplog):
    here, asked = app.record.enqueue("a"), []
    monkeypatch.setattr(pgqueue_worker, "is_there", lambda alias, **options: asked.append(alias) or True)
    other_server.stop()
    with pytest.raises(SystemExit) as ended:
        call_command("pgqueue_worker", drain=True, skip_checks=False)
    assert (ended.value.code, asked) == (1, ["default"])
    assert here.result() == "recorded a"
    assert f"The database {far!r} cannot be reached, and is not drained" in caplog.messages


def test_all_databases_are_waited_for_until_one_deadline(far, other_server, monkeypatch):
    """Else one would be left out though it is back, as another was waited for after it."""
    waits, await_database, clock = {}, pgqueue_worker.await_database, Clock()

    def awaited(alias, *, seconds):
        waits[alias] = seconds
        clock.seconds += seconds
        await_database(alias, seconds=0)

    monkeypatch.setattr(pgqueue_worker, "await_database", awaited)
    monkeypatch.setattr(pgqueue_worker, "time", clock)
    other_server.stop()
    with pytest.raises(SystemExit):
        call_command("pgqueue_worker", database=[far, "default"], wait_for_database=60, drain=True, verbosity=0)
    assert waits == {far: 60, "default": 0}


def test_command_ends_once_the_databases_that_are_there_were_stopped(far, other_server, start):
    other_server.stop()
    worker = start()
    eventually(lambda: "served once it can be" in worker.text() or worker.must_live())
    worker.wait_until_ready()
    call_command("pgqueue_workers", "stop", "--all", "--database", "default", "--json", stdout=io.StringIO())
    assert worker.wait() == 0


def test_silent_database_is_one_that_is_away(far, other_server, monkeypatch):
    monkeypatch.setattr(arguments, "PATIENCE_SECONDS", 0.5)
    with other_server.connect() as session, session.transaction():
        session.execute("LOCK TABLE pg_sequence IN ACCESS EXCLUSIVE MODE")
        assert not pgqueue_worker.is_there(far)
    monkeypatch.setattr(arguments, "PATIENCE_SECONDS", PATIENCE_SECONDS)
    assert pgqueue_worker.is_there(far)


def test_end_of_one_does_not_wait_for_that_of_another(shard, monkeypatch):
    both, finish = threading.Barrier(2, timeout=PATIENCE_SECONDS), Supervisor.finish

    def finish_together(self):
        both.wait()
        finish(self)

    monkeypatch.setattr(Supervisor, "finish", finish_together)
    call_command("pgqueue_worker", drain=True, verbosity=0)
    assert not both.broken


def test_error_at_the_end_of_one_is_logged_and_makes_the_exit_code(shard, monkeypatch, caplog):
    finish = Supervisor.finish

    def fail_on_one(self):
        finish(self)
        if self.alias == shard:
            raise ZeroDivisionError

    monkeypatch.setattr(Supervisor, "finish", fail_on_one)
    with pytest.raises(SystemExit) as ended:
        call_command("pgqueue_worker", drain=True, verbosity=0)
    [record] = [record for record in caplog.records if record.exc_info]
    assert (ended.value.code, record.database, record.exc_info[0]) == (1, shard, ZeroDivisionError)


def test_ends_are_waited_for_though_the_command_fails(shard, monkeypatch):
    go_on, finish, watch, join = threading.Event(), Supervisor.finish, SupervisorGroup._watch, threading.Thread.join

    def finish_late(self):
        finish(self)
        go_on.wait(PATIENCE_SECONDS)

    def fail_once_all_finish(self):
        watch(self)
        if not self._serving:
            raise ZeroDivisionError

    def joined(self, timeout=None):
        if is_end(self):
            go_on.set()
        join(self, timeout)

    def is_end(thread):
        return thread.name.startswith("pgqueue-finish")

    monkeypatch.setattr(Supervisor, "finish", finish_late)
    monkeypatch.setattr(SupervisorGroup, "_watch", fail_once_all_finish)
    monkeypatch.setattr(threading.Thread, "join", joined)
    try:
        with pytest.raises(ZeroDivisionError):
            call_command("pgqueue_worker", drain=True, verbosity=0)
        assert not list(filter(is_end, threading.enumerate()))
    finally:
        go_on.set()


def test_processes_are_watched_while_the_server_is_silent_to_listen(shard, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "django_pgqueue")
    watch, is_watched, told = Supervisor.watch, threading.Event(), []

    def watched(self, ready):
        if not is_watched.is_set():
            told.extend(caplog.messages)
        is_watched.set()
        watch(self, ready)

    monkeypatch.setattr(Listener, "pass_once", lambda self: 0.1 * is_watched.wait())
    monkeypatch.setattr(Supervisor, "watch", watched)
    call_command("pgqueue_worker", drain=True)
    assert len([message for message in caplog.messages if message.startswith("pgqueue worker")]) == 2
    assert not any(message.startswith("pgqueue worker") for message in told)


def test_one_of_two_dies_under_load_and_comes_back(far, other_server, start):
    """No job is lost or made twice, and the other database is served all the time."""
    port, metrics = free_port(), free_port()
    worker = start("--health-port", str(port), "--metrics-port", str(metrics))
    handles = [SPREAD.enqueue() for _ in range(200)]
    assert {one.database for one in handles} == {"default", far}
    eventually(lambda: is_ready(ask(port, "/ready")) or worker.must_live())
    other_server.stop()
    away = [SPREAD.enqueue() for _ in range(200)]
    assert {one.database for one in away} == {"default"}
    with pytest.raises(ShardUnavailable):
        KEYED.enqueue_many([(str(number),) for number in range(50)])
    eventually(lambda: {one.id for one in away} <= succeeded("default") or worker.must_live())
    eventually(lambda: "other: " in ask(port, "/ready")[1])
    eventually(lambda: ask(port, "/ready")[0] == ask(port, "/live")[0] == 200)
    up = ('pgqueue_up{database="default"} 1.0', 'pgqueue_up{database="other"} 0.0')
    eventually(lambda: all(map(ask(metrics, "/metrics")[1].__contains__, up)))
    other_server.restart("fast")
    eventually(
        lambda: far in {one.database for one in [SPREAD.enqueue() for _ in range(10)] if not handles.append(one)}
    )
    made = [one.id for one in [*handles, *away]]
    eventually(lambda: set(made) <= succeeded("default") | succeeded(far) or worker.must_live())
    done = [*SucceededJob.objects.values_list("pk", flat=True)]
    done += SucceededJob.objects.using(far).values_list("pk", flat=True)
    assert collections.Counter(done) == collections.Counter(made)
    eventually(lambda: 'pgqueue_up{database="other"} 1.0' in ask(metrics, "/metrics")[1])
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    for alias in ("default", far):
        assert f"(database {alias})" in worker.text()
        assert not Worker.objects.using(alias).exists()
