"""Look at dead rows and the snapshots that keep them, partitions, settings, clocks."""

import datetime as dt
from collections.abc import Iterator
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import PLANNER_SETTINGS
from django_pgqueue.db.queries import statement
from django_pgqueue.doctor.finding import Finding, Level, View, named
from django_pgqueue.insights.formatting import duration, grouped, when
from django_pgqueue.insights.retention import remedy
from django_pgqueue.maintenance import partitions as retention
from django_pgqueue.maintenance import vacuum
from django_pgqueue.maintenance.vacuum import SnapshotHolder

OLD_SECONDS = 5 * 60
VERY_OLD_SECONDS = 60 * 60
MANY_DEAD_ROWS = 100_000  # claims step over them: 20,000 cost a millisecond and a half
MOST_SKEW_SECONDS = 2.0

EXPLAIN_CLAIM = "EXPLAIN (FORMAT JSON) " + statement("claim")

OPTIONS = {
    "fillfactor": "50",
    "autovacuum_vacuum_scale_factor": "0",
    "autovacuum_vacuum_threshold": "1000",
    "autovacuum_vacuum_cost_delay": "0",
    "autovacuum_analyze_scale_factor": "0",
    "autovacuum_analyze_threshold": "50000",
    "vacuum_truncate": "off",
}
"""Storage options of pgqueue_jobs, as the migrations set them."""


def old_snapshot(view: View) -> Iterator[Finding]:
    """Name the holder of a snapshot that keeps VACUUM from removing dead rows. Slots and standbys have no start."""
    holder = vacuum.oldest_snapshot(view.database)
    if holder is None or not _is_old(holder, view.counters.dead):
        return
    session = _session(view, holder)
    yield Finding(
        name="old-snapshot",
        level=Level.ERROR if (holder.seconds or 0.0) >= VERY_OLD_SECONDS else Level.WARNING,
        what=_("The oldest snapshot keeps dead rows in the tables, about %(dead)s of pgqueue_jobs: %(holder)s.")
        % {"dead": grouped(view.counters.dead), "holder": _whose(holder, session)},
        remedy=remedy(holder),
        facts={**holder._asdict(), **session, "dead_rows": view.counters.dead},
    )


def dead_rows(view: View) -> Iterator[Finding]:
    counters = view.counters
    if counters.dead < max(MANY_DEAD_ROWS, counters.live // 2):
        return
    last = max(filter(None, (counters.vacuumed_at, counters.autovacuumed_at)), default=None)
    cleaned = _("The last VACUUM was at %(time)s.") % {"time": when(last)} if last else _("There was no VACUUM yet.")
    yield Finding(
        name="dead-rows",
        level=Level.WARNING,
        what=_("pgqueue_jobs has about %(dead)s dead rows and %(live)s live ones. %(when)s")
        % {"dead": grouped(counters.dead), "live": grouped(counters.live), "when": cleaned},
        remedy=_(
            "End the session that holds the oldest snapshot, if there is one. See that PGQUEUE['VACUUM_DEAD_ROWS'] is "
            "not 0 and that the role of PGQUEUE['MAINTENANCE_DATABASE'] may VACUUM the table."
        ),
        facts={"dead": counters.dead, "live": counters.live, "last_vacuum": last},
    )


def partitions(view: View) -> Iterator[Finding]:
    """Name days without a partition of their own: their succeeded jobs go to the default one."""
    plan = retention.plan(view.database, retention_days=conf.retention_days)
    soon = [day for day in plan.make if day <= plan.today + dt.timedelta(1)]
    if not soon:
        return
    yield Finding(
        name="partitions-missing",
        level=Level.WARNING,
        what=_("Succeeded jobs have no partition for %(days)s.") % {"days": named([str(day) for day in plan.make])},
        remedy=_(
            "Run manage.py pgqueue_retention run by a role that owns the tables. Workers do it daily where the "
            "role of PGQUEUE['MAINTENANCE_DATABASE'] may."
        ),
        facts={"days": list(plan.make)},
    )


def default_partition(view: View) -> Iterator[Finding]:
    """Say that rows lie in the default partition, which keep partitions of their days from being made."""
    rows = _storage(view)[2]
    if not rows:
        return
    yield Finding(
        name="default-partition",
        level=Level.WARNING,
        what=_("About %(number)s succeeded jobs lie in the default partition.") % {"number": grouped(rows)},
        remedy=_(
            "They are removed one by one when their time is over. See that partitions are made ahead: manage.py "
            "pgqueue_retention shows them."
        ),
        facts={"rows": rows},
    )


def settings(view: View) -> Iterator[Finding]:
    given, has_autovacuum, _rows = _storage(view)
    options = dict(option.split("=", 1) for option in given)
    wrong = {name: options.get(name) for name, wanted in OPTIONS.items() if options.get(name) != wanted}
    if wrong or options.get("autovacuum_enabled", "true") in {"false", "off"}:
        unset = _("not set")
        changed = named([f"{name} = {value or unset}" for name, value in wrong.items()])
        yield Finding(
            name="storage-options",
            level=Level.WARNING,
            what=_("Storage options of pgqueue_jobs are not those of the migrations: %(options)s.")
            % {"options": changed or "autovacuum_enabled = off"},
            remedy=_("Unless it is on purpose: ALTER TABLE pgqueue_jobs SET (%(options)s);")
            % {"options": ", ".join(f"{name} = {OPTIONS[name]}" for name in wrong) or "autovacuum_enabled = on"},
            facts=wrong,
        )
    if not has_autovacuum:
        yield Finding(
            name="autovacuum-off",
            level=Level.WARNING,
            what=_("The server runs no autovacuum."),
            remedy=_("Switch it on: ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf();"),
        )


def publications(view: View) -> Iterator[Finding]:
    """Name the publications that send each change of pgqueue_jobs to subscribers."""
    if not (names := [name for (name,) in view.database.rows(statement("publications"), {})]):
        return
    yield Finding(
        name="queue-in-publication",
        level=Level.WARNING,
        what=_("pgqueue_jobs is in the publication %(names)s: subscribers get several row changes for each job.")
        % {"names": named(names)},
        remedy=_(
            "Publish the tables that subscribers need by name, without pgqueue_jobs. Leave it, if the subscriber is to "
            "replace this server."
        ),
        facts={"publications": names},
    )


def claim_plan(view: View) -> Iterator[Finding]:
    """Plan a claim with the settings of workers, and say if it does not read the index of claims in its order."""
    [(may_claim, has_index, queue)] = view.database.rows(statement("may_claim"), {})
    if not may_claim or not has_index:  # another finding names the index
        return
    parameters = {"queue": queue, "worker_id": 0, "lease_token": 0}
    with transaction.atomic(using=view.alias):
        view.database.rows(PLANNER_SETTINGS, {})
        [(plan,)] = view.database.rows(EXPLAIN_CLAIM, parameters)
        transaction.set_rollback(True, using=view.alias)
    nodes = list(_nodes(plan[0]["Plan"]))
    scans = [one for one in nodes if one.get("Alias") == "job"]
    sorts = [one["Node Type"] for one in nodes if "Sort" in one["Node Type"]]
    if not sorts and [one.get("Index Name") for one in scans] == ["pgqueue_jobs_claim"]:
        return
    steps = [" ".join(filter(None, (one["Node Type"], one.get("Index Name")))) for one in scans] + sorts
    yield Finding(
        name="claim-plan",
        level=Level.WARNING,
        what=_("The server plans claims without reading pgqueue_jobs_claim in its order: %(steps)s.")
        % {"steps": named(steps)},
        remedy=_(
            "Compare the index with that of the migrations: manage.py sqlmigrate pgqueue 0001. Another index of yours "
            "may be in the way, or a setting of the role."
        ),
        facts={"steps": steps},
    )


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)


