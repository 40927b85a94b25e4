"""Settings of workers whose processes count as settled after a second: only then does their memory count."""

from django_pgqueue.runtime import process
from tests.settings import *  # noqa: F403

process.SETTLED_SECONDS = 1.0
