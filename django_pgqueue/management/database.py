"""What every command asks first: whether the queue's database is there."""

from django.core.management.base import CommandError
from django.db import OperationalError

from django_pgqueue.base.conf import conf
from django_pgqueue.base.exceptions import ConfigurationError
from django_pgqueue.db import postgresql


def check_database(alias: str | None = None) -> None:
    """Raise CommandError unless the queue's database is PostgreSQL, answers, and its tables are there."""
    alias = alias or conf.database
    try:
        connection = postgresql(alias)
        tables = connection.introspection.table_names()
    except ConfigurationError as error:
        raise CommandError(str(error)) from error
    except OperationalError as error:
        raise CommandError(
            f"The database of alias {alias!r} cannot be reached: {str(error).strip()}\n"
            "A worker that is at work waits for it to come back; one that starts leaves that to whatever started it."
        ) from error
    if "pgqueue_jobs" not in tables:
        name = connection.settings_dict["NAME"]
        raise CommandError(
            f"There is no table pgqueue_jobs in {name!r} (alias {alias!r}). "
            f"Run: manage.py migrate django_pgqueue --database {alias}"
        )
