"""Chancy: https://tkte.ch/chancy/ (Queue, Executors, Worker).

* ``AsyncExecutor``: no process or thread for each job. ``concurrency`` bounds what one poll fetches, so it is large.
* ``eager_polling``: poll again as soon as a job completes, not after ``polling_interval``.
* ``send_outgoing_interval`` shortened from 1 s: finished jobs are written in batches that often.
* Of the default plugins those that keep a queue going: leadership, pruner, recovery. Metrics and workflows, which do
  something for each job, are left out; that more than doubles the rate.
* uvloop as the event loop; logging at WARNING, as every job would be logged otherwise.
"""

import asyncio
import logging

import uvloop
from chancy import Chancy, Job, Worker
from chancy import Queue as ChancyQueue
from chancy.plugins.leadership import Leadership
from chancy.plugins.pruner import Pruner
from chancy.plugins.recovery import Recovery
from psycopg import AsyncConnection

from benchmarks.peers.tally import count
from benchmarks.peers.workers import base

FETCH = 2_000
OUTGOING_SECONDS = 0.05
NAME = "bench"


async def noop() -> None:
    count()


JOB = Job.from_func(noop, queue=NAME)


class Queue(base.Queue):
    def __init__(self) -> None:
        logging.disable(logging.INFO)
        self.runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)

    def prepare(self) -> None:
        self.runner.run(self._prepare())

    async def _prepare(self) -> None:
        self.chancy = await Chancy(base.DATABASE_URL).__aenter__()
        self.connection = await AsyncConnection.connect(base.DATABASE_URL, autocommit=True)
        await self.chancy.migrate()
        await self.chancy.declare(
            ChancyQueue(NAME, executor=Chancy.Executor.Async, concurrency=FETCH, polling_interval=1, eager_polling=True)
        )

    def seed(self, count: int) -> None:
        for size in base.chunks(count):
            self.runner.run(self._push([JOB] * size))

    async def _push(self, jobs: list[Job]) -> None:
        async for _ in self.chancy.push_many(jobs):
            pass

    def enqueue(self) -> None:
        self.runner.run(self.chancy.push(JOB))

    def left(self) -> int:
        return self.runner.run(self._left())

    async def _left(self) -> int:
        query = "SELECT count(*) FROM chancy_jobs WHERE state <> 'succeeded'"
        return (await (await self.connection.execute(query)).fetchone())[0]

    def work(self) -> None:
        self.runner.run(work())


async def work() -> None:
    plugins = [Leadership(), Pruner(), Recovery()]
    async with Chancy(base.DATABASE_URL, plugins=plugins, no_default_plugins=True) as chancy:
        worker = Worker(chancy)
        worker.send_outgoing_interval = OUTGOING_SECONDS
        async with worker:
            await worker.wait_for_shutdown()
