"""What staff see and do, whether by the commands or in the admin: words into values, and rows into words.

::

    pgqueue_jobs
      arguments   the options of each verb
      words       what is typed into values, each error naming the value and the remedy
      new         enqueue
      listing     which jobs are there?
      rows        what a list says of a job
      story       everything about one job
      why         why is it where it is?
      line        what stands between it and its start
      gate        and what of its queue's gate
      timeline    what has happened to it, step by step
      history     the entries that its row keeps of that
      sentence    what all these say, with what it refers to
      masked      its arguments, to be edited by who may not see all of them
      many        act on many, in slices
      verbs       what can be done to them
    queues        what is said of queues, by pgqueue_queues and the admin
    flow          how much goes through the queues, how fast and how well
    recent        what goes on at the moment, and how long jobs wait and run
    overview      how all queues stand, each number bounded
    measures      the same in one look, shared for a second, for metrics
    glance        all of that in a terminal, by pgqueue_stats
    health        what is wrong, and what to do about it
    schedules     what is said of schedules, by pgqueue_schedule and the admin
    workers       what is said of worker processes
    causes        what jobs have died of
    operations    what is said of what is done to many jobs in the background
    retention     what is said of history and of the tables' care, by pgqueue_retention
    bounded       reading that ends
    figures       numbers in somebody's language
    terminal      who sits there, what is asked, and text that is fit to be read there
"""
