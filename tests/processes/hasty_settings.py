"""Settings of workers that take others for gone after few seconds, so that a test need not wait for longer."""

from django_pgqueue.runtime import session
from tests.settings import *  # noqa: F403

session.SILENT_SECONDS, session.GONE_SECONDS = 3.0, 1.0
session.RECONNECTED_SECONDS = 1.0
