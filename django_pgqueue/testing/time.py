"""Move the clocks of a test.

All that the queue decides by time it decides in SQL, by ``statement_timestamp()``. PostgreSQL looks for a function
without a schema along ``search_path``; so one of that name in a schema before ``pg_catalog`` takes its place, for this
connection only. Rows are left as they are.

Source: https://www.postgresql.org/docs/current/ddl-schemas.html#DDL-SCHEMAS-CATALOG
"""

import contextlib
import datetime as dt
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from django.db import Error, connections, transaction

from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.exceptions import ConfigurationError
from django_pgqueue.flow.queue_limits import send_limits
from django_pgqueue.models import Job
from django_pgqueue.schedules.enqueuer import fire_due
from django_pgqueue.schedules.sync import sync_schedules
from django_pgqueue.states import Status
from django_pgqueue.stored_values import aware
from django_pgqueue.testing.connection import is_broken
from django_pgqueue.testing.run import MOST_RUNS, EndlessJobs, Work
from django_pgqueue.testing.selection import checked

SCHEMA = "pgqueue_testing"
SETTING = "pgqueue.stopped_at"

MAKE = f"""
CREATE SCHEMA IF NOT EXISTS {SCHEMA};
CREATE OR REPLACE FUNCTION {SCHEMA}.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE
AS $$ SELECT current_setting('{SETTING}')::timestamptz $$;
"""
DROP = f"DROP SCHEMA {SCHEMA} CASCADE"


class Clock:
    """That of the connection for one alias."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._database = CallerConnection(alias)

    def now(self) -> dt.datetime:
        [(now,)] = self._database.rows("SELECT (statement_timestamp() AT TIME ZONE 'UTC')::text", {})
        return dt.datetime.fromisoformat(now).replace(tzinfo=dt.UTC)

    def set(self, instant: dt.datetime) -> None:
        """Let it stand at this instant, while it is stopped."""
        self._configure(SETTING, instant.isoformat())

    @contextlib.contextmanager
    def stopped(self, now: dt.datetime) -> Iterator[None]:
        """Stop it at this instant; it goes right again afterwards. Raises ConfigurationError where it cannot stop."""
        [(path,)] = self._database.rows("SELECT current_setting('search_path')", {})
        try:
            with transaction.atomic(using=self._alias), connections[self._alias].cursor() as cursor:
                cursor.execute(MAKE)
        except Error as error:
            raise ConfigurationError(
                f"The clock of {self._alias!r} cannot be moved: {error} The role of the tests needs the right to make "
                "a schema in the test database."
            ) from error
        self.set(now)
        self._configure("search_path", ", ".join(filter(None, [SCHEMA, "pg_catalog", path])))
        try:
            self._must_stand(now)
            yield
        finally:
            self._go_on(path)

    def _must_stand(self, now: dt.datetime) -> None:
        if self.now() != now:
            raise ConfigurationError(
                f"The clock of {self._alias!r} cannot be moved: something sets search_path before each statement."
            )

    def _go_on(self, path: str) -> None:
        if is_broken(connections[self._alias]):
            return  # what stopped it is rolled back too
        self._configure("search_path", path)
        with connections[self._alias].cursor() as cursor:
            cursor.execute(DROP)

    def _configure(self, name: str, value: str) -> None:
        self._database.rows("SELECT set_config(%(name)s, %(value)s, false)", {"name": name, "value": value})


# Moving to the next due job

__unittest = True

MOST_MOVES = 10 * MOST_RUNS


def travel(
    work: Work,
    clock: Clock,
    until: dt.datetime | dt.timedelta,
    *,
    clock_of_python: Callable[[dt.datetime], AbstractContextManager[Any]] | None,
    fires: bool,
) -> None:
    """Run what is due until then.

    Raises:
        ValueError: until is over, or naive while USE_TZ is on.
        EndlessJobs: time was moved more often than is likely.
    """
    __tracebackhide__ = True
    now = clock.now()
    end = _end(until, now)
    with clock.stopped(now):
        if fires:
            sync_schedules(work.database)
        for _ in range(MOST_MOVES):
            work.now = now = clock.now()
            if clock_of_python is not None:
                work.python_clock = _at(clock_of_python, now)
            tick = _fire(work) if fires else None
            work.run_due()
            following = None if work.is_done else _next(work, now, tick)
            if following is None or following > end:
                return
            clock.set(following)
    raise EndlessJobs(f"run_jobs() has moved the time {MOST_MOVES:,} times, up to {now}. Give it an earlier until=.")


def _end(until: dt.datetime | dt.timedelta, now: dt.datetime) -> dt.datetime:
    given = checked("until", until)
    end: dt.datetime = now + given if isinstance(given, dt.timedelta) else given
    if end < now:
        raise ValueError(f"until is {end}, which is over: the database says {now}. Time only goes forward.")
    return end


def _fire(work: Work) -> float | None:
    """Make jobs of the ticks that are due; return the seconds until the next one, if there is one."""
    for _ in range(MOST_RUNS):
        seconds = fire_due(work.database, known=work.wanted.schedules()).next_seconds
        if seconds != 0:
            return seconds
    return None


def _next(work: Work, now: dt.datetime, tick: float | None) -> dt.datetime | None:
    _, pause_seconds = send_limits(work.database).read()
    seconds = [pause_seconds, *work.token_seconds(), math.inf if tick is None else tick]
    found = [now + dt.timedelta(seconds=each) for each in seconds if 0 < each < math.inf]
    due = (Status.SCHEDULED, Status.QUEUED, Status.WAITING)
    jobs = Job.objects.using(work.alias).filter(status__in=due, run_at__gt=now).order_by("run_at")
    found += [aware(job.run_at) for job in jobs[:1]]
    return min(found, default=None)


def _at(
    clock_of_python: Callable[[dt.datetime], AbstractContextManager[Any]], moment: dt.datetime
) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: clock_of_python(moment)
