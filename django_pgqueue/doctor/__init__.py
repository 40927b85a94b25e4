"""Diagnosis of the queue: problems, their causes and remedies.

Each look costs a few reads of bounded size, and none waits for a lock. ``findings()`` is empty where all is well.
"""

from django_pgqueue.doctor.finding import NOT_LOOKED_AT, Finding, Level
from django_pgqueue.doctor.report import ALL_LOOKS, DEPLOY_LOOKS, LOOKS, SCHEMA_LOOKS, findings

__all__ = ["ALL_LOOKS", "DEPLOY_LOOKS", "LOOKS", "NOT_LOOKED_AT", "SCHEMA_LOOKS", "Finding", "Level", "findings"]
