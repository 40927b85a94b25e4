from database import DATABASES as DATABASES
from huey import MemoryHuey

SECRET_KEY = "tests only"
USE_TZ = True
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django_q",
    "procrastinate.contrib.django",
    "django_pgqueue",
    "django_pgqueue.contrib.cutover",
    "shop",
]
HUEY = MemoryHuey()
Q_CLUSTER = {"name": "shop", "orm": "default", "workers": 1, "timeout": 1, "retry": 2, "poll": 0.05}
