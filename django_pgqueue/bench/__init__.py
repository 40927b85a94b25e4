"""Measurements of ``manage.py pgqueue_bench``.

::

    measure    one bench from beginning to end
      room     the bench's place in the queue's tables: who may come in, and nothing left behind
      seed     its jobs
      floor    the bare claim and ack statements
      command  the worker command that is measured; ``worker`` is what runs in it
      drain    an idle queue and a backlog, run by that command
      usage    WAL and CPU
    load       how much of what
    tasks      the tasks of the jobs; known to the bench's own workers only
    board      memory that the bench shares with them
    report     what comes out
"""
