"""Entry point of a child process: consumer, slots, orders, end. Ends when its supervisor is gone."""

import json
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

import django
from django.apps import apps
from django.db import connections

from django_pgqueue.jobs.stats import ProcessCounters
from django_pgqueue.worker.config import WorkerConfig, configure_logging, name_databases
from django_pgqueue.worker.shared_state import SharedState

logger = logging.getLogger("django_pgqueue.worker")

IGNORED = {signal.SIGUSR1, signal.SIGUSR2}
"""Signals to the command, which systemctl kill sends to all processes. They are blocked until this one ignores them."""

LINGER_SECONDS = 3.0
"""Timeout, after all outcomes are written, of the wait for threads and processes that jobs have left behind."""

SWITCH_SECONDS = 0.0005
"""Maximum wait of a thread that wakes, as the consumer's, for one that computes: a tenth of Python's default."""


def main(
    plan: WorkerConfig,
    worker_id: int,
    orders: Connection,
    shared: SharedState,
    meter: ProcessCounters | None,
    *,
    databases: dict[str, str],
    is_careful: bool,
) -> None:
    """Run one worker process; the target of ``multiprocessing.Process``.

    Args:
        databases: the NAME of each alias, which a test runner may have changed.
        is_careful: claim one job at a time at first: the process before this one ended by an error.
    """
    if not apps.ready:
        django.setup()
    configure_logging(plan.verbosity)
    if plan.is_one_of_several:
        name_databases(plan.alias)
    for alias, name in databases.items():
        connections.settings[alias]["NAME"] = name
    from django_pgqueue.worker.cleanup import disown, watch_connections  # noqa: PLC0415
    from django_pgqueue.worker.consumer import Consumer  # noqa: PLC0415 - needs django.setup()
    from django_pgqueue.worker.log_capture import install  # noqa: PLC0415
    from django_pgqueue.worker.mailbox import Mailbox  # noqa: PLC0415
    from django_pgqueue.worker.metrics import on_enqueued  # noqa: PLC0415
    from django_pgqueue.worker.slots import Slots  # noqa: PLC0415

    sys.setswitchinterval(SWITCH_SECONDS)
    watch_connections()
    install()
    slots = Slots(plan.concurrency, shared, Mailbox())
    consumer = Consumer(worker_id, plan.queues, slots, shared, meter, alias=plan.alias, is_careful=is_careful)
    if plan.listen:
        consumer.listen()
    if meter:
        on_enqueued(meter.enqueued)
        os.register_at_fork(after_in_child=meter.disown)
    os.register_at_fork(after_in_child=disown)
    os.register_at_fork(after_in_child=slots.disown)
    os.register_at_fork(after_in_child=end_at_sigterm)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the supervisor decides
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED)
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
    threading.Thread(target=obey, args=(orders.fileno(), consumer, slots), name="pgqueue-orders", daemon=True).start()
    exit_code = 1
    try:
        consumer.run()
        exit_code = 0
    finally:
        threading.Thread(target=end_soon, args=(exit_code,), name="pgqueue-end", daemon=True).start()


def end_at_sigterm() -> None:
    """Let SIGTERM end a copy of this process that a job has made by fork: there is no consumer in it to be stopped."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def end_soon(exit_code: int = 0) -> None:
    """End the process although threads or processes that jobs have left behind go on, for which Python would wait.

    Without such threads there may still be work at exit: an exporter that sends its last traces takes its time.
    """
    time.sleep(LINGER_SECONDS)
    main = threading.main_thread()
    threads = [one.name for one in threading.enumerate() if not one.daemon and one is not main]
    processes = [one.name for one in multiprocessing.active_children()]  # at exit Python waits for daemons, too
    if not threads and not processes:
        return
    left = ", ".join(sorted([*threads, *processes]))
    try:
        logger.warning(
            "Process %d ends, and threads or processes that its jobs have left behind: %s", os.getpid(), left
        )
        logging.shutdown()
    finally:
        os._exit(exit_code)


def obey(orders: int, consumer: Any, slots: Any) -> None:
    """Carry out the supervisor's orders, one a line; end the process when the supervisor is gone, or an order fails."""
    try:
        _obey(orders, consumer, slots)
    except Exception:
        logger.exception("An order of the supervisor cannot be carried out: the process ends")
    finally:
        os._exit(1)


def _obey(orders: int, consumer: Any, slots: Any) -> None:
    rest = b""
    while chunk := os.read(orders, 65536):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            match line.split(maxsplit=1):
                case [b"wake"]:
                    consumer.wake()
                case [b"wake", queues]:
                    consumer.wake(json.loads(queues))
                case [b"limits"]:
                    consumer.look_at_limits()
                case [b"kill", run_id]:
                    slots.kill(int(run_id))
                case [b"stop"]:
                    consumer.stop()
