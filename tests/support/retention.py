"""manage.py pgqueue_retention, as tests run it, at noon: succeeded jobs, and partitions for them."""

import datetime as dt
from io import StringIO

import pytest
from django.core.management import call_command

from django_pgqueue.jobs import ack
from django_pgqueue.jobs.claim import claim
from django_pgqueue.maintenance.partitions import maintain_partitions
from django_pgqueue.records import Fate, Outcome
from tests.support.clock import NOON, clock_set
from tests.support.waiting import eventually


def run(*words) -> str:
    out = StringIO()
    call_command("pgqueue_retention", *words, stdout=out, stderr=StringIO())
    return out.getvalue()


def finish(queue, *jobs: int) -> None:
    claimed = claim(queue, "default", limit=100, worker_id=1)
    assert {job.id for job in claimed} == set(jobs)
    ack.write(queue, [Outcome(job, Fate.SUCCEEDED) for job in claimed])


def row_of(text: str, first: object) -> str:
    """Return the line of the table that begins so, its columns parted by two spaces."""
    [line] = [line for line in text.splitlines() if line.startswith(f"{first} ")]
    return line


@pytest.fixture
def noon(transactional_db):
    """Let no test meet midnight in UTC."""
    with clock_set(NOON):
        yield


@pytest.fixture
def today(noon, queue, sql) -> dt.date:
    """Today in UTC; then, and at the end, there are no other partitions than there are by default."""

    def by_default() -> None:
        sql("TRUNCATE pgqueue_succeeded_jobs")
        for retention_days in (0, 7):
            eventually(lambda days=retention_days: not maintain_partitions(queue, retention_days=days).is_blocked)

    by_default()
    yield sql("SELECT (now() AT TIME ZONE 'UTC')::date")[0][0]
    by_default()


@pytest.fixture
def old_partition(sql, today) -> str:
    """The name of a partition that is to be dropped, with one row."""
    day = today - dt.timedelta(9)
    name = f"pgqueue_succeeded_jobs_{day:%Y%m%d}"
    sql(
        f"CREATE TABLE {name} PARTITION OF pgqueue_succeeded_jobs "
        f"FOR VALUES FROM ('{day} 00:00+00') TO ('{day + dt.timedelta(1)} 00:00+00')"
    )
    return name
