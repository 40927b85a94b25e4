"""A primary dies or is demoted under load; workers and enqueuers go on with its replica by themselves."""

import contextlib
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import Error, connections, transaction

import tests.app.tasks as app
from tests.support.cluster import Cluster
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

ALIAS = "other"


@pytest.fixture
def cluster(transactional_db, settings) -> Iterator[Cluster]:
    """Two servers with the queue's tables, and an alias that leads to whichever takes writes."""
    settings.PGQUEUE = {"DATABASE": ALIAS}
    with contextlib.ExitStack() as stack:
        made = Cluster(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cluster-"))))
        stack.callback(made.stop)
        made.start()
        stack.enter_context(lead(ALIAS, made))
        call_command("migrate", "pgqueue", database=ALIAS, verbosity=0)
        call_command("migrate", "app", database=ALIAS, verbosity=0)
        yield made


@contextlib.contextmanager
def lead(alias: str, cluster: Cluster) -> Iterator[None]:
    """Let an alias lead to the cluster."""
    before = connections.settings[alias]
    connections.settings[alias] = before | cluster.settings()
    wrapper = connections[alias]
    del connections[alias]
    try:
        yield
    finally:
        connections[alias].close()
        connections.settings[alias] = before
        connections[alias] = wrapper


class Producer(threading.Thread):
    """Enqueues as a web application does, one transaction after the other; every fourth is rolled back."""

    def __init__(self, ledger: Path) -> None:
        super().__init__(daemon=True)
        self.committed: list[int] = []
        self.rolled_back: list[int] = []
        self.given: Counter[int] = Counter()  # the new primary may give an id again that was rolled back just before
        self.failures = 0
        self._ledger = str(ledger)
        self._is_told_to_stop = threading.Event()

    def run(self) -> None:
        while not self._is_told_to_stop.wait(0.005):
            try:
                self._enqueue()
            except Error:  # whether that was committed is not known
                self.failures += 1
                connections[ALIAS].close()
        connections[ALIAS].close()

    def close(self) -> None:
        self._is_told_to_stop.set()
        self.join()

    def _enqueue(self) -> None:
        with transaction.atomic(using=ALIAS):
            plain = app.log_and_record.enqueue(self._ledger).id
            atomic = app.log_and_record_atomic.enqueue(self._ledger).id
            self.given.update((plain, atomic))
            is_unwanted = len(self.committed) % 8 == 6 and len(self.rolled_back) < len(self.committed) / 4
            transaction.set_rollback(is_unwanted, using=ALIAS)
        (self.rolled_back if is_unwanted else self.committed).extend((plain, atomic))


def succeeded(cluster: Cluster) -> dict[int, int]:
    """Return the jobs that have succeeded, with their attempts."""
    return dict(cluster.primary.sql("SELECT id, attempts FROM pgqueue_succeeded_jobs"))


def wait_for_more(cluster: Cluster) -> None:
    """Wait until a hundred more jobs have succeeded."""
    known = len(succeeded(cluster))
    eventually(lambda: len(succeeded(cluster)) > known + 100)


def pids(cluster: Cluster) -> set[int]:
    return {pid for (pid,) in cluster.primary.sql("SELECT pid FROM pgqueue_workers WHERE pid <> 0")}


def test_failover_under_load_loses_nothing_and_runs_nothing_twice(cluster, start_worker, tmp_path):
    """With synchronous replication; first the primary dies, then the next one is demoted while it is up."""
    workers = [start_worker("--concurrency", "4", DATABASE_URL=cluster.url()) for _ in range(2)]
    eventually(lambda: len(pids(cluster)) == 2)
    children = pids(cluster)
    ledger = tmp_path / "ledger"
    producer = Producer(ledger)
    producer.start()
    with contextlib.closing(producer):
        for change in (cluster.fail_over, cluster.switch_over):
            wait_for_more(cluster)
            change()
            wait_for_more(cluster)
            if change == cluster.fail_over:
                cluster.rejoin()

    eventually(lambda: cluster.primary.sql("SELECT count(*) FROM pgqueue_jobs") == [(0,)])
    attempts, runs = (
        succeeded(cluster),
        Counter(tuple(map(int, line.split())) for line in ledger.read_text().splitlines()),
    )
    ran: dict[int, set[int]] = {}
    for job_id, attempt in runs:
        ran.setdefault(job_id, set()).add(attempt)
    assert cluster.primary.sql("SELECT count(*) FROM pgqueue_dead_jobs") == [(0,)]
    assert set(producer.committed) <= set(attempts)  # nothing that was committed is lost
    unwanted = {job_id for job_id in producer.rolled_back if producer.given[job_id] == 1}
    assert unwanted
    assert not unwanted & (set(attempts) | set(ran))
    assert max(runs.values()) == 1  # no run that was not counted as an attempt of its own
    assert {job_id: max(numbers) for job_id, numbers in ran.items()} == attempts
    assert pids(cluster) == children
    assert all(worker.process.poll() is None for worker in workers)
    assert not any("Traceback" in worker.text() for worker in workers)
