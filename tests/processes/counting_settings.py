"""Settings of workers that add what they have counted after a second, so that a test need not wait for ten."""

from django_pgqueue.jobs import tally
from tests.settings import *  # noqa: F403

tally.ADD_SECONDS = 1.0
