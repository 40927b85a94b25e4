"""Settings of workers that fetch far ahead on a slow machine too."""

from django_pgqueue.worker import prefetch
from tests.settings import *  # noqa: F403

prefetch.LEAST_SECONDS = prefetch.MOST_SECONDS = 5.0
