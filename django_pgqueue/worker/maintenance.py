"""Run the maintenance passes of one worker command, each when it is due; those of the tables' owner apart.

Partitions, pruning by age and VACUUM need the owner of the tables, the role of MAINTENANCE_DATABASE. They have a thread
and a connection of their own, because they may wait or take long and reaping must not.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial

import psycopg
from django.db import Error, OperationalError

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import QueueConnection, Row
from django_pgqueue.db.errors import is_of_a_row, is_too_slow
from django_pgqueue.db.notify import CHANNEL, KILLS, limits_payload, queue_payload, send_or_warn
from django_pgqueue.flow.concurrency import SWEEP_SECONDS, ConcurrencySweeper
from django_pgqueue.flow.declared_queues import DeclaredLimits
from django_pgqueue.flow.fairness import TURNS_SECONDS, FairKeys
from django_pgqueue.flow.queue_limits import end_pauses, register_queues
from django_pgqueue.jobs.leases import RECONNECTED_SECONDS, deregister, has_session, worker_leases
from django_pgqueue.jobs.stats import ProcessCounters, StatsBuffer
from django_pgqueue.maintenance.bulk_runner import BulkActionRunner
from django_pgqueue.maintenance.expirer import EXPIRE_SECONDS, Expirer
from django_pgqueue.maintenance.partitions import maintain_partitions
from django_pgqueue.maintenance.pending_work import PendingWork, is_drained, is_over, pending_work
from django_pgqueue.maintenance.promoter import promote
from django_pgqueue.maintenance.pruner import PRUNE_SECONDS, Pruner
from django_pgqueue.maintenance.reaper import FORGET_SECONDS, REAP_SECONDS, Reaper, is_stuck, settle_dead_process
from django_pgqueue.maintenance.stages import DEADLINES_SECONDS, STAGES_SECONDS, StageKeeper
from django_pgqueue.maintenance.unique_keys import KEYS_SECONDS, UniqueKeyKeeper
from django_pgqueue.maintenance.vacuum import VacuumHistory, vacuum
from django_pgqueue.schedules.enqueuer import STRANGE_SECONDS, Compute, PeriodicEnqueuer, directly
from django_pgqueue.schedules.sync import DECLARE_SECONDS, ScheduleSync
from django_pgqueue.services import LOOK_SHARE, AdaptiveBatch, Service, Services, repeat_slices
from django_pgqueue.worker.heartbeat import HeartbeatMonitor
from django_pgqueue.worker.processes import ProcessPool, WorkerProcess

logger = logging.getLogger("django_pgqueue.worker")

QUEUES_SECONDS = 10.0
DRAIN_LOOK_SECONDS = 0.05

UNSETTLED_SECONDS = 0.1
"""Interval between looks at what a process has left that has just ended: more may come, or a row is locked."""

SOON_SECONDS = 1.0
"""Timeout of those looks; from then on they are as far apart as this."""

FINISH_SECONDS = 5.0  # timeout of the settling of jobs when the command ends

CHORES_SECONDS = 3600.0
LONGEST_RETRY_SECONDS = 60.0
"""Maximum pause between tries at a partition that another session has locked, after 1, 2, 4 … seconds."""

QUIET_SECONDS = 60.0
"""Interval between looks at a table on which the own children do little: others may be at work on it."""

COUNTED_SECONDS = 10.0
"""Maximum delay after its last statement with which a session adds to the server's counters."""

LOOKS = 100
"""Number of looks, at most one a second, while the own children finish as many jobs as ask for a VACUUM."""


