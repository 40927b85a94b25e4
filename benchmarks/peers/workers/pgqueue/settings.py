"""A Django project with nothing but the queue; the benchmark says which database."""

import os

SECRET_KEY = "benchmarks only"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        **{key: os.environ.get(f"PG{key}", "") for key in ("HOST", "PORT", "USER", "PASSWORD")},
        "NAME": os.environ["PGDATABASE"],
        "CONN_MAX_AGE": None,
    }
}
INSTALLED_APPS = ["django_pgqueue", "benchmarks.peers.workers.pgqueue"]
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
