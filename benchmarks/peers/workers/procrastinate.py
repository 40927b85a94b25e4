"""procrastinate: https://procrastinate.readthedocs.io/en/stable/howto/advanced/ (concurrency, connections, shutdown).

* An ``async def`` task, so that no thread is needed for it.
* ``concurrency`` 20: a worker fetches one job at a time; what runs and finishes meanwhile overlaps. A pool of as many
  connections, as the page on performance asks.
* ``delete_jobs="always"``, so that the table stays small. LISTEN is on.
"""

import logging

import psycopg
from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

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

    def prepare(self) -> None:
        self.app = app.with_connector(SyncPsycopgConnector(conninfo=base.DATABASE_URL))
        self.app.open()
        self.app.schema_manager.apply_schema()

    def seed(self, count: int) -> None:
        for size in base.chunks(count):
            self.app.configure_task("noop").batch_defer(*[{}] * size)

    def enqueue(self) -> None:
        self.app.configure_task("noop").defer()

    def left(self) -> int:
        with psycopg.connect(base.DATABASE_URL) as connection:
            query = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
            return connection.execute(query).fetchone()[0]

    def work(self) -> None:
        app.run_worker(concurrency=CONCURRENCY, delete_jobs="always", listen_notify=True)
