"""One module for each step in a job's life. Each owns its statements, one a file, in ``sql/``.

::

    enqueue        put a job into the table
      payload      its arguments as JSON
      keyed        those that have keys or expire
      unique       what becomes of the job that has the key
    wake           tell idle workers, after the commit
    admit          let in no more than may run
    claim          take due jobs, and the right to run them
    run            call the task, and say what it came to
      context      which job this code runs for
      border       where a run may be interrupted from outside
      failure      what it comes to if it did not succeed
      describe     what an exception says, as it may be kept
      progress     what a job tells of itself while it runs
      watched      who looks on: traces, reports of errors
      receivers    who is told: signals
      framework    tasks that only a backend of Django's Tasks framework can find
      immediate    all of this at once, where the settings say so
    ack            write that down
      fence        the right to do so
    release        give back what was not run
    heartbeat      which processes live, and what they are running
    reap           settle what a dead one was running
    dead_letter    where jobs go in the end, and the way back
    stats          add up what was counted
    drain          whether anything is left
    find           where a job is
      handle       what its enqueuer can ask of it
      wait         whether it has ended

    gates          what people say of queues
    schedules      what they do to schedules
    workers        and to workers
    kill, run_now  what they do to jobs; bulk: move, set the priority, purge
      retry_changed  and dead jobs: a new one in place of one
      verbs        all of these, for many
      operations   the same in the background
      browse       choose jobs by a filter
      argument     by the value of an argument, if it may be seen
      slices       do something to many
      left         why some were left alone
    redact         keep what is sensitive out of all that is shown
"""
