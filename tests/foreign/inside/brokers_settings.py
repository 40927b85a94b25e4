from database import DATABASES as DATABASES

SECRET_KEY = "tests only"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "shop", "django_pgqueue"]
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
