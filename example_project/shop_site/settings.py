"""Settings of a small shop. What differs from place to place is read from the environment, or from ``.env`` beside."""

import os
from pathlib import Path

import environ

from django_pgqueue.embedded import embedded_database_url

PROJECT = Path(__file__).resolve().parent.parent
environ.Env.read_env(PROJECT / ".env")
env = environ.Env()

VAR = Path(env("SHOP_VAR", default=str(PROJECT / "var"))).resolve()
"""Everything that is written: database, uploads, mails, logs."""

if "DATABASE_URL" not in os.environ:  # set in the environment, so that processes started from here share the server
    os.environ["DATABASE_URL"] = embedded_database_url(VAR / "postgres")

DATABASES = {"default": env.db("DATABASE_URL")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

DEBUG = env.bool("DEBUG", default=True)  # so that runserver serves styles and uploads; False where others can reach it
SECRET_KEY = env("SECRET_KEY", default="for this computer only")
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]"])

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django_pgqueue",
    "shop",
    "demo",  # the world around the shop: customers, a courier, a mail server
]
PGQUEUE = {"DATABASE": "default"}  # every key is optional

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "shop_site.policy.content_security_policy",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
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
ROOT_URLCONF = "shop_site.urls"
WSGI_APPLICATION = "shop_site.wsgi.application"
USE_TZ = True
TIME_ZONE = env("TIME_ZONE", default="UTC")

STATIC_URL = "static/"
MEDIA_URL = "media/"
MEDIA_ROOT = VAR / "media"

EMAIL_HOST = env("EMAIL_HOST", default="127.0.0.1")
EMAIL_PORT = env.int("EMAIL_PORT", default=8025)
EMAIL_TIMEOUT = 10  # seconds; without it a silent mail server would hold a worker's slot for ever
DEFAULT_FROM_EMAIL = "Small Hours <shop@smallhours.example>"

COURIER_URL = env("COURIER_URL", default="http://127.0.0.1:8000/demo/courier/parcels/")
"""Where the shop's webhooks go."""
MAIL_FOLDER = VAR / "mails"
"""Where the demo's mail server puts what it receives."""