class MaintenanceRunner:
    """Everything that any worker may do at any time, and what only this one can: settle and replace its children.

    Args:
        wake: called with payloads of notifications, for the own children.
        drained: called when the plan is to drain and nothing is left to do; None otherwise.
    """

    def __init__(
        self,
        alias: str,
        pool: ProcessPool,
        monitor: HeartbeatMonitor,
        *,
        wake: Callable[[set[str]], None],
        drained: Callable[[], None] | None,
        meter: ProcessCounters | None = None,
        compute: Compute = directly,
    ) -> None:
        self.database = QueueConnection(alias, "maintenance")
        self._pool = pool
        self._wake = wake
        self._drained = drained
        self._promoting = AdaptiveBatch()
        self._has_schedules = alias == conf.database  # else each tick would become a job on each database
        self._has_told = False  # of a pooler that statements cannot be prepared behind
        self._pending = PendingWork()
        self._finished = 0  # jobs of the pool, at the last look
        self._limits = DeclaredLimits(self.database)
        self._sweeper = ConcurrencySweeper(self.database, self._announce_work)
        self._stats = StatsBuffer(self.database, meter)
        self._reaper = Reaper(self.database, pool, monitor, announce=self._announce_work, stats=self._stats)
        self._expirer = Expirer(self.database, self.admit, self._stats)
        self._unique_keys = UniqueKeyKeeper(self.database, self._stats)
        self._scheduler = PeriodicEnqueuer(self.database, self._announce, compute)
        self._bulk_actions = BulkActionRunner(self.database, self._announce_by_channel)
        self._stages = StageKeeper(self.database, self._announce_work, self._announce_by_channel)
        self.services = self._make_services()

    def _make_services(self) -> Services:
        """Return the services in their order: those that depend on pending work come after ``read_pending``."""
        spaced = partial(Service, share=LOOK_SHARE)  # their looks are slow while another session holds an old snapshot
        keys = self._unique_keys
        return Services(
            Service("settle_processes", self.settle_ended),
            Service("start_processes", self._fill),
            Service("check_pooler", self._tell_of_pooler),
            Service("remove_workers", self._reaper.forget_workers, every=FORGET_SECONDS),
            Service("read_pending", self._look),
            Service("reap", self._reaper.reap_lost, when=lambda: self._pending.has_running, every=REAP_SECONDS),
            Service("reap_disconnected", self._reap_gone, every=REAP_SECONDS),
            spaced("expire", self._expirer.expire, when=lambda: self._pending.has_expired, every=EXPIRE_SECONDS),
            Service(
                "sync_schedules",
                ScheduleSync(self.database).declare_schedules,
                when=lambda: self._has_schedules,
                every=DECLARE_SECONDS,
            ),
            Service(
                "enqueue_schedules",
                self._scheduler.fire_schedules,
                when=lambda: self._has_schedules and is_over(self._pending.tick_seconds),
                every=STRANGE_SECONDS,
            ),
            Service("promote", lambda: repeat_slices(self._promote), when=lambda: is_over(self._pending.due_seconds)),
            Service("update_queues", self._look_at_queues, every=QUEUES_SECONDS),
            spaced("update_fair_keys", FairKeys(self.database).keep_turns, every=TURNS_SECONDS),
            spaced(
                "prune_unique_keys", keys.prune_reserved, when=lambda: self._pending.has_reserved, every=KEYS_SECONDS
            ),
            spaced("reacquire_unique_keys", keys.retake, when=lambda: self._pending.has_started, every=KEYS_SECONDS),
            Service(
                "sweep_concurrency", self._sweeper.sweep, when=lambda: self._pending.has_limited, every=SWEEP_SECONDS
            ),
            spaced("sweep_stages", self._stages.sweep, when=lambda: self._pending.has_stages, every=STAGES_SECONDS),
            Service("move_members", self._stages.move, when=lambda: self._pending.has_moves),
            Service(
                "fail_workflows",
                self._stages.fail_late,
                when=lambda: self._pending.has_late_workflows,
                every=DEADLINES_SECONDS,
            ),
            Service("admit", self._sweeper.admit),
            Service(
                "run_bulk_actions", self._bulk_actions.carry_on, when=lambda: is_over(self._pending.bulk_action_seconds)
            ),
            Service("write_stats", self._stats.add, when=lambda: time.monotonic() >= self._stats.add_at()),
            Service("check_drained", self._look_whether_drained),
        )

    def pass_once(self) -> float:
        """Run the services that are due; return the seconds until the next pass.

        A failure resets the absences of other commands: this thread may reach another server, where no session is
        visible yet, before the heartbeat does.
        """
        try:
            return self.services.pass_once()
        except Exception:
            self._reaper.forget_absences()
            self.services.reschedule("reap_disconnected", RECONNECTED_SECONDS)
            raise

    def admit(self, keys: Collection[str]) -> None:
        """Let in the next jobs of these concurrency keys, "" stands for any, in the next pass; from any thread."""
        self._sweeper.request(keys)
        if "" in keys:
            self.services.reschedule("sweep_concurrency", 0.0)

    def finish(self) -> None:
        """Settle the jobs of ended processes, for some seconds at most, and add the last counts.

        Raises:
            django.db.Error: the database is away; unsettled jobs are left to their leases.
        """
        until = time.monotonic() + FINISH_SECONDS
        while (pause := self.settle_ended()) is not None and time.monotonic() < until:
            time.sleep(pause)
        self._stats.add(is_last=True)

    def _fill(self) -> float | None:
        self._pool.spawn_missing(self.database)
        return self._pool.next_start_seconds()

    def _tell_of_pooler(self) -> None:
        if self.database.is_preparing is False and conf.prepared_statements is None and not self._has_told:
            logger.warning(
                "Statements are not prepared, which takes the database more time: there is a pooler before %r that "
                "does not keep track of them. Set its max_prepared_statements, or PGQUEUE['PREPARED_STATEMENTS'] to "
                "False if that is how it is.",
                self.database.alias,
            )
            self._has_told = True

    def settle_ended(self) -> float | None:
        trouble: Error | None = None
        for process in list(self._pool.ended):
            try:
                is_settled = self._settle(process) and not deregister(self.database, [process.worker_id])
            except Error as error:
                if not is_of_a_row(error):
                    raise
                trouble, is_settled = trouble or error, False
            if is_settled:
                self._pool.ended.remove(process)
                process.close()
            # else a row is locked, perhaps by a heartbeat that does not know yet that the process has ended
        if trouble is not None:
            raise trouble
        if not self._pool.ended:
            return None
        is_soon = any(process.ended_seconds < SOON_SECONDS for process in list(self._pool.ended))
        return UNSETTLED_SECONDS if is_soon else SOON_SECONDS

    def _settle(self, process: WorkerProcess) -> bool:
        """Settle the jobs of a process that has ended; return whether no other job can need its shared state.

        The server may still run a claim of a process that was killed, or that a job has ended by ``os._exit(0)``: the
        claim will be committed. But a session that outlives every statement is held by another process, a copy that a
        job has made by fork.
        """
        may_come = (
            not process.shared.has_ended_cycles()
            and process.ended_seconds <= 2.0 * conf.statement_timeout_seconds
            and has_session(self.database, process.worker_id, is_pooled=self.database.is_pooled)
        )
        leases = worker_leases(self.database, [process.worker_id])
        settled = settle_dead_process(
            self.database,
            leases,
            started=process.shared.started(),
            overdue=process.overdue(),
            was_stopped=process.was_stopped,
            was_careful=process.was_careful,
        )
        self._stats.count_ends(settled.ends)
        self._announce_work(settled.queues, settled.keys)
        if settled.returned or settled.dead:
            logger.info(
                "Process %d left jobs behind: %d sent back, %d dead",
                *(process.pid, settled.returned, settled.dead),
            )
        is_late = process.ended_seconds > conf.lease_seconds  # by then others may reap the rest
        stuck = sum(map(is_stuck, leases)) if is_late else 0
        return not may_come and settled.returned + settled.dead + stuck == len(leases)

    def _look(self) -> float:
        looked_at, finished = time.monotonic(), self._pool.finished()
        self._pending = pending_work(self.database, is_idle=finished == self._finished)
        self._finished = finished
        if self._pending.has_queued is False:
            for process in list(self._pool.living):
                process.shared.note_empty(looked_at)
        return self._pending.next_seconds()

    def _reap_gone(self) -> float | None:
        return self._reaper.reap_gone(has_running=self._pending.has_running)

    def _promote(self) -> bool:
        """Promote a slice; return whether there was anything."""
        with self._promoting.taken() as limit:
            promoted = promote(self.database, limit=limit)
        self._announce_work(promoted.queues, promoted.keys)
        return any(promoted)

    def _look_at_queues(self) -> None:
        register_queues(self.database)
        end_pauses(self.database)
        if changed := self._limits.apply():
            self._announce({limits_payload(name) for name in changed})

    def _look_whether_drained(self) -> float | None:
        if self._drained is None:
            return None
        if is_drained(self.database, served=self._pool.plan.served, worker_ids=self._pool.worker_ids()):
            self._drained()
        return DRAIN_LOOK_SECONDS

    def _announce_work(self, queues: Collection[str], keys: Collection[str] = ()) -> None:
        """Announce queues that have work; let this thread admit the next jobs of concurrency keys."""
        if queues:
            self._announce(set(map(queue_payload, queues)))
        if keys:
            self.admit(keys)

    def _announce(self, payloads: set[str]) -> None:
        """Send payloads to the own children at once, and to all other commands by a notification."""
        self._wake(payloads)
        if conf.notify or KILLS in payloads:
            send_or_warn(self.database, sorted(payloads))

    def _announce_by_channel(self, announcements: Mapping[str, set[str]]) -> None:
        for channel, payloads in announcements.items():
            if channel == CHANNEL:
                self._announce(payloads)
            else:
                send_or_warn(self.database, sorted(payloads), channel=channel)


