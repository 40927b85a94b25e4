"""manage.py pgqueue_schedules, as tests type it."""

import io

from django.core.management import call_command


def schedule(*arguments: object) -> str:
    out = io.StringIO()
    call_command("pgqueue_schedules", *map(str, arguments), stdout=out)
    return out.getvalue()
