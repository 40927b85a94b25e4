import functools
import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection, connections
from django.test.utils import setup_databases, teardown_databases
from django.utils import translation
from hypothesis import settings

from django_pgqueue import registry, tasks
from django_pgqueue.db import notify
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.doctor import tables
from django_pgqueue.jobs import context, waiter
from django_pgqueue.worker import supervisor
from tests.support import groups, guard, summary, template
from tests.support.cores import cores
from tests.support.groups import seed_of
from tests.support.pgbouncer import PgBouncer
from tests.support.server import own_database
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.wheel import Environment, build
from tests.support.workers import Worker

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # of a shell that has put the tests into its background
    signal.signal(signal.SIGINT, signal.default_int_handler)

gc.disable()  # until all is collected: what is imported stays

pytest_plugins = [
    "tests.support.backends",
    "tests.support.bad_rows",
    "tests.support.benches",
    "tests.support.consumers",
    "tests.support.counted",
    "tests.support.dead_rows",
    "tests.support.declarations",
    "tests.support.passes",
    "tests.support.recent",
    "tests.support.retention",
    "tests.support.shards",
    "tests.support.slots",
    "tests.support.worker_rows",
]

MAX_PROCESSES = 8  # each starts a server, and the template of its commands


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Say what ``-n auto`` means: twice as many as there are cores, since much time goes with waiting for workers.

    One, where the server is not the tests' own and all of them would share it.
    """
    most = len(os.environ.get("TEST_SERVERS", "").split()) or MAX_PROCESSES
    return min(2 * cores(), most) if "TEST_SERVER_OF" in os.environ else 0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of all that belongs to the running of these tests."""
    groups.pytest_addoption(parser)
    guard.pytest_addoption(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Choose the same tests and the same examples each time, unless a seed says which."""
    config.pluginmanager.register(groups.Groups(config))
    config.pluginmanager.register(summary)
    guard.set_up(config)
    common = {"deadline": None, "print_blob": True, "database": None, "derandomize": seed_of(config) is None}
    settings.register_profile("quick", max_examples=25, stateful_step_count=40, **common)
    settings.register_profile("soak", max_examples=2000, stateful_step_count=100, **common)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Let the garbage collector pass over what stays until the end: all the modules and tests."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _in_english() -> Iterator[None]:
    """Leave no language behind: a request activates that of its browser for all that its thread does later."""
    yield
    translation.deactivate()


@pytest.fixture(autouse=True)
def _outside_of_jobs() -> Iterator[None]:
    """Leave no current job behind: what runs one in the test's own context makes it the current one for good."""
    yield
    context._current.set(None)


@pytest.fixture(autouse=True)
def _no_refusal_yet(monkeypatch) -> None:
    """Begin as a process to which no announcement was refused: of each refusal it would say no more."""
    monkeypatch.setattr(notify, "_refusals", {})


@pytest.fixture(autouse=True)
def _no_dead_rows_of_others(monkeypatch) -> None:
    """Find no dead rows of tests before, whose counts come late and outlive a rollback; who tests that sets a limit."""
    monkeypatch.setattr(tables, "MANY_DEAD_ROWS", 10**9)


@pytest.fixture(autouse=True)
def _patient_farewell(monkeypatch) -> None:
    """Let no command inside a test give up its threads at its end: they would leave rows and connections behind."""
    monkeypatch.setattr(supervisor, "FAREWELL_SECONDS", PATIENCE_SECONDS)


make_databases = functools.partial(setup_databases, verbosity=0, interactive=False, serialized_aliases=set())


@pytest.fixture(scope="session")
def django_db_setup(django_test_environment, django_db_blocker) -> Iterator[None]:
    """Make the test databases, as copies of migrated ones where the server has such."""
    with django_db_blocker.unblock():
        if "TEST_TEMPLATES" in os.environ:
            made = template.copy_databases() + make_databases(aliases={"lite"})
        else:
            made = make_databases(aliases={"default", "other", "lite"})
        for alias in template.DATABASES:
            _ = connections[alias].pg_version  # asked once: by checks of Django too, in tests that may not ask "other"
    yield
    with django_db_blocker.unblock():
        waiter.stop_all()  # their connections linger, and DROP DATABASE waits for some seconds only
        teardown_databases(made, verbosity=0)


@pytest.fixture
def queue(transactional_db) -> Iterator[QueueConnection]:
    """A worker's connection to the test database, whose writes are committed."""
    opened = QueueConnection("default", "test")
    yield opened
    opened.close()


@pytest.fixture
def other_queue(transactional_db) -> Iterator[QueueConnection]:
    """A second one."""
    opened = QueueConnection("default", "other test")
    yield opened
    opened.close()


@pytest.fixture
def pooler(transactional_db) -> Iterator[PgBouncer]:
    """A PgBouncer in transaction mode before the test database."""
    started = PgBouncer()
    yield started
    started.stop()


@pytest.fixture
def start_worker(transactional_db, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator:
    """Start real ``pgqueue_worker`` commands on the test database; whatever still runs at the end is killed.

    They are forked off a process that has imported all they need, but for those of ``afresh=True``, which are started
    as people do. With THROUGH_PGBOUNCER in the environment they go through one, and LISTEN directly.
    """
    started: list[Worker] = []
    given: dict[str, str] = {}
    if "THROUGH_PGBOUNCER" in os.environ:
        given = request.getfixturevalue("pooler").environment_to_listen()

    def start(*options: str, afresh: bool = False, **environment: str) -> Worker:
        log = tmp_path / f"worker-{len(started)}.log"
        worker = Worker(options, given | environment, log=log, afresh=afresh)
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.end()
        print(worker.log.name, worker.text(), sep="\n")  # noqa: T201 - pytest shows it where the test has failed


@pytest.fixture
def registry_of(monkeypatch):
    """Make a task of a function, which is gone afterwards."""
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    monkeypatch.setattr(registry, "_aliases", dict(registry._aliases))
    monkeypatch.setattr(registry, "_late", set())

    def declare(func, **options):
        func.__qualname__ = func.__name__
        made = tasks.task(**options)(func)
        registry._late.discard(made.name)  # as one that workers load
        return made

    return declare


@pytest.fixture
def sql(db):
    """Run SQL on Django's connection and return the rows."""

    def run(text: str, *parameters):
        with connection.cursor() as cursor:
            cursor.execute(text, parameters or None)
            return cursor.fetchall() if cursor.description else []

    return run


@pytest.fixture(scope="session")
def project() -> Path:
    return Path(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built package."""
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def outside(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    """A virtual environment that has the built package and cannot find this repository; for reading only."""
    return Environment(tmp_path_factory.mktemp("outside") / "venv", wheel)


@pytest.fixture
def libpq() -> Iterator[dict[str, str]]:
    """The variables that lead libpq to an empty database, for a project of a test's own: PGHOST, PGDATABASE and so on.

    Django reads them too, where DATABASES says nothing else: but for the NAME, which it wants to be told.
    """
    with own_database() as variables:
        yield variables
