INSTALLED_APPS = ["django.contrib.contenttypes", "django_pgqueue", "shop"]
SECRET_KEY = "types only"
USE_TZ = True
