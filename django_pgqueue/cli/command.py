import os
import sys
import traceback
from typing import Any

import psycopg
from django.core.management.base import BaseCommand, CommandError, OutputWrapper
from django.db import Error

from django_pgqueue.db.errors import one_line
from django_pgqueue.db.queries import TookTooLong
from django_pgqueue.exceptions import PgQueueError


class QueueCommand(BaseCommand):
    """A command whose errors are one sentence, and which ends quietly when its reader does: ``head`` for example."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except BrokenPipeError as error:
            if not _is_of_output(error):
                raise
            return None
        except (Error, psycopg.Error, TookTooLong, PgQueueError) as error:
            raise CommandError(explained(error)) from error
        finally:
            self._flush()

    def _flush(self) -> None:
        """Write the rest; where nothing reads it, keep Python from complaining of that as the process ends."""
        out: Any = self.stdout
        try:
            out.flush()
        except BrokenPipeError:
            if out._out is sys.__stdout__:  # noqa: SLF001 - there is no other way to know
                os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())


def _is_of_output(error: BrokenPipeError) -> bool:
    """Whether an error was raised as a command wrote its output, and not by another pipe."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_code in {OutputWrapper.write.__code__, OutputWrapper.flush.__code__}


def explained(error: BaseException) -> str:
    """Return what an error says, and the notes with remedies that were added to it."""
    text = one_line(error) if isinstance(error, Error | psycopg.Error) else str(error).strip()
    return " ".join([text, *getattr(error, "__notes__", ())])
