"""Settings of a command that serves two databases, one of them on a server that may be stopped."""

import os

import environ

from django_pgqueue.conf import SLOTS
from tests.settings import *  # noqa: F403
from tests.support.waiting import PATIENCE_SECONDS

CONNECT_SECONDS = int(PATIENCE_SECONDS)
DATABASES["other"] = environ.Env().db("OTHER_URL") | {"OPTIONS": {"connect_timeout": CONNECT_SECONDS}}  # noqa: F405
PGQUEUE = {
    "POLL_SECONDS": 0.2,
    "SHARDS": {
        "default": {"number": 0, "queues": ["spread"], "slots": range(SLOTS // 2)},
        "other": {"number": 1, "queues": ["spread"], "slots": range(SLOTS // 2, SLOTS)},
    },
}
os.environ["PGCONNECT_TIMEOUT"] = str(CONNECT_SECONDS)
