"""Diagnosis of the queue: what is wrong, whose fault it is, and what to do about it.

Each look costs a few reads of bounded size, and none waits for a lock. ``findings()`` is empty where all is well.

::

    report      all looks, one after the other
    finding     a finding, and what several looks read once
    workers     is a worker there for each queue, is it alive, do notifications arrive, are there connections enough?
    jobs        which jobs wait too long or in vain, or do not fit the functions that run them?
    schedules   do they fire?
    tables      dead rows and what keeps them, partitions, settings, clocks
    schema      is everything there that the migrations make? catalogue: what the models want
"""

from django_pgqueue.doctor.finding import Finding, Level
from django_pgqueue.doctor.report import ALL_LOOKS, LOOKS, NOT_LOOKED_AT, SCHEMA_LOOKS, findings

__all__ = ["ALL_LOOKS", "LOOKS", "NOT_LOOKED_AT", "SCHEMA_LOOKS", "Finding", "Level", "findings"]
