"""Awa: https://github.com/hardbyte/awa/blob/main/docs/configuration.md (queues, claimers, batches).

* The Rust engine claims and finishes; the handler is an ``async def`` in Python.
* ``max_workers`` 500 in place of 50; more does not help, nor do larger claim batches. COPY to enqueue.
"""

import asyncio
import signal
from dataclasses import dataclass

import awa

from benchmarks.peers.tally import count
from benchmarks.peers.workers import base

NAME = "bench"
WORKERS = 500


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
        self.client.flush_admin_metadata()
        return sum(queue.total_queued + queue.running for queue in self.client.queue_stats())

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
