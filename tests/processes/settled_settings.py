"""Settings of workers whose processes count as settled after a second: only then does their memory count."""

from django_pgqueue.worker import worker_process
from tests.settings import *  # noqa: F403

worker_process.SETTLED_SECONDS = 1.0