def clocks(view: View) -> Iterator[Finding]:
    before = timezone.now()
    [(told,)] = view.database.rows("SELECT extract(epoch FROM clock_timestamp())::double precision", {})
    after = timezone.now()
    skew = max(before.timestamp() - told, told - after.timestamp(), 0.0)
    if skew < MOST_SKEW_SECONDS:
        return
    ahead = told < before.timestamp()
    text = (
        _("The clock of this process is %(seconds)s ahead of the database's.")
        if ahead
        else _("The clock of this process is %(seconds)s behind the database's.")
    )
    yield Finding(
        name="clocks-differ",
        level=Level.WARNING,
        what=text % {"seconds": duration(skew)},
        remedy=_("Set both machines by NTP. Jobs are due by the database's clock; times here are shown against it."),
        facts={"seconds": skew if ahead else -skew},
    )


def _is_old(holder: SnapshotHolder, dead: int) -> bool:
    return dead >= MANY_DEAD_ROWS if holder.seconds is None else holder.seconds >= OLD_SECONDS


def _session(view: View, holder: SnapshotHolder) -> dict[str, Any]:
    """Return what this role may see of a session; nothing of a slot or a prepared transaction."""
    if holder.kind not in {"session", "standby"}:
        return {}
    rows = view.database.rows(statement("session"), {"pid": int(holder.handle)})
    names = ("application", "user", "state", "transaction_seconds", "client")
    return dict(zip(names, rows[0], strict=True)) if rows else {}


def _whose(holder: SnapshotHolder, session: dict[str, Any]) -> str:
    parts = [_name(holder, session)]
    if session.get("user"):
        parts.append(_("user %(name)s") % {"name": session["user"]})
    if session.get("state"):
        parts.append(_("state %(state)s") % {"state": session["state"]})
    if session.get("client"):
        parts.append(_("from %(address)s") % {"address": session["client"]})
    if holder.seconds is not None:
        parts.append(_("for %(time)s") % {"time": duration(holder.seconds)})
    return ", ".join(parts)


def _name(holder: SnapshotHolder, session: dict[str, Any]) -> str:
    if holder.kind == "slot":
        return _("replication slot %(name)s") % {"name": holder.handle}
    if holder.kind == "prepared":
        return _("prepared transaction %(name)s") % {"name": holder.handle}
    if not session.get("application"):
        return _("process %(pid)s") % {"pid": holder.handle}
    return _("process %(pid)s (%(application)s)") % {"pid": holder.handle, "application": session["application"]}


def _storage(view: View) -> tuple[list[str], bool, int | None]:
    [(options, has_autovacuum, rows)] = view.database.rows(statement("table_options"), {})
    return options, has_autovacuum, rows
