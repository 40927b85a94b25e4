"""manage.py pgqueue_schedule, as tests type it."""

import io

from django.core.management import call_command


def schedule(*arguments: object) -> str:
    out = io.StringIO()
    call_command("pgqueue_schedule", *map(str, arguments), stdout=out)
    return out.getvalue()
