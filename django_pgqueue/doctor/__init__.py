"""What is wrong with the queue, whose fault it is, and what to do about it: for people in a hurry.

Each look costs a few reads of bounded size, and none waits for a lock. ``findings()`` says nothing where all is well.

::

    looks       all of them, one after the other
    finding     what a finding is
    view        what several looks need, read once
    words       names in a sentence
    workers     is anybody there, and do they hear?
    jobs        who waits too long, or in vain?
    arguments   do waiting jobs and schedules fit the functions that are to run them?
    schedules   do they fire?
    tables      dead rows and who keeps them, partitions, settings, clocks
    schema      is everything there that the migrations make?
    catalogue   what the models want, and what the database has
    sessions    may the workers have as many connections as they need?
    listening   do notifications arrive?
"""

from django_pgqueue.doctor.finding import Finding, Level
from django_pgqueue.doctor.report import ALL_LOOKS, LOOKS, NOT_LOOKED_AT, SCHEMA_LOOKS, findings

__all__ = ["ALL_LOOKS", "LOOKS", "NOT_LOOKED_AT", "SCHEMA_LOOKS", "Finding", "Level", "findings"]
