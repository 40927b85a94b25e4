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
from django_pgqueue.maintenance.pruner import Pruner
from django_pgqueue.maintenance.vacuum import VacuumHistory, vacuum
from django_pgqueue.services import Services
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
    """Looks after the tables for one command.

    Args:
        pool: its processes tell how many jobs they have finished, so an idle worker asks the database nothing.
    """

    def __init__(self, pool: ProcessPool) -> None:
        self.database = QueueConnection(conf.maintenance_database, "table-maintenance")
        self.services = Services(self._keep_partitions, Pruner(self.database).prune, self._vacuum)
        self._pool = pool
        self._past = VacuumHistory()
        self._partitions_at = self._look_at = 0.0
        self._blocked = 0  # times in a row that another session had locked the partitions
        self._finished = 0  # by the pool, when last looked at
        self._vacuuming: psycopg.Connection[Row] | None = None
        self._stopping = False

    def pass_once(self) -> float:
        """Do what is due; return the seconds until the next pass."""
        return self.services.pass_once()

    def stop(self) -> None:
        """Break a VACUUM off and begin none; may be called from any thread."""
        self._stopping = True
        self.services.stop()
        if (connection := self._vacuuming) is not None:
            with contextlib.suppress(psycopg.Error):
                connection.cancel_safe(timeout=1.0)

    def _keep_partitions(self) -> None:
        if time.monotonic() < self._partitions_at:
            return
        kept = maintain_partitions(self.database, retention_days=conf.retention_days)
        self._blocked = self._blocked + 1 if kept.is_blocked else 0
        retry = min(2.0 ** min(self._blocked - 1, 10), LONGEST_RETRY_SECONDS)
        self._partitions_at = time.monotonic() + (retry if kept.is_blocked else CHORES_SECONDS)

    def _vacuum(self) -> None:
        threshold = conf.vacuum_dead_rows
        if self._stopping or not threshold or not self._is_worth_a_look(threshold):
            self.database.close()
            return
        self._vacuuming = self.database.autocommit()
        try:
            if done := vacuum(self.database, self._past, threshold=threshold):
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

    def _is_worth_a_look(self, threshold: int) -> bool:
        finished = self._pool.finished()
        is_busy = finished - self._finished >= max(threshold // LOOKS, 1)
        if not is_busy and time.monotonic() < self._look_at:
            return False
        self._finished = finished
        self._look_at = time.monotonic() + (COUNTED_SECONDS if is_busy else QUIET_SECONDS)
        return True
