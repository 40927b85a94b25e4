"""Settings of workers that take others for gone after few seconds, so that a test need not wait for longer."""

import os

from django_pgqueue.runtime import session
from tests.settings import *  # noqa: F403

session.SILENT_SECONDS = float(os.environ.get("SILENT_SECONDS", "3"))
session.GONE_SECONDS = 1.0
session.RECONNECTED_SECONDS = 1.0
