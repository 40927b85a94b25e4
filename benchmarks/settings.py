"""A Django project with nothing but the queue and one table, on a database of its own."""

import os
from pathlib import Path

import environ

from django_pgqueue.embedded import embedded_database_url

ROOT = Path(__file__).parent.parent

if "DATABASE_URL" not in os.environ:  # worker processes that benchmarks start inherit it
    os.environ["DATABASE_URL"] = embedded_database_url(ROOT / ".postgres")

SECRET_KEY = "benchmarks only"
DATABASES = {
    "default": environ.Env().db("DATABASE_URL") | {"NAME": "pgqueue_bench"},
    "data": environ.Env().db("DATABASE_URL") | {"NAME": "pgqueue_bench_data"},  # of a project that has an outbox
}
DATABASE_ROUTERS = ["django_pgqueue.routers.PgQueueRouter"]
INSTALLED_APPS = ["django_pgqueue", "django_pgqueue.outbox", "benchmarks"]
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
