"""Awa: https://github.com/hardbyte/awa/blob/main/docs/configuration.md.

* The Rust engine claims and finishes; the handler is an ``async def`` in Python.
* ``max_workers`` 500 in place of 50; neither 2,000 nor larger claim batches were faster here. COPY to enqueue.
"""

import asyncio
import signal
from dataclasses import dataclass

import awa
import psycopg

from benchmarks.peers.tally import count
from benchmarks.peers.workers import base

NAME = "bench"
WORKERS = 500
OPEN_CLAIMS = """
    SELECT (SELECT count(*) FROM awa.lease_claims)
        + (SELECT coalesce(sum(claimed_count), 0) FROM awa.lease_claim_batches)
        - (SELECT count(*) FROM awa.lease_claim_closures)
        - (SELECT coalesce(sum(closed_count), 0) FROM awa.lease_claim_closure_batches)
"""
"""What was claimed and is not finished. ``queue_stats()`` takes minutes while tables that were empty a moment ago are
full; jobs that wait need not be counted, as this is asked once all were called."""


@dataclass
class Noop:
    pass


class Queue(base.Queue):
    def __init__(self) -> None:
        self.client = awa.Client(base.DATABASE_URL)

    def prepare(self) -> None:
        self.client.migrate()
        self.client.install_queue_storage()

    def seed(self, count: int) -> None:
        for size in base.chunks(count):
            self.client.enqueue_many_copy([Noop()] * size, queue=NAME)

    def enqueue(self) -> None:
        self.client.insert(Noop(), queue=NAME)

    def left(self) -> int:
        with psycopg.connect(base.DATABASE_URL) as connection:
            return connection.execute(OPEN_CLAIMS).fetchone()[0]

    def work(self) -> None:
        asyncio.run(work())


async def work() -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    client = awa.AsyncClient(base.DATABASE_URL, max_connections=20)

    @client.task(Noop, queue=NAME)
    async def noop(job: awa.Job) -> None:  # noqa: ARG001 - the signature is the library's
        count()

    await client.start([{"name": NAME, "max_workers": WORKERS}])
    await stopped.wait()
    await client.shutdown()
