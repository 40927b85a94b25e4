"""History and maintenance of the tables: sizes, ages, and what the next pass will do."""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.utils.translation import gettext_lazy as _

from django_pgqueue import registry
from django_pgqueue.conf import conf
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.insights.formatting import at_most, columns, duration, plain, when
from django_pgqueue.maintenance import partitions, vacuum
from django_pgqueue.maintenance.partitions import Partition, PartitionPlan
from django_pgqueue.maintenance.vacuum import SnapshotHolder, TableCounters

CAP = 10_000  # jobs that go one by one are counted up to here

HEAD = ("partition", "rows", "size", "age", "next pass")

REMEDIES = {
    "session": _("To end it: SELECT pg_terminate_backend({handle});"),
    "standby": _("Queries on a standby hold it: end the long one there, or set hot_standby_feedback to off."),
    "slot": _("If it has no reader any more: SELECT pg_drop_replication_slot('{handle}');"),
    "prepared": _(
        "The application that prepared it has to end it: COMMIT PREPARED '{handle}' or ROLLBACK PREPARED '{handle}'."
    ),
}


class TableSize(NamedTuple):
    rows: int  # about
    bytes: int


class AgeCounts(NamedTuple):
    """Jobs removed one by one, by age: the columns of ``age_counts.sql``, counted up to one more than the cap."""

    dead: int
    dead_due: int
    oldest_dead_at: dt.datetime | None
    timed: int  # succeeded jobs with a time of their own
    timed_due: int
    default_due: int


class PartitionBlocker(NamedTuple):
    """A session that blocks partition maintenance; the columns of ``partition_blockers.sql``."""

    pid: int
    name: str
    seconds: float | None


@dataclass(frozen=True)
class RetentionState:
    plan: PartitionPlan
    sizes: dict[tuple[str, str], TableSize]  # by schema and name
    ages: AgeCounts
    readers: list[PartitionBlocker]
    counters: TableCounters
    horizon: SnapshotHolder | None

    def size(self, name: str) -> TableSize:
        return next(size for (_, table), size in self.sizes.items() if table == name)

    def size_of(self, partition: Partition) -> TableSize:
        return self.sizes.get((partition.schema, partition.name), TableSize(0, 0))


def state_of(alias: str) -> RetentionState:
    """Look at everything. Reads no job, and waits only for sessions that alter the tables."""
    database = CallerConnection(alias)
    days = {"dead_days": conf.dead_retention_days, "retention_days": conf.retention_days}
    sizes = database.rows(statement("table_sizes"), {})
    [ages] = database.rows(statement("age_counts"), days)
    return RetentionState(
        plan=partitions.plan(database, retention_days=conf.retention_days),
        sizes={(schema, name): TableSize(rows, size) for schema, name, rows, size in sizes},
        ages=AgeCounts._make(ages),
        readers=[PartitionBlocker._make(row) for row in database.rows(statement("partition_blockers"), {})],
        counters=vacuum.look(database),
        horizon=vacuum.oldest_snapshot(database),
    )


def keeps() -> dict[str, bool | int]:
    """Return the tasks of this code whose succeeded jobs are not kept, or kept for a number of seconds only."""
    options = {name: task.options for name in registry.known() if (task := registry.find(name))}
    return {
        name: one.keep_seconds or one.keep_result
        for name, one in options.items()
        if one.keep_seconds or not one.keep_result
    }


def text_of(state: RetentionState) -> list[str]:
    return [
        *_of_settings(),
        "",
        *columns(HEAD, _cells(state)).splitlines(),
        *_of_readers(state),
        "",
        *_of_ages(state),
        "",
        *_of_jobs(state),
    ]


def _of_settings() -> Iterator[str]:
    days = conf.retention_days
    yield f"Succeeded jobs are kept for {_days(days)} in addition to today." if days else "Succeeded jobs are not kept."
    dead = conf.dead_retention_days
    yield f"Dead jobs are kept for {_days(dead)}." if dead else "Dead jobs are kept until they are purged by hand."


def _cells(state: RetentionState) -> Iterator[tuple[str, ...]]:
    for partition in state.plan.present:
        size = state.size_of(partition)
        day = partition.begins_at and partition.begins_at.astimezone(dt.UTC).date()
        age = _days_from(state.plan.today, day) if day else "-"
        yield (_name(partition), f"~{size.rows:,}", _bytes(size.bytes), age, _next(state, partition))
    for day in state.plan.make:
        yield (f"{day}", "-", "-", _days_from(state.plan.today, day), "is made")


