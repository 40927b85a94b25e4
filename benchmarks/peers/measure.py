"""Two measurements of one peer: how fast its workers drain a queue, how soon an idle one starts a job."""

import contextlib
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers import tally
from benchmarks.peers.catalogue import Peer
from benchmarks.peers.places import drop_database, let_rest, new_database
from benchmarks.peers.processes import Control, PeerError, Workers, control, workers

GLANCE_SECONDS = 0.005
WARM_UP_JOBS = 5
PAUSE_SECONDS = (0.005, 0.025)
PICK_UP_SECONDS = 30.0


@dataclass(frozen=True)
class Drain:
    """What one drain came to. A rate without ``is_finished`` is the rate until the deadline."""

    jobs_per_second: float
    is_finished: bool
    calls: int

    def is_exact(self, jobs: int) -> bool:
        """Whether each job was called exactly once, as far as a number can tell."""
        return not self.is_finished or self.calls == jobs


@dataclass(frozen=True)
class Bench:
    """A peer with a new database of its own, ready to be measured."""

    peer: Peer
    database: str
    scratch: Path
    control: Control

    def workers(self, count: int) -> contextlib.AbstractContextManager[Workers]:
        return workers(self.peer, self.database, self.scratch, count=count)

    def count(self) -> tally.Count:
        return tally.read(self.scratch / "tally")


@contextlib.contextmanager
def bench(peer: Peer) -> Iterator[Bench]:
    """Make the database and its tables; drop it afterwards."""
    database = f"peers_{peer.module}"
    new_database(database)
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        scratch = Path(folder)
        (scratch / "tally").mkdir()
        try:
            with control(peer, database, scratch) as answers:
                answers.ask("prepare")
                yield Bench(peer, database, scratch, answers)
        finally:
            drop_database(database)


SEED, JOIN, FAN = "seed", "join", "fan"
"""What the jobs of a drain are: independent; members, and one behind them; one, and members behind it."""


def jobs_in(shape: str, jobs: int) -> int:
    return jobs if shape == SEED else jobs + 1


def drain(peer: Peer, *, jobs: int, processes: int, seconds: float, shape: str = SEED) -> Drain:
    """Enqueue N jobs, start the workers, and time them from the first call to an empty queue.

    Args:
        shape: what they are; with one more that is no member.
        seconds: the workers are stopped after so long, finished or not.

    Raises:
        PeerError: a process of the peer ended, or nothing was called in time.
    """
    with bench(peer) as place:
        place.control.ask(f"{shape} {jobs}")
        let_rest(place.database)
        with place.workers(processes) as pool:
            result = timed(place, pool, jobs=jobs_in(shape, jobs), until=time.monotonic() + seconds)
        return Drain(result.jobs_per_second, result.is_finished, place.count().calls)


def timed(place: Bench, pool: Workers, *, jobs: int, until: float) -> Drain:
    """Glance at the tally until everything is done or it is too late; return the rate."""
    first, now = tally.Count(0, 0), place.count()
    while time.monotonic() < until:
        now = place.count()
        first = first if first.calls else now
        if now.calls >= jobs and not place.control.left():
            return Drain(rate(first, tally.Count(jobs, time.monotonic_ns())), True, now.calls)
        pool.check()
        time.sleep(GLANCE_SECONDS)
    if now.calls == first.calls:
        raise PeerError("nothing was called in time")
    return Drain(rate(first, now), False, now.calls)


def rate(first: tally.Count, last: tally.Count) -> float:
    return (last.calls - first.calls) / (last.latest_ns - first.latest_ns) * 1e9


def latencies(peer: Peer) -> list[float]:
    """Enqueue jobs one at a time for one idle worker; return the milliseconds from commit to handler for each.

    A handler can begin before the process that committed hears of it; that counts as less than zero.

    Raises:
        PeerError: a job was not called in time.
    """
    with bench(peer) as place, place.workers(1) as pool:
        for _ in range(WARM_UP_JOBS):
            pick_up(place, pool)
        return [pick_up(place, pool) for _ in range(peer.latency_jobs)]


def pick_up(place: Bench, pool: Workers) -> float:
    """Enqueue one job and wait until it is finished; return the milliseconds until its handler began."""
    before = place.count().calls
    committed_ns = place.control.ask("enqueue")
    until = time.monotonic() + PICK_UP_SECONDS
    while (count := place.count()).calls == before or place.control.left():
        pool.check()
        if time.monotonic() > until:
            raise PeerError("a job was not picked up in time")
        time.sleep(GLANCE_SECONDS)
    time.sleep(random.uniform(*PAUSE_SECONDS))
    return (count.latest_ns - committed_ns) / 1e6
