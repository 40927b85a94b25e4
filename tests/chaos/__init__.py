"""Make everything go wrong while real workers work, then compare what ran with what the queue says.

``python -m tests.chaos --minutes 10``, or ``make soak``. Nothing here looks into the queue's code: producers enqueue as
any project does, workers are ``pgqueue_worker`` commands, and what ran is known from marks that handlers write.

::

    soak        one run from start to end; __main__ is its command line
      cluster   a PostgreSQL of its own with a replica; it may be restarted, and they may change places
      command   one pgqueue_worker, which may be killed, stopped and frozen
      stream    jobs that come due by the thousand, and how long a killed process is missing
      load      a producer: enqueues, commits and rolls back, and writes down which
        cases   what it does beside that: changes, calls that meet others, rows that no code would write
        flows   workflows of made-up graphs: what producers begin, what members do, what must hold
        tasks   what the jobs do; each run writes marks
        marks   lines in files, which survive any end of their writer
      faults    the kinds of faults
      storm     injects them, round after round
      journal   what was done to whom, and when
    ledger      what producers, handlers, tables and journal say, put together
      case_facts    the part of the cases, of schedules and of the stream
    oracle      what must hold for every ledger, a check for each promise
      case_checks   those of the cases, of schedules and of the stream
    report      the table at the end
"""
