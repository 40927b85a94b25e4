"""Processes, threads, timers and signals; no SQL, no policy.

::

    supervisor   one command: signals, and the threads below
      crew       its children: who lives, who has ended, which places are to be filled
      process    one child as the supervisor sees it
      heart      the heartbeat, and the comparison of books
      steward    runs the passes of housekeeping
        reaper     when to judge that a worker is gone
        expiry     when to look for jobs that were not started in time
        scheduler  what the code declares, and what is due of it
        unique     when to look after unique keys
        operations when to carry on with what staff want done to many jobs
        fair       when to look whether fair keys have their turns
      user_code  threads for what of the project's code housekeeping calls
      janitor    partitions and VACUUM, by the role that owns the tables
        pruning    when to prune jobs by age, and how much at once
      duties     several duties of one thread, and what a failing one means for the others
      listener   LISTEN, and wake the children
      session    how others see that the command lives, and it sees that others do not
      health     looks whether the command is alive and ready; verdict judges, probes tell
      loop       the one periodic loop; what a failing pass means
    child        one worker process
      pump       write the last outcomes, claim the next jobs
      book       what a child holds: each job from its claim until its outcome is written
      trouble    how long to leave the database alone, and how much to write after that
      intake     which queue to claim from next
      gates      which queues are paused, limited or full, as far as is known
      suspects   jobs under which processes keep dying: each runs alone
      slots      where user code runs: threads, the event loop
      limits     interrupts jobs that were killed or have had their time
      tidy       what the end of a request would clean up, after each job
      speed      how much to fetch ahead
      errands    what the pump does beside its turns
      tally        what has become of jobs, counted for charts
        refused    what is written where the database refuses an outcome
        progress   what running jobs tell of themselves
      report     one line in the log for each job at most
    pages        what the command answers over HTTP
    marks        memory that a child and its supervisor share: what it holds
    meter        and what it has done so far, for metrics
    meters       those of all processes, and what ended ones have left in them
    enqueues     tells what is enqueued in a process
    admissions   concurrency keys whose next jobs are to be let in, by the pump and by the steward
    plan, logs   what a command is to do, and how it speaks
    stopping     SIGTERM and Ctrl-C, for supervisor and reloader
    reloader     one command after the other, in development: a new one when the code has changed
      sources    which files that is
      tether     the pipe between them, as the command sees it
    waiting      those who wait for the end of jobs, in any process
      watch      what their thread does
      ear        LISTEN for them
"""
