"""Measure the cost of enqueueing, compared with the bare INSERT of the same rows through a cursor of Django's.

One job in a transaction of its own, wake-up apart (PGQUEUE["NOTIFY"] off), and with it; calls take turns one by one.
Beside the time on the clock, which waits for the disk, is the processor time of client and server: it says more on a
machine that others use.
Many jobs at once against one INSERT from arrays, and against COPY, which returns no ids; both have their JSON ready
when the clock starts; and calls of two tasks, bound and enqueued together, against the same number of one task. At last
the wake-up among many producers, each a process: after the commit of the job, where a worker sleeps all the time, where
none does, and where a real one works; in the job's transaction; without ``atomic()``; and not at all, with or without a
statement in its place that does nothing.

    python -m benchmarks.enqueue
"""

import argparse
import contextlib
import itertools
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.findings import Finding, Samples, alternate, at_least, medians, ratio, say
from benchmarks.harness import bare_connection, begin_empty, main, prepare, sql, worker

TASK = "benchmarks.tasks.noop"
CHANNEL = "pgqueue_jobs"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=1000, help="enqueued one by one in each run")
    parser.add_argument("--many", type=int, default=20_000, help="enqueued at once in each run")
    parser.add_argument("--producers", type=int, default=16)


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    yield from one_by_one(options)
    yield from many_at_once(options)
    yield from among_producers(options)


# One by one


def one_by_one(options: argparse.Namespace) -> Iterator[Finding]:
    from benchmarks.tasks import noop

    calls = {"bare": (insert_bare, False), "enqueue": (noop.enqueue, False), "waking": (noop.enqueue, True)}
    walls: Samples = {name: [] for name in calls}
    processors: Samples = {name: [] for name in calls}
    for number in range(1, options.runs + 1):
        begin_empty()
        for name, (wall, processor) in take_turns(calls, options.jobs).items():
            walls[name].append(wall / options.jobs * 1e6)
            processors[name].append(processor / options.jobs * 1e6)
        say(f"run {number} of {options.runs}: {medians(walls, 'µs')}; processor {medians(processors, 'µs')}")
    for kind, samples in (("", walls), (", processor time", processors)):
        for name, title in (("enqueue", "wake-up apart"), ("waking", "with wake-up")):
            yield Finding(
                f"single enqueue in its own transaction, {title}{kind}",
                ratio(samples, "bare", name),
                None if kind else at_least(0.8),
                note=medians(samples, "µs"),
                samples=samples,
            )


TURN = 20
"""Number of calls in a turn: few enough for all to meet the same machine."""


def take_turns(calls: dict[str, tuple[Callable[[int], Any], bool]], times: int) -> dict[str, tuple[float, float]]:
    """Make the calls in turns, each the same number of times; return the seconds and those of the processor of each.

    Args:
        calls: what to call with a number, and whether it wakes workers.
    """
    from django.test import override_settings

    walls, processors = dict.fromkeys(calls, 0.0), dict.fromkeys(calls, 0.0)
    for start in range(0, times, TURN):
        for name, (call, notify) in calls.items():
            with override_settings(PGQUEUE={"NOTIFY": notify}):
                begun, spent = time.perf_counter(), processor_seconds()
                for number in range(start, min(start + TURN, times)):
                    call(number)
                walls[name] += time.perf_counter() - begun
                processors[name] += processor_seconds() - spent
    return {name: (walls[name], processors[name]) for name in calls}


def processor_seconds() -> float:
    """Return the processor time of this process, and of the server's process for its connection where Linux tells."""
    from django.db import connection

    connection.ensure_connection()
    told = Path(f"/proc/{connection.connection.info.backend_pid}/schedstat")
    server = int(told.read_text().split()[0]) / 1e9 if told.exists() else 0.0
    return time.process_time() + server


def insert_bare(number: int) -> int:
    [(job_id,)] = sql("INSERT INTO pgqueue_jobs (task, args) VALUES (%s, %s) RETURNING id", TASK, f"[{number}]")
    return job_id


# Many at once


def many_at_once(options: argparse.Namespace) -> Iterator[Finding]:
    from benchmarks.tasks import noop
    from django_pgqueue import enqueue_many

    urgent = noop.using(priority=1)
    calls = [(number,) for number in range(options.many)]
    texts = [f"[{number}]" for number in range(options.many)]
    samples = alternate(
        options.runs,
        unnest=lambda: rate_of(insert_many_bare, texts),
        copy=lambda: rate_of(copy_bare, texts),
        enqueue_many=lambda: rate_of(noop.enqueue_many, calls),
        mixed=lambda: rate_of(lambda rows: enqueue_many(bound(rows, [noop, urgent])), calls),
    )
    yield Finding(
        f"calls of two tasks, bound and enqueued, {options.many:,} at once, against those of one task",
        ratio(samples, "mixed", "enqueue_many"),
        at_least(0.9),
        samples=samples,
    )
    for counterpart in ("unnest", "copy"):
        yield Finding(
            f"enqueue_many of {options.many:,}, against {counterpart}",
            ratio(samples, "enqueue_many", counterpart),
            at_least(0.7),
            note=medians(samples, "jobs/s"),
            samples=samples,
        )


