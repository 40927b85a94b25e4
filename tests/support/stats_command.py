"""manage.py pgqueue_stats, as tests run it, and what it prints as texts and cells."""

import json
import re
from io import StringIO

from django.core.management import call_command

from django_pgqueue.cli.stats import painted


def run(*words, **options) -> str:
    out = StringIO()
    call_command("pgqueue_stats", *words, stdout=out, **options)
    return out.getvalue()


def told(*words) -> dict:
    return json.loads(run("--json", *words))


def texts(lines) -> list[str]:
    return [painted(line, has_colours=False) for line in lines]


def cells(line: str) -> list[str]:
    return re.split(r" {2,}", line.strip())
