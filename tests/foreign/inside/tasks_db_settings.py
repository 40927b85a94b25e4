from database import DATABASES as DATABASES

SECRET_KEY = "tests only"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django_tasks_db",
    "django_pgqueue",
]
SILENCED_SYSTEM_CHECKS = [
    "admin.E403",
    "admin.E406",
    "admin.E408",
    "admin.E409",
    "admin.E410",
    "admin.W411",
]  # it is not opened
TASKS = {"default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend", "QUEUES": []}}
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
