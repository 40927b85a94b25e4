"""Settings of workers that add what they have counted after a second, so that a test need not wait for ten."""

from django_pgqueue.jobs import stats
from tests.settings import *  # noqa: F403

stats.ADD_SECONDS = 1.0
