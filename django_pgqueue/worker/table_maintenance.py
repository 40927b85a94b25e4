"""Run the maintenance that only an owner of the tables may do: partitions, pruning by age, VACUUM for dead rows.

It has a thread and a connection of its own, because both may wait or take long and reaping must not. The connection is
that of MAINTENANCE_DATABASE, and open only while there is something to look at.
"""

import contextlib
import logging
import time

import psycopg
from django.db import OperationalError

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import QueueConnection, Row
from django_pgqueue.db.errors import is_too_slow
from django_pgqueue.maintenance.partitions import maintain_partitions
from django_pgqueue.maintenance.pruner import PRUNE_SECONDS, Pruner
from django_pgqueue.maintenance.vacuum import VacuumHistory, vacuum
from django_pgqueue.services import Service, Services
from django_pgqueue.worker.processes import ProcessPool

logger = logging.getLogger("django_pgqueue.worker")

CHORES_SECONDS = 3600.0
LONGEST_RETRY_SECONDS = 60.0
"""Maximum pause between tries at a partition that another session has locked, after 1, 2, 4 … seconds."""

QUIET_SECONDS = 60.0
"""Interval between looks at a table on which the own children do little: others may be at work on it."""

COUNTED_SECONDS = 10.0
"""Maximum delay after its last statement with which a session adds to the server's counters."""

LOOKS = 100
"""Number of looks, at most one a second, while the own children finish as many jobs as ask for a VACUUM."""


class TableMaintenance:
    def __init__(self, pool: ProcessPool) -> None:
        self.database = QueueConnection(conf.maintenance_database, "table-maintenance")
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
            if not is_too_slow(error) or not self._stopping:  # stop() may hit a statement beside the VACUUM
                raise
        finally:
            self._vacuuming = None
