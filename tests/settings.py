import json
import os

import environ

from tests.conformance import DRIVER
from tests.conformance.drivers import BACKPORT, OURS
from tests.support import template
from tests.support.server import database_url

SECRET_KEY = "tests only"
ALLOWED_HOSTS = ["*"]
DATABASES = {
    "default": environ.Env.db_url_config(database_url()),
    "lite": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:", "TEST": {"DEPENDENCIES": []}},
}
SUFFIX = os.environ.get("TEST_DB_SUFFIX", "")  # for test runs side by side on one server
DATABASES["default"]["TEST"] = {"NAME": f"test_pgqueue{SUFFIX}"}
DATABASES["other"] = {**DATABASES["default"], "TEST": {"NAME": f"test_pgqueue_other{SUFFIX}"}}
if "TEST_TEMPLATES" in os.environ:  # of a server that has them
    for alias, name in template.DATABASES.items():
        DATABASES[alias]["TEST"]["TEMPLATE"] = name
if "LISTEN_DATABASE_URL" in os.environ:  # of workers behind a pooler
    DATABASES["direct"] = environ.Env().db("LISTEN_DATABASE_URL")
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django_pgqueue",
    "django_pgqueue.contrib.cutover",
    "django_pgqueue.outbox",
    "tests.app",
]
INSTALLED_APPS += DRIVER.installed()
TASKS = {
    **DRIVER.tasks(),  # of the backend that tests/conformance is to test: ours, unless --backend names another one
    "patient": {
        "BACKEND": OURS,
        "QUEUES": [],
        "OPTIONS": {"max_attempts": 3, "backoff": 0, "task_modules": ["tests.app.contract"]},
    },
    "dummy": {"BACKEND": f"{'django_tasks' if BACKPORT else 'django.tasks'}.backends.dummy.DummyBackend"},
}
MIDDLEWARE = [
    "tests.browser.policy.strict_policy",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
MAILERS = {"default": {}, "smtp": {}}  # of Django 6.1; without them it warns of each mail
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"
USE_TZ = True
TIME_ZONE = "Europe/Berlin"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
PGQUEUE = {
    "LEASE_SECONDS": int(os.environ.get("LEASE_SECONDS", "30")),
    "READ_TIMEOUT_SECONDS": 60,  # pages of a machine that is busy with other tests are not stopped
    "LISTEN_DATABASE": "direct" if "direct" in DATABASES else None,
    **json.loads(os.environ.get("PGQUEUE", "{}")),
}
