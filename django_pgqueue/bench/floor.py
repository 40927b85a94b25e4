"""The bare claim and ack statements, batch after batch on one connection: what no worker can do without."""

import time
from collections.abc import Callable
from typing import Any

from django_pgqueue.bench.load import QUEUE, BenchFailed
from django_pgqueue.bench.report import Floor, Spread, spread
from django_pgqueue.db.connections import QueueConnection, number_array
from django_pgqueue.db.queries import sized, statement
from django_pgqueue.jobs.claim import new_lease_token

BATCH = 500
ROUND_TRIPS = 100

Claimed = list[tuple[int, int]]
"""Id and lease token of each job of a batch."""


class BareLoop:
    """Drives the statements and keeps their times, in seconds for each batch."""

    def __init__(self, alias: str, *, history: bool) -> None:
        self.database = QueueConnection(alias, "bench")
        self.connection = self.database.autocommit()
        self.history = history
        self.claims: list[float] = []
        self.acks: list[float] = []
        self.whole = 0.0

    def round_trip(self) -> Spread:
        """Measure how far away the server is."""
        return spread([self._timed("SELECT 1", {})[1] for _ in range(ROUND_TRIPS)][1:])

    def drain(self, *, jobs: int, progress: Callable[[float], None]) -> Floor:
        """Claim and ack the jobs of the bench's queue; ack the last batch and claim the next in one transaction.

        Raises:
            BenchFailed: another worker took some of them.
        """
        done, claimed = 0, self._turn([])
        while claimed:
            done += len(claimed)
            claimed = self._turn(claimed)
            progress(done / jobs)
        if done != jobs:
            raise BenchFailed(f"Only {done} of {jobs} jobs were there to claim: is another worker serving {QUEUE!r}?")
        statements = sum(self.claims) + sum(self.acks)
        return Floor(
            jobs=jobs,
            batch=min(BATCH, jobs),
            jobs_per_second=round(jobs / self.whole, 1),
            claim=spread(self.claims),
            claim_us_per_job=round(sum(self.claims) / jobs * 1e6, 2),
            ack=spread(self.acks),
            ack_us_per_job=round(sum(self.acks) / jobs * 1e6, 2),
            commit_us_per_job=round((self.whole - statements) / jobs * 1e6, 2),
        )

    def close(self) -> None:
        self.database.close()

    def _turn(self, claimed: Claimed) -> Claimed:
        begun = time.perf_counter()
        with self.database.transaction():
            if claimed:
                self._ack(claimed)
            claimed = self._claim()
        self.whole += time.perf_counter() - begun
        return claimed

    def _claim(self) -> Claimed:
        token = new_lease_token()
        parameters = {"queue": QUEUE, "worker_id": 0, "lease_token": token}
        ids, seconds = self._timed(sized("claim", BATCH), parameters)
        if ids:
            self.claims.append(seconds)
        return [(job_id, token) for job_id in ids]

    def _ack(self, claimed: Claimed) -> None:
        parameters: dict[str, Any] = {
            "ids": number_array(job_id for job_id, _ in claimed),
            "lease_tokens": number_array(token for _, token in claimed),
        }
        if self.history:
            parameters["results"] = f"[{','.join(['null'] * len(claimed))}]"
            parameters["left_out"] = None
            parameters["run_seconds"] = number_array(0.0 for _ in claimed)
        _, seconds = self._timed(statement("archive" if self.history else "finish"), parameters)
        self.acks.append(seconds)

    def _timed(self, sql: str, parameters: dict[str, Any]) -> tuple[list[int], float]:
        """Run one statement to its answer; return the ids in it, if there are any, and the seconds."""
        begun = time.perf_counter()
        cursor = self.connection.execute(sql, parameters)
        rows = cursor.fetchall()
        seconds = time.perf_counter() - begun
        names = [column.name for column in cursor.description or ()]
        return [row[names.index("id")] for row in rows] if "id" in names else [], seconds
