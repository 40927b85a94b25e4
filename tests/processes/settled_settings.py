"""Settings of workers whose processes count as settled after a second: only then does their memory count."""

from django_pgqueue.worker import processes
from tests.settings import *  # noqa: F403

processes.SETTLED_SECONDS = 1.0
