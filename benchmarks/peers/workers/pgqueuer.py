"""PgQueuer: https://janbjorge.github.io/pgqueuer/guides/performance-tuning/.

* ``batch_size`` 1,000, far above the default of 10; it is also the size at which finished jobs are written. Neither 500
  nor 2,000 was faster here.
* A pool of asyncpg connections: that page names one for high throughput, and one direct connection for safe listening.
  The pool was the faster of the two, mostly: one connection fetches while another one writes what is finished.
* uvloop as the event loop, and ``pgq autovac`` applied. Durability stays at "durable", the default: logged tables.
"""

import asyncio
import logging
import signal
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.peers.tally import count
from benchmarks.peers.workers import base

BATCH = 1_000
CONNECTIONS = 5


class Queue(base.Queue):
    def __init__(self) -> None:
        logging.disable(logging.INFO)
        self.runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)

    def prepare(self) -> None:
        self.connection = self.runner.run(asyncpg.connect(base.DATABASE_URL))
        self.queries = Queries(AsyncpgDriver(self.connection))
        self.runner.run(self.queries.install())
        self.runner.run(self.queries.optimize_autovacuum())

    def seed(self, count: int) -> None:
        for size in base.chunks(count):
            self.runner.run(self.queries.enqueue(["noop"] * size, [None] * size, [0] * size))

    def enqueue(self) -> None:
        self.runner.run(self.queries.enqueue("noop", None))

    def left(self) -> int:
        return self.runner.run(self.connection.fetchval("SELECT count(*) FROM pgqueuer"))

    def work(self) -> None:
        self.runner.run(work())


async def work() -> None:
    manager = PgQueuer(
        AsyncpgPoolDriver(await asyncpg.create_pool(base.DATABASE_URL, min_size=2, max_size=CONNECTIONS))
    )

    @manager.entrypoint("noop")
    async def noop(job: Job) -> None:  # noqa: ARG001 - the signature is the library's
        count()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, manager.shutdown.set)
    await manager.run(batch_size=BATCH, dequeue_timeout=timedelta(seconds=5))
