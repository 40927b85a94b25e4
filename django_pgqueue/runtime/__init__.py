"""Processes, threads, timers and signals; no SQL, no policy.

::

    supervisor   one command: signals, and the threads below
      crew       its children: who lives, who has ended, which places are to be filled
      process    one child as the supervisor sees it
      heart      the heartbeat, and the comparison of books
      steward    runs the passes of housekeeping
      janitor    partitions and VACUUM, by the role that owns the tables
      duties     several duties of one thread, and what a failing one means for the others
      listener   LISTEN, and wake the children
      loop       the one periodic loop; what a failing pass means
    child        one worker process
      pump       write the last outcomes, claim the next jobs
      slots      where user code runs: threads, the event loop
      tidy       what the end of a request would clean up, after each job
      speed      how much to fetch ahead
      report     one line in the log for each job at most
    marks        memory that a child and its supervisor share
    plan, logs   what a command is to do, and how it speaks
"""
