"""The database of a suite, by the variables that libpq reads too."""

import os

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ["PGDATABASE"],
        "HOST": os.environ["PGHOST"],
        "USER": os.environ.get("PGUSER", ""),
        "PORT": os.environ.get("PGPORT", ""),
        "PASSWORD": os.environ.get("PGPASSWORD", ""),
        "TEST": {
            "NAME": f"{os.environ['PGDATABASE']}_{os.environ.get('SUITE', 'test')}",
            "TEMPLATE": os.environ.get("TEMPLATE"),
            "MIGRATE": "TEMPLATE" not in os.environ,
        },
    }
}
