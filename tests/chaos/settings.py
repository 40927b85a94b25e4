"""Settings of the workers and producers in a soak."""

import os

import environ

SECRET_KEY = "soak only"
DATABASES = {"default": environ.Env().db("DATABASE_URL")}
DATABASES["default"].setdefault("OPTIONS", {})["application_name"] = os.environ.get("CHAOS_NAME", "chaos")
# No process listens there.
DATABASES["away"] = environ.Env.db_url_config("postgresql://postgres@127.0.0.1:1/away?connect_timeout=1")
INSTALLED_APPS = ["django_pgqueue", "tests.chaos"]
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PGQUEUE = {"LEASE_SECONDS": int(os.environ.get("LEASE_SECONDS", "30"))}
