"""Kill the primaries of two databases of the queue, one after the other, while the example shop sells.

Each is a PostgreSQL with a standby on this machine, by streaming replication; what is committed is on the standby too
(synchronous_commit = remote_apply). The shop's data and most of its jobs are on one of them; the receipts of the orders
go to the other by an outbox. A worker serves each. Where PgBouncer is installed, the shop's pages reach each of both
through one, which is led to the new primary as by a callback of Patroni; workers connect themselves. Each primary is
killed once, and its standby promoted at once: how soon that is noticed, as by Patroni, comes on top elsewhere.

Exit code 0 if every order that a customer has confirmed is there, each has got its receipt and was told to the courier,
and each piece was counted once; 1 if not.

    python -m tests.chaos.shop
"""

import argparse
import contextlib
import http.server
import itertools
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg

from tests.support import pgbouncer
from tests.support.cluster import Cluster
from tests.support.pgbouncer import PgBouncer
from tests.support.waiting import eventually

ROOT = Path(__file__).parent.parent.parent
PROJECT = ROOT / "example_project"
SHARDS = ("default", "queue_2")
SELLERS = 2
PAUSE_SECONDS = 0.02
"""Interval between the orders of a customer."""

RETRY_SECONDS = 0.5
"""Interval at which PgBouncer tries a server again that has refused; 15 s by default."""

LAMPS = ("Desk lamp", "Night light", "Reading lamp")


