"""Looks at one command, and has it judged. What it sees is in memory, so that a probe costs nothing."""

import time
from collections.abc import Callable, Sequence

from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.jobs.queue_selector import Served
from django_pgqueue.maintenance.pending_work import oldest_runnable
from django_pgqueue.runtime.crew import Crew
from django_pgqueue.runtime.heart import Pulse
from django_pgqueue.runtime.marks import now
from django_pgqueue.runtime.process import Process
from django_pgqueue.runtime.verdict import STALE_SECONDS, Facts, LoopFacts, ProcessFacts, Verdict, judge, stuck_seconds
from django_pgqueue.services import Loop

LOOK_SECONDS = 1.0


class Backlog:
    """Asks the database how long jobs have to wait, seldom enough to take a tenth of one connection's time."""

    def __init__(self, alias: str, queues: tuple[str, ...]) -> None:
        self.database = QueueConnection(alias, "health")
        self.oldest = 0.0
        self.asked_at = time.monotonic()
        self._served = Served.of(queues)

    def pass_once(self) -> float:
        """Ask once; return the seconds until the next time."""
        begun = time.monotonic()
        self.oldest = oldest_runnable(self.database, self._served)
        self.asked_at = time.monotonic()
        return min(max(LOOK_SECONDS, 10 * (self.asked_at - begun)), STALE_SECONDS / 2)


class Health:
    """Looks at one command once a second, and tells everyone who wants to know.

    Args:
        loops: the supervisor's threads whose work nobody else does; those that were not started do not count.
        is_stopping: whether the command has been told to stop.
        tell: called with each verdict, and with whether all planned processes are at work.
    """

    def __init__(
        self,
        crew: Crew,
        pulse: Pulse,
        backlog: Backlog,
        loops: Sequence[Loop],
        *,
        is_stopping: Callable[[], bool],
        tell: Callable[[Verdict, bool], None],
    ) -> None:
        self.watched_at = time.monotonic()  # written by the main thread
        self._crew = crew
        self._pulse = pulse
        self._loops = loops
        self._backlog = backlog
        self._is_stopping = is_stopping
        self._tell = tell
        self._turns: dict[int, tuple[int, float]] = {}  # of each process, and when they were last seen to grow

    def pass_once(self) -> float:
        """Judge, and tell; return the seconds until the next time."""
        facts = self._facts()
        self._tell(judge(facts), sum(process.is_at_work for process in facts.processes) >= facts.planned)
        return LOOK_SECONDS

    def _facts(self) -> Facts:
        plan, at = self._crew.plan, time.monotonic()
        processes = [process for process in list(self._crew.living) if not process.is_leaving]
        self._turns = {process.worker_id: self._turned(process, at) for process in processes}
        return Facts(
            is_stopping=self._is_stopping(),
            unwatched_seconds=at - self.watched_at,
            unbeaten_seconds=now() - self._pulse.last,
            lease_seconds=self._crew.lease_seconds,
            planned=plan.processes,
            loops=tuple(loop_facts(loop) for loop in self._loops if loop.ident is not None),
            processes=tuple(
                process_facts(process, unturned_seconds=at - self._turns[process.worker_id][1]) for process in processes
            ),
            oldest_seconds=self._backlog.oldest,
            unasked_seconds=at - self._backlog.asked_at,
            max_age_seconds=plan.health_max_age,
            stuck_seconds=stuck_seconds(),
        )

    def _turned(self, process: Process, at: float) -> tuple[int, float]:
        turns, (before, since) = process.marks.turns(), self._turns.get(process.worker_id, (-1, at))
        return (turns, since) if turns == before else (turns, at)


def loop_facts(loop: Loop) -> LoopFacts:
    """Return what there is to know of a thread."""
    return LoopFacts(duty=loop.duty, is_alive=loop.is_alive(), pass_seconds=loop.pass_seconds(), failures=loop.failures)


def process_facts(process: Process, *, unturned_seconds: float) -> ProcessFacts:
    """Return what there is to know of a process; ``unturned_seconds``: seconds since its pump has turned."""
    return ProcessFacts(
        pid=process.pid,
        is_at_work=process.is_at_work,
        unturned_seconds=unturned_seconds,
        failures=process.marks.failures(),
    )
