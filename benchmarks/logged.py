"""Settings of workers whose jobs log: lines that are not made, written, or written and captured, as LOGS says."""

import os

from benchmarks.settings import *  # noqa: F403

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"lines": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"file": {"class": "logging.FileHandler", "filename": os.devnull, "formatter": "lines"}},
    "loggers": {"benchmarks": {"level": "WARNING" if os.environ["LOGS"] == "silent" else "INFO", "handlers": ["file"]}},
}
if os.environ["LOGS"] == "captured":
    PGQUEUE = {"TASK_DEFAULTS": {"capture_logs": "INFO"}}
