"""Sums of the shared-memory counters of all processes, and of jobs enqueued here, for the page of metrics."""

import copy
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.db import connections

from django_pgqueue.jobs.stats import HISTOGRAM_WIDTH, HISTOGRAMS, OTHERS, ROW_WIDTH, ROWS, Kind, ProcessCounters
from django_pgqueue.signals import job_enqueued


@dataclass(frozen=True)
class CounterSums:
    """Laid out as in a meter: rows of each queue and task, histograms of all processes together."""

    rows: dict[Kind, list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0] * ROW_WIDTH))
    histograms: list[list[float]] = field(default_factory=lambda: [[0.0] * HISTOGRAM_WIDTH for _ in HISTOGRAMS])


class CommandCounters:
    """Those of a command; from any thread. Pairs of queue and task beyond ``most`` share a row without names."""

    def __init__(self, most: int = ROWS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._living: list[ProcessCounters] = []
        self._past = CounterSums()
        self._named: set[Kind] = set()

    def made(self) -> ProcessCounters:
        meter = ProcessCounters()
        with self._lock:
            self._living.append(meter)
        return meter

    def retire(self, meter: ProcessCounters) -> None:
        with self._lock:
            self._living.remove(meter)
            self._add(self._past, meter)

    def sums(self) -> CounterSums:
        with self._lock:
            found = copy.deepcopy(self._past)
            for meter in self._living:
                self._add(found, meter)
            return found

    def _add(self, sums: CounterSums, meter: ProcessCounters) -> None:
        for queue, task, row in meter.rows():
            _add_to(sums.rows[self._kind(queue, task)], row)
        for mine, more in zip(sums.histograms, meter.histograms(), strict=True):
            _add_to(mine, more)

    def _kind(self, queue: str, task: str) -> Kind:
        """Return the names of a sum, which never change: else a counter would decrease."""
        kind = (queue, task)
        if kind not in self._named:
            if len(self._named) >= self._most:
                return OTHERS
            self._named.add(kind)
        return kind


@dataclass(frozen=True, kw_only=True)
class CommandMetrics:
    sums: CounterSums
    processes: int  # that live
    slots: int  # for plain jobs, and as many for ``async def``
    busy: int  # jobs that run
    is_quiet: bool  # it claims nothing
    handed_over: Mapping[str, int]  # number of calls, by outbox
    pass_ages: Mapping[str, float]  # by service, for how many seconds it has not been done well


def _add_to(sums: list[float], more: Sequence[float] | Iterable[float]) -> None:
    for place, number in enumerate(more):
        sums[place] += number


def on_enqueued(note: Callable[[str, str, int], None], only_on: str | None = None) -> None:
    """Call ``note`` from here on with queue, task and number, in the thread that has enqueued and committed.

    Args:
        only_on: alias of the database whose jobs count. None: those of all.
    """

    def tell(*, ids: Sequence[int], queue: str, task: str, database: str, **_: Any) -> None:
        if only_on not in (None, database):
            return
        told, connection = partial(note, queue, task, len(ids)), connections[database]
        if connection.in_atomic_block:
            connection.on_commit(told, robust=True)
        else:  # committed, or autocommit is off and no hook runs at a commit; to ask which would connect
            told()

    job_enqueued.connect(tell, weak=False)