def _next(state: RetentionState, partition: Partition) -> str:
    if partition in state.plan.drop:
        return "is dropped"
    if partition.is_default and state.ages.default_due:
        return f"{at_most(state.ages.default_due, CAP)} rows are removed"
    return "stays"


def _name(partition: Partition) -> str:
    if partition.is_default:
        return "default"
    is_ours = partition.name.removeprefix(f"{partitions.PARENT}_").isdigit()
    return f"{partition.begins_at.astimezone(dt.UTC):%Y-%m-%d}" if partition.begins_at and is_ours else partition.name


def _days_from(today: dt.date, day: dt.date) -> str:
    days = (today - day).days
    if not days:
        return "today"
    return _days(days) if days > 0 else f"in {_days(-days)}"


def _of_readers(state: RetentionState) -> Iterator[str]:
    if not (state.plan.make or state.plan.drop):
        return
    for reader in state.readers:
        since = f", for {duration(reader.seconds)}" if reader.seconds is not None else ""
        yield (
            f"In the way: process {reader.pid} ({plain(reader.name)}) has read succeeded jobs in a transaction that is "
            f"still open{since}. {REMEDIES['session'].format(handle=reader.pid)}"
        )


def _of_ages(state: RetentionState) -> Iterator[str]:
    ages = state.ages
    oldest = f", the first died at {when(ages.oldest_dead_at)}" if ages.oldest_dead_at else ""
    yield (
        f"Dead jobs: {at_most(ages.dead, CAP)} ({_bytes(state.size('pgqueue_dead_jobs').bytes)}){oldest}. "
        f"The next pass removes {at_most(ages.dead_due, CAP)}."
    )
    yield (
        f"Succeeded jobs with a time of their own: {at_most(ages.timed, CAP)}. "
        f"The next pass removes {at_most(ages.timed_due, CAP)}."
    )
    for name, keep in keeps().items():
        yield f"  {plain(name)}: {f'kept for {duration(keep)}' if keep else 'not kept'}"


def _of_jobs(state: RetentionState) -> Iterator[str]:
    counters, size, threshold = state.counters, state.size("pgqueue_jobs"), conf.vacuum_dead_rows
    own = f"workers VACUUM it from {threshold:,} dead rows on" if threshold else "workers leave VACUUM to others"
    yield f"pgqueue_jobs: ~{counters.live:,} rows, ~{counters.dead:,} dead ({_bytes(size.bytes)}); {own}."
    last = when(counters.vacuumed_at, "never")
    yield f"Last VACUUM: {last}; last autovacuum: {when(counters.autovacuumed_at, 'never')}."
    if (holder := state.horizon) is None:
        yield "No session holds an old snapshot."
        return
    since = f", for {duration(holder.seconds)}" if holder.seconds is not None else ""
    yield f"The oldest snapshot, behind which no dead row can be removed, is held by {plain(holder.name)}{since}."
    yield remedy(holder)


def remedy(holder: SnapshotHolder) -> str:
    return plain(REMEDIES[holder.kind].format(handle=holder.handle.replace("'", "''")))


def _days(number: int) -> str:
    return "1 day" if number == 1 else f"{number:,} days"


def _bytes(number: float) -> str:
    for unit in ("B", "kB", "MB"):
        if number < 1024:  # noqa: PLR2004 - as PostgreSQL counts
            return f"{number:.0f} {unit}"
        number /= 1024
    return f"{number:.1f} GB"


def as_json(state: RetentionState) -> dict[str, Any]:
    """Return all of it; what goes one by one is counted up to 10,001."""
    ages, counters, holder = state.ages, state.counters, state.horizon
    return {
        "retention_days": conf.retention_days,
        "dead_retention_days": conf.dead_retention_days,
        "partitions": [_partition(state, partition) for partition in state.plan.present],
        "to_make": state.plan.make,
        "in_the_way": [reader._asdict() for reader in state.readers],
        "default_due": ages.default_due,
        "dead_jobs": {"count": ages.dead, "due": ages.dead_due, "oldest_at": ages.oldest_dead_at},
        "timed": {"count": ages.timed, "due": ages.timed_due, "tasks": keeps()},
        "jobs": {
            "rows": counters.live,
            "dead_rows": counters.dead,
            "bytes": state.size("pgqueue_jobs").bytes,
            "vacuumed_at": counters.vacuumed_at,
            "autovacuumed_at": counters.autovacuumed_at,
            "horizon": {**holder._asdict(), "remedy": remedy(holder)} if holder else None,
        },
    }


def _partition(state: RetentionState, partition: Partition) -> dict[str, Any]:
    size = state.size_of(partition)
    return {**partition._asdict(), **size._asdict(), "next_pass": "drop" if partition in state.plan.drop else "keep"}
