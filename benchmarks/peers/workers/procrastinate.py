"""procrastinate: https://procrastinate.readthedocs.io/en/stable/ (how-to pages on concurrency and finished jobs).

* An ``async def`` task, so that no thread is needed for it.
* ``concurrency`` 20: a worker fetches one job at a time; what runs and finishes meanwhile overlaps. A pool of as many
  connections. Neither 10 nor 30 was faster here.
* ``delete_jobs="always"``, so that the table stays small. LISTEN is on.
"""

import asyncio
import logging

from procrastinate import App, PsycopgConnector

from benchmarks.peers.tally import count
from benchmarks.peers.workers import base

CONCURRENCY = 20

app = App(connector=PsycopgConnector(conninfo=base.DATABASE_URL, min_size=2, max_size=CONCURRENCY))


@app.task(name="noop")
async def noop() -> None:
    count()


class Queue(base.Queue):
    def __init__(self) -> None:
        logging.disable(logging.INFO)
        self.run = asyncio.Runner().run

    def prepare(self) -> None:
        self.run(app.connector.open_async())
        self.run(app.schema_manager.apply_schema_async())

    def seed(self, count: int) -> None:
        for size in base.chunks(count):
            self.run(noop.batch_defer_async(*[{}] * size))

    def enqueue(self) -> None:
        self.run(noop.defer_async())

    def left(self) -> int:
        query = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
        return self.run(app.connector.execute_query_one_async(query))["count"]

    def work(self) -> None:
        app.run_worker(concurrency=CONCURRENCY, delete_jobs="always", listen_notify=True)