class TableMaintenance:
    """Passes of the tables' owner. The connection is open only while there is something to do."""

    def __init__(self, alias: str, pool: ProcessPool) -> None:
        self.database = QueueConnection(conf.maintenance_alias(alias), "table-maintenance")
        self.services = Services(
            Service("maintain_partitions", self._keep_partitions, every=CHORES_SECONDS),
            Service("prune", Pruner(self.database).pass_once, every=PRUNE_SECONDS),
            Service("vacuum", self._vacuum, when=lambda: conf.vacuum_dead_rows > 0, every=QUIET_SECONDS),
        )
        self._pool = pool  # knows how many jobs were finished, so that an idle worker asks the database nothing
        self._past = VacuumHistory()
        self._blocked = 0  # times in a row that another session had locked the partitions
        self._finished = 0  # by the pool, when last looked at
        self._is_busy = False  # it has finished enough since then for another look
        self._vacuuming: psycopg.Connection[Row] | None = None
        self._stopping = False

    def pass_once(self) -> float:
        self._is_busy = self._is_worth_a_look()
        if self._is_busy:
            self.services.reschedule("vacuum", 0.0)
        delay = self.services.pass_once()
        if not self._is_busy:
            self.database.close()
        return delay

    def stop(self) -> None:
        """Break a VACUUM off and begin none; may be called from any thread."""
        self._stopping = True
        self.services.stop()
        if (connection := self._vacuuming) is not None:
            with contextlib.suppress(psycopg.Error):
                connection.cancel_safe(timeout=1.0)

    def _keep_partitions(self) -> float | None:
        kept = maintain_partitions(self.database, retention_days=conf.retention_days)
        self._blocked = self._blocked + 1 if kept.is_blocked else 0
        return min(2.0 ** min(self._blocked - 1, 10), LONGEST_RETRY_SECONDS) if kept.is_blocked else None

    def _is_worth_a_look(self) -> bool:
        threshold = conf.vacuum_dead_rows
        return threshold > 0 and self._pool.finished() - self._finished >= max(threshold // LOOKS, 1)

    def _vacuum(self) -> None:
        self._finished = self._pool.finished()
        self.services.reschedule("vacuum", COUNTED_SECONDS if self._is_busy else QUIET_SECONDS)  # also if it fails
        self._vacuuming = self.database.autocommit()
        try:
            if done := vacuum(self.database, self._past, threshold=conf.vacuum_dead_rows):
                logger.debug("Vacuumed pgqueue_jobs: %d dead rows before, %d after, %.2f s", *done)
        except psycopg.errors.QueryCanceled as error:
            self._past.not_before = time.monotonic() + CHORES_SECONDS
            if not self._stopping:
                logger.warning("VACUUM of pgqueue_jobs was broken off: %s", error)
        except OperationalError as error:
            if not is_too_slow(error) or not self._stopping:  # stop() may hit another statement than the VACUUM
                raise
        finally:
            self._vacuuming = None
