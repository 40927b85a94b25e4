"""Settings of workers whose consumers do not come to the end of their first turn before a job runs, and holds the
interpreter.
"""

import time

from django_pgqueue.worker.shared_state import SharedState
from tests.settings import *  # noqa: F403

turned = SharedState.turned


def turned_beside_a_job(self):
    while not self.turns() and not self.running():
        time.sleep(0.01)
    time.sleep(0.5)
    turned(self)


SharedState.turned = turned_beside_a_job
