"""Kill relays and producers of an outbox at random points, and say whether each committed call became one job.

Producers write orders into one database, with a call in its outbox for each, and roll a tenth of the transactions
back. Relays hand the calls over to the queue's database. All are processes that are killed by SIGKILL, and begun again.
Jobs are removed as soon as they are there, as workers do, so that no id is left to collide with; a trigger notes each
that is inserted. Exit code 0 if nothing was lost, handed over twice or handed over though it was rolled back; 1 if so.

    python -m tests.chaos.outbox
"""

import argparse
import contextlib
import ctypes
import multiprocessing
import os
import random
import secrets
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing import sharedctypes
from typing import Any

import django
import environ
import psycopg
from django.conf import settings
from django.db import connections, transaction

from tests.support.server import Server
from tests.support.waiting import eventually

DATA = "data"
PRODUCERS, RELAYS = 2, 2
RELAY_SHARE = 0.7
"""Share of the kills that relays get."""

MOST_IN_TRANSACTION = 8
ROLLED_BACK = 10
"""Every tenth transaction of a producer is rolled back."""

LONGEST_DELAY = 0.05
"""Maximum time, in seconds, from when a kill is due until it is done."""

NOTE_INSERTED = """
CREATE TABLE arrived (job_id bigint, number bigint);
CREATE FUNCTION note_arrival() RETURNS trigger LANGUAGE plpgsql AS
    $$BEGIN INSERT INTO arrived VALUES (NEW.id, (NEW.args ->> 0)::bigint); RETURN NULL; END$$;
CREATE TRIGGER note_arrival AFTER INSERT ON pgqueue_jobs FOR EACH ROW EXECUTE FUNCTION note_arrival()
"""

fork = multiprocessing.get_context("fork")


class Run:
    """One run, to be made once. Processes are forked: what they share is memory that outlives each of them."""

    def __init__(self, calls: int, kills: int, seed: str) -> None:
        self._calls, self._kills = calls, kills
        self._random = random.Random(seed)
        self._transactions = sharedctypes.RawArray(ctypes.c_int64, PRODUCERS)  # begun
        self._committed = sharedctypes.RawArray(ctypes.c_int64, PRODUCERS)  # calls, as far as their producer knows
        self._rolled_back = sharedctypes.RawArray(ctypes.c_int64, PRODUCERS)
        self._is_over = threading.Event()

    def make(self) -> bool:
        """Make it; print what was found; return whether all is well."""
        processes = {place: self._begin(*place) for place in self._places()}
        try:
            with self._removing_jobs():
                killed = self._kill(processes)
                for (kind, number), process in processes.items():
                    if kind == "producer":
                        process.kill()
                        killed[kind, number] += 1
                eventually(self._is_empty)
        finally:
            for process in processes.values():
                process.kill()
                process.join()
        return self._judge(killed)

    def _places(self) -> list[tuple[str, int]]:
        return [*(("relay", n) for n in range(RELAYS)), *(("producer", n) for n in range(PRODUCERS))]

    def _begin(self, kind: str, number: int) -> Any:
        target = relay if kind == "relay" else self._produce
        process = fork.Process(target=target, args=(number,), daemon=True)
        process.start()
        return process

    def _kill(self, processes: dict[tuple[str, int], Any]) -> Counter[tuple[str, int]]:
        """Kill one after the other, evenly over all calls, each at a random moment."""
        killed: Counter[tuple[str, int]] = Counter()
        for count in range(1, self._kills + 1):
            due = count * self._calls / self._kills
            eventually(lambda due=due: sum(self._committed) >= due or self._has_ended(processes))
            time.sleep(self._random.uniform(0, LONGEST_DELAY))
            kind = "relay" if self._random.random() < RELAY_SHARE else "producer"
            place = self._random.choice([one for one in processes if one[0] == kind])
            os.kill(processes[place].pid, signal.SIGKILL)
            processes[place].join()
            processes[place] = self._begin(*place)
            killed[place] += 1
        return killed

    def _has_ended(self, processes: dict[tuple[str, int], Any]) -> bool:
        for place, process in processes.items():
            if process.exitcode is not None:
                raise RuntimeError(f"{place} has ended by itself, with exit code {process.exitcode}.")
        return False

    def _produce(self, producer: int) -> None:
        from tests.chaos.tasks import victim

        while True:
            count = self._transactions[producer] = self._transactions[producer] + 1
            number = random.randint(1, MOST_IN_TRANSACTION)
            first = (count * PRODUCERS + producer) * MOST_IN_TRANSACTION
            orders = range(first, first + number)
            is_unwanted = count % ROLLED_BACK == 0
            with transaction.atomic(using=DATA):
                handles = victim.enqueue_many([(order,) for order in orders])
                with connections[DATA].cursor() as cursor:
                    rows = [(order, handle.id) for order, handle in zip(orders, handles, strict=True)]
                    cursor.executemany("INSERT INTO orders VALUES (%s, %s)", rows)
                transaction.set_rollback(is_unwanted, using=DATA)
            counted = self._rolled_back if is_unwanted else self._committed
            counted[producer] += number

    @contextlib.contextmanager
    def _removing_jobs(self) -> Iterator[None]:
        def remove() -> None:
            with connect("default") as queue:
                while not self._is_over.wait(0.005):
                    queue.execute("DELETE FROM pgqueue_jobs")

        remover = threading.Thread(target=remove)
        remover.start()
        try:
            yield
        finally:
            self._is_over.set()
            remover.join()

    def _is_empty(self) -> bool:
        with connect(DATA) as data:
            return data.execute("SELECT count(*) FROM pgqueue_outbox").fetchone() == (0,)

    def _judge(self, killed: Counter[tuple[str, int]]) -> bool:
        with connect(DATA) as data, connect("default") as queue:
            orders = dict(data.execute("SELECT number, job_id FROM orders").fetchall())
            arrivals = queue.execute("SELECT number, job_id FROM arrived").fetchall()
            [notes] = queue.execute("SELECT count(*) FROM pgqueue_handed_over").fetchone()
        times = Counter(number for number, _ in arrivals)
        lost = orders.keys() - times.keys()
        twice = [number for number, count in times.items() if count > 1]
        unwanted = times.keys() - orders.keys()
        strange = [number for number, job_id in arrivals if orders.get(number, job_id) != job_id]
        left = notes_after_a_day()
        kinds = Counter(kind for kind, _ in killed.elements())
        print(
            f"{len(orders)} committed, {sum(self._rolled_back)} rolled back, killed: {kinds['relay']} relays, "
            f"{kinds['producer']} producers; {notes} notes were left, and after a day {left}"
        )
        print(f"lost {len(lost)}, twice {len(twice)}, of rolled back {len(unwanted)}, with another id {len(strange)}")
        return not (lost or twice or unwanted or strange or left) and len(orders) >= self._calls


