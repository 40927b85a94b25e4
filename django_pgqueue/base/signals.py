"""What happens to jobs, as Django signals. The sender is the task's name (``str``) or ``None`` where it is not known.

==================  ======================================  ==========================================
signal              sent by                                 arguments
==================  ======================================  ==========================================
``job_enqueued``    the caller of enqueue, in its           ``ids``, ``task``, ``queue``, ``database``
                    transaction, after the insert
``job_started``     the slot, before the task is called     ``job``
``job_finished``    the slot, after the call, before the    ``job``, ``outcome``
                    outcome is written
==================  ======================================  ==========================================

Receivers run in the thread of the sender. An exception in one is logged and harms nothing.
"""

from django.dispatch import Signal

job_enqueued = Signal()
job_started = Signal()
job_finished = Signal()
