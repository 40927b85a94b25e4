"""What staff may do: the verbs of ``lifecycle/`` in the words of the admin, from the button to the answer.

::

    verb        what a verb is
      jobs      those for jobs
      queues    those for queues
      schedules those for schedules
      workers   that for workers
    table       a table with verbs: who may, and where
    actions     choose, confirm, perform, tell
    matching    the same for everything that matches
      filtered  a filter in words
"""