def relay(_: int) -> None:
    from django_pgqueue.outbox.relay import Relay
    from django_pgqueue.services import ServiceRunner

    ServiceRunner("relay", Relay("default", DATA).serve_once).run()


def notes_after_a_day() -> int:
    """Let the notes be old, and a relay prune them; return how many are left."""
    from django_pgqueue.outbox.relay import Relay

    with connect("default") as queue, contextlib.closing(Relay("default", DATA)) as pruning:
        queue.execute("UPDATE pgqueue_handed_over SET at = now() - interval '2 days'")
        while not pruning.pass_once():
            pass
        [left] = queue.execute("SELECT count(*) FROM pgqueue_handed_over").fetchone()
    return left


def connect(alias: str) -> psycopg.Connection[Any]:
    known = connections.settings[alias]
    return psycopg.connect(host=known["HOST"], user=known["USER"], dbname=known["NAME"], autocommit=True)


def set_up(server_url: str) -> None:
    """Make two databases on a server, and their tables."""
    known = environ.Env.db_url_config(server_url)
    with psycopg.connect(host=known["HOST"], user=known["USER"], dbname=known["NAME"], autocommit=True) as first:
        for name in ("queue", "data"):
            first.execute(f"CREATE DATABASE {name}")
    settings.configure(
        DATABASES={"default": known | {"NAME": "queue"}, DATA: known | {"NAME": "data"}},
        DATABASE_ROUTERS=["django_pgqueue.routers.PgQueueRouter"],
        INSTALLED_APPS=["django_pgqueue", "django_pgqueue.outbox", "tests.chaos"],
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        USE_TZ=True,
        PGQUEUE={"OUTBOXES": {DATA: 0}},
    )
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    call_command("migrate", "pgqueue_outbox", database=DATA, verbosity=0)
    connections.close_all()  # none is inherited by the processes
    with connect("default") as queue, connect(DATA) as data:
        queue.execute(NOTE_INSERTED)
        data.execute("CREATE TABLE orders (number bigint PRIMARY KEY, job_id bigint)")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.outbox", description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000, help="to be committed; default: 20000")
    parser.add_argument("--kills", type=int, default=150, help="of relays and producers; default: 150")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="of which process is killed, and when")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Stopped."))
    begun = time.monotonic()
    print(f"seed {options.seed}", flush=True)
    server = Server()
    try:
        set_up(server.url)
        is_well = Run(options.calls, options.kills, options.seed).make()
    finally:
        server.remove()
    print(f"{time.monotonic() - begun:.0f} s")
    sys.exit(not is_well)


if __name__ == "__main__":
    main()
