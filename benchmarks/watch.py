"""Record the queries of a request: each query with its time and its plan."""

import contextlib
import json
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
from django.db import connection

from benchmarks.pages import BIG


@dataclass(frozen=True)
class Query:
    """One statement.

    Attributes:
        nodes: of its plan, as EXPLAIN names them; empty for statements that have none.
    """

    sql: str
    ms: float
    nodes: list[dict[str, Any]] = field(default_factory=list)

    def scans(self) -> list[dict[str, Any]]:
        """Return the nodes that read a big table."""
        return [node for node in self.nodes if node.get("Relation Name", "").startswith(BIG)]

    def sequential(self, but: Collection[str] = ()) -> list[str]:
        """Return which big tables it reads from end to end, ``but`` some."""
        names = [scan["Relation Name"] for scan in self.scans() if scan["Node Type"] == "Seq Scan"]
        return [name for name in names if name not in but]

    def counted(self) -> int:
        """Return how many rows of jobs it counts or sums up without a limit; needs to know what really happened."""
        return sum(
            rows(scan)
            for node in self.nodes
            if node["Node Type"] == "Aggregate" and all(one["Node Type"] != "Limit" for one in below(node))
            for scan in Query(self.sql, self.ms, list(below(node))).scans()
            if scan["Relation Name"] != "pgqueue_stats"
        )


def small() -> set[str]:
    """Return the tables of up to a thousand rows, among them partitions of days to come: no index beats reading all."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT relname FROM pg_class WHERE relkind = 'r' AND reltuples <= 1000")
        return {name for (name,) in cursor.fetchall()}


def rows(scan: dict[str, Any]) -> int:
    read = scan.get("Actual Rows", 0) + scan.get("Rows Removed by Filter", 0)
    return round((read + scan.get("Rows Removed by Index Recheck", 0)) * scan.get("Actual Loops", 1))


@contextlib.contextmanager
def watched(*, plans: bool = False, really: bool = False) -> Iterator[list[Query]]:
    """Note the queries of Django's connection meanwhile.

    Args:
        plans: explain each, in the same transaction and so under the same settings.
        really: let EXPLAIN run it once more, and tell what happened. What changes rows is not explained.
    """
    seen: list[Query] = []

    def note(execute, text, parameters, many, context):
        begun = time.perf_counter()
        answer = execute(text, parameters, many, context)
        ms = (time.perf_counter() - begun) * 1000
        seen.append(Query(text, ms, explain(text, parameters, really=really) if plans else []))
        return answer

    with connection.execute_wrapper(note):
        yield seen


def explain(text: str, parameters: Any, *, really: bool) -> list[dict[str, Any]]:
    """Return all nodes of a plan, from the root down."""
    bare = "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip()
    if not bare.upper().startswith(("SELECT", "WITH", "(")) or "set_config(" in bare or " FOR UPDATE" in bare:
        return []
    with psycopg.ClientCursor(connection.connection) as cursor:
        cursor.execute(f"EXPLAIN ({'ANALYZE, ' if really else ''}FORMAT JSON) {bare}", parameters)
        [(plan,)] = cursor.fetchall()
    plan = json.loads(plan) if isinstance(plan, str) else plan
    return list(below(plan[0]["Plan"]))


def below(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for one in node.get("Plans", []):
        yield from below(one)
