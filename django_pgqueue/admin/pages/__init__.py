"""Pages besides the lists, and forms.

::

    job            the page of one job, whichever table it is in
    retry          retry a dead job with changed arguments
      retry_form   and the form of that
    causes         dead jobs by cause
    schedule_form  the form of a schedule
    schedule_runs  the jobs of a schedule
    queue_form     the limits of a queue
"""
