"""Workers of Dramatiq, Huey, Django-Q2 and Procrastinate that run what is queued, without waiting between attempts."""

import subprocess
import sys
import time
from collections.abc import Callable

PATIENCE_SECONDS = 180


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "the old queue does not get to it"
        time.sleep(0.01)


def dramatiq_worker(*actors, is_done: Callable[[], bool]) -> None:
    from dramatiq import Worker, get_broker

    for actor in actors:
        actor.options |= {"min_backoff": 1, "max_backoff": 1}
    worker = Worker(get_broker(), worker_timeout=10)
    worker.start()
    until(is_done)
    worker.stop()


def huey_consumer(*, is_done: Callable[[], bool]) -> None:
    from huey.contrib.djhuey import HUEY

    consumer = HUEY.create_consumer(
        workers=1, periodic=False, initial_delay=0.01, max_delay=0.01, check_worker_health=False
    )
    consumer.start()
    until(is_done)
    consumer.stop(graceful=True)


def cluster(*, is_done: Callable[[], bool]) -> None:
    process = subprocess.Popen([sys.executable, "-m", "django", "qcluster"], stdout=subprocess.DEVNULL)
    try:
        until(is_done)
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def procrastinate_worker(*tasks) -> None:
    import attr
    from procrastinate.contrib.django import app

    for task in tasks:
        task.retry_strategy = attr.evolve(task.retry_strategy, wait=0)
    with app.replace_connector(app.connector.get_worker_connector()) as other:
        other.run_worker(wait=False, install_signal_handlers=False, listen_notify=False)
