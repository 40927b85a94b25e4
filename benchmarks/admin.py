"""Every page of the admin over millions of jobs: what it asks of the database, how long that takes, by which plans.

Each page is opened as staff opens it, by Django's test client. The first time its queries are explained, in their own
transaction; then it is opened as often as there are runs, and the median of the time that its queries took is judged.

    python -m benchmarks.admin                          # 2 million queued, 1 million dead, 5 million succeeded jobs
    python -m benchmarks.admin --only causes,overview   # pages with such a word in their names
    python -m benchmarks.admin --keep                   # leave the jobs there, and the next time take them as they are
"""

import argparse
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.crowd import Crowd, fill
from benchmarks.findings import Finding, at_most, grid, say
from benchmarks.harness import empty, main, sql
from benchmarks.history import drop_all, midnight

BOUND_MS = 300
OK = 200


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queued", type=int, default=2_000_000, help="default: 2,000,000")
    parser.add_argument("--dead", type=int, default=1_000_000, help="default: 1,000,000")
    parser.add_argument("--succeeded", type=int, default=5_000_000, help="default: 5,000,000")
    parser.add_argument("--only", default="", metavar="WORDS", help="in names of pages, separated by commas")
    parser.add_argument("--keep", action="store_true", help="the jobs, for the next time; take those that are there")
    parser.add_argument("--queries", action="store_true", help="print each query with its time")


@dataclass(frozen=True)
class Seen:
    """What one page did."""

    name: str
    status: int
    queries: list
    ms: list[float]
    sequential: list[str]

    @property
    def first(self) -> float:
        """The first time, when much has to come from the disk."""
        return sum(query.ms for query in self.queries)

    @property
    def median(self) -> float:
        return statistics.median(self.ms)

    def row(self) -> tuple[str, ...]:
        slowest = max(self.queries, key=lambda query: query.ms, default=None)
        text = f"{slowest.ms:.1f} ms: {' '.join(bare(slowest.sql).split())[:90]}" if slowest else ""
        return self.name, str(len(self.queries)), f"{self.first:.1f}", f"{self.median:.1f}", text


def bare(statement: str) -> str:
    """Return a statement without its header."""
    return "\n".join(line for line in statement.splitlines() if not line.startswith("--"))


def findings(options: argparse.Namespace) -> Iterator[Finding]:
    crowd = Crowd(queued=options.queued, dead=options.dead, succeeded=options.succeeded)
    if not is_there(crowd):
        seed(crowd)
    try:
        seen = list(look(options))
        print(grid([("page", "queries", "first ms", "ms", "slowest query"), *(page.row() for page in seen)]))
        yield from judged(seen)
    finally:
        if not options.keep:
            drop_all()


def is_there(crowd: Crowd) -> bool:
    """Whether an earlier run has left the same jobs."""
    [(first, last)] = sql("SELECT min(id), max(id) FROM pgqueue_jobs")
    return (first, last) == (crowd.first_live + 1, crowd.first_live + crowd.queued)


def seed(crowd: Crowd) -> None:
    from django.db import connection

    drop_all()
    empty()
    for days_ago in range(crowd.succeeded_days + 1, 0, -1):
        name = f"pgqueue_succeeded_jobs_{midnight(days_ago):%Y%m%d}"
        sql(
            f"CREATE TABLE {name} PARTITION OF pgqueue_succeeded_jobs "
            f"FOR VALUES FROM ('{midnight(days_ago)}') TO ('{midnight(days_ago - 1)}')"
        )
    with connection.cursor() as cursor:
        fill(crowd, cursor.execute)
    sql("VACUUM ANALYZE")
    sql("CHECKPOINT")
    say(f"{crowd.queued:,} live, {crowd.dead:,} dead and {crowd.succeeded:,} succeeded jobs")


def look(options: argparse.Namespace) -> Iterator[Seen]:
    from benchmarks.pages import pages
    from benchmarks.watch import small, watched

    client, ignored = staff(), small()
    words = options.only.split(",")
    for page in pages():
        if not any(word in page.name for word in words):
            continue
        with watched(plans=True) as explained:
            status = client.get(page.path).status_code
        times = []
        for _ in range(options.runs):
            with watched() as queries:
                client.get(page.path)
            times.append(sum(query.ms for query in queries))
        sequential = sorted({name for query in explained for name in query.sequential(ignored)})
        yield (seen := Seen(page.name, status, explained, times, sequential))
        say(f"{status} {seen.median:6.1f} ms {len(explained):3} queries  {page.name}  {' '.join(seen.sequential)}")
        if options.queries:
            for query in explained:
                say(f"    {query.ms:6.1f} ms {' '.join(bare(query.sql).split())}")


def staff():
    """Return the client of a superuser."""
    from django.contrib.auth.models import User
    from django.test import Client

    user, _ = User.objects.get_or_create(username="zoe", is_staff=True, is_superuser=True)
    client = Client()
    client.force_login(user)
    return client


def judged(pages: list[Seen]) -> Iterator[Finding]:
    missing = [page.name for page in pages if page.status != OK]
    yield Finding(f"of {len(pages)} pages, not shown", len(missing), at_most(0), "", note=", ".join(missing))
    scanned = {f"{page.name}: {' '.join(page.sequential)}" for page in pages if page.sequential}
    yield Finding("pages that read a big table from end to end", len(scanned), at_most(0), "", note="; ".join(scanned))
    slowest = max(pages, key=lambda page: page.median)
    yield Finding("slowest page, time of its queries", slowest.median, at_most(BOUND_MS), "ms", note=slowest.name)


if __name__ == "__main__":
    sys.exit(any(finding.is_ok is False for finding in main(sys.modules[__name__])))
