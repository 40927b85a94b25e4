from database import DATABASES as DATABASES

SECRET_KEY = "tests only"
INSTALLED_APPS = ["django_pgqueue"]
USE_TZ = False
TASKS = {"default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