class Courier(http.server.BaseHTTPRequestHandler):
    """Takes every parcel."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


class Customers:
    """Order lamps on the shop's page, again and again, whatever it answers; all in threads.

    Attributes:
        confirmed: the addresses of the orders that the shop has confirmed, with the time of each.
        refused: number of orders that met an error.
    """

    def __init__(self) -> None:
        self.confirmed: dict[str, float] = {}
        self.refused = 0
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._order, daemon=True) for _ in range(SELLERS)]

    def begin(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _order(self) -> None:
        from django.db import close_old_connections, connections
        from django.test import Client
        from shop.models import Product

        [*products] = Product.objects.values_list("pk", flat=True)
        for number in itertools.count():
            if self._is_over.wait(PAUSE_SECONDS):
                break
            form = {
                "product": products[number % len(products)],
                "quantity": 1 + number % 3,
                "name": "Ada",
                "email": "ada@customers.example",
                "pickup_point": "harbour",
            }
            close_old_connections()  # as a web server does before each request, and this client does not
            answer = Client(raise_request_exception=False).post("/", form)
            if answer.status_code == http.HTTPStatus.FOUND:
                self.confirmed[answer.url] = time.time()
            else:
                self.refused += 1
        connections.close_all()


class Run:
    """One run, to be made once."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder, self._seconds = folder, seconds
        self._clusters: dict[str, Cluster] = {}
        self._poolers: dict[str, PgBouncer] = {}
        self._killed_at: dict[str, float] = {}
        self._workers: list[subprocess.Popen[bytes]] = []

    def make(self) -> bool:
        """Make it; print what was found; return whether all is well."""
        with contextlib.ExitStack() as stack:
            self._set_up(stack)
            customers = Customers()
            customers.begin()
            stack.callback(customers.end)
            for shard in reversed(SHARDS):
                self._go_on(customers)
                print(f"killing the primary of {shard} ...", flush=True)
                self._killed_at[shard] = time.time()
                self._clusters[shard].fail_over()
                if pooler := self._poolers.get(shard):
                    pooler.lead_to(self._clusters[shard].primary.settings())
                print(f"its standby was promoted after {time.time() - self._killed_at[shard]:.1f} s", flush=True)
            self._go_on(customers)
            customers.end()
            eventually(lambda: not self._left())
            if self._retry_dead():
                eventually(lambda: not self._left())
            return self._judge(customers)

    def _set_up(self, stack: contextlib.ExitStack) -> None:
        for shard in SHARDS:
            (home := self._folder / shard).mkdir()
            self._clusters[shard] = Cluster(home)
            stack.callback(self._clusters[shard].stop)
            self._clusters[shard].start()
            if pgbouncer.BINARY:
                self._poolers[shard] = PgBouncer(
                    server=self._clusters[shard].primary.settings(), server_login_retry=RETRY_SECONDS
                )
                stack.callback(self._poolers[shard].stop)
        print("the shop's pages go through PgBouncer" if self._poolers else "PgBouncer is not installed", flush=True)
        courier = stack.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Courier))
        threading.Thread(target=courier.serve_forever, daemon=True).start()
        stack.callback(courier.shutdown)
        sys.path.insert(0, str(PROJECT))
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "tests.chaos.shop_settings",
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, PROJECT))),
            "SHOP_VAR": str(self._folder / "var"),
            **self._addresses(self._poolers or self._clusters),
            "DEBUG": "0",
            "COURIER_URL": f"http://127.0.0.1:{courier.server_port}/",
        }
        make_tables()
        for shard in SHARDS:
            stack.enter_context(self._worker(shard))

    @staticmethod
    def _addresses(servers: Mapping[str, Cluster | PgBouncer]) -> dict[str, str]:
        return {"DATABASE_URL": servers["default"].url(), "QUEUE_2_URL": servers["queue_2"].url()}

    @contextlib.contextmanager
    def _worker(self, shard: str) -> Iterator[None]:
        with (self._folder / f"worker-{shard}.log").open("wb") as log:
            command = [sys.executable, PROJECT / "manage.py", "pgqueue_worker", "--database", shard]
            environment = os.environ | self._addresses(self._clusters)
            worker = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            self._workers.append(worker)
            try:
                yield
            finally:
                worker.terminate()
                try:
                    worker.wait(30)
                except subprocess.TimeoutExpired:
                    worker.kill()
                    worker.wait()

    def _go_on(self, customers: Customers) -> None:
        """Wait until all have worked for a while since the last kill: the shop, and the worker of each shard."""
        begun = time.time()

        def works() -> bool:
            if any(worker.poll() is not None for worker in self._workers):
                raise RuntimeError("A worker has ended by itself: see its log.")
            latest = [max(customers.confirmed.values(), default=0.0), *(self._ends(one)[-1] for one in SHARDS)]
            return min(latest) > begun + self._seconds

        eventually(works)

    def _ends(self, shard: str) -> list[float]:
        """Return when jobs have ended on a shard, as seconds since 1970."""
        text = "SELECT date_part('epoch', succeeded_at) FROM pgqueue_succeeded_jobs ORDER BY 1"
        with contextlib.suppress(psycopg.OperationalError):  # the new primary is not ready
            return [0.0, *(seconds for (seconds,) in self._clusters[shard].primary.sql(text))]
        return [0.0]

    def _left(self) -> int:
        waiting = "SELECT count(*) FROM pgqueue_jobs"
        calls = self._clusters["default"].primary.sql("SELECT count(*) FROM pgqueue_outbox")
        return sum(number for shard in SHARDS for [number] in self._clusters[shard].primary.sql(waiting)) + calls[0][0]

    def _retry_dead(self) -> int:
        """Retry dead jobs, as staff does: calls of the courier have few attempts, which a long failover uses up."""
        from django_pgqueue.jobs import retry

        number = 0
        for shard in SHARDS:
            for job_id, task, reason in self._clusters[shard].primary.sql(
                "SELECT id, task, reason FROM pgqueue_dead_jobs"
            ):
                print(f"retrying the dead job {job_id}, {task}: {reason}", flush=True)
                number += len(retry([job_id], by="staff").ids)
        return number

    def _judge(self, customers: Customers) -> bool:
        ends = {"shop": sorted(customers.confirmed.values()), **{shard: self._ends(shard) for shard in SHARDS}}
        print(f"\n{'stood still for, in seconds':30}{'shop':>10}{'default':>10}{'queue_2':>10}")
        for shard, killed_at in self._killed_at.items():
            until = killed_at + self._seconds if shard != SHARDS[0] else time.time()
            gaps = "".join(f"{longest_gap(seen, killed_at, until):10.1f}" for seen in ends.values())
            print(f"{f'after the kill of {shard}':30}{gaps}")
        data = self._clusters["default"].primary
        orders = {
            f"/orders/{reference}/": (has_receipt, is_told)
            for reference, has_receipt, is_told in data.sql(
                "SELECT reference, receipt_sent_at IS NOT NULL, courier_told_at IS NOT NULL FROM shop_order"
            )
        }
        [(ordered, sold)] = data.sql(
            "SELECT (SELECT sum(quantity) FROM shop_order), (SELECT sum(sold) FROM shop_product)"
        )
        dead = [self._clusters[shard].primary.sql("SELECT count(*) FROM pgqueue_dead_jobs") for shard in SHARDS]
        faults = {
            "confirmed orders lost": len(customers.confirmed.keys() - orders.keys()),
            "orders without a receipt": sum(not has_receipt for has_receipt, _ in orders.values()),
            "orders of which the courier does not know": sum(not is_told for _, is_told in orders.values()),
            "pieces not counted, or twice": abs(ordered - sold),
            "dead jobs": sum(number for [(number,)] in dead),
        }
        print(f"\n{len(customers.confirmed)} orders confirmed, {customers.refused} refused, {len(orders)} saved")
        print("".join(f"{name:45}{number:6}\n" for name, number in faults.items()))
        return not any(faults.values()) and bool(orders)


def longest_gap(ends: list[float], since: float, until: float) -> float:
    """Return the longest time without an end that was not over at ``since``, and began before ``until``."""
    gaps = [later - earlier for earlier, later in itertools.pairwise(ends) if later > since and earlier < until]
    return max(gaps, default=0.0)


def make_tables() -> None:
    import django
    from django.core.management import call_command
    from django.db import connections

    django.setup()
    logging.disable(logging.CRITICAL)  # what the shop's pages meet is counted
    call_command("migrate", verbosity=0)
    call_command("migrate", "pgqueue", database="queue_2", verbosity=0)
    call_command("migrate", "pgqueue_outbox", database="queue_2", verbosity=0)
    from shop.models import Product

    for name in LAMPS:
        Product.objects.get_or_create(name=name, defaults={"price": 10, "account": "8400"})
    connections.close_all()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.shop", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of sales around each kill; default: 10")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Stopped."))
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pgqueue-cluster-") as folder:
        is_well = Run(Path(folder), options.seconds).make()
    print(f"{time.monotonic() - begun:.0f} s")
    sys.exit(not is_well)


if __name__ == "__main__":
    main()
