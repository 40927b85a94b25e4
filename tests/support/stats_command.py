"""manage.py pgqueue_stats, as tests run it, what it prints as texts and cells, and rows that it counts."""

import json
import re
from io import StringIO

from django.core.management import call_command

from django_pgqueue.cli.stats_table import painted


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


def count(sql, queue="default", task="t", **values) -> None:
    """Count something in the last minute that is over, by the database's clock."""
    columns = ", ".join(values)
    sql(
        f"INSERT INTO pgqueue_stats (minute, queue, task, {columns}) VALUES (date_trunc('minute', now()) "
        f"- make_interval(mins => 1), %s, %s, {', '.join(['%s'] * len(values))})",
        *(queue, task, *values.values()),
    )


def up_to_one_second(number: int) -> list[int]:
    return [0] * 9 + [number]
