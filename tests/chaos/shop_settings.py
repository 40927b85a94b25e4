"""The example shop with two databases of the queue: its data and most jobs are on one, its mails go by an outbox."""

import os

import environ
from shop_site.settings import *  # noqa: F403
from shop_site.settings import INSTALLED_APPS as SHOP_APPS

DATABASES = {"default": environ.Env().db("DATABASE_URL"), "queue_2": environ.Env().db("QUEUE_2_URL")}
DATABASE_ROUTERS = ["django_pgqueue.routers.PgQueueRouter"]
INSTALLED_APPS = [*SHOP_APPS, "django_pgqueue.outbox"]
PGQUEUE = {
    "DATABASE": "default",
    "SHARDS": {"queue_2": {"number": 1, "queues": ["mails"]}},
    "OUTBOXES": {"default": 0},
}
ALLOWED_HOSTS = ["testserver"]
EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
COURIER_URL = os.environ.get("COURIER_URL", "")
