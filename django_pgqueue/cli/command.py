import os
import sys
from typing import Any

import psycopg
from django.core.management.base import BaseCommand, CommandError
from django.db import Error

from django_pgqueue.db.queries import TookTooLong
from django_pgqueue.exceptions import PgQueueError


class QueueCommand(BaseCommand):
    """A command whose errors are one sentence, and which ends quietly when its reader does: ``head`` for example."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            output = super().execute(*args, **options)
            self.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # unflushed output goes nowhere
            return None
        except (Error, psycopg.Error, TookTooLong, PgQueueError) as error:
            raise CommandError(str(error).strip()) from error
        return output
