"""Settings of workers whose consumers do not come to the end of their first cycle before a job runs, and holds the
interpreter.
"""

import time

from django_pgqueue.worker.shared_state import SharedState
from tests.settings import *  # noqa: F403

count_cycle = SharedState.count_cycle


def count_cycle_beside_a_job(self):
    while not self.cycles() and not self.running():
        time.sleep(0.01)
    time.sleep(0.5)
    count_cycle(self)


SharedState.count_cycle = count_cycle_beside_a_job
