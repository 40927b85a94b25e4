"""Measurements of ``manage.py pgqueue_bench``.

::

    measure    one bench from beginning to end, and the bare claim and ack statements
    room       the bench's place in the queue's tables: its jobs, who may come in, and nothing left behind
    drain      the worker command that is measured, with an idle queue and with a backlog
    worker     what runs in it
    tasks      the tasks of the jobs, known to the bench's own workers only, and the memory that it shares with them
    report     how much of what, and what comes out; WAL and CPU
"""