def bound(calls: list[tuple[int]], tasks: list[Any]) -> list[Any]:
    return [task.bind(*call) for task, call in zip(itertools.cycle(tasks), calls, strict=False)]


def rate_of(insert: Callable[[list[Any]], Any], rows: list[Any]) -> float:
    """Insert into an empty table; return rows per second."""
    begin_empty()
    begun = time.perf_counter()
    insert(rows)
    return len(rows) / (time.perf_counter() - begun)


def insert_many_bare(texts: list[str]) -> None:
    sql("INSERT INTO pgqueue_jobs (task, args) SELECT %s, unnest(%s::text[])::jsonb RETURNING id", TASK, texts)


def copy_bare(texts: list[str]) -> None:
    from django.db import connection

    with connection.cursor() as cursor, cursor.copy("COPY pgqueue_jobs (task, args) FROM STDIN") as copy:
        copy.write("".join([f"{TASK}\t{text}\n" for text in texts]))


# Among producers


def among_producers(options: argparse.Namespace) -> Iterator[Finding]:
    each = max(options.jobs // 5, 1)
    with producers(options.producers) as pool:

        def rate(form: str, meanwhile: contextlib.AbstractContextManager[Any]) -> float:
            with meanwhile:
                return total_rate(pool, form, options.producers, each)

        samples = alternate(
            options.runs,
            off=lambda: rate("off", a_listener()),
            none_sleeps=lambda: rate("after_commit", a_listener()),
            one_sleeps=lambda: rate("after_commit", a_listener(is_asleep=True)),
            in_transaction=lambda: rate("in_transaction", a_listener()),
            empty_statement=lambda: rate("empty_statement", a_listener()),
            off_autocommit=lambda: rate("off_autocommit", a_listener()),
            autocommit=lambda: rate("autocommit", a_listener()),
            off_beside_worker=lambda: rate("off", worker()),
            beside_worker=lambda: rate("after_commit", worker()),
        )
    for form, counterpart in (
        *((form, "off") for form in ("none_sleeps", "one_sleeps", "in_transaction", "empty_statement")),
        ("autocommit", "off_autocommit"),
        ("beside_worker", "off_beside_worker"),
    ):
        yield Finding(
            f"{options.producers} producers, wake-ups {form.replace('_', ' ')}",
            ratio(samples, form, counterpart),
            None if form in COUNTERPARTS else at_least(0.9),
            note=medians(samples, "jobs/s"),
            samples=samples,
        )


COUNTERPARTS = ("in_transaction", "empty_statement")
"""Forms that are no wake-up of the package: NOTIFY before the commit, and a statement behind it that does nothing."""


def total_rate(pool: Any, form: str, count: int, each: int) -> float:
    """Let all producers enqueue at once; return jobs per second of all together."""
    begin_empty()
    spans = pool.starmap(produce, [(form, each)] * count, chunksize=1)
    return count * each / (max(ended for _, ended in spans) - min(begun for begun, _ in spans))


@contextlib.contextmanager
def producers(count: int) -> Iterator[Any]:
    """Start processes that are connected and ready."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(count, initializer=become_producer, initargs=(spawn.Barrier(count),)) as pool:
        yield pool


def become_producer(barrier: Any) -> None:
    """Make this process a producer. The barrier lets all begin together; so each takes one part of the work."""
    global ready  # noqa: PLW0603 - the way to give something to a pool's process
    ready = barrier
    prepare()


def produce(form: str, jobs: int) -> tuple[float, float]:
    """Enqueue jobs, each in a transaction; return when it began and ended, by the clock that processes share.

    Without ``atomic()`` in the forms with ``autocommit``: then the wake-up needs no round trip of its own.
    """
    from django.db import connection, transaction
    from django.test import override_settings

    from benchmarks.tasks import noop

    connection.ensure_connection()
    is_atomic = not form.endswith("autocommit")
    with override_settings(PGQUEUE={"NOTIFY": form in {"after_commit", "autocommit"}}):
        ready.wait()
        begun = time.monotonic()
        for number in range(jobs):
            with transaction.atomic() if is_atomic else contextlib.nullcontext():
                noop.enqueue(number)
                if form == "in_transaction":
                    sql("SELECT pg_notify(%s, %s)", CHANNEL, "default")
            if form == "empty_statement":
                sql("SELECT")
        return begun, time.monotonic()


@contextlib.contextmanager
def a_listener(*, is_asleep: bool = False) -> Iterator[None]:
    """Take notifications off the server meanwhile, as a worker does; ``is_asleep``: one that is never awake."""
    from django_pgqueue.db.queries import statement

    is_over = threading.Event()

    def listen() -> None:
        with bare_connection() as connection:
            connection.execute(f"LISTEN {CHANNEL}")
            if is_asleep:
                connection.execute(statement("sleep"), {"queues": [""]})
            while not is_over.is_set():
                list(connection.notifies(timeout=0.1))

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


if __name__ == "__main__":
    main(sys.modules[__name__])
