"""One bounded pass for each duty, safe from any worker at any time. ``runtime/`` decides when, and how much at once.

::

    chores         what there is to do at all
    promote        scheduled jobs that are due
    expire         jobs that were not started in time
    reaper         jobs of dead workers
    sweep          concurrency keys that were forgotten
    unique         unique keys to be taken back, and tombstones
    fairness       fair keys that stand behind
    declaring      schedules: what the code declares, and what stands in the table
    schedules      schedules: ticks that are over
    operations     what staff want done to many jobs
    queues         rows of queues, and pauses that have ended
    backlog        how long jobs wait, and how many
    retention      partitions of finished jobs
    prune          finished and dead jobs that go by age, one by one
    vacuum         VACUUM of the jobs
"""
