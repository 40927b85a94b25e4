"""Settings of workers that look after the tables by another role than they work by."""

import os

import environ

from tests.settings import *  # noqa: F403

PGQUEUE = {"VACUUM_DEAD_ROWS": int(os.environ["VACUUM_DEAD_ROWS"])}
if "OWNER_URL" in os.environ:
    DATABASES["owner"] = environ.Env().db("OWNER_URL")  # noqa: F405
    PGQUEUE["MAINTENANCE_DATABASE"] = "owner"
