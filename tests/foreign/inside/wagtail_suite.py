"""Wagtail's settings for its own tests, with its own default for tasks; with ``OURS`` its tasks are our jobs."""

import os

import database

os.environ["DATABASE_ENGINE"] = "django.db.backends.postgresql"  # its settings ask for it

from wagtail.test.settings import *

DATABASES = database.DATABASES
MEDIA_ROOT = os.environ["MEDIA"]
STATIC_ROOT = f"{MEDIA_ROOT}/static"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
if os.environ.get("OURS"):
    INSTALLED_APPS = [*INSTALLED_APPS, "django_pgqueue"]
    TASKS = {"default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend", "ENQUEUE_ON_COMMIT": False}}
    PGQUEUE = {"IMMEDIATE": True, "IMMEDIATE_ERRORS": "log"}
