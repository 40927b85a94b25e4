"""Settings of workers that take others for gone after few seconds, so that a test need not wait for longer."""

import os

from django_pgqueue.maintenance import reaper
from django_pgqueue.worker import heartbeat
from tests.settings import *  # noqa: F403

heartbeat.SILENT_SECONDS = float(os.environ.get("SILENT_SECONDS", "3"))
reaper.SILENT_SECONDS = heartbeat.SILENT_SECONDS
reaper.RECONNECTED_SECONDS = 1.0
reaper.GONE_SECONDS = 1.0
