import os

from database import DATABASES as DATABASES

SECRET_KEY = "tests only"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "post_office",
    *(["shim"] if os.environ.get("SHIM") else []),
    "djcelery_email",
    "letters",
    "django_pgqueue",
]
TEMPLATES = [
    {"BACKEND": f"{backend}Templates", "APP_DIRS": True}
    for backend in (
        "django.template.backends.django.Django",
        "post_office.template.backends.post_office.PostOffice",
    )
]
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DEFAULT_FROM_EMAIL = "shop@example.com"
EMAIL_FILE_PATH = os.environ["MAILBOX"]
EMAIL_BACKEND = "djcelery_email.backends.CeleryEmailBackend"
CELERY_EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
POST_OFFICE = {
    "BACKENDS": {"default": "django.core.mail.backends.filebased.EmailBackend"},
    "DEFAULT_PRIORITY": "medium",
    "CELERY_ENABLED": False,
}
